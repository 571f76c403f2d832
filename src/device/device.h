#pragma once
// The run-time seam between the engine and whatever computes: memory with a budget, and ordered queues.
//
// A device knows no weight, no layer, no request. It gives out address ranges that grow and shrink (MemoryRange) and
// queues on which commands run in order. Submitting never blocks and never fails by itself: the first command that
// fails poisons its queue for good, later commands on it are skipped, and the failure is what synchronize() returns.
// Queues run independently of each other; the only order between two queues is an Event that one records and the other
// waits for. Failure travels with events: one recorded after the first failed command carries that failure to whoever
// waits for it, one recorded before carries none.
//
// Threads: one thread submits to a given queue at a time (to a compute queue, the model's loop thread); make_queue()
// and what is submitted to further queues may run beside that, on any thread; synchronize(), Event::wait(), reserve()
// and all methods of ranges may be called from any thread. Devices outlive everything made from them.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"

namespace tessera {

/// Sizes that a batch decides. Commands are recorded once and run with different sizes.
struct LaunchSizes {
  int32_t n_tokens = 0;   // rows of this micro-batch
  int32_t n_outputs = 0;  // rows whose logits are wanted
  int32_t n_seqs = 0;     // sequences in the micro-batch
};

/// A kernel of some backend. `backend` is that backend's private launch context (for the CPU: CpuLaunch); `args` is the
/// op's argument struct from kernels/ops/. The kernel reads `args` only while it runs. It cannot fail: what could go
/// wrong is checked when commands are made; a failure is the device's (a lost card, a fault planted by `faulty`).
using KernelFn = void (*)(void* backend, const void* args, const LaunchSizes& sizes);

/// How many rows a row-wise copy moves: fixed, or one per token, output or sequence of the batch.
enum class RowCount : uint8_t { kFixed, kTokens, kOutputs, kSeqs };

/// A rectangle of bytes to copy. Row pitches and widths in bytes. A queue of the device that owns `dst` or `src` runs
/// it; the other side may be any device's memory or the host's.
struct CopyArgs {
  void* dst = nullptr;
  const void* src = nullptr;
  uint64_t dst_pitch = 0;
  uint64_t src_pitch = 0;
  uint64_t width = 0;
  uint64_t rows = 1;  // used when count is kFixed
  RowCount count = RowCount::kFixed;
};

/// One thing for a queue to do: a kernel call or a copy.
struct Command {
  KernelFn kernel = nullptr;         // null: a copy
  std::shared_ptr<const void> args;  // op's argument struct; kept alive by every list that holds it
  CopyArgs copy;                     // when kernel is null
  const char* name = "copy";         // for traces and fault messages; a literal
};

/// Commands recorded once and submitted many times; immutable once submitted.
using CommandList = std::vector<Command>;

/// A point in a queue's work. Copies refer to the same point. Default: a point already passed.
class Event {
 public:
  class State {
   public:
    virtual ~State() = default;
    /// A poisoned or abandoned queue passes its points too, without running what lies before them.
    virtual bool passed() const = 0;
    /// Blocks until the point is passed.
    virtual void wait() const = 0;
    /// Why the queue had failed when it came to this point; ok if it had not. REQUIRES: passed().
    virtual const Status& failure() const = 0;
  };

  Event() = default;
  explicit Event(std::shared_ptr<const State> state) : state_(std::move(state)) {}
  [[nodiscard]] bool passed() const { return !state_ || state_->passed(); }
  void wait() const {
    if (state_) {
      state_->wait();
    }
  }
  [[nodiscard]] const std::shared_ptr<const State>& state() const { return state_; }

 private:
  std::shared_ptr<const State> state_;
};

/// Work that runs in order. See the header comment for failure and threads.
class Queue {
 public:
  virtual ~Queue() = default;

  /// Runs the list's commands in order, after everything submitted before. Each command sees all effects of the one
  /// before it.
  virtual void submit(std::shared_ptr<const CommandList> list, const LaunchSizes& sizes) = 0;

  /// Runs `fn` on a host thread in queue order; a failure it returns poisons the queue.
  virtual void submit_host(std::function<Status()> fn) = 0;

  /// Nothing submitted later starts before `event` (of any queue of any device) has passed. If the event carries a
  /// failure, this queue is poisoned with it.
  virtual void wait(const Event& event) = 0;

  /// The point after everything submitted so far.
  virtual Event record() = 0;

  /// Blocks until all submitted work is done or skipped; the first failure, if any.
  virtual Status synchronize() = 0;
};

/// A range of a device's address space whose first `committed` bytes are backed by memory and counted against the
/// budget. For kernels and copies of this device; the host reads and writes it directly only where the device's kernel
/// table packs weights in place (cpu). The address never changes. Freed with the object. REQUIRES for shrinking and
/// destruction: no queued command still uses the bytes.
class MemoryRange {
 public:
  virtual ~MemoryRange() = default;
  [[nodiscard]] virtual std::byte* base() const = 0;
  [[nodiscard]] virtual uint64_t reserved_bytes() const = 0;
  [[nodiscard]] virtual uint64_t committed_bytes() const = 0;
  /// Grows or shrinks the backed part. New bytes are zero, but for those that shrink() left at hand. Errors, of growing
  /// only: kDoesNotFit (over budget, says needed and free), kOutOfMemory; then nothing changed. Shrinking never fails.
  virtual Status resize(uint64_t bytes) = 0;
  /// Shrinks, and may leave the first of what is given back at hand (Device::spare_bytes()), as long as the device then
  /// has no more than most_spare bytes so: this range grows into them quickly, and may find there what it had; what
  /// goes to others is zero for them, as always. Ends what an earlier call left beyond that; so does resize() to less.
  /// REQUIRES: bytes <= committed_bytes().
  virtual void shrink(uint64_t bytes, uint64_t most_spare) = 0;
};

/// What a device is. Constant for its life.
struct DeviceInfo {
  std::string name;                 // "cpu:0", as given to --device
  std::string description;          // processor or card, for people
  std::string kernel_class;         // numeric class: devices with equal strings compute equal bits, e.g. "cpu-fast"
  uint64_t unit_bytes = 64 * 1024;  // tiles start on multiples of this
  int n_threads = 0;                // CPU devices: size of the team
  bool computes = true;             // false: memory only ("host")
};

class Device {
 public:
  virtual ~Device() = default;
  [[nodiscard]] virtual const DeviceInfo& info() const = 0;

  /// Bytes this logical device may use, and uses now, over all its ranges, and those of others who share it.
  [[nodiscard]] virtual uint64_t budget_bytes() const = 0;
  [[nodiscard]] virtual uint64_t used_bytes() const = 0;
  /// Bytes that ranges have given back (MemoryRange::shrink()), and that this process holds still. They are free to
  /// use: whatever grows gets them, so used_bytes() + spare_bytes() stays within the budget.
  [[nodiscard]] virtual uint64_t spare_bytes() const = 0;

  /// Address space for up to max_bytes, nothing committed yet. `purpose` names it in errors ("weights", "kv", ...).
  /// Errors: kOutOfMemory.
  virtual Result<std::unique_ptr<MemoryRange>> reserve(uint64_t max_bytes, std::string purpose) = 0;

  /// The queue on which this device computes. Owned by the device.
  virtual Queue& compute_queue() = 0;

  /// A further queue, for work beside the computing: what fails there poisons that queue alone. The device outlives it.
  /// Errors: kOutOfMemory; kDeviceLost when the device is known to be dead.
  virtual Result<std::unique_ptr<Queue>> make_queue() = 0;
};

}  // namespace tessera
