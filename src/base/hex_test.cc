#include "base/hex.h"

#include <gtest/gtest.h>
#include <string_view>

namespace tessera {
namespace {

TEST(Hex, ADigitOfEitherCaseAndNothingElse) {
  constexpr std::string_view kLower = "0123456789abcdef";
  constexpr std::string_view kUpper = "0123456789ABCDEF";
  for (int byte = -128; byte < 128; ++byte) {
    const auto c = static_cast<char>(byte);
    const size_t place = kLower.find(c) != std::string_view::npos ? kLower.find(c) : kUpper.find(c);
    EXPECT_EQ(hex_value(c), place == std::string_view::npos ? -1 : static_cast<int>(place)) << byte;
  }
}

}  // namespace
}  // namespace tessera
