#pragma once
// The one thread on which everything of a model happens (DESIGN: threads).
//
// Calls from any thread are run there one after another, in the order in which they arrived, while their caller waits;
// what belongs to the model therefore needs no locks. A call made from the loop thread itself runs at once.

#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <mutex>
#include <thread>

#include "base/status.h"

namespace tessera {

class LoopThread {
 public:
  LoopThread();

  /// Finishes as stop() does. REQUIRES: not on the loop thread, and no other thread is about to enter run().
  ~LoopThread();

  LoopThread(const LoopThread&) = delete;
  LoopThread& operator=(const LoopThread&) = delete;

  /// Runs fn on the loop thread and returns its result. What fn wrote is visible to the caller, and the other way
  /// round. Errors: fn's own; kCancelled after stop(), then fn did not run. What fn throws (memory ran out) is thrown
  /// here.
  Status run(const std::function<Status()>& fn);

  /// Takes no further calls from other threads, runs those that wait already, and ends the thread; from the loop thread
  /// itself it only begins that. May be called again, and from several threads.
  void stop();

  /// Whether the caller is the loop thread.
  [[nodiscard]] bool is_current() const;

 private:
  struct Call {
    const std::function<Status()>* fn;  // the caller's, who waits for the result
    std::promise<Status> result;
  };

  void loop();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Call> calls_;  // guarded by mutex_
  bool stopping_ = false;   // guarded by mutex_
  std::once_flag joined_;
  std::thread thread_;  // last: it uses the members above
};

}  // namespace tessera
