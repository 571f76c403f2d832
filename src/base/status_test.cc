#include "base/status.h"

#include <gtest/gtest.h>
#include <memory>

namespace tessera {
namespace {

Result<int> half(int x) {
  if (x % 2 != 0) {
    return Status(ErrorCode::kInvalidArgument, "odd");
  }
  return x / 2;
}

Result<int> quarter(int x) {
  ASSIGN_OR_RETURN(const int h, half(x));
  return half(h);
}

Status check_quarter(int x) {
  TRY(quarter(x).status());
  return {};
}

TEST(Status, CarriesCodeAndMessageThroughMacros) {
  EXPECT_EQ(quarter(12).value(), 3);
  EXPECT_EQ(quarter(6).status().code(), ErrorCode::kInvalidArgument);
  EXPECT_TRUE(check_quarter(12).ok());
  EXPECT_EQ(check_quarter(6).with_context("six").message(), "six: odd");
}

TEST(Status, HoldsMoveOnlyValues) {
  Result<std::unique_ptr<int>> r(std::make_unique<int>(4));
  std::unique_ptr<int> p = std::move(r).value();
  EXPECT_EQ(*p, 4);
}

}  // namespace
}  // namespace tessera
