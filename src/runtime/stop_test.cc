#include "runtime/stop.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

TEST(StopReason, NamesAreWhatClientsRead) {
  EXPECT_EQ(stop_reason_name(StopReason::kNone), "none");
  EXPECT_EQ(stop_reason_name(StopReason::kEos), "eos");
  EXPECT_EQ(stop_reason_name(StopReason::kLimit), "limit");
  EXPECT_EQ(stop_reason_name(StopReason::kWord), "word");
  EXPECT_EQ(stop_reason_name(StopReason::kCancelled), "cancelled");
  EXPECT_EQ(stop_reason_name(StopReason::kContextFull), "context_full");
}

}  // namespace
}  // namespace tessera
