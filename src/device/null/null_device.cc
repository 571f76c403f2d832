#include "device/null/null_device.h"

#include <algorithm>
#include <cerrno>
#include <fmt/core.h>
#include <mutex>
#include <sys/mman.h>
#include <system_error>
#include <utility>

#include "device/copy_rows.h"

namespace tessera {
namespace {

class NullMemory final : public MemoryRange {
 public:
  NullMemory(std::shared_ptr<MemoryBudget> budget, std::string purpose, void* base, uint64_t reserved_bytes)
      : budget_(std::move(budget)), purpose_(std::move(purpose)), base_(base), reserved_bytes_(reserved_bytes) {}
  ~NullMemory() override {
    munmap(base_, std::max<uint64_t>(reserved_bytes_, 1));
    budget_->give_back(committed_bytes_);
  }
  NullMemory(const NullMemory&) = delete;
  NullMemory& operator=(const NullMemory&) = delete;

  [[nodiscard]] std::byte* base() const override { return static_cast<std::byte*>(base_); }
  [[nodiscard]] uint64_t reserved_bytes() const override { return reserved_bytes_; }
  [[nodiscard]] uint64_t committed_bytes() const override {
    const std::lock_guard lock(mutex_);
    return committed_bytes_;
  }
  Status resize(uint64_t bytes) override {
    const std::lock_guard lock(mutex_);
    if (bytes > reserved_bytes_) {
      return {ErrorCode::kDoesNotFit, fmt::format("device {}: {} asks for {} of a range of {}", budget_->device(),
                                                  purpose_, mib_text(bytes), mib_text(reserved_bytes_))};
    }
    if (bytes > committed_bytes_) {
      TRY(budget_->take(bytes - committed_bytes_, purpose_));
    } else {
      budget_->give_back(committed_bytes_ - bytes);
    }
    committed_bytes_ = bytes;
    return {};
  }
  void shrink(uint64_t bytes, uint64_t /*most_spare*/) override {
    CHECK(bytes <= committed_bytes());
    CHECK(resize(bytes).ok());
  }

 private:
  const std::shared_ptr<MemoryBudget> budget_;
  const std::string purpose_;
  void* const base_;
  const uint64_t reserved_bytes_;
  mutable std::mutex mutex_;
  uint64_t committed_bytes_ = 0;
};

}  // namespace

NullDevice::NullDevice(const NullDeviceOptions& options)
    : budget_(std::make_shared<MemoryBudget>(options.name, options.budget_bytes)) {
  info_.name = options.name;
  info_.description = "computes nothing";
  info_.kernel_class = options.kernel_class;
  info_.unit_bytes = options.unit_bytes;
}

Result<std::unique_ptr<NullDevice>> NullDevice::create(const NullDeviceOptions& options) {
  std::unique_ptr<NullDevice> device(new NullDevice(options));
  ASSIGN_OR_RETURN(device->queue_, device->start_queue());
  return device;
}

Result<std::unique_ptr<HostQueue>> NullDevice::start_queue() {
  return HostQueue::start({.name = info_.name},
                          [this](const CommandList& list, const LaunchSizes& sizes) { count(list, sizes); });
}

Result<std::unique_ptr<Queue>> NullDevice::make_queue() {
  ASSIGN_OR_RETURN(std::unique_ptr<Queue> queue, start_queue());
  return queue;
}

Result<std::unique_ptr<MemoryRange>> NullDevice::reserve(uint64_t max_bytes, std::string purpose) {
  void* base =
      mmap(nullptr, std::max<uint64_t>(max_bytes, 1), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) {
    return Status(ErrorCode::kOutOfMemory,
                  fmt::format("device {} cannot reserve {} of address space for {}: {}", info_.name,
                              mib_text(max_bytes), purpose, std::generic_category().message(errno)));
  }
  return std::unique_ptr<MemoryRange>(std::make_unique<NullMemory>(budget_, std::move(purpose), base, max_bytes));
}

void NullDevice::count(const CommandList& list, const LaunchSizes& sizes) {
  uint64_t n_copies = 0;
  uint64_t bytes = 0;
  for (const Command& command : list) {
    if (command.kernel == nullptr) {
      ++n_copies;
      bytes += command.copy.width * copy_rows(command.copy, sizes);
    }
  }
  ++n_lists_;
  n_kernels_ += list.size() - n_copies;
  n_copies_ += n_copies;
  copy_bytes_ += bytes;
}

NullCounts NullDevice::counts() const {
  return {n_lists_, n_kernels_, n_copies_, copy_bytes_};
}

}  // namespace tessera
