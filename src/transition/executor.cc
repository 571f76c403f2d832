#include "transition/executor.h"

#include <algorithm>
#include <fmt/format.h>
#include <memory>
#include <new>
#include <queue>
#include <thread>
#include <utility>

namespace tessera {
namespace {

// Moves on their way at any time, over all queues: enough that no queue runs dry while this thread sleeps, few enough
// that a cancellation is heard within some milliseconds.
constexpr size_t kMovesAhead = 128;
// Moves that this thread waits for at once. Where all cores copy, it takes one from a copy each time that it wakes.
constexpr size_t kMovesAtOnce = 32;
// What a copy costs beside its bytes, in bytes: about 10 us at 10 GB/s. Only the order of submission depends on it.
constexpr uint64_t kCopyCostBytes = 100 << 10;

// How long to wait for memory of the host where there is no other way out.
constexpr std::chrono::milliseconds kMemoryRetry(1);

/// A copy on the queue of one of two devices.
struct Step {
  int32_t device = 0;  // where it arrives
  int32_t source = 0;
  std::byte* to = nullptr;
  std::byte* from = nullptr;
  uint64_t bytes = 0;
  std::vector<int32_t> after;  // other steps
};

std::byte* address(const TransitionWork& work, const PoolPosition& place, bool staged) {
  const TransitionPool& pool = work.pools[static_cast<size_t>(place.device)];
  std::byte* base = staged ? work.devices[static_cast<size_t>(pool.device)].staging : pool.base;
  return base + place.offset;
}

int32_t device_of(const TransitionWork& work, const PoolPosition& place) {
  return work.pools[static_cast<size_t>(place.device)].device;
}

std::vector<Step> steps_forth(const TransitionWork& work) {
  std::vector<Step> steps;
  steps.reserve(work.moves.size());
  for (const Move& move : work.moves) {
    CHECK(move.from.device != PoolPosition::kNowhere);
    steps.push_back({device_of(work, move.to), device_of(work, move.from), address(work, move.to, move.to_staging),
                     address(work, move.from, move.from_staging), move.bytes, move.after});
  }
  return steps;
}

/// Whether a move was made before the transition.
bool has_arrived(const TransitionWork& work, size_t move) {
  return !work.arrived.empty() && work.arrived[move];
}

/// The steps that are still to do: the others become empty, and nobody waits for them.
std::vector<Step> steps_left(const TransitionWork& work, std::vector<Step> forth) {
  for (size_t i = 0; i < forth.size(); ++i) {
    if (has_arrived(work, i)) {
      forth[i] = {};
    }
    std::erase_if(forth[i].after, [&](int32_t before) { return has_arrived(work, static_cast<size_t>(before)); });
  }
  return forth;
}

/// The steps that undo those which are done; the others become empty.
std::vector<Step> steps_back(const std::vector<Step>& forth, const std::vector<bool>& done) {
  std::vector<Step> back(forth.size());
  for (size_t i = 0; i < forth.size(); ++i) {
    if (!done[i]) {
      continue;
    }
    back[i].device = forth[i].source;
    back[i].source = forth[i].device;
    back[i].to = forth[i].from;
    back[i].from = forth[i].to;
    back[i].bytes = forth[i].bytes;
    for (const int32_t before : forth[i].after) {
      back[static_cast<size_t>(before)].after.push_back(static_cast<int32_t>(i));
    }
  }
  return back;
}

/// Which queue runs each step, and in which order they are submitted.
struct Schedule {
  std::vector<int32_t> order;  // steps
  std::vector<int32_t> queue;  // by step: a device
};

/// Steps that may start, by device where they arrive and device where they come from; of each pair in the order in
/// which they became ready.
class ReadySteps {
 public:
  explicit ReadySteps(size_t n_devices) : n_devices_(n_devices), steps_(n_devices * n_devices) {}

  void push(const Step& step, int32_t index) { pair(step.device, step.source).emplace(n_pushed_++, index); }
  /// The oldest that arrives on a device; where there is none, the oldest that leaves it. -1: none.
  int32_t pop(size_t device) {
    std::queue<Ready>* oldest = nullptr;
    const auto look_at = [&](std::queue<Ready>& steps) {
      oldest = !steps.empty() && (oldest == nullptr || steps.front() < oldest->front()) ? &steps : oldest;
    };
    for (size_t other = 0; other < n_devices_; ++other) {
      look_at(pair(device, other));
    }
    for (size_t other = 0; oldest == nullptr && other < n_devices_; ++other) {
      look_at(pair(other, device));
    }
    if (oldest == nullptr) {
      return -1;
    }
    const int32_t step = oldest->front().second;
    oldest->pop();
    return step;
  }

 private:
  using Ready = std::pair<size_t, int32_t>;  // how many became ready before, step

  std::queue<Ready>& pair(size_t device, size_t source) { return steps_[device * n_devices_ + source]; }

  const size_t n_devices_;
  std::vector<std::queue<Ready>> steps_;
  size_t n_pushed_ = 0;
};

/// The steps in the order in which they start when every queue copies at the same speed and takes what has been ready
/// for longest: so chains of steps that wait for one another take turns, and a step that is late by a little delays
/// nobody. A queue to which nothing comes sends: so all work to the end where one device receives more than another.
/// Empty steps are left out.
Schedule schedule(const std::vector<Step>& steps, size_t n_devices) {
  std::vector<int32_t> n_open(steps.size(), 0);
  std::vector<std::vector<int32_t>> followers(steps.size());
  ReadySteps ready(n_devices);
  for (size_t i = 0; i < steps.size(); ++i) {
    if (steps[i].bytes == 0) {
      continue;
    }
    for (const int32_t before : steps[i].after) {
      followers[static_cast<size_t>(before)].push_back(static_cast<int32_t>(i));
    }
    n_open[i] = static_cast<int32_t>(steps[i].after.size());
    if (n_open[i] == 0) {
      ready.push(steps[i], static_cast<int32_t>(i));
    }
  }
  Schedule result{{}, std::vector<int32_t>(steps.size(), 0)};
  std::vector<bool> busy(n_devices, false);
  using End = std::pair<uint64_t, int32_t>;  // time, step
  std::priority_queue<End, std::vector<End>, std::greater<>> running;
  uint64_t now = 0;
  const auto start_all = [&] {
    for (size_t d = 0; d < n_devices; ++d) {
      const int32_t step = busy[d] ? -1 : ready.pop(d);
      if (step >= 0) {
        busy[d] = true;
        result.queue[static_cast<size_t>(step)] = static_cast<int32_t>(d);
        result.order.push_back(step);
        running.emplace(now + steps[static_cast<size_t>(step)].bytes + kCopyCostBytes, step);
      }
    }
  };
  for (start_all(); !running.empty(); start_all()) {
    const auto [time, step] = running.top();
    running.pop();
    now = time;
    busy[static_cast<size_t>(result.queue[static_cast<size_t>(step)])] = false;
    for (const int32_t next : followers[static_cast<size_t>(step)]) {
      if (--n_open[static_cast<size_t>(next)] == 0) {
        ready.push(steps[static_cast<size_t>(next)], next);
      }
    }
  }
  return result;
}

/// One way through steps, forth or back, on queues of its own. All that run() needs to say what happened is there
/// before it begins: it throws nothing, and returns when the queues have ended.
class Run {
 public:
  Run(const TransitionWork& work, const std::vector<Step>& steps)
      : work_(work),
        steps_(steps),
        schedule_(schedule(steps, work.devices.size())),
        events_(steps.size()),
        submitted_(steps.size(), false),
        queues_(work.devices.size()) {
    for (const int32_t i : schedule_.order) {
      total_bytes_ += steps[static_cast<size_t>(i)].bytes;
    }
  }

  /// Whether all steps were done.
  bool run(const TransitionLimits& limits) {
    try {
      failure_ = start_queues();
      if (failure_.ok()) {
        failure_ = submit_all(limits);
      }
    } catch (const std::bad_alloc&) {
      out_of_memory_ = true;
    }
    settle();
    return failure_.ok() && !out_of_memory_;
  }

  /// Why not; ok where the host had no memory.
  [[nodiscard]] const Status& failure() const { return failure_; }

  /// Whether a step was handed to its queue: then its bytes may be written, also where it is not done.
  [[nodiscard]] bool submitted(size_t step) const { return submitted_[step]; }

  /// Whether a step was done. REQUIRES: run() has returned.
  [[nodiscard]] bool done(size_t step) const {
    const Event& event = events_[step];
    return event.state() != nullptr && event.passed() && event.state()->failure().ok();
  }

 private:
  Status start_queues() {
    for (const int32_t i : schedule_.order) {
      const size_t d = queue_of(i);
      if (queues_[d] == nullptr) {
        ASSIGN_OR_RETURN(queues_[d], work_.devices[d].device->make_queue());
      }
    }
    return {};
  }

  Status submit_all(const TransitionLimits& limits) {
    TRY(look_up(limits));
    const std::vector<int32_t>& order = schedule_.order;
    for (size_t n = 0; n < order.size(); ++n) {
      if (n >= n_passed_ + kMovesAhead) {
        TRY(wait_until(n_passed_ + kMovesAtOnce));
      }
      TRY(look_up(limits));
      submit(static_cast<size_t>(order[n]));
    }
    while (n_passed_ < order.size()) {
      TRY(wait_until(std::min(n_passed_ + kMovesAtOnce, order.size())));
      TRY(look_up(limits));
    }
    return {};
  }

  void submit(size_t i) {
    const Step& step = steps_[i];
    Queue& queue = *queues_[queue_of(static_cast<int32_t>(i))];
    for (const int32_t before : step.after) {
      if (queue_of(before) != queue_of(static_cast<int32_t>(i))) {
        queue.wait(events_[static_cast<size_t>(before)]);
      }
    }
    Command command;
    command.copy = {step.to, step.from, step.bytes, step.bytes, step.bytes, 1, RowCount::kFixed};
    command.name = "move";
    const auto list = std::make_shared<const CommandList>(1, std::move(command));
    submitted_[i] = true;
    queue.submit(list, {});
    events_[i] = queue.record();
  }

  // Waits for the first n moves of the order: the last ones first, since when these have passed the others have.
  Status wait_until(size_t n) {
    for (size_t i = n; i-- > n_passed_;) {
      const Event& event = events_[static_cast<size_t>(schedule_.order[i])];
      event.wait();
      TRY(event.state()->failure());
    }
    for (; n_passed_ < n; ++n_passed_) {
      arrived_bytes_ += steps_[static_cast<size_t>(schedule_.order[n_passed_])].bytes;
    }
    return {};
  }

  [[nodiscard]] size_t queue_of(int32_t step) const {
    return static_cast<size_t>(schedule_.queue[static_cast<size_t>(step)]);
  }

  Status look_up(const TransitionLimits& limits) const {
    const double fraction =
        total_bytes_ == 0 ? 1 : static_cast<double>(arrived_bytes_) / static_cast<double>(total_bytes_);
    if (limits.progress && !limits.progress(fraction)) {
      return {ErrorCode::kCancelled, fmt::format("stopped after {:.0f} % of the bytes", 100 * fraction)};
    }
    if (limits.deadline && std::chrono::steady_clock::now() > *limits.deadline) {
      return {ErrorCode::kDeadlineExceeded,
              fmt::format("the deadline passed after {:.0f} % of the bytes", 100 * fraction)};
    }
    return {};
  }

  // Waits until every queue has ended; without memory to ask for that, it asks again. A queue's failure is the reason
  // for what followed from it.
  void settle() {
    bool failed = false;
    for (const std::unique_ptr<Queue>& queue : queues_) {
      for (bool asked = queue == nullptr; !asked;) {
        try {
          Status status = queue->synchronize();
          if (!status.ok() && !failed) {
            failed = true;
            failure_ = std::move(status);
          }
          asked = true;
        } catch (const std::bad_alloc&) {
          std::this_thread::sleep_for(kMemoryRetry);
        }
      }
    }
    std::ranges::for_each(queues_, [](std::unique_ptr<Queue>& queue) { queue.reset(); });
  }

  const TransitionWork& work_;
  const std::vector<Step>& steps_;
  const Schedule schedule_;
  std::vector<Event> events_;                   // by step
  std::vector<bool> submitted_;                 // by step
  std::vector<std::unique_ptr<Queue>> queues_;  // by device
  Status failure_;
  bool out_of_memory_ = false;
  uint64_t total_bytes_ = 0;
  size_t n_passed_ = 0;  // of the order, from its beginning
  uint64_t arrived_bytes_ = 0;
};

/// Undoes the steps that are done; `done` becomes false for each. While the host has no memory it tries again.
/// Errors: what a copy failed with.
Status undo(const TransitionWork& work, const std::vector<Step>& forth, std::vector<bool>& done) {
  while (std::ranges::find(done, true) != done.end()) {
    try {
      const std::vector<Step> back = steps_back(forth, done);
      Run run(work, back);
      if (!run.run({}) && !run.failure().ok()) {
        return run.failure();
      }
      for (size_t i = 0; i < done.size(); ++i) {
        done[i] = done[i] && !run.done(i);
      }
    } catch (const std::bad_alloc&) {
      std::this_thread::sleep_for(kMemoryRetry);
    }
  }
  return {};
}

Status why(const Run& run) {
  return run.failure().ok() ? Status(ErrorCode::kOutOfMemory, "no memory is left on the host in the middle of a switch")
                            : run.failure();
}

}  // namespace

Status run_transition(const TransitionWork& work, const TransitionLimits& limits) {
  const std::vector<Step> forth = steps_forth(work);
  const std::vector<Step> left = steps_left(work, forth);
  std::vector<bool> done(forth.size(), false);
  Run run(work, left);
  if (run.run(limits)) {
    return {};
  }
  if (run.failure().code() == ErrorCode::kDeviceLost) {
    return why(run);
  }
  for (size_t i = 0; i < done.size(); ++i) {
    done[i] = done[i] || run.done(i);
    // What arrived before the first step is undone only where its source may be whole no longer.
    for (const int32_t before : forth[i].after) {
      const auto b = static_cast<size_t>(before);
      done[b] = done[b] || (run.submitted(i) && has_arrived(work, b));
    }
  }
  const Status undone = undo(work, forth, done);
  if (undone.ok()) {
    return why(run);
  }
  return {ErrorCode::kDeviceLost, fmt::format("{}; undoing that failed too: {}", why(run).message(), undone.message())};
}

Status copy_ahead(const TransitionWork& work) {
  const std::vector<Step> steps = steps_forth(work);
  Run run(work, steps);
  return run.run({}) ? Status() : why(run);
}

TransitionBytes count_bytes(const TransitionWork& work) {
  TransitionBytes bytes;
  for (const Move& move : work.moves) {
    (device_of(work, move.from) == device_of(work, move.to) ? bytes.local : bytes.moved) += move.bytes;
  }
  return bytes;
}

}  // namespace tessera
