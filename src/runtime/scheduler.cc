#include "runtime/scheduler.h"

#include <algorithm>
#include <fmt/format.h>
#include <iterator>
#include <utility>

#include "base/check.h"
#include "runtime/common_prefix.h"
#include "tensor/kv_page.h"

namespace tessera {
namespace {

// A prefix worth waiting for: a page is shared only as a whole.
constexpr int64_t kLeastFollowed = kPageTokens;

int64_t size_of(const std::vector<int32_t>& tokens) {
  return static_cast<int64_t>(tokens.size());
}

// How many tokens `held` has in common with `wanted`, of which the last does not count: it is read in any case.
int64_t reusable_prefix(std::span<const int32_t> held, std::span<const int32_t> wanted) {
  return common_prefix(held, wanted.first(wanted.size() - 1));
}

int64_t pages_for(int64_t n_tokens) {
  return (n_tokens + kPageTokens - 1) / kPageTokens;
}

// Of the copies on write that pages_needed() counts, those that are not made once these idle slots are emptied.
int64_t spared_copies(const KvCache& kv, int32_t klass, std::span<const KvGrowth> growth,
                      std::span<const int32_t> idle) {
  struct Sharers {
    int64_t n_writers = 0;
    int64_t n_idle = 0;
  };
  std::map<int32_t, Sharers> partial_pages;
  for (const KvGrowth& g : growth) {
    const int64_t length = kv.length(g.seq);
    if (g.n_tokens == 0 || length % kPageTokens == 0) {
      continue;
    }
    // A page that is shared lies at the same place of all tables.
    const auto place = static_cast<size_t>(length / kPageTokens);
    const int32_t page = kv.pages(klass, g.seq)[place];
    Sharers& sharers = partial_pages[page];
    ++sharers.n_writers;
    sharers.n_idle = std::ranges::count_if(
        idle, [&](int32_t s) { return kv.pages(klass, s).size() > place && kv.pages(klass, s)[place] == page; });
  }
  int64_t n_spared = 0;
  for (const auto& [page, sharers] : partial_pages) {
    const int64_t n_others = kv.page_refs(klass, page) - 1;
    n_spared += std::min(sharers.n_writers, n_others) - std::min(sharers.n_writers, n_others - sharers.n_idle);
  }
  return n_spared;
}

}  // namespace

Scheduler::Scheduler(const SequenceMemory& memory, const SchedulerOptions& options, const KeptPrefixes* kept)
    : memory_(memory),
      n_ctx_(memory.kv().config().n_ctx),
      options_(options),
      kept_(options.forget_prefixes ? nullptr : kept),
      slots_(static_cast<size_t>(memory.kv().config().n_seq_max)) {
  CHECK(options.step_tokens >= 2 && options.prompt_tokens >= 1);
  CHECK(options.grid_tokens >= 1 && options.grid_tokens <= options.step_tokens / 2);
}

Status Scheduler::submit(SchedulerRequest request, int64_t now_us) {
  CHECK(!has(request.id));
  if (request.tokens.empty()) {
    return {ErrorCode::kInvalidArgument, "a request without tokens"};
  }
  if (size_of(request.tokens) > n_ctx()) {
    return {ErrorCode::kCacheFull, fmt::format("{} tokens; a sequence takes {}", request.tokens.size(), n_ctx())};
  }
  if (request.slot >= n_slots()) {
    return {ErrorCode::kInvalidArgument, fmt::format("slot {}; there are {}", request.slot, n_slots())};
  }
  if (n_queued_ >= options_.n_queue) {
    return {ErrorCode::kBusy, fmt::format("the queue is full: {} requests wait and {} run", n_queued_, n_running())};
  }
  Task task;
  const int64_t priority = std::clamp(request.priority, -kMaxPriority, kMaxPriority);
  task.rank = {now_us - priority * options_.priority_us, request.id};
  task.n_prompt = size_of(request.tokens);
  task.request = std::move(request);
  waiting_.insert(task.rank);
  ++n_queued_;
  const int64_t id = task.request.id;
  tasks_.emplace(id, std::move(task));
  return {};
}

const SchedulerStep& Scheduler::next_step(int64_t now_us) {
  begin_step();
  mend_replaced();
  if (step_.moves.empty()) {
    admit_waiting(now_us);
  }
  if (step_.moves.empty()) {
    build_batch();
    if (batch_fits()) {
      commit_batch();
    } else {
      begin_step();
      make_room();
    }
  }
  return step_;
}

void Scheduler::begin_step() {
  step_.moves.clear();
  step_.batch.clear();
  step_.outputs.clear();
  step_.snapshots.clear();
  step_.keeps.clear();
  growth_.clear();
}

void Scheduler::failed() {
  for (const SequenceMove& move : step_.moves) {
    slots_[static_cast<size_t>(move.to)].held.clear();
  }
  for (int32_t s = 0; s < n_slots(); ++s) {
    std::vector<int32_t>& held = slots_[static_cast<size_t>(s)].held;
    held.resize(static_cast<size_t>(std::min(size_of(held), memory_.length(s))));
  }
}

void Scheduler::restored(int32_t slot, int64_t length) {
  Slot& s = slots_[static_cast<size_t>(slot)];
  CHECK(s.task >= 0 && length <= size_of(s.held) && length == memory_.length(slot));
  Task& t = task(s.task);
  t.n_cached = t.n_cached == size_of(s.held) ? length : t.n_cached;
  t.grid_begin = length;
  s.held.resize(static_cast<size_t>(length));
}

void Scheduler::append(int64_t id, int32_t token) {
  Task& t = task(id);
  CHECK(t.slot >= 0 && n_held(t) == size_of(t.request.tokens) && n_held(t) < n_ctx());
  t.request.tokens.push_back(token);
}

void Scheduler::replace(int64_t id, std::vector<int32_t> tokens) {
  CHECK(!tokens.empty() && size_of(tokens) <= n_ctx());
  Task& t = task(id);
  t.request.tokens = std::move(tokens);
  t.request.branches.clear();
  t.n_prompt = size_of(t.request.tokens);
  replaced_.push_back(id);
  // Who waits for what it had waits in vain.
  for (auto& [other, follower] : tasks_) {
    follower.leader_length = follower.leader == id ? 0 : follower.leader_length;
  }
}

void Scheduler::end(int64_t id, int64_t now_us) {
  Task& t = task(id);
  if (t.slot >= 0) {
    Slot& slot = slots_[static_cast<size_t>(t.slot)];
    slot.task = -1;
    slot.last_use_us = now_us;
  } else {
    waiting_.erase(t.rank);
    n_queued_ -= t.n_cached < 0 ? 1 : 0;
  }
  std::erase(replaced_, id);
  tasks_.erase(id);
}

void Scheduler::set_held(int32_t slot, std::vector<int32_t> tokens, int64_t now_us) {
  CHECK(idle(slot) && size_of(tokens) == memory_.length(slot));
  slots_[static_cast<size_t>(slot)].held = std::move(tokens);
  slots_[static_cast<size_t>(slot)].last_use_us = now_us;
}

SchedulerView Scheduler::view(int64_t id) const {
  const Task& t = task(id);
  return {t.slot, t.n_cached, n_held(t), size_of(t.request.tokens)};
}

std::span<const int32_t> Scheduler::tokens(int64_t id) const {
  return task(id).request.tokens;
}

Scheduler::Task& Scheduler::task(int64_t id) {
  const auto found = tasks_.find(id);
  CHECK(found != tasks_.end());
  return found->second;
}

const Scheduler::Task& Scheduler::task(int64_t id) const {
  const auto found = tasks_.find(id);
  CHECK(found != tasks_.end());
  return found->second;
}

int64_t Scheduler::n_held(const Task& task) const {
  return task.slot < 0 ? 0 : size_of(slots_[static_cast<size_t>(task.slot)].held);
}

void Scheduler::move(const SequenceMove& move) {
  std::vector<int32_t>& held = slots_[static_cast<size_t>(move.to)].held;
  if (move.from >= 0) {
    held = slots_[static_cast<size_t>(move.from)].held;
  }
  held.resize(static_cast<size_t>(std::min(size_of(held), move.length)));
  step_.moves.push_back(move);
}

// Slots keep what they have in common with their requests' new tokens, or less where they cannot be cut there.
void Scheduler::mend_replaced() {
  for (const int64_t id : std::exchange(replaced_, {})) {
    Task& t = task(id);
    if (t.slot < 0) {
      continue;
    }
    const Slot& slot = slots_[static_cast<size_t>(t.slot)];
    const int64_t common = options_.forget_prefixes ? 0 : reusable_prefix(slot.held, t.request.tokens);
    const int64_t length = memory_.rewind_length(t.slot, common);
    if (length < memory_.length(t.slot)) {
      move({t.slot, -1, length});
    }
    t.grid_begin = length;
    t.stops.clear();
  }
}

void Scheduler::admit_waiting(int64_t now_us) {
  for (auto next = waiting_.begin(); next != waiting_.end() && least_used_idle(-1) >= 0 && step_.moves.empty();) {
    Task& t = task(next->second);
    ++next;
    const Berth berth = find_berth(t);
    if (berth.slot < 0 || follows(t, berth.length)) {
      continue;
    }
    if (!has_room(t, berth) || empty_for(berth)) {
      break;
    }
    begin(t, berth, now_us);
  }
}

// The idle slot that is missed least: an empty one, or else the one used least recently. -1: there is none.
int32_t Scheduler::least_used_idle(int32_t except) const {
  int32_t best = -1;
  const auto worth = [&](int32_t s) {
    return std::pair(memory_.length(s) > 0, slots_[static_cast<size_t>(s)].last_use_us);
  };
  for (int32_t s = 0; s < n_slots(); ++s) {
    if (idle(s) && s != except && (best < 0 || worth(s) < worth(best))) {
      best = s;
    }
  }
  return best;
}

Scheduler::Berth Scheduler::find_berth(const Task& task) const {
  const int32_t own = task.request.slot;
  if (own >= 0 && !idle(own)) {
    return {};
  }
  Berth berth;
  for (int32_t s = 0; s < n_slots() && task.request.reuse && !options_.forget_prefixes; ++s) {
    const int64_t common = reusable_prefix(slots_[static_cast<size_t>(s)].held, task.request.tokens);
    const int64_t length = memory_.rewind_length(s, common);
    const bool as_good = length == berth.length && berth.from >= 0 && idle(s) && !idle(berth.from);
    if (length > berth.length || as_good) {
      berth.from = s;
      berth.length = length;
    }
  }
  const std::span<const int32_t> tokens(task.request.tokens);
  const int64_t n_kept = kept_ != nullptr && task.request.reuse ? kept_->longest(tokens.first(tokens.size() - 1)) : 0;
  if (n_kept >= berth.length + kLeastFollowed) {
    berth = {-1, -1, n_kept, true};
  }
  const int32_t other = least_used_idle(berth.from);
  if (own >= 0) {
    berth.slot = own;
  } else if (berth.from >= 0 && idle(berth.from)) {
    const int64_t n_lost = memory_.length(berth.from) - berth.length;
    berth.slot = other >= 0 && memory_.length(other) < n_lost ? other : berth.from;
  } else {
    berth.slot = other;
  }
  berth.from = berth.from == berth.slot ? -1 : berth.from;
  return berth;
}

// Whether a request had better wait, because one that is reading now will soon have more of its tokens than `length`.
// It does so once: what it waits for is certain to come, or its leader ends.
bool Scheduler::follows(Task& task, int64_t length) {
  if (!task.request.reuse || options_.forget_prefixes) {
    return false;
  }
  if (task.leader < 0) {
    Task* leader = nullptr;
    int64_t most = length + kLeastFollowed - 1;
    for (const Slot& slot : slots_) {
      if (slot.task < 0) {
        continue;
      }
      Task& other = this->task(slot.task);
      const int64_t common = reusable_prefix(other.request.tokens, task.request.tokens);
      if (common > most && common > size_of(slot.held)) {
        most = common;
        leader = &other;
      }
    }
    if (leader == nullptr) {
      return false;
    }
    const int64_t reach = meeting_point(*leader, most);
    if (reach < length + kLeastFollowed || reach <= n_held(*leader)) {
      return false;
    }
    task.leader = leader->request.id;
    task.leader_length = reach;
  }
  const auto leader = tasks_.find(task.leader);
  return leader != tasks_.end() && leader->second.slot >= 0 && n_held(leader->second) < task.leader_length;
}

// Where a follower can take over what it has in common with its leader. Windows let go of positions and recurrent state
// goes on: there the leader ends a piece at that length, with recurrent state only where its pieces may end anyhow, so
// that its own logits do not depend on who follows.
int64_t Scheduler::meeting_point(Task& leader, int64_t common) const {
  const auto is_window = [](const KvClassConfig& klass) { return klass.window > 0; };
  const int64_t last = size_of(leader.request.tokens) - 1;
  if (options_.recurrent && common < last) {
    int64_t begin = leader.grid_begin;
    for (const int64_t branch : leader.request.branches) {
      begin = branch > begin && branch <= common ? branch : begin;
    }
    common = begin + (common - begin) / options_.grid_tokens * options_.grid_tokens;
  }
  common = std::min(common, options_.recurrent ? last : last + 1);
  if (options_.recurrent || std::ranges::any_of(memory_.kv().config().classes, is_window)) {
    leader.stops.insert(common);
  }
  return common;
}

void Scheduler::begin(Task& task, const Berth& berth, int64_t now_us) {
  waiting_.erase(task.rank);
  n_queued_ -= task.n_cached < 0 ? 1 : 0;
  slots_[static_cast<size_t>(berth.slot)].task = task.request.id;
  task.slot = berth.slot;
  task.n_cached = task.n_cached < 0 ? berth.length : task.n_cached;
  task.grid_begin = berth.length;
  task.stops.clear();
  task.leader = -1;
  if (berth.kept) {
    const auto first = task.request.tokens.begin();
    slots_[static_cast<size_t>(berth.slot)].held.assign(first, first + berth.length);
    step_.moves.push_back({berth.slot, kFromKept, berth.length});
  } else if (berth.from >= 0) {
    slots_[static_cast<size_t>(berth.from)].last_use_us = now_us;
    ++counters_.n_forks;
    move({berth.slot, berth.from, berth.length});
  } else if (memory_.length(berth.slot) > berth.length) {
    move({berth.slot, -1, berth.length});
  }
}

// Whether there are pages for all that the request must read, once idle slots are emptied, besides what the ones that
// run have still to take and one more for each. What prepare() takes for any batch of these is within that: a request
// that has just given up its slot cannot come back before others have ended. Only classes without a window can run
// short: the others have pages for every sequence.
bool Scheduler::has_room(const Task& task, const Berth& berth) const {
  if (n_running() == 0) {
    return true;
  }
  std::vector<KvGrowth> growth;
  std::vector<int32_t> idle_slots;
  for (int32_t s = 0; s < n_slots(); ++s) {
    if (idle(s)) {
      idle_slots.push_back(s);
    } else {
      const int64_t n_soon = std::min(size_of(this->task(user(s)).request.tokens) + kPageTokens, n_ctx());
      growth.push_back({s, n_soon - memory_.length(s)});
    }
  }
  const KvCache& kv = memory_.kv();
  for (size_t c = 0; c < kv.config().classes.size(); ++c) {
    const auto klass = static_cast<int32_t>(c);
    if (kv.config().classes[c].window > 0) {
      continue;
    }
    const int64_t n_needed =
        pages_for(size_of(task.request.tokens)) - berth.n_shared_pages() + kv.pages_needed(klass, growth);
    if (n_needed > kv.pages_free(klass) &&
        n_needed - spared_copies(kv, klass, growth, idle_slots) > kv.pages_free(klass) + pages_of_idle(klass, berth)) {
      return false;
    }
  }
  return true;
}

// A prefix that is brought back takes its pages at once: an idle slot is emptied for it. False: they are there, or
// nothing is left to empty.
bool Scheduler::empty_for(const Berth& berth) {
  const KvCache& kv = memory_.kv();
  const int32_t oldest = oldest_held();
  for (size_t c = 0; berth.kept && oldest >= 0 && c < kv.config().classes.size(); ++c) {
    if (kv.config().classes[c].window == 0 && pages_for(berth.length) > kv.pages_free(static_cast<int32_t>(c))) {
      ++counters_.n_evicted;
      move({oldest, -1, 0});
      return true;
    }
  }
  return false;
}

// Pages that would be free if all idle slots were emptied, but for what the berth keeps.
int64_t Scheduler::pages_of_idle(int32_t klass, const Berth& berth) const {
  const KvCache& kv = memory_.kv();
  const int32_t from = berth.from >= 0 ? berth.from : berth.slot;
  std::vector<int32_t> n_idle(static_cast<size_t>(kv.config().classes[static_cast<size_t>(klass)].n_pages), 0);
  int64_t n_pages = 0;
  for (int32_t s = 0; s < n_slots(); ++s) {
    if (idle(s)) {
      const int64_t n_kept = s == from ? berth.n_shared_pages() : 0;
      for (const int32_t page : kv.pages(klass, s).subspan(static_cast<size_t>(n_kept))) {
        n_pages += page >= 0 && ++n_idle[static_cast<size_t>(page)] == kv.page_refs(klass, page) ? 1 : 0;
      }
    }
  }
  return n_pages;
}

// Requests that generate, one token each, those that were not served for longest first; then pieces of the others.
void Scheduler::build_batch() {
  std::vector<Task*> generating;
  std::vector<Task*> reading;
  for (const Slot& slot : slots_) {
    if (slot.task >= 0) {
      Task& t = task(slot.task);
      const int64_t n_missing = size_of(t.request.tokens) - n_held(t);
      if (n_missing > 0) {
        (n_missing == 1 ? generating : reading).push_back(&t);
      }
    }
  }
  std::ranges::sort(generating, {}, [](const Task* t) { return std::pair(t->last_step, t->rank); });
  const int64_t n_most = options_.step_tokens - (reading.empty() ? 0 : options_.grid_tokens);
  int64_t n_free = options_.step_tokens;
  ++n_steps_;
  for (Task* t : generating) {
    if (options_.step_tokens - n_free < n_most) {
      n_free -= take(*t, 1);
    }
  }
  if (n_free < options_.step_tokens) {
    n_free = std::min(n_free, options_.prompt_tokens > 0 ? std::max(options_.prompt_tokens, options_.grid_tokens) : 0);
  }
  std::ranges::sort(reading, {}, &Task::rank);
  share_reading(reading, n_free);
}

// readers: eldest first.
void Scheduler::share_reading(std::span<Task* const> readers, int64_t n_free) {
  if (readers.empty() || n_free == 0) {
    return;
  }
  Task* eldest = readers.front();
  std::vector<Task*> others(readers.begin() + 1, readers.end());
  std::ranges::sort(others, {},
                    [&](const Task* t) { return std::pair(size_of(t->request.tokens) - n_held(*t), t->rank); });
  // The eldest one's pieces are counted before the others take theirs, so that it gets what they leave in one piece.
  const int64_t n_half = std::min(piece(*eldest, std::max((n_free + 1) / 2, options_.grid_tokens)), n_free);
  int64_t n_left = n_free - n_half;
  std::vector<std::pair<Task*, int64_t>> pieces;
  for (Task* t : others) {
    const int64_t n = piece(*t, n_left);
    n_left -= n;
    pieces.emplace_back(t, n);
  }
  take(*eldest, piece(*eldest, n_half + n_left));
  for (const auto& [t, n] : pieces) {
    take(*t, n);
  }
}

// The length at which the next piece must end.
int64_t Scheduler::next_stop(const Task& task) const {
  const int64_t now = n_held(task);
  int64_t stop = size_of(task.request.tokens);
  const auto stop_at = [&](int64_t length) { stop = length > now ? std::min(stop, length) : stop; };
  if (options_.recurrent) {
    stop_at(stop - 1);
  }
  if (options_.recurrent || options_.keep_windows) {
    std::ranges::for_each(task.request.branches, stop_at);
  }
  if (options_.forget_prefixes) {
    stop_at(now < task.n_prompt - 1 ? task.n_prompt - 1 : now + 1);
  }
  std::ranges::for_each(task.stops, stop_at);
  return stop;
}

// How many tokens a reader takes where so many are free: up to its next stop, or else a multiple of the grid.
int64_t Scheduler::piece(const Task& task, int64_t n_free) const {
  const int64_t now = n_held(task);
  const int64_t to_stop = next_stop(task) - now;
  if (to_stop <= n_free) {
    return to_stop;
  }
  const int64_t n_past = (now - task.grid_begin) % options_.grid_tokens;
  return std::max<int64_t>((n_past + n_free) / options_.grid_tokens * options_.grid_tokens - n_past, 0);
}

int64_t Scheduler::take(Task& task, int64_t n_tokens) {
  if (n_tokens == 0) {
    return 0;
  }
  const std::vector<int32_t>& tokens = task.request.tokens;
  const int64_t begin = n_held(task);
  for (int64_t i = begin; i < begin + n_tokens; ++i) {
    step_.batch.push_back({tokens[static_cast<size_t>(i)], task.slot, i + 1 == size_of(tokens)});
  }
  if (begin + n_tokens == size_of(tokens)) {
    step_.outputs.push_back(task.request.id);
  }
  growth_.push_back({task.slot, n_tokens});
  task.last_step = n_steps_;
  return n_tokens;
}

bool Scheduler::batch_fits() const {
  for (size_t klass = 0; klass < memory_.kv().config().classes.size(); ++klass) {
    const auto k = static_cast<int32_t>(klass);
    if (memory_.kv().pages_needed(k, growth_) > memory_.kv().pages_free(k)) {
      return false;
    }
  }
  return true;
}

void Scheduler::commit_batch() {
  for (const BatchToken& token : step_.batch) {
    slots_[static_cast<size_t>(token.seq)].held.push_back(token.token);
  }
  for (const KvGrowth& grown : growth_) {
    Task& t = task(user(grown.seq));
    const int64_t now = n_held(t);
    if ((now - t.grid_begin) % options_.grid_tokens != 0) {
      t.grid_begin = now;  // behind a stop of its own
    }
    std::erase_if(t.stops, [&](int64_t length) { return length <= now; });
    const bool branch = std::ranges::find(t.request.branches, now) != t.request.branches.end();
    if (options_.recurrent && !options_.forget_prefixes && (branch || now + 1 == size_of(t.request.tokens))) {
      step_.snapshots.push_back(t.slot);
    }
    if (options_.keep_windows && (branch || (now == t.n_prompt && now == size_of(t.request.tokens)))) {
      step_.keeps.push_back(t.slot);
    }
  }
}

// The idle slot that was used least recently of those that hold something. -1: there is none.
int32_t Scheduler::oldest_held() const {
  int32_t oldest = -1;
  for (int32_t s = 0; s < n_slots(); ++s) {
    if (idle(s) && memory_.length(s) > 0 && (oldest < 0 || last_use_us(s) < last_use_us(oldest))) {
      oldest = s;
    }
  }
  return oldest;
}

// Empties the idle slot that was used least recently; without one, the youngest request gives up its slot.
void Scheduler::make_room() {
  if (const int32_t oldest = oldest_held(); oldest >= 0) {
    ++counters_.n_evicted;
    move({oldest, -1, 0});
    return;
  }
  Task* youngest = nullptr;
  for (const Slot& slot : slots_) {
    if (slot.task >= 0) {
      Task& t = task(slot.task);
      youngest = youngest == nullptr || t.rank > youngest->rank ? &t : youngest;
    }
  }
  CHECK(n_running() > 1);  // a sequence alone has pages for n_ctx tokens
  ++counters_.n_preempted;
  move({youngest->slot, -1, 0});
  slots_[static_cast<size_t>(youngest->slot)].task = -1;
  youngest->slot = -1;
  waiting_.insert(youngest->rank);
}

}  // namespace tessera
