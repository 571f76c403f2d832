#include "runtime/grammar/matcher.h"

#include <bit>
#include <utility>

namespace tessera {
namespace {

using Thread = GrammarAutomaton::Thread;

constexpr ConfigId kFreePlace = -1;

void set_bit(TokenMask& mask, int32_t id) {
  mask.bits[static_cast<size_t>(id) / 64] |= uint64_t{1} << (static_cast<size_t>(id) % 64);
}

void count_bits(TokenMask& mask) {
  mask.n_allowed = 0;
  for (const uint64_t word : mask.bits) {
    mask.n_allowed += std::popcount(word);
  }
}

}  // namespace

GrammarMasks::GrammarMasks(std::shared_ptr<const Grammar> grammar, std::shared_ptr<const TokenTrie> trie)
    : trie_(std::move(trie)), automaton_(std::move(grammar)), path_(trie_->max_depth() + 1) {}

TokenMask GrammarMasks::empty_mask() const {
  return {std::vector<uint64_t>((static_cast<size_t>(trie_->n_vocab()) + 63) / 64, 0), 0};
}

// Null: a limit was met.
const TokenMask* GrammarMasks::mask(ConfigId config) {
  if (const auto found = masks_.find(config); found != masks_.end()) {
    return &found->second;
  }
  automaton_.begin_work();
  const ConfigId near = automaton_.near(config);
  auto found = near_masks_.find(near);
  if (found == near_masks_.end()) {
    TokenMask mask = empty_mask();
    add_part(TokenTrie::kShort, near, mask);
    found = near_masks_.emplace(near, std::move(mask)).first;
  }
  TokenMask mask = found->second;
  add_part(TokenTrie::kLong, config, mask);
  add_named_tokens(config, mask);
  if (automaton_.may_end(config)) {
    for (const int32_t id : trie_->end_ids()) {
      set_bit(mask, id);
    }
  }
  if (automaton_.exhausted()) {
    forget_frame_masks();  // one of them may be incomplete
    return nullptr;
  }
  count_bits(mask);
  return &masks_.emplace(config, std::move(mask)).first->second;
}

// The union over the frames of the configuration's threads.
void GrammarMasks::add_part(TokenTrie::Part part, ConfigId config, TokenMask& mask) {
  const std::vector<TokenTrie::Node>& nodes = trie_->nodes(part);
  const auto all = automaton_.threads(config);
  const std::vector<Thread> threads(all.begin(), all.end());
  for (size_t begin = 0; begin < threads.size();) {
    const int32_t frame = threads[begin].frame;
    size_t end = begin;
    while (end < threads.size() && threads[end].frame == frame) {
      ++end;
    }
    const FrameMask& own = frame_mask(part, std::span(threads).subspan(begin, end - begin));
    for (size_t i = 0; i < mask.bits.size(); ++i) {
      mask.bits[i] |= own.mask.bits[i];
    }
    const ConfigId after = frame > 0 && !own.exits.empty() ? automaton_.after_frame(frame) : kDeadConfig;
    for (const int32_t exit : own.exits) {
      const TokenTrie::Node& node = nodes[static_cast<size_t>(exit)];
      add_tokens_at(node, mask);
      walk(nodes, exit + 1, node.end, after,
           [&](const TokenTrie::Node& below, ConfigId /*here*/) { add_tokens_at(below, mask); });
    }
    begin = end;
  }
}

const GrammarMasks::FrameMask& GrammarMasks::frame_mask(TokenTrie::Part part, std::span<const Thread> threads) {
  const ConfigId config = automaton_.in_frame_0(threads);
  const auto [found, is_new] = frame_masks_[part].try_emplace(config);
  FrameMask& result = found->second;
  if (is_new) {
    const std::vector<TokenTrie::Node>& nodes = trie_->nodes(part);
    result.mask = empty_mask();
    walk(nodes, 0, static_cast<int32_t>(nodes.size()), config, [&](const TokenTrie::Node& node, ConfigId here) {
      if (automaton_.may_end(here)) {
        result.exits.push_back(static_cast<int32_t>(&node - nodes.data()));
      }
      if (!automaton_.threads(here).empty()) {
        add_tokens_at(node, result.mask);
      }
    });
    frame_mask_bytes_ += result.mask.bits.size() * sizeof(uint64_t) + result.exits.size() * sizeof(int32_t);
  }
  return result;
}

// Visits the nodes from begin to end that the automaton reaches from config, which is where the first one's parent is.
template <typename Visit>
void GrammarMasks::walk(const std::vector<TokenTrie::Node>& nodes, int32_t begin, int32_t end, ConfigId config,
                        const Visit& visit) {
  if (begin >= end || config == kDeadConfig) {
    return;
  }
  path_[nodes[static_cast<size_t>(begin)].depth - size_t{1}] = config;
  int32_t n_visited = 0;
  for (int32_t i = begin; i < end;) {
    const TokenTrie::Node& node = nodes[static_cast<size_t>(i)];
    const ConfigId here = automaton_.step(path_[node.depth - size_t{1}], node.byte);
    if (here == kDeadConfig) {
      i = node.end;
      continue;
    }
    path_[node.depth] = here;
    visit(node, here);
    ++i;
    if ((++n_visited & 1023) == 0 && automaton_.exhausted()) {
      return;
    }
  }
  automaton_.add_work(static_cast<uint64_t>(n_visited));
}

void GrammarMasks::add_tokens_at(const TokenTrie::Node& node, TokenMask& mask) const {
  for (int32_t id = node.token; id >= 0; id = trie_->next_same()[static_cast<size_t>(id)]) {
    set_bit(mask, id);
  }
}

// Those that the grammar names as <token>.
void GrammarMasks::add_named_tokens(ConfigId config, TokenMask& mask) const {
  const int32_t n_vocab = trie_->n_vocab();
  for (const Thread& thread : automaton_.threads(config)) {
    const Grammar::State& state = automaton_.grammar().states()[static_cast<size_t>(thread.state)];
    if (state.kind != Grammar::State::Kind::kToken) {
      continue;
    }
    if (!state.negated && state.begin < n_vocab) {
      set_bit(mask, state.begin);
    }
    for (int32_t id = 0; state.negated && id < n_vocab; ++id) {
      if (id != state.begin) {
        set_bit(mask, id);
      }
    }
  }
}

// Forgets what was computed once it fills its memory: masks of single places first, which are made quickly from those
// of frames. The places of the matchers stay.
void GrammarMasks::make_room() {
  const size_t mask_bytes = (static_cast<size_t>(trie_->n_vocab()) + 63) / 64 * sizeof(uint64_t);
  if ((masks_.size() + near_masks_.size()) * mask_bytes > kMaxMaskBytes / 2) {
    masks_.clear();
    near_masks_.clear();
  }
  if (frame_mask_bytes_ + automaton_.bytes() <= kMaxMaskBytes / 2) {
    return;
  }
  masks_.clear();
  forget_frame_masks();
  std::vector<ConfigId*> kept;
  for (ConfigId& place : places_) {
    if (place != kFreePlace) {
      kept.push_back(&place);
    }
  }
  automaton_.collect(kept);
}

void GrammarMasks::forget_frame_masks() {
  near_masks_.clear();  // made of them
  frame_masks_ = {};
  frame_mask_bytes_ = 0;
}

int32_t GrammarMasks::take_place(ConfigId config) {
  if (free_places_.empty()) {
    places_.push_back(config);
    free_places_.reserve(places_.size());  // so that leaving, in a destructor, needs no memory
    return static_cast<int32_t>(places_.size() - 1);
  }
  const int32_t place = free_places_.back();
  free_places_.pop_back();
  places_[static_cast<size_t>(place)] = config;
  return place;
}

void GrammarMasks::leave_place(int32_t place) {
  places_[static_cast<size_t>(place)] = kFreePlace;
  free_places_.push_back(place);
}

GrammarMatcher::GrammarMatcher(std::shared_ptr<GrammarMasks> masks)
    : masks_(std::move(masks)), place_(masks_->take_place(masks_->automaton_.start())) {}

GrammarMatcher::GrammarMatcher(const GrammarMatcher& other)
    : masks_(other.masks_), place_(masks_->take_place(other.config())) {}

GrammarMatcher::GrammarMatcher(GrammarMatcher&& other) noexcept
    : masks_(std::move(other.masks_)), place_(std::exchange(other.place_, -1)) {}

GrammarMatcher& GrammarMatcher::operator=(GrammarMatcher other) noexcept {
  std::swap(masks_, other.masks_);
  std::swap(place_, other.place_);
  return *this;
}

GrammarMatcher::~GrammarMatcher() {
  if (masks_) {
    masks_->leave_place(place_);
  }
}

ConfigId& GrammarMatcher::config() const {
  return masks_->places_[static_cast<size_t>(place_)];
}

Result<const TokenMask*> GrammarMatcher::mask() {
  masks_->make_room();
  if (const TokenMask* mask = masks_->mask(config())) {
    return mask;
  }
  return Status(ErrorCode::kUnsupported,
                "the grammar has too many readings of the text so far, or is nested too deeply; make it less "
                "ambiguous: where a text fits several ways, leave one");
}

bool GrammarMatcher::accept(int32_t id) {
  masks_->make_room();
  masks_->automaton_.begin_work();
  if (id < 0 || id >= masks_->trie().n_vocab()) {
    return move_to(kDeadConfig);
  }
  const ConfigId next = masks_->automaton_.step_token(config(), id, masks_->trie().bytes(id));
  if (next == kDeadConfig && masks_->trie().is_end(id) && may_end()) {
    return true;
  }
  return move_to(next);
}

bool GrammarMatcher::accept_bytes(std::string_view bytes) {
  masks_->make_room();
  masks_->automaton_.begin_work();
  return move_to(masks_->automaton_.step(config(), bytes));
}

bool GrammarMatcher::move_to(ConfigId next) {
  config() = masks_->automaton_.exhausted() ? kDeadConfig : next;
  return config() != kDeadConfig;
}

bool GrammarMatcher::may_end() const {
  return masks_->automaton_.may_end(config());
}

bool GrammarMatcher::is_dead() const {
  return config() == kDeadConfig;
}

}  // namespace tessera
