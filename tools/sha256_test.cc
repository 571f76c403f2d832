#include "sha256.h"

#include <gtest/gtest.h>
#include <string>
#include <string_view>

namespace tessera {
namespace {

std::span<const std::byte> bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

std::string digest_of(std::string_view text) {
  Sha256 sha;
  sha.update(bytes(text));
  return hex(sha.finish());
}

// FIPS 180-4, examples of the standard.
TEST(Sha256, KnownDigests) {
  EXPECT_EQ(digest_of(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(digest_of("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(digest_of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
}

TEST(Sha256, PiecesMakeNoDifference) {
  const std::string text(1000, 'x');
  Sha256 sha;
  for (size_t begin = 0, n = 1; begin < text.size(); begin += n, ++n) {
    sha.update(bytes(std::string_view(text).substr(begin, n)));
  }
  EXPECT_EQ(hex(sha.finish()), digest_of(text));
}

TEST(Sha256, CopiesGoTheirOwnWays) {
  Sha256 sha;
  sha.update(bytes("ab"));
  Sha256 copy = sha;
  copy.update(bytes("x"));
  sha.update(bytes("c"));
  EXPECT_EQ(hex(sha.finish()), digest_of("abc"));
  EXPECT_EQ(hex(copy.finish()), digest_of("abx"));
}

}  // namespace
}  // namespace tessera
