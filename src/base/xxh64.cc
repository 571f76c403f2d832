#include "base/xxh64.h"

#include <array>
#include <bit>
#include <cstring>

namespace tessera {
namespace {

// The specification's primes.
constexpr uint64_t kPrime1 = 0x9E3779B185EBCA87;
constexpr uint64_t kPrime2 = 0xC2B2AE3D27D4EB4F;
constexpr uint64_t kPrime3 = 0x165667B19E3779F9;
constexpr uint64_t kPrime4 = 0x85EBCA77C2B2AE63;
constexpr uint64_t kPrime5 = 0x27D4EB2F165667C5;
constexpr size_t kStripe = 32;  // bytes: one word for each of four lanes

static_assert(std::endian::native == std::endian::little);

template <typename T>
T read(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

uint64_t round_of(uint64_t lane, uint64_t word) {
  return std::rotl(lane + word * kPrime2, 31) * kPrime1;
}

// The four lanes over all whole stripes, joined.
uint64_t stripes(std::span<const std::byte> bytes, uint64_t seed) {
  std::array<uint64_t, 4> lanes = {seed + kPrime1 + kPrime2, seed + kPrime2, seed, seed - kPrime1};
  for (size_t at = 0; at + kStripe <= bytes.size(); at += kStripe) {
    for (size_t i = 0; i < lanes.size(); ++i) {
      lanes[i] = round_of(lanes[i], read<uint64_t>(bytes.data() + at + i * sizeof(uint64_t)));
    }
  }
  uint64_t hash = std::rotl(lanes[0], 1) + std::rotl(lanes[1], 7) + std::rotl(lanes[2], 12) + std::rotl(lanes[3], 18);
  for (const uint64_t lane : lanes) {
    hash = (hash ^ round_of(0, lane)) * kPrime1 + kPrime4;
  }
  return hash;
}

}  // namespace

uint64_t xxh64(std::span<const std::byte> bytes, uint64_t seed) {
  uint64_t hash = bytes.size() < kStripe ? seed + kPrime5 : stripes(bytes, seed);
  hash += bytes.size();
  const std::byte* at = bytes.data() + bytes.size() / kStripe * kStripe;
  const std::byte* const end = bytes.data() + bytes.size();
  for (; end - at >= 8; at += 8) {
    hash = std::rotl(hash ^ round_of(0, read<uint64_t>(at)), 27) * kPrime1 + kPrime4;
  }
  if (end - at >= 4) {
    hash = std::rotl(hash ^ read<uint32_t>(at) * kPrime1, 23) * kPrime2 + kPrime3;
    at += 4;
  }
  for (; at < end; ++at) {
    hash = std::rotl(hash ^ std::to_integer<uint64_t>(*at) * kPrime5, 11) * kPrime1;
  }
  hash = (hash ^ hash >> 33) * kPrime2;
  hash = (hash ^ hash >> 29) * kPrime3;
  return hash ^ hash >> 32;
}

}  // namespace tessera
