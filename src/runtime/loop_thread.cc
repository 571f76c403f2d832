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
  TRY(enqueue(call, true));
  {
    std::unique_lock lock(call.mutex);
    call.finished.wait(lock, [&] { return call.done; });
  }
  return std::move(call.result);
}

Status LoopThread::run_alone(const std::function<Status()>& fn, bool wait,
                             std::optional<std::chrono::steady_clock::time_point> deadline) {
  if (is_current()) {
    return {ErrorCode::kBusy, "called from within a call of the same model; call when that has returned"};
  }
  Call call;
  call.fn = &fn;
  TRY(enqueue(call, wait));
  std::unique_lock lock(call.mutex);
  const auto done = [&] { return call.done; };
  if (deadline && !call.finished.wait_until(lock, *deadline, done)) {
    lock.unlock();
    if (take_back(call)) {
      return {ErrorCode::kDeadlineExceeded, "the deadline passed while another call of the model ran"};
    }
    lock.lock();
  }
  call.finished.wait(lock, done);
  return std::move(call.result);
}

Status LoopThread::enqueue(Call& call, bool wait) {
  const std::lock_guard lock(mutex_);
  if (stopping_) {
    return {ErrorCode::kCancelled, "the model is being closed"};
  }
  if (!wait && (running_ || first_ != nullptr)) {
    return {ErrorCode::kBusy, "another call of the model runs"};
  }
  *last_ = &call;
  last_ = &call.next;
  // Under the lock: once the call can run, its end may let somebody destroy this object.
  wake_.notify_one();
  return {};
}

bool LoopThread::take_back(Call& call) {
  const std::lock_guard lock(mutex_);
  for (Call** at = &first_; *at != nullptr; at = &(*at)->next) {
    if (*at == &call) {
      *at = call.next;
      last_ = call.next == nullptr ? at : last_;
      return true;
    }
  }
  return false;
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
    running_ = true;
    lock.unlock();
    call.result = run_guarded(*call.fn);
    {
      // Before the caller goes on: its next call must not find itself still running.
      const std::lock_guard idle(mutex_);
      running_ = false;
    }
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
