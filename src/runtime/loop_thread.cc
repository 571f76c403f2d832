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
  Call call;
  call.fn = &fn;
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) {
      return {ErrorCode::kCancelled, "the model is being closed"};
    }
    *last_ = &call;
    last_ = &call.next;
    // Under the lock: once the call can run, its end may let somebody destroy this object.
    wake_.notify_one();
  }
  {
    std::unique_lock lock(call.mutex);
    call.finished.wait(lock, [&] { return call.done; });
  }
  return std::move(call.result);
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
    wake_.wait(lock, [this] { return stopping_ || first_ != nullptr; });
    if (first_ == nullptr) {
      return;
    }
    Call& call = *first_;
    first_ = call.next;
    last_ = first_ == nullptr ? &first_ : last_;
    lock.unlock();
    call.result = run_guarded(*call.fn);
    {
      // Notified under the lock: the caller, whose stack the call lies on, cannot leave before.
      const std::lock_guard done(call.mutex);
      call.done = true;
      call.finished.notify_one();
    }
    lock.lock();
  }
}

}  // namespace tessera
