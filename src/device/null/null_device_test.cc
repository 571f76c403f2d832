#include "device/null/null_device.h"

#include <gtest/gtest.h>

#include "device/test_kernels.h"

namespace tessera {
namespace {

std::unique_ptr<NullDevice> make(const NullDeviceOptions& options) {
  auto device = NullDevice::create(options);
  EXPECT_TRUE(device.ok());
  return std::move(device).value();
}

TEST(NullDevice, CountsMemoryWithoutHavingAny) {
  constexpr uint64_t kPart = uint64_t{16} << 30;  // a size for which sanitizers have room too
  const auto device = make({.name = "null:3", .budget_bytes = 3 * kPart});
  EXPECT_EQ(device->info().name, "null:3");
  auto weights = device->reserve(4 * kPart, "weights");
  auto kv = device->reserve(kPart, "kv");
  ASSERT_TRUE(weights.ok() && kv.ok());
  EXPECT_NE((*weights)->base(), nullptr);
  EXPECT_NE((*weights)->base(), (*kv)->base());
  EXPECT_TRUE((*weights)->resize(3 * kPart).ok());
  const Status status = (*kv)->resize(1);
  EXPECT_EQ(status.code(), ErrorCode::kDoesNotFit);
  EXPECT_NE(status.message().find("null:3"), std::string::npos);
  EXPECT_TRUE((*weights)->resize(kPart).ok());
  EXPECT_TRUE((*kv)->resize(kPart).ok());
  EXPECT_EQ((*kv)->resize(kPart + 1).code(), ErrorCode::kDoesNotFit) << "beyond its reservation";
  EXPECT_EQ(device->used_bytes(), 2 * kPart);
  kv->reset();
  EXPECT_EQ(device->used_bytes(), kPart);
  EXPECT_EQ(device->reserve(uint64_t{1} << 60, "kv").status().code(), ErrorCode::kOutOfMemory);
}

TEST(NullDevice, CountsCommandsInsteadOfRunningThem) {
  const auto device = make({});
  Command kernel = test::mix(nullptr, nullptr, 100);  // fatal if it ran
  Command fixed = test::copy(nullptr, nullptr, 100);
  fixed.copy.rows = 3;
  Command per_token = fixed;
  per_token.copy.count = RowCount::kTokens;
  const auto list = test::list({kernel, fixed, per_token, kernel, kernel});
  Queue& queue = device->compute_queue();
  queue.submit(list, {.n_tokens = 7});
  queue.submit(list, {.n_tokens = 1});
  bool called = false;
  queue.submit_host([&] {
    called = true;
    return Status(ErrorCode::kIo, "stop");
  });
  queue.submit(list, {.n_tokens = 7});
  EXPECT_EQ(queue.synchronize().message(), "stop");
  EXPECT_TRUE(called);
  auto further = device->make_queue();
  ASSERT_TRUE(further.ok());
  (*further)->submit(test::list({fixed}), {});
  EXPECT_TRUE((*further)->synchronize().ok()) << "the other queue's failure is not its own";
  const NullCounts counts = device->counts();
  EXPECT_EQ(counts.n_lists, 3U);
  EXPECT_EQ(counts.n_kernels, 6U);
  EXPECT_EQ(counts.n_copies, 5U);
  EXPECT_EQ(counts.copy_bytes, 300U + 700U + 300U + 100U + 300U);
}

}  // namespace
}  // namespace tessera
