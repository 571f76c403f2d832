#include "runtime/grammar/automaton.h"

#include <algorithm>
#include <functional>

#include "base/check.h"

namespace tessera {
namespace {

using StateKind = Grammar::State::Kind;

uint64_t mix(uint64_t x) {
  x ^= x >> 32;
  x *= 0x9E3779B97F4A7C15;
  return x ^ (x >> 29);
}

uint64_t pair_key(int32_t a, int32_t b) {
  return static_cast<uint64_t>(static_cast<uint32_t>(a)) << 32 | static_cast<uint32_t>(b);
}

template <typename Pair>
uint64_t hash_of(std::span<const Pair> pairs, uint64_t seed) {
  uint64_t hash = seed;
  for (const Pair& pair : pairs) {
    hash = mix(hash * 31 + pair_key(pair.state, pair.frame));
  }
  return hash;
}

}  // namespace

void GrammarAutomaton::PairSet::clear() {
  ++round_;
  n_ = 0;
}

bool GrammarAutomaton::PairSet::insert(int32_t a, int32_t b) {
  if (n_ * 2 >= slots_.size()) {
    grow();
  }
  const uint64_t key = pair_key(a, b);
  for (size_t i = mix(key);; ++i) {
    Slot& slot = slots_[i & (slots_.size() - 1)];
    if (slot.round != round_) {
      slot = {key, round_};
      ++n_;
      return true;
    }
    if (slot.key == key) {
      return false;
    }
  }
}

void GrammarAutomaton::PairSet::grow() {
  std::vector<Slot> old(slots_.size() * 2);
  old.swap(slots_);
  n_ = 0;
  for (const Slot& slot : old) {
    if (slot.round == round_) {
      insert(static_cast<int32_t>(slot.key >> 32), static_cast<int32_t>(slot.key & 0xFFFFFFFF));
    }
  }
}

GrammarAutomaton::GrammarAutomaton(std::shared_ptr<const Grammar> grammar)
    : grammar_(std::move(grammar)), n_classes_(grammar_->n_classes()) {
  rule_of_rank_.resize(grammar_->rules().size());
  for (size_t i = 0; i < rule_of_rank_.size(); ++i) {
    rule_of_rank_[static_cast<size_t>(grammar_->rules()[i].rank)] = static_cast<int32_t>(i);
  }
  for (size_t byte = 0; byte < byte_class_.size(); ++byte) {
    byte_class_[byte] = grammar_->byte_class(static_cast<uint8_t>(byte));
  }
  calls_.resize(rule_of_rank_.size());
  reset_tables();
  begin_closure();
  add(grammar_->rules()[static_cast<size_t>(grammar_->root())].start, 0);
  start_ = finish_closure();
}

void GrammarAutomaton::reset_tables() {
  configs_.assign(1, {});
  threads_.clear();
  next_.assign(n_classes_, kDeadConfig);
  config_index_.clear();
  frames_.assign(1, {});
  continuations_.clear();
  frame_index_.clear();
}

std::span<const GrammarAutomaton::Thread> GrammarAutomaton::threads(ConfigId config) const {
  const Config& c = configs_[static_cast<size_t>(config)];
  return std::span(threads_).subspan(c.begin, c.n);
}

size_t GrammarAutomaton::bytes() const {
  constexpr size_t kIndexEntry = 56;  // a node of the map and its bucket
  return next_.size() * sizeof(ConfigId) + threads_.size() * sizeof(Thread) +
         continuations_.size() * sizeof(Continuation) + configs_.size() * (sizeof(Config) + kIndexEntry) +
         frames_.size() * (sizeof(Frame) + kIndexEntry);
}

ConfigId GrammarAutomaton::step(ConfigId config, std::string_view bytes) {
  for (const char byte : bytes) {
    config = step(config, static_cast<uint8_t>(byte));
  }
  return config;
}

ConfigId GrammarAutomaton::step_token(ConfigId config, int32_t id, std::string_view bytes) {
  const ConfigId by_bytes = bytes.empty() ? kDeadConfig : step(config, bytes);
  std::vector<Thread> by_token;
  for (const Thread& thread : threads(config)) {
    const Grammar::State& state = grammar_->states()[static_cast<size_t>(thread.state)];
    if (state.kind == StateKind::kToken && (state.begin == id) != state.negated) {
      by_token.push_back({state.end, thread.frame});
    }
  }
  if (by_token.empty()) {
    return by_bytes;
  }
  begin_closure();
  found_end_ = may_end(by_bytes);
  for (const Thread& thread : threads(by_bytes)) {
    add(thread.state, thread.frame);
  }
  for (const Thread& thread : by_token) {
    add(thread.state, thread.frame);
  }
  return finish_closure();
}

ConfigId GrammarAutomaton::compute_step(ConfigId config, uint8_t byte_class) {
  begin_closure();
  const uint8_t byte = grammar_->class_byte(byte_class);
  for (const Thread& thread : threads(config)) {
    const Grammar::State& state = grammar_->states()[static_cast<size_t>(thread.state)];
    if (state.kind != StateKind::kBytes) {
      continue;
    }
    work_ += static_cast<uint64_t>(state.end - state.begin);
    for (int32_t i = state.begin; i < state.end; ++i) {
      const Grammar::Edge& edge = grammar_->edges()[static_cast<size_t>(i)];
      if (edge.first <= byte && byte <= edge.last) {
        add(edge.to, thread.frame);
      }
    }
  }
  const ConfigId next = finish_closure();
  if (!exhausted()) {
    next_[static_cast<size_t>(config) * n_classes_ + byte_class] = next;
  }
  return next;
}

ConfigId GrammarAutomaton::in_frame_0(std::span<const Thread> threads) {
  begin_closure();
  for (const Thread& thread : threads) {
    found_.push_back({thread.state, 0});
  }
  return intern_config();
}

ConfigId GrammarAutomaton::after_frame(int32_t frame) {
  if (frames_[static_cast<size_t>(frame)].after == kUnknown) {
    begin_closure();
    const Frame f = frames_[static_cast<size_t>(frame)];
    for (size_t i = f.begin; i < f.begin + f.n; ++i) {
      add(continuations_[i].state, continuations_[i].frame);
    }
    const ConfigId after = finish_closure();
    if (exhausted()) {
      return kDeadConfig;
    }
    frames_[static_cast<size_t>(frame)].after = after;
  }
  return frames_[static_cast<size_t>(frame)].after;
}

ConfigId GrammarAutomaton::near(ConfigId config) {
  if (!grammar_->has_near()) {
    return config;
  }
  const auto all = threads(config);
  std::vector<Thread> moved(all.begin(), all.end());
  for (Thread& thread : moved) {
    thread = {grammar_->near(thread.state), near_frame(thread.frame)};
  }
  begin_closure();
  found_end_ = may_end(config);
  for (const Thread& thread : moved) {
    add(thread.state, thread.frame);
  }
  return finish_closure();
}

// Frames below come first; a list of its own instead of recursion.
int32_t GrammarAutomaton::near_frame(int32_t frame) {
  frames_[0].near = 0;
  std::vector<int32_t> open = {frame};
  while (!open.empty()) {
    const auto id = static_cast<size_t>(open.back());
    if (frames_[id].near >= 0) {
      open.pop_back();
      continue;
    }
    const Frame f = frames_[id];
    std::vector<Continuation> continuations(continuations_.begin() + static_cast<std::ptrdiff_t>(f.begin),
                                            continuations_.begin() + static_cast<std::ptrdiff_t>(f.begin + f.n));
    bool is_ready = true;
    for (Continuation& c : continuations) {
      const int32_t below = frames_[static_cast<size_t>(c.frame)].near;
      if (below < 0) {
        open.push_back(c.frame);
        is_ready = false;
      }
      c = {grammar_->near(c.state), below};
    }
    work_ += f.n;
    if (is_ready) {
      const int32_t near = intern_frame(continuations);
      frames_[id].near = near;
      frames_[static_cast<size_t>(near)].near = near;
    }
  }
  return frames_[static_cast<size_t>(frame)].near;
}

void GrammarAutomaton::begin_closure() {
  seen_.clear();
  found_.clear();
  found_end_ = false;
}

void GrammarAutomaton::add(int32_t state, int32_t frame) {
  if (seen_.insert(state, frame)) {
    pending_.push_back({state, frame});
  }
}

// Everything that is reached without reading, but for the calls, which wait until all callers are known.
void GrammarAutomaton::follow_threads() {
  while (!pending_.empty()) {
    const Thread thread = pending_.back();
    pending_.pop_back();
    ++work_;
    const Grammar::State& state = grammar_->states()[static_cast<size_t>(thread.state)];
    switch (state.kind) {
      case StateKind::kBytes:
      case StateKind::kToken: found_.push_back(thread); break;
      case StateKind::kChoice:
        work_ += static_cast<uint64_t>(state.end - state.begin);
        for (int32_t i = state.begin; i < state.end; ++i) {
          add(grammar_->targets()[static_cast<size_t>(i)], thread.frame);
        }
        break;
      case StateKind::kCall: call(state.begin, state.end, thread.frame); break;
      case StateKind::kEnd: {
        found_end_ = found_end_ || thread.frame == 0;
        const Frame f = frames_[static_cast<size_t>(thread.frame)];
        work_ += f.n;
        for (size_t i = f.begin; i < f.begin + f.n; ++i) {
          add(continuations_[i].state, continuations_[i].frame);
        }
        break;
      }
    }
    if (exhausted()) {
      pending_.clear();
    }
  }
}

void GrammarAutomaton::call(int32_t rule, int32_t next, int32_t frame) {
  const Grammar::Rule& r = grammar_->rules()[static_cast<size_t>(rule)];
  auto& continuations = calls_[static_cast<size_t>(r.rank)];
  if (continuations.empty()) {
    called_ranks_.push_back(r.rank);
    std::ranges::push_heap(called_ranks_, std::greater());
  }
  continuations.push_back({next, frame});
  if (r.may_be_empty) {
    add(next, frame);
  }
}

ConfigId GrammarAutomaton::finish_closure() {
  follow_threads();
  // In order of ranks: who calls a rule in this place has a lower one, so that all its callers are known by now.
  while (!called_ranks_.empty()) {
    std::ranges::pop_heap(called_ranks_, std::greater());
    const auto rank = static_cast<size_t>(called_ranks_.back());
    called_ranks_.pop_back();
    const int32_t frame = intern_frame(calls_[rank]);
    calls_[rank].clear();
    add(grammar_->rules()[static_cast<size_t>(rule_of_rank_[rank])].start, frame);
    follow_threads();
  }
  std::ranges::sort(found_, [](const Thread& a, const Thread& b) {
    return a.frame != b.frame ? a.frame < b.frame : a.state < b.state;
  });
  return exhausted() ? kDeadConfig : intern_config();
}

// The number of found_ and found_end_.
ConfigId GrammarAutomaton::intern_config() {
  if (found_.empty() && !found_end_) {
    return kDeadConfig;
  }
  const uint64_t hash = hash_of(std::span<const Thread>(found_), found_end_ ? 1 : 0);
  const auto [first, last] = config_index_.equal_range(hash);
  for (auto it = first; it != last; ++it) {
    if (may_end(it->second) == found_end_ && std::ranges::equal(threads(it->second), found_)) {
      return it->second;
    }
  }
  const auto id = static_cast<ConfigId>(configs_.size());
  configs_.push_back({threads_.size(), found_.size(), found_end_});
  threads_.insert(threads_.end(), found_.begin(), found_.end());
  next_.resize(next_.size() + n_classes_, kUnknown);
  config_index_.emplace(hash, id);
  return id;
}

int32_t GrammarAutomaton::intern_frame(std::vector<Continuation>& continuations) {
  std::ranges::sort(continuations);
  continuations.erase(std::ranges::unique(continuations).begin(), continuations.end());
  const uint64_t hash = hash_of(std::span<const Continuation>(continuations), 2);
  const auto [first, last] = frame_index_.equal_range(hash);
  for (auto it = first; it != last; ++it) {
    const Frame& f = frames_[static_cast<size_t>(it->second)];
    if (std::ranges::equal(std::span(continuations_).subspan(f.begin, f.n), continuations)) {
      return it->second;
    }
  }
  const auto id = static_cast<int32_t>(frames_.size());
  frames_.push_back({continuations_.size(), continuations.size(), kUnknown});
  continuations_.insert(continuations_.end(), continuations.begin(), continuations.end());
  frame_index_.emplace(hash, id);
  return id;
}

// A frame refers to older ones only: marked from the newest down, copied from the oldest up.
void GrammarAutomaton::collect(std::span<ConfigId*> kept) {
  std::vector<bool> is_used(frames_.size(), false);
  const auto mark_threads = [&](ConfigId config) {
    for (const Thread& thread : threads(config)) {
      is_used[static_cast<size_t>(thread.frame)] = true;
    }
  };
  mark_threads(start_);
  for (const ConfigId* config : kept) {
    mark_threads(*config);
  }
  for (size_t id = frames_.size() - 1; id > 0; --id) {
    for (size_t i = frames_[id].begin; is_used[id] && i < frames_[id].begin + frames_[id].n; ++i) {
      CHECK(static_cast<size_t>(continuations_[i].frame) < id);
      is_used[static_cast<size_t>(continuations_[i].frame)] = true;
    }
  }
  const std::vector<Config> old_configs = std::move(configs_);
  const std::vector<Thread> old_threads = std::move(threads_);
  const std::vector<Frame> old_frames = std::move(frames_);
  const std::vector<Continuation> old_continuations = std::move(continuations_);
  reset_tables();
  std::vector<int32_t> moved(old_frames.size(), 0);
  for (size_t id = 1; id < old_frames.size(); ++id) {
    if (is_used[id]) {
      const auto begin = old_continuations.begin() + static_cast<std::ptrdiff_t>(old_frames[id].begin);
      std::vector<Continuation> continuations(begin, begin + static_cast<std::ptrdiff_t>(old_frames[id].n));
      for (Continuation& c : continuations) {
        c.frame = moved[static_cast<size_t>(c.frame)];
      }
      moved[id] = intern_frame(continuations);
    }
  }
  const auto move_config = [&](ConfigId config) {
    const Config& old = old_configs[static_cast<size_t>(config)];
    found_.assign(old_threads.begin() + static_cast<std::ptrdiff_t>(old.begin),
                  old_threads.begin() + static_cast<std::ptrdiff_t>(old.begin + old.n));
    for (Thread& thread : found_) {
      thread.frame = moved[static_cast<size_t>(thread.frame)];
    }
    found_end_ = old.may_end;
    return intern_config();  // frames keep their order, so threads do
  };
  start_ = move_config(start_);
  for (ConfigId* config : kept) {
    *config = move_config(*config);
  }
}

}  // namespace tessera
