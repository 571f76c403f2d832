#include "kernels/ops/expert_upload.h"

#include <algorithm>

#include "device/cpu/cpu_launch.h"
#include "kernels/cpu/rows.h"

namespace tessera {
namespace {

constexpr int64_t kGrainBytes = 4096;

/// Every thread ranks the experts for itself and copies its share of each; the first one writes the table.
void expert_upload(void* launch, const void* raw_args, const LaunchSizes& /*sizes*/) {
  const auto& cpu = *static_cast<const CpuLaunch*>(launch);
  const auto& args = *static_cast<const ExpertUploadArgs*>(raw_args);
  int64_t rank = 0;
  for (int64_t e = 0; e < args.n_experts; ++e) {
    const bool drawn = args.begins[e + 1] > args.begins[e];
    const int64_t slot = rank - args.first_rank;
    const bool brought = drawn && slot >= 0 && slot < args.n_slots;
    rank += drawn ? 1 : 0;
    if (cpu.thread == 0) {
      args.table[e] = brought ? static_cast<int32_t>(slot) : -1;
    }
    for (const ExpertPart& part : args.parts) {
      if (brought) {
        const CpuShare bytes = cpu_share(cpu, part.bytes, kGrainBytes);
        const std::byte* from = part.sources[static_cast<size_t>(e)];
        std::copy(from + bytes.begin, from + bytes.end,
                  args.slots + slot * args.slot_bytes + part.offset + bytes.begin);
      }
    }
  }
}

}  // namespace

/// One kernel for every set: it only copies.
void append_expert_upload_rows(CpuKernelSet /*set*/, CpuIsa /*isa*/, std::vector<KernelRow>& rows) {
  rows.push_back({Op::kExpertUpload, DType::kF32, DType::kF32, expert_upload});
}

}  // namespace tessera
