#include "runtime/loop_thread.h"

#include <new>
#include <utility>

#include "base/check.h"
#include "base/threads.h"

namespace tessera {
namespace {

// Whose loop this thread runs. An id of std::thread would not do: it may be given out again after the thread has ended.
thread_local const LoopThread* current_loop = nullptr;

// A caller's own mistake ends the program; the machine's shortage of memory ends only the call.
Status run_guarded(const std::function<Status()>& fn) {
  try {
    return fn();
  } catch (const std::bad_alloc&) {
    return {ErrorCode::kOutOfMemory, "no memory is left for this call; free some, or lower --ctx-size or --batch-size"};
  }
}

}  // namespace

Result<std::unique_ptr<LoopThread>> LoopThread::start() {
  std::unique_ptr<LoopThread> self(new LoopThread());
  ASSIGN_OR_RETURN(self->thread_, start_thread("tessera-loop", [loop = self.get()] { loop->loop(); }));
  return self;
}

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
    std::call_once(joined_, [this] {
      if (thread_.joinable()) {  // else it was never started
        thread_.join();
      }
    });
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
    call.result.set_value(run_guarded(*call.fn));
    lock.lock();
  }
}

}  // namespace tessera
