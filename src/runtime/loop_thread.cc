#include "runtime/loop_thread.h"

#include <utility>

#include "base/check.h"

namespace tessera {
namespace {

// Whose loop this thread runs. An id of std::thread would not do: it may be given out again after the thread has ended.
thread_local const LoopThread* current_loop = nullptr;

}  // namespace

LoopThread::LoopThread() : thread_([this] { loop(); }) {}

LoopThread::~LoopThread() {
  CHECK(!is_current());
  stop();
}

Status LoopThread::run(const std::function<Status()>& fn) {
  if (is_current()) {
    return fn();
  }
  std::future<Status> result;
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) {
      return {ErrorCode::kCancelled, "the model is being closed"};
    }
    result = calls_.emplace_back(Call{&fn, {}}).result.get_future();
    // Under the lock: once the call can run, its end may let somebody destroy this object.
    wake_.notify_one();
  }
  return result.get();
}

void LoopThread::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  if (!is_current()) {
    std::call_once(joined_, [this] { thread_.join(); });
  }
}

bool LoopThread::is_current() const {
  return current_loop == this;
}

void LoopThread::loop() {
  current_loop = this;
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return stopping_ || !calls_.empty(); });
    if (calls_.empty()) {
      return;
    }
    Call call = std::move(calls_.front());
    calls_.pop_front();
    lock.unlock();
    try {
      call.result.set_value((*call.fn)());
    } catch (...) {
      call.result.set_exception(std::current_exception());
    }
    lock.lock();
  }
}

}  // namespace tessera
