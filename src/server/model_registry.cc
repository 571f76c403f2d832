#include "server/model_registry.h"

#include <algorithm>
#include <condition_variable>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <iterator>
#include <mutex>
#include <new>
#include <optional>
#include <thread>
#include <type_traits>
#include <utility>

#include "base/check.h"
#include "base/threads.h"
#include "base/units.h"

namespace tessera {

using Clock = std::chrono::steady_clock;

namespace {

Status closing() {
  return {ErrorCode::kCancelled, "the server is shutting down"};
}

// A model that is too much for the host's memory is that model's failure: the others are served on.
template <typename Fn>
std::invoke_result_t<Fn> within_memory(const Fn& fn) {
  try {
    return fn();
  } catch (const std::bad_alloc&) {
    return Status(ErrorCode::kOutOfMemory, "no memory is left on the host for this model");
  }
}

}  // namespace

class ModelRegistry::Impl : public std::enable_shared_from_this<Impl> {
 public:
  Impl(std::vector<std::string> names, std::unique_ptr<ModelSource> source, const ModelRegistryOptions& options,
       Log log)
      : source_(std::move(source)), options_(options), log_(std::move(log)), entries_(names.size()) {
    for (size_t i = 0; i < names.size(); ++i) {
      entries_[i].name = std::move(names[i]);
    }
  }

  Status start() {
    ASSIGN_OR_RETURN(thread_, start_thread("models", [this] { run(); }));
    return {};
  }
  void stop();
  void clear();

  [[nodiscard]] size_t size() const { return entries_.size(); }
  [[nodiscard]] std::vector<ModelView> list() const;
  [[nodiscard]] Result<size_t> find(std::string_view name) const;
  bool acquire(size_t model, std::function<bool()> gone, Answer answer, LoadPlacement placement);
  Lease take(size_t model);
  void wake();
  Lease peek(size_t model);
  Status load(size_t model);
  Status unload(size_t model, std::function<void(Status)> done);

 private:
  struct Waiter {
    std::function<bool()> gone;
    Answer answer;
    LoadPlacement placement;
  };

  struct Entry {
    std::string name;
    std::shared_ptr<ServedModel> model;  // null: not loaded
    std::vector<DeviceClaim> claims;     // of the model when it was last asked, or of a counted load in the queue
    int64_t n_leases = 0;
    uint64_t last_use = 0;
    bool leaving = false;  // nobody gets it any more; it goes when its leases have ended
    std::vector<std::function<void(Status)>> farewells;
    Status failure;  // of the last load

    // A load that waits for its turn, or runs.
    bool queued = false;
    bool explicit_load = false;  // goes on when no request waits for it
    bool counted = false;
    LoadPlacement placement;  // for which it was counted, and is loaded
    uint64_t turn = 0;
    std::optional<Clock::time_point> deadline;  // from when on it waits for room
    std::vector<Waiter> waiters;

    [[nodiscard]] uint64_t bytes_on(std::string_view device) const {
      const auto claim = std::ranges::find(claims, device, &DeviceClaim::device);
      return claim == claims.end() ? 0 : claim->bytes;
    }
    [[nodiscard]] LoadPlacement wanted_placement() const {
      const auto asks = [](const Waiter& waiter) { return !waiter.placement.says_nothing(); };
      const auto first = std::ranges::find_if(waiters, asks);
      return first == waiters.end() ? LoadPlacement() : first->placement;
    }
  };

  /// Who has to go before an entry can be loaded, and what is lacking then.
  struct Room {
    std::vector<const Entry*> leavers;
    std::string lack;  // for people; empty: nothing
    bool lacks_count = false;
    std::vector<std::string_view> lacking_devices;
  };

  using Calls = std::vector<std::function<void()>>;
  using Lock = std::unique_lock<std::mutex>;

  void run();
  bool drop_gone(Lock& lock);
  bool let_leavers_go(Lock& lock);
  bool serve_queue(Lock& lock, Clock::time_point& wake_at);
  void count(Entry& entry, Lock& lock);
  void load_now(Entry& entry, const std::vector<const Entry*>& leavers, Lock& lock);
  void ask_claims();
  [[nodiscard]] Room make_room(const Entry& entry) const;
  void find_lack(const Entry& entry, Room& room) const;

  void enqueue(Entry& entry);
  // Ends the load of an entry; the calls are to be made without the lock.
  void finish_load(Entry& entry, const Status& status, Calls& calls, bool lacks_room = false);
  Lease lease(Entry& entry, bool is_use);
  void release(Entry& entry, std::shared_ptr<ServedModel> owner, bool is_use);
  void make(Calls calls, Lock& lock) const;

  const std::unique_ptr<ModelSource> source_;
  const ModelRegistryOptions options_;
  const Log log_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool dirty_ = false;  // something may be to do
  bool stopping_ = false;
  std::vector<Entry> entries_;  // never grows
  Entry* loading_ = nullptr;
  std::atomic<bool> cancelled_ = false;  // the load that runs
  uint64_t tick_ = 0;                    // of uses and turns
  std::thread thread_;
};

// ---- what callers ask

std::vector<ModelView> ModelRegistry::Impl::list() const {
  const std::lock_guard lock(mutex_);
  std::vector<ModelView> views;
  for (const Entry& entry : entries_) {
    const ModelPhase phase = entry.model != nullptr ? ModelPhase::kLoaded
                             : entry.queued         ? ModelPhase::kLoading
                             : entry.failure.ok()   ? ModelPhase::kUnloaded
                                                    : ModelPhase::kFailed;
    views.push_back({entry.name, phase, phase == ModelPhase::kFailed ? entry.failure : Status()});
  }
  return views;
}

Result<size_t> ModelRegistry::Impl::find(std::string_view name) const {
  const auto found = std::ranges::find(entries_, name, &Entry::name);
  if (found != entries_.end()) {
    return static_cast<size_t>(found - entries_.begin());
  }
  std::vector<std::string_view> names;
  for (const Entry& entry : entries_) {
    names.push_back(entry.name);
  }
  return Status(ErrorCode::kNotFound, fmt::format("there is no model \"{}\"; this server has {}", name.substr(0, 200),
                                                  fmt::join(names, ", ")));
}

bool ModelRegistry::Impl::acquire(size_t model, std::function<bool()> gone, Answer answer, LoadPlacement placement) {
  Lease ready;
  {
    const std::lock_guard lock(mutex_);
    Entry& entry = entries_.at(model);
    if (entry.model != nullptr && !entry.leaving) {
      ready = lease(entry, true);
    } else if (!stopping_) {
      entry.waiters.push_back({std::move(gone), std::move(answer), std::move(placement)});
      enqueue(entry);
      return true;
    }
  }
  if (ready != nullptr) {
    answer(std::move(ready));
  } else {
    answer(closing());
  }
  return false;
}

ModelRegistry::Lease ModelRegistry::Impl::take(size_t model) {
  const std::lock_guard lock(mutex_);
  Entry& entry = entries_.at(model);
  return entry.model != nullptr && !entry.leaving ? lease(entry, true) : nullptr;
}

void ModelRegistry::Impl::wake() {
  const std::lock_guard lock(mutex_);
  dirty_ = true;
  changed_.notify_all();
}

ModelRegistry::Lease ModelRegistry::Impl::peek(size_t model) {
  const std::lock_guard lock(mutex_);
  Entry& entry = entries_.at(model);
  return entry.model == nullptr ? nullptr : lease(entry, false);
}

Status ModelRegistry::Impl::load(size_t model) {
  const std::lock_guard lock(mutex_);
  Entry& entry = entries_.at(model);
  if (entry.queued || (entry.model != nullptr && !entry.leaving)) {
    return {ErrorCode::kInvalidArgument,
            fmt::format("model {} is {} already", entry.name, entry.queued ? "being loaded" : "loaded")};
  }
  if (stopping_) {
    return closing();
  }
  entry.explicit_load = true;
  enqueue(entry);
  return {};
}

Status ModelRegistry::Impl::unload(size_t model, std::function<void(Status)> done) {
  const std::lock_guard lock(mutex_);
  Entry& entry = entries_.at(model);
  if (entry.model == nullptr && !entry.queued) {
    return {ErrorCode::kInvalidArgument, fmt::format("model {} is not loaded", entry.name)};
  }
  if (stopping_) {
    return closing();
  }
  entry.leaving = true;
  cancelled_ = cancelled_ || loading_ == &entry;
  entry.farewells.push_back(std::move(done));
  dirty_ = true;
  changed_.notify_all();
  return {};
}

// REQUIRES: the lock is held.
void ModelRegistry::Impl::enqueue(Entry& entry) {
  if (!entry.queued) {
    entry.queued = true;
    entry.counted = false;
    entry.deadline.reset();
    entry.turn = ++tick_;
  }
  dirty_ = true;
  changed_.notify_all();
}

// REQUIRES: the lock is held, and the entry has a model.
ModelRegistry::Lease ModelRegistry::Impl::lease(Entry& entry, bool is_use) {
  ++entry.n_leases;
  entry.last_use = is_use ? ++tick_ : entry.last_use;
  return {entry.model.get(), [self = shared_from_this(), &entry, owner = entry.model, is_use](ServedModel*) mutable {
            self->release(entry, std::move(owner), is_use);
          }};
}

void ModelRegistry::Impl::release(Entry& entry, std::shared_ptr<ServedModel> owner, bool is_use) {
  const std::lock_guard lock(mutex_);
  --entry.n_leases;
  entry.last_use = is_use ? ++tick_ : entry.last_use;
  // A lease may end on a thread of the model itself, which cannot take the model down: while the registry has it, this
  // is not the last reference, and it must not become the last one when the lock is free.
  if (entry.model == owner) {
    owner.reset();
  }
  dirty_ = true;
  changed_.notify_all();
}

// ---- the registry's thread

void ModelRegistry::Impl::make(Calls calls, Lock& lock) const {
  lock.unlock();
  for (auto& call : calls) {
    try {
      call();
    } catch (const std::bad_alloc&) {
      log_.warning("a request could not be gone on with: no memory is left");  // it is answered as it goes
    }
  }
  calls.clear();
  lock.lock();
}

void ModelRegistry::Impl::run() {
  Lock lock(mutex_);
  while (!stopping_) {
    dirty_ = false;
    Clock::time_point wake_at = Clock::time_point::max();
    if (drop_gone(lock) || let_leavers_go(lock) || serve_queue(lock, wake_at)) {
      continue;
    }
    const auto is_due = [this] { return dirty_ || stopping_; };
    if (wake_at == Clock::time_point::max()) {
      changed_.wait(lock, is_due);
    } else {
      changed_.wait_until(lock, wake_at, is_due);
    }
  }
  Calls calls;
  for (Entry& entry : entries_) {
    finish_load(entry, closing(), calls);
    for (auto& farewell : std::exchange(entry.farewells, {})) {
      calls.push_back([farewell = std::move(farewell)] { farewell(closing()); });
    }
  }
  make(std::move(calls), lock);
}

// Answers those whose clients have left; a load that nobody waits for any more leaves the queue.
bool ModelRegistry::Impl::drop_gone(Lock& lock) {
  Calls calls;
  for (Entry& entry : entries_) {
    const auto rest = std::ranges::stable_partition(
        entry.waiters, [](const Waiter& waiter) { return waiter.gone == nullptr || !waiter.gone(); });
    for (Waiter& waiter : rest) {
      calls.push_back(
          [answer = std::move(waiter.answer)] { answer(Status(ErrorCode::kCancelled, "the client has left")); });
    }
    entry.waiters.erase(rest.begin(), rest.end());
    entry.queued = entry.queued && (entry.explicit_load || !entry.waiters.empty());
  }
  const bool found = !calls.empty();
  make(std::move(calls), lock);
  return found;
}

bool ModelRegistry::Impl::let_leavers_go(Lock& lock) {
  Calls calls;
  std::vector<std::shared_ptr<ServedModel>> models;
  for (Entry& entry : entries_) {
    if (!entry.leaving || entry.n_leases > 0) {
      continue;
    }
    if (entry.model == nullptr) {
      finish_load(entry, {ErrorCode::kCancelled, fmt::format("model {} was unloaded meanwhile", entry.name)}, calls);
    }
    models.push_back(std::exchange(entry.model, nullptr));
    entry.leaving = false;
    calls.push_back([this, text = "unloaded " + entry.name] { log_.info(text); });
    for (auto& farewell : std::exchange(entry.farewells, {})) {
      calls.push_back([farewell = std::move(farewell)] { farewell({}); });
    }
  }
  const bool found = !models.empty();
  if (found) {
    lock.unlock();
    models.clear();
    lock.lock();
  }
  make(std::move(calls), lock);
  return found;
}

// Begins the first load of the queue for which there is room, or fails one that has waited too long for it. wake_at:
// when the next one will have.
bool ModelRegistry::Impl::serve_queue(Lock& lock, Clock::time_point& wake_at) {
  std::vector<Entry*> queue;
  for (Entry& entry : entries_) {
    if (entry.queued && !entry.leaving) {
      queue.push_back(&entry);
    }
  }
  std::ranges::sort(queue, {}, &Entry::turn);
  if (!queue.empty()) {
    ask_claims();
  }
  const Clock::time_point now = Clock::now();
  for (Entry* entry : queue) {
    if (!entry->counted || entry->placement != entry->wanted_placement()) {
      count(*entry, lock);
      return true;
    }
    const Room room = make_room(*entry);
    if (room.lack.empty()) {
      load_now(*entry, room.leavers, lock);
      return true;
    }
    entry->deadline = entry->deadline.value_or(now + options_.wait);
    if (now >= *entry->deadline) {
      Calls calls;
      finish_load(*entry, {ErrorCode::kCancelled, room.lack}, calls, true);
      make(std::move(calls), lock);
      return true;
    }
    wake_at = std::min(wake_at, *entry->deadline);
  }
  return false;
}

void ModelRegistry::Impl::count(Entry& entry, Lock& lock) {
  const auto model = static_cast<size_t>(&entry - entries_.data());
  entry.placement = entry.wanted_placement();
  const LoadPlacement placement = entry.placement;
  lock.unlock();
  Result<std::vector<DeviceClaim>> claims = within_memory([&] { return source_->count(model, placement); });
  lock.lock();
  if (claims.ok()) {
    entry.claims = std::move(*claims);
    entry.counted = true;
    return;
  }
  Calls calls;
  finish_load(entry, claims.status(), calls);
  make(std::move(calls), lock);
}

void ModelRegistry::Impl::ask_claims() {
  for (size_t i = 0; i < entries_.size(); ++i) {
    Entry& entry = entries_[i];
    if (entry.model == nullptr) {
      continue;
    }
    Result<std::vector<DeviceClaim>> claims =
        within_memory([&]() -> Result<std::vector<DeviceClaim>> { return source_->present(i, *entry.model); });
    if (claims.ok()) {  // else those of the last time count
      entry.claims = std::move(*claims);
    }
  }
}

void ModelRegistry::Impl::find_lack(const Entry& entry, Room& room) const {
  const auto stays = [&](const Entry& other) {
    return other.model != nullptr && std::ranges::find(room.leavers, &other) == room.leavers.end();
  };
  const auto n_staying = std::ranges::count_if(entries_, stays);
  room.lack.clear();
  room.lacking_devices.clear();
  room.lacks_count = options_.models_max > 0 && n_staying >= options_.models_max;
  if (room.lacks_count) {
    room.lack = fmt::format("--models-max allows {} at once", options_.models_max);
  }
  for (const DeviceClaim& claim : entry.claims) {
    uint64_t used = 0;
    std::string users;
    for (const Entry& other : entries_) {
      const uint64_t bytes = stays(other) ? other.bytes_on(claim.device) : 0;
      used += bytes;
      users += bytes > 0 ? fmt::format("{}{} {:.1f}", users.empty() ? "" : ", ", other.name, mib(bytes)) : "";
    }
    if (used > 0 && used + claim.bytes > claim.budget_bytes) {
      room.lacking_devices.push_back(claim.device);
      room.lack +=
          fmt::format("{}it needs {:.1f} MiB of {}, which has {:.1f} and of these in use: {}",
                      room.lack.empty() ? "" : "; ", mib(claim.bytes), claim.device, mib(claim.budget_bytes), users);
    }
  }
}

ModelRegistry::Impl::Room ModelRegistry::Impl::make_room(const Entry& entry) const {
  std::vector<const Entry*> idle;
  for (const Entry& other : entries_) {
    if (other.model != nullptr && other.n_leases == 0) {
      idle.push_back(&other);
    }
  }
  std::ranges::sort(idle, {}, &Entry::last_use);
  Room room;
  find_lack(entry, room);
  for (auto next = idle.begin(); !room.lack.empty() && next != idle.end(); ++next) {
    const auto lies_on = [&](std::string_view device) { return (*next)->bytes_on(device) > 0; };
    if (room.lacks_count || std::ranges::any_of(room.lacking_devices, lies_on)) {
      room.leavers.push_back(*next);
      find_lack(entry, room);
    }
  }
  if (room.lack.empty()) {  // who need not go stays, the last used first
    for (size_t i = room.leavers.size(); i-- > 0;) {
      const auto at = room.leavers.begin() + static_cast<std::ptrdiff_t>(i);
      const Entry* spared = *at;
      room.leavers.erase(at);
      find_lack(entry, room);
      if (!room.lack.empty()) {
        room.leavers.insert(room.leavers.begin() + static_cast<std::ptrdiff_t>(i), spared);
      }
    }
    find_lack(entry, room);
  } else {
    const bool lacks_memory = !room.lacking_devices.empty();
    room.lack = fmt::format(
        "there is no room for model {} beside models that answer requests: {}. Try again later, or raise {}{}{}",
        entry.name, room.lack, room.lacks_count ? "--models-max" : "", room.lacks_count && lacks_memory ? " and " : "",
        lacks_memory ? "--device-memory" : "");
  }
  return room;
}

void ModelRegistry::Impl::load_now(Entry& entry, const std::vector<const Entry*>& leavers, Lock& lock) {
  std::vector<std::shared_ptr<ServedModel>> models;
  std::string left;
  for (Entry& leaver : entries_) {
    if (std::ranges::find(leavers, &leaver) != leavers.end()) {
      models.push_back(std::exchange(leaver.model, nullptr));
      left += fmt::format("{}{}", left.empty() ? "" : ", ", leaver.name);
    }
  }
  loading_ = &entry;
  cancelled_ = stopping_;  // stop() may have come since run() looked
  const LoadPlacement placement = entry.placement;
  lock.unlock();
  models.clear();
  if (!left.empty()) {
    log_.info(fmt::format("unloaded {} to make room for {}", left, entry.name));
  }
  const auto model = static_cast<size_t>(&entry - entries_.data());
  Result<std::shared_ptr<ServedModel>> loaded =
      within_memory([&] { return source_->load(model, placement, cancelled_); });
  lock.lock();
  loading_ = nullptr;
  Status status = loaded.status();
  if (status.ok() && stopping_) {
    status = closing();
  }
  if (loaded.ok() && (entry.leaving || stopping_)) {
    models.push_back(std::move(*loaded));
  } else if (status.ok()) {
    entry.model = std::move(*loaded);
    entry.last_use = ++tick_;
  }
  Calls calls;
  if (!entry.leaving) {  // those who wait for one that leaves hear of it when it is gone
    finish_load(entry, status, calls);
  }
  lock.unlock();
  models.clear();
  lock.lock();
  make(std::move(calls), lock);
}

// REQUIRES: the lock is held.
void ModelRegistry::Impl::finish_load(Entry& entry, const Status& status, Calls& calls, bool lacks_room) {
  const bool has_failed = !status.ok() && status.code() != ErrorCode::kCancelled;
  if (has_failed) {
    calls.push_back(
        [this, text = fmt::format("cannot load {}: {}", entry.name, status.message())] { log_.warning(text); });
  }
  std::vector<Waiter> answered;
  if ((has_failed || lacks_room) && !entry.placement.says_nothing()) {
    // The model may well be had as its own settings say.
    const auto others = [&](const Waiter& waiter) { return waiter.placement != entry.placement; };
    const auto asked = std::ranges::stable_partition(entry.waiters, others);
    std::ranges::move(asked, std::back_inserter(answered));
    entry.waiters.erase(asked.begin(), asked.end());
    entry.queued = entry.explicit_load || !entry.waiters.empty();
    entry.counted = false;
    entry.deadline.reset();
  } else {
    entry.failure = has_failed ? status : Status();
    entry.queued = false;
    entry.explicit_load = false;
    answered = std::exchange(entry.waiters, {});
  }
  for (Waiter& waiter : answered) {
    const bool gone = waiter.gone != nullptr && waiter.gone();
    Result<Lease> result = gone          ? Status(ErrorCode::kCancelled, "the client has left")
                           : status.ok() ? Result<Lease>(lease(entry, true))
                                         : status;
    calls.push_back(
        [answer = std::move(waiter.answer), result = std::move(result)]() mutable { answer(std::move(result)); });
  }
}

void ModelRegistry::Impl::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    cancelled_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) {
    thread_.join();
  }
}

void ModelRegistry::Impl::clear() {
  std::vector<std::shared_ptr<ServedModel>> models;
  const std::lock_guard lock(mutex_);
  for (Entry& entry : entries_) {
    models.push_back(std::exchange(entry.model, nullptr));
  }
}

// ---- ModelRegistry

ModelRegistry::ModelRegistry(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

Result<std::shared_ptr<ModelRegistry>> ModelRegistry::start(std::vector<std::string> names,
                                                            std::unique_ptr<ModelSource> source,
                                                            const ModelRegistryOptions& options, Log log) {
  CHECK(!names.empty());
  auto impl = std::make_shared<Impl>(std::move(names), std::move(source), options, std::move(log));
  TRY(impl->start());
  return std::shared_ptr<ModelRegistry>(new ModelRegistry(std::move(impl)));
}

ModelRegistry::~ModelRegistry() {
  impl_->stop();
  impl_->clear();
}

size_t ModelRegistry::size() const {
  return impl_->size();
}
std::vector<ModelView> ModelRegistry::list() const {
  return impl_->list();
}
Result<size_t> ModelRegistry::find(std::string_view name) const {
  return impl_->find(name);
}
bool ModelRegistry::acquire(size_t model, std::function<bool()> gone, Answer answer, LoadPlacement placement) {
  return impl_->acquire(model, std::move(gone), std::move(answer), std::move(placement));
}
ModelRegistry::Lease ModelRegistry::take(size_t model) {
  return impl_->take(model);
}
void ModelRegistry::wake() {
  impl_->wake();
}
ModelRegistry::Lease ModelRegistry::peek(size_t model) const {
  return impl_->peek(model);
}
Status ModelRegistry::load(size_t model) {
  return impl_->load(model);
}
Status ModelRegistry::unload(size_t model, std::function<void(Status)> done) {
  return impl_->unload(model, std::move(done));
}
void ModelRegistry::stop() {
  impl_->stop();
}

std::string_view model_phase_name(ModelPhase phase) {
  switch (phase) {
    case ModelPhase::kUnloaded: return "unloaded";
    case ModelPhase::kLoading: return "loading";
    case ModelPhase::kLoaded: return "loaded";
    case ModelPhase::kFailed: return "failed";
  }
  return "";
}

}  // namespace tessera
