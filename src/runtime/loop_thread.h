#pragma once
// The one thread on which everything of a model happens (docs/design.md, threads).
//
// Calls from any thread are run there one after another, in the order in which they arrived, while their caller waits;
// what belongs to the model therefore needs no locks. A call of run() made from the loop thread itself runs at once;
// one of run_alone() is refused.

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "base/status.h"

namespace tessera {

class LoopThread {
 public:
  /// Errors: kOutOfMemory when no thread can be started.
  static Result<std::unique_ptr<LoopThread>> start();

  /// Finishes as stop() does. REQUIRES: not on the loop thread, and no other thread is about to enter run().
  ~LoopThread();

  LoopThread(const LoopThread&) = delete;
  LoopThread& operator=(const LoopThread&) = delete;

  /// Runs fn on the loop thread and returns its result. What fn wrote is visible to the caller, and the other way
  /// round. Errors: fn's own; kOutOfMemory when std::bad_alloc escaped from fn; kCancelled after stop(), then fn did
  /// not run.
  Status run(const std::function<Status()>& fn);

  /// As run(), for what must not begin in the middle of another call. Errors also: kBusy on the loop thread itself,
  /// and, unless `wait`, while another call runs or waits; kDeadlineExceeded when fn had not begun by the deadline.
  Status run_alone(const std::function<Status()>& fn, bool wait,
                   std::optional<std::chrono::steady_clock::time_point> deadline);

  /// Takes no further calls from other threads, runs those that wait already, and ends the thread; from the loop thread
  /// itself it only begins that. May be called again, and from several threads.
  void stop();

  /// Whether the caller is the loop thread.
  [[nodiscard]] bool is_current() const;

 private:
  // On the stack of the caller, who waits for it: a call needs no memory, so that things can be closed without any.
  struct Call {
    const std::function<Status()>* fn = nullptr;
    Call* next = nullptr;  // guarded by the loop's mutex_
    Status result;
    std::mutex mutex;
    std::condition_variable finished;
    bool done = false;  // guarded by mutex
  };

  LoopThread() = default;
  void loop();
  /// Links the call behind the others, and wakes the loop. Errors: kCancelled; kBusy unless `wait`.
  Status enqueue(Call& call, bool wait);
  /// Takes a call back that has not begun; whether it had not.
  bool take_back(Call& call);

  std::mutex mutex_;
  std::condition_variable wake_;
  Call* first_ = nullptr;  // guarded by mutex_: the calls that wait, in order
  Call** last_ = &first_;  // guarded by mutex_: where the next one is linked
  bool running_ = false;   // guarded by mutex_: a call runs
  bool stopping_ = false;  // guarded by mutex_
  std::once_flag joined_;
  std::thread thread_;
};

}  // namespace tessera
