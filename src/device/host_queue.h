#pragma once
// A queue served by one thread of this process. It knows order, events and poison; what a command list does is its
// owner's matter (run on a team of CPU threads, or only counted). Base of the cpu and null devices.
//
// An error so reaches every queue which depends on the failed one, through the events it waits for, and no other.
//
// Destruction abandons: the command that runs is finished, what comes after it is skipped as if the queue had failed
// with kCancelled, so nobody who waits for one of its events hangs.

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "base/threads.h"
#include "device/device.h"

namespace tessera {

/// A point of a HostQueue.
class HostEvent : public Event::State {
 public:
  /// wait_spin_us: how long wait() spins before it sleeps.
  explicit HostEvent(int wait_spin_us) : wait_spin_us_(wait_spin_us) {}

  [[nodiscard]] bool passed() const override { return counter_.load() != 0; }
  void wait() const override { counter_.wait_past(0, wait_spin_us_); }
  /// Waits like wait(), but spins as the budget says and sleeps no longer than timeout; whether the point has passed.
  bool wait_for(SpinBudget& spin, std::chrono::nanoseconds timeout) const {
    return counter_.wait_past(0, spin, timeout) != 0;
  }
  [[nodiscard]] const Status& failure() const override { return failure_; }

  /// Marks the point as passed. Called once, by the queue.
  void pass(Status failure) {
    failure_ = std::move(failure);
    counter_.advance();
  }

 private:
  WaitCounter counter_;
  Status failure_;  // written before the counter advances, constant afterwards
  const int wait_spin_us_;
};

class HostQueue final : public Queue {
 public:
  struct Options {
    std::string name;      // of the thread
    int spin_us = 0;       // how long the queue's thread spins for work or an event before it sleeps
    int wait_spin_us = 0;  // the same for other threads, in Event::wait() and synchronize()
  };
  /// Runs all commands of a list; called on the queue's thread.
  using RunList = std::function<void(const CommandList&, const LaunchSizes&)>;

  /// Errors: kOutOfMemory when no thread can be started.
  static Result<std::unique_ptr<HostQueue>> start(Options options, RunList run_list);
  ~HostQueue() override;
  HostQueue(const HostQueue&) = delete;
  HostQueue& operator=(const HostQueue&) = delete;

  void submit(std::shared_ptr<const CommandList> list, const LaunchSizes& sizes) override;
  void submit_host(std::function<Status()> fn) override;
  void wait(const Event& event) override;
  Event record() override;
  Status synchronize() override;

 private:
  struct Run {
    std::shared_ptr<const CommandList> list;
    LaunchSizes sizes;
  };
  struct Call {
    std::function<Status()> fn;
  };
  struct Await {
    Event event;
  };
  struct Mark {
    std::shared_ptr<HostEvent> event;
  };
  using Item = std::variant<Run, Call, Await, Mark>;

  HostQueue(Options options, RunList run_list);
  void push(Item item);
  void serve();
  void process(const Run& item);
  void process(const Call& item);
  void process(const Await& item);
  void process(const Mark& item);

  const Options options_;
  const RunList run_list_;
  std::mutex mutex_;
  std::vector<Item> items_;  // guarded by mutex_
  WaitCounter bell_;         // rung after each change of items_ or closing_
  std::atomic<bool> closing_{false};
  Status failure_;  // the queue's thread only, as the budgets are
  SpinBudget work_spin_;
  SpinBudget event_spin_;
  std::thread thread_;
};

}  // namespace tessera
