#include "device/cpu/cpu_memory.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <fmt/core.h>
#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "base/checked.h"
#include "base/proc.h"

namespace tessera {
namespace {

constexpr uint64_t kHugePageBytes = 2 << 20;  // x86-64, and aarch64 with 4 KiB pages
// Ranges with less in use go without huge pages. They are scratch and caches of small models, of which a few rows here
// and there are in use: whole huge pages around these took 20 MB more than SmolLM2's file of 98 MB and made nothing
// faster.
constexpr uint64_t kHugeRangeBytes = 64 << 20;

// Spreads the pages over memory nodes as they are first touched. A hint, as that for huge pages.
void interleave(std::byte* begin, uint64_t bytes, const CpuList& nodes) {
  std::array<unsigned long, 16> mask{};  // 1024 nodes, the most that Linux can be built for
  constexpr size_t kBits = 8 * sizeof(unsigned long);
  for (const int node : nodes) {
    mask[static_cast<size_t>(node) / kBits] |= 1UL << static_cast<size_t>(node) % kBits;
  }
  if (!nodes.empty()) {
    syscall(SYS_mbind, begin, bytes, MPOL_INTERLEAVE, mask.data(), kBits * mask.size(), 0);
  }
}

}  // namespace

Result<std::unique_ptr<CpuMemory>> CpuMemory::reserve(std::shared_ptr<MemoryBudget> budget, uint64_t max_bytes,
                                                      std::string purpose, const CpuList& interleave_nodes) {
  const auto refuse = [&](int error) {
    return Status(ErrorCode::kOutOfMemory,
                  fmt::format("device {} cannot reserve {} of address space for {}: {}", budget->device(),
                              mib_text(max_bytes), purpose, std::generic_category().message(error)));
  };
  const auto usable = checked_align_up(std::max<uint64_t>(max_bytes, 1), page_bytes());
  const auto mapped = usable ? checked_add(*usable, page_bytes()) : std::nullopt;
  const auto with_slack = mapped ? checked_add(*mapped, kHugePageBytes) : std::nullopt;
  if (!with_slack) {
    return refuse(ENOMEM);
  }
  void* address = mmap(nullptr, *with_slack, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED) {
    return refuse(errno);
  }
  auto* start = static_cast<std::byte*>(address);
  const auto ahead = round_up(reinterpret_cast<uintptr_t>(start), kHugePageBytes) - reinterpret_cast<uintptr_t>(start);
  if (ahead != 0) {
    munmap(start, ahead);
  }
  munmap(start + ahead + *mapped, kHugePageBytes - ahead);

  std::unique_ptr<CpuMemory> memory(new CpuMemory(std::move(budget), std::move(purpose)));
  memory->base_ = start + ahead;
  memory->mapped_bytes_ = *mapped;
  memory->reserved_bytes_ = max_bytes;
  interleave(memory->base_, *mapped, interleave_nodes);
  return memory;
}

CpuMemory::~CpuMemory() {
  budget_->spare().take(committed_end());
  munmap(base_, mapped_bytes_);
  budget_->give_back(committed_bytes_);
}

uint64_t CpuMemory::committed_bytes() const {
  const std::lock_guard lock(mutex_);
  return committed_bytes_;
}

Status CpuMemory::resize(uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (bytes > reserved_bytes_) {
    return {ErrorCode::kDoesNotFit, fmt::format("device {}: {} asks for {} of a range of {}", budget_->device(),
                                                purpose_, mib_text(bytes), mib_text(reserved_bytes_))};
  }
  if (bytes > committed_bytes_) {
    return grow(bytes);
  }
  if (bytes < committed_bytes_) {
    give_back(bytes, 0);
  }
  return {};
}

void CpuMemory::shrink(uint64_t bytes, uint64_t most_spare) {
  const std::lock_guard lock(mutex_);
  CHECK(bytes <= committed_bytes_);
  give_back(bytes, most_spare);
}

std::byte* CpuMemory::committed_end() const {
  return base_ + round_up(committed_bytes_, page_bytes());
}

Status CpuMemory::grow(uint64_t bytes) {
  TRY(budget_->take(bytes - committed_bytes_, purpose_));
  std::byte* const end = base_ + round_up(bytes, page_bytes());
  std::byte* const spare_end = committed_end() + budget_->spare().take(committed_end());
  if (mprotect(base_, static_cast<size_t>(end - base_), PROT_READ | PROT_WRITE) != 0) {
    const int error = errno;
    madvise(committed_end(), static_cast<size_t>(spare_end - committed_end()), MADV_DONTNEED);
    budget_->give_back(bytes - committed_bytes_);
    return {ErrorCode::kOutOfMemory,
            fmt::format("device {}: the system has no {} more for {}: {}", budget_->device(),
                        mib_text(bytes - committed_bytes_), purpose_, std::generic_category().message(error))};
  }
  committed_bytes_ = bytes;
  if (spare_end > end) {
    budget_->spare().keep(end, static_cast<uint64_t>(spare_end - end));
  }
  budget_->drop_excess();
  if (bytes >= kHugeRangeBytes && !huge_) {
    huge_ = true;
    madvise(base_, mapped_bytes_, MADV_HUGEPAGE);  // a hint; without it only speed is lost
  }
  return {};
}

void CpuMemory::give_back(uint64_t bytes, uint64_t most_spare) {
  SparePages& spare = budget_->spare();
  std::byte* const had_end = committed_end() + spare.take(committed_end());
  const uint64_t given = committed_bytes_ - bytes;
  committed_bytes_ = bytes;
  std::byte* const end = committed_end();
  // The rest of the last page stays; it must be zero when the range grows again.
  std::memset(base_ + bytes, 0, static_cast<size_t>(end - (base_ + bytes)));
  const auto had = static_cast<uint64_t>(had_end - end);
  const uint64_t room = most_spare - std::min(most_spare, spare.bytes());
  const uint64_t kept = std::min(had, room / page_bytes() * page_bytes());
  // MADV_DONTNEED frees the pages, also where mprotect, which only guards against stray access, is refused.
  madvise(end + kept, had - kept, MADV_DONTNEED);
  mprotect(end, had, PROT_NONE);
  if (kept > 0) {
    spare.keep(end, kept);
  }
  budget_->give_back(given);
  budget_->drop_excess();
}

}  // namespace tessera
