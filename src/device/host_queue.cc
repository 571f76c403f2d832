#include "device/host_queue.h"

#include <utility>

namespace tessera {

HostQueue::HostQueue(Options options, RunList run_list)
    : options_(std::move(options)),
      run_list_(std::move(run_list)),
      work_spin_(options_.spin_us),
      event_spin_(options_.spin_us) {}

Result<std::unique_ptr<HostQueue>> HostQueue::start(Options options, RunList run_list) {
  std::unique_ptr<HostQueue> queue(new HostQueue(std::move(options), std::move(run_list)));
  ASSIGN_OR_RETURN(queue->thread_, start_thread(queue->options_.name, [q = queue.get()] { q->serve(); }));
  return queue;
}

HostQueue::~HostQueue() {
  closing_.store(true);
  bell_.advance();
  if (thread_.joinable()) {
    thread_.join();
  }
}

void HostQueue::push(Item item) {
  {
    const std::lock_guard lock(mutex_);
    items_.push_back(std::move(item));
  }
  bell_.advance();
}

void HostQueue::submit(std::shared_ptr<const CommandList> list, const LaunchSizes& sizes) {
  if (list != nullptr && !list->empty()) {
    push(Run{std::move(list), sizes});
  }
}

void HostQueue::submit_host(std::function<Status()> fn) {
  push(Call{std::move(fn)});
}

void HostQueue::wait(const Event& event) {
  const bool passed_well = event.passed() && (event.state() == nullptr || event.state()->failure().ok());
  if (!passed_well) {
    push(Await{event});
  }
}

Event HostQueue::record() {
  auto event = std::make_shared<HostEvent>(options_.wait_spin_us);
  push(Mark{event});
  return Event(std::move(event));
}

Status HostQueue::synchronize() {
  const auto event = std::make_shared<HostEvent>(options_.wait_spin_us);
  push(Mark{event});
  event->wait();
  return event->failure();
}

void HostQueue::serve() {
  std::vector<Item> taken;
  for (;;) {
    const uint32_t seen = bell_.load();
    {
      const std::lock_guard lock(mutex_);
      taken.swap(items_);
    }
    if (taken.empty()) {
      if (closing_.load()) {
        return;
      }
      bell_.wait_past(seen, work_spin_);
      continue;
    }
    for (Item& item : taken) {
      if (closing_.load() && failure_.ok()) {
        failure_ = Status(ErrorCode::kCancelled, options_.name + ": the queue was closed before this work ran");
      }
      std::visit([this](const auto& what) { process(what); }, item);
      item = Mark{};  // what the item held is free before anyone hears that it is done
    }
    taken.clear();
  }
}

void HostQueue::process(const Run& item) {
  if (failure_.ok()) {
    run_list_(*item.list, item.sizes);
  }
}

void HostQueue::process(const Call& item) {
  if (failure_.ok()) {
    failure_ = item.fn();
  }
}

void HostQueue::process(const Await& item) {
  const auto* event = dynamic_cast<const HostEvent*>(item.event.state().get());
  if (event == nullptr) {
    if (failure_.ok()) {
      item.event.wait();
      failure_ = item.event.state()->failure();
    }
    return;
  }
  // Looks up now and then, since the queue may be closed while the other one never comes to the event.
  constexpr std::chrono::milliseconds kLookUp(50);
  while (failure_.ok() && !event->wait_for(event_spin_, kLookUp)) {
    if (closing_.load()) {
      return;
    }
  }
  if (failure_.ok()) {
    failure_ = event->failure();
  }
}

void HostQueue::process(const Mark& item) {
  item.event->pass(failure_);
}

}  // namespace tessera
