#include "sha256.h"

#include <new>
#include <sha2.h>

namespace tessera {
namespace {

SHA2_CTX* context_in(std::array<std::byte, 256>& storage) {
  static_assert(sizeof(SHA2_CTX) <= 256 && alignof(SHA2_CTX) <= 8);
  return std::launder(reinterpret_cast<SHA2_CTX*>(storage.data()));
}

}  // namespace

std::string hex(const Sha256Digest& digest) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const uint8_t byte : digest) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

Sha256::Sha256() {
  new (context_.data()) SHA2_CTX;
  SHA256Init(context_in(context_));
}

void Sha256::update(std::span<const std::byte> bytes) {
  SHA256Update(context_in(context_), reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
}

Sha256Digest Sha256::finish() {
  Sha256Digest digest;
  SHA256Final(digest.data(), context_in(context_));
  return digest;
}

}  // namespace tessera
