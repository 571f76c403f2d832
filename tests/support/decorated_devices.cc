#include "tests/support/decorated_devices.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "device/cpu/cpu_launch.h"
#include "device/faulty/faulty_device.h"
#include "device/registry.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/ops/matmul.h"
#include "tensor/quants.h"

namespace tessera {
namespace {

class QueuedDevice final : public Device {
 public:
  QueuedDevice(std::unique_ptr<Device> inner, std::unique_ptr<Queue> queue)
      : inner_(std::move(inner)), queue_(std::move(queue)) {}
  [[nodiscard]] const DeviceInfo& info() const override { return inner_->info(); }
  [[nodiscard]] uint64_t budget_bytes() const override { return inner_->budget_bytes(); }
  [[nodiscard]] uint64_t used_bytes() const override { return inner_->used_bytes(); }
  [[nodiscard]] uint64_t spare_bytes() const override { return inner_->spare_bytes(); }
  Result<std::unique_ptr<MemoryRange>> reserve(uint64_t max_bytes, std::string purpose) override {
    return inner_->reserve(max_bytes, std::move(purpose));
  }
  Queue& compute_queue() override { return *queue_; }
  Result<std::unique_ptr<Queue>> make_queue() override { return inner_->make_queue(); }

 private:
  std::unique_ptr<Device> inner_;
  std::unique_ptr<Queue> queue_;
};

class RegriddedDevice final : public Device {
 public:
  RegriddedDevice(std::unique_ptr<Device> inner, uint64_t unit_bytes)
      : inner_(std::move(inner)), info_(inner_->info()) {
    info_.unit_bytes = unit_bytes;
  }
  [[nodiscard]] const DeviceInfo& info() const override { return info_; }
  [[nodiscard]] uint64_t budget_bytes() const override { return inner_->budget_bytes(); }
  [[nodiscard]] uint64_t used_bytes() const override { return inner_->used_bytes(); }
  [[nodiscard]] uint64_t spare_bytes() const override { return inner_->spare_bytes(); }
  Result<std::unique_ptr<MemoryRange>> reserve(uint64_t max_bytes, std::string purpose) override {
    return inner_->reserve(max_bytes, std::move(purpose));
  }
  Queue& compute_queue() override { return inner_->compute_queue(); }
  Result<std::unique_ptr<Queue>> make_queue() override { return inner_->make_queue(); }

 private:
  std::unique_ptr<Device> inner_;
  DeviceInfo info_;
};

// Partial results of the threads of one running product.
struct SplitProduct {
  std::vector<std::vector<float>> partials;  // by thread
  int n_arrived = 0;
};
std::mutex split_mutex;
std::map<const void*, SplitProduct> split_products;  // by the product's arguments

// This thread's part of every sum: columns [n * thread / n_threads, …) of each panel, whole blocks.
std::vector<float> partial_sums(const MatmulArgs& args, int64_t n_rows, const CpuLaunch& cpu) {
  std::vector<float> sums;
  std::vector<float> weights;
  for (const MatmulPanel& panel : args.panels) {
    const CpuShare part = cpu_share(cpu, panel.columns, dtype_info(panel.dtype).block_elems);
    const uint64_t row = row_bytes(panel.dtype, static_cast<uint64_t>(panel.columns));
    weights.resize(static_cast<size_t>(panel.columns));
    for (int64_t r = 0; r < panel.rows; ++r) {
      dequantize_row(panel.dtype, static_cast<const std::byte*>(panel.weights) + static_cast<uint64_t>(r) * row,
                     weights.data(), panel.columns);
      for (int64_t t = 0; t < n_rows; ++t) {
        const float* x = args.x + t * args.x_stride + panel.column_begin;
        float sum = 0;
        for (int64_t k = part.begin; k < part.end; ++k) {
          sum += weights[static_cast<size_t>(k)] * x[k];
        }
        sums.push_back(sum);
      }
    }
  }
  return sums;
}

void matmul_split_k(void* launch, const void* raw_args, const LaunchSizes& sizes) {
  const auto& cpu = *static_cast<const CpuLaunch*>(launch);
  const auto& args = *static_cast<const MatmulArgs*>(raw_args);
  const int64_t n_rows = args.per_output ? sizes.n_outputs : sizes.n_tokens;
  std::vector<float> mine = partial_sums(args, n_rows, cpu);
  const std::lock_guard lock(split_mutex);
  SplitProduct& product = split_products[raw_args];
  product.partials.resize(static_cast<size_t>(cpu.n_threads));
  product.partials[static_cast<size_t>(cpu.thread)] = std::move(mine);
  if (++product.n_arrived < cpu.n_threads) {
    return;
  }
  size_t i = 0;
  for (const MatmulPanel& panel : args.panels) {
    for (int64_t r = 0; r < panel.rows; ++r) {
      for (int64_t t = 0; t < n_rows; ++t, ++i) {
        float sum = 0;
        for (const std::vector<float>& partial : product.partials) {
          sum += partial[i];
        }
        panel.y[t * panel.y_stride + r] = sum;
      }
    }
  }
  split_products.erase(raw_args);
}

class SplitKQueue final : public ForwardingQueue {
 public:
  using ForwardingQueue::ForwardingQueue;
  void submit(std::shared_ptr<const CommandList> list, const LaunchSizes& sizes) override {
    const KernelFn scalar = (*cpu_kernel_table(CpuKernelSet::kScalar, CpuIsa::kPortable))->find(Op::kMatmul);
    auto changed = std::make_shared<CommandList>(*list);
    for (Command& command : *changed) {
      command.kernel = command.kernel == scalar ? matmul_split_k : command.kernel;
    }
    inner().submit(std::move(changed), sizes);
  }
};

class WaitlessQueue final : public ForwardingQueue {
 public:
  using ForwardingQueue::ForwardingQueue;
  void wait(const Event& /*event*/) override {}
};

}  // namespace

DeviceOpener decorated(std::function<std::unique_ptr<Device>(size_t index, std::unique_ptr<Device> device)> decorate) {
  return [decorate = std::move(decorate)](const DeviceOptions& options) -> Result<DeviceSet> {
    ASSIGN_OR_RETURN(DeviceSet set, open_devices(options));
    for (size_t i = 0; i < set.devices.size(); ++i) {
      set.devices[i] = decorate(i, std::move(set.devices[i]));
    }
    return set;
  };
}

std::unique_ptr<Device> with_queue(std::unique_ptr<Device> device,
                                   const std::function<std::unique_ptr<Queue>(Queue& inner)>& make_queue) {
  auto queue = make_queue(device->compute_queue());
  return std::make_unique<QueuedDevice>(std::move(device), std::move(queue));
}

std::unique_ptr<Device> with_unit(std::unique_ptr<Device> device, uint64_t unit_bytes) {
  return std::make_unique<RegriddedDevice>(std::move(device), unit_bytes);
}

std::unique_ptr<Device> with_split_k(std::unique_ptr<Device> device) {
  return with_queue(std::move(device), [](Queue& inner) { return std::make_unique<SplitKQueue>(inner); });
}

std::unique_ptr<Device> without_waits(std::unique_ptr<Device> device, uint64_t seed) {
  FaultPlan plan;
  plan.seed = seed;
  plan.delay_probability = 0.3;
  plan.max_delay_us = 300;
  auto delayed = std::make_unique<FaultyDevice>(std::move(device), plan);
  return with_queue(std::move(delayed), [](Queue& inner) { return std::make_unique<WaitlessQueue>(inner); });
}

}  // namespace tessera
