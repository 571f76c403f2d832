#pragma once
// Where a text may stand in a grammar, and what each byte makes of it.
//
// A *thread* is a state of the grammar with a *frame*, the calls that it is inside. A *configuration* is the set of all
// threads after some text; it has a number, and configurations and the ways between them are remembered: a byte that
// was read before in the same place is one look in a table. A frame is a set of continuations (state to go on at,
// frame of that state), so that all ways which call one rule in one place share a frame: ambiguous grammars cost at
// most what an Earley parser pays (Scott and Johnstone 2010, GLL), and everything that is equal is stored once.
// Frame 0 is outside all rules: leaving it means that the text may end here. Numbers stay valid until collect().
//
// Nothing here recurses, and hostile grammars meet two limits, kMaxWork per call from outside and kMaxBytes: past them
// exhausted() is true, and results are not to be used. Not thread-safe.

#include <array>
#include <compare>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "runtime/grammar/grammar.h"

namespace tessera {

using ConfigId = int32_t;

/// No thread is left: the text does not fit.
inline constexpr ConfigId kDeadConfig = 0;

class GrammarAutomaton {
 public:
  struct Thread {
    int32_t state = 0;  // kBytes or kToken
    int32_t frame = 0;
    friend auto operator<=>(const Thread&, const Thread&) = default;
  };
  static constexpr uint64_t kMaxWork = 60'000'000;  // threads looked at: below a second
  static constexpr size_t kMaxBytes = 256U << 20;

  explicit GrammarAutomaton(std::shared_ptr<const Grammar> grammar);

  [[nodiscard]] const Grammar& grammar() const { return *grammar_; }

  /// Before any text.
  [[nodiscard]] ConfigId start() const { return start_; }
  /// After one more byte.
  ConfigId step(ConfigId config, uint8_t byte) {
    const ConfigId next = next_[static_cast<size_t>(config) * n_classes_ + byte_class_[byte]];
    return next != kUnknown ? next : compute_step(config, byte_class_[byte]);
  }
  ConfigId step(ConfigId config, std::string_view bytes);
  /// After one more token: by its bytes (none, if it stands for no text) and by the grammar's <token>s.
  ConfigId step_token(ConfigId config, int32_t id, std::string_view bytes);

  /// Whether the text may end here.
  [[nodiscard]] bool may_end(ConfigId config) const { return configs_[static_cast<size_t>(config)].may_end; }
  /// In order of frames. Valid until the next call that is not const.
  [[nodiscard]] std::span<const Thread> threads(ConfigId config) const;
  /// The configuration of these states, all in one frame: how a rule goes on, whoever called it. REQUIRES: sorted.
  ConfigId in_frame_0(std::span<const Thread> threads);
  /// After leaving a frame. REQUIRES: frame > 0.
  ConfigId after_frame(int32_t frame);

  /// A configuration that the next kGrammarLookahead bytes cannot tell from this one (Grammar::near): one for many.
  ConfigId near(ConfigId config);

  /// Begins a call from outside: it may do kMaxWork.
  void begin_work() { work_ = 0; }
  void add_work(uint64_t n) { work_ += n; }
  [[nodiscard]] bool exhausted() const { return work_ > kMaxWork || bytes() > kMaxBytes; }
  /// Memory in use.
  [[nodiscard]] size_t bytes() const;

  /// Forgets all but what `kept` need, and puts their new numbers there.
  void collect(std::span<ConfigId*> kept);

 private:
  static constexpr ConfigId kUnknown = -1;

  /// Where a call goes on.
  struct Continuation {
    int32_t state = 0;
    int32_t frame = 0;
    friend auto operator<=>(const Continuation&, const Continuation&) = default;
  };
  struct Config {
    size_t begin = 0;  // in threads_
    size_t n = 0;
    bool may_end = false;
  };
  struct Frame {
    size_t begin = 0;  // in continuations_
    size_t n = 0;
    ConfigId after = kUnknown;
    int32_t near = -1;  // the frame with states near to this one's; -1: not known yet
  };
  /// Pairs that were seen since clear(), which costs nothing.
  class PairSet {
   public:
    void clear();
    bool insert(int32_t a, int32_t b);  // false: was there
   private:
    void grow();
    struct Slot {
      uint64_t key = 0;
      uint64_t round = 0;
    };
    std::vector<Slot> slots_ = std::vector<Slot>(256);
    uint64_t round_ = 1;
    size_t n_ = 0;
  };
  using Index = std::unordered_multimap<uint64_t, int32_t>;  // hash → number

  ConfigId compute_step(ConfigId config, uint8_t byte_class);
  void begin_closure();
  void add(int32_t state, int32_t frame);
  void follow_threads();
  void call(int32_t rule, int32_t next, int32_t frame);
  ConfigId finish_closure();
  ConfigId intern_config();
  int32_t intern_frame(std::vector<Continuation>& continuations);
  int32_t near_frame(int32_t frame);
  void reset_tables();

  std::shared_ptr<const Grammar> grammar_;
  size_t n_classes_;
  std::array<uint8_t, 256> byte_class_ = {};  // the grammar's
  ConfigId start_ = kDeadConfig;
  std::vector<int32_t> rule_of_rank_;

  std::vector<Config> configs_;
  std::vector<Thread> threads_;
  std::vector<ConfigId> next_;  // [n configs, n_classes]
  Index config_index_;
  std::vector<Frame> frames_;
  std::vector<Continuation> continuations_;
  Index frame_index_;
  uint64_t work_ = 0;

  // The closure under way.
  PairSet seen_;
  std::vector<Thread> pending_;
  std::vector<Thread> found_;
  bool found_end_ = false;
  std::vector<std::vector<Continuation>> calls_;  // by rank of the rule that is called
  std::vector<int32_t> called_ranks_;             // a heap, lowest first
};

}  // namespace tessera
