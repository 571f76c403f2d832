#pragma once
// Which tokens of which requests the next decode takes: continuous batching over the sequences ("slots") of a context.
//
// A pure state machine: no thread, no device, no clock (times are arguments), and no memory of its own; it reads the
// context's book of pages (SequenceMemory) and says what to do. The caller asks for a step, carries it out and reports:
//
//   step = next_step(now)      moves: carry them out and ask again; or a batch: decode it, make the snapshots, then
//                              append() or end() for each output and ask again; or nothing to do.
//
// A request is a row of tokens that wants the logits behind its last one. While more than one token is missing in its
// slot it *reads*, with one it *generates*: prompts, tokens that were chosen, shifted contexts and requests that gave
// up their slot for a while differ in nothing else.
//
// Order. Requests are served by seniority: arrival, moved back by priority_us for each level of priority. Each step
// serves every request that generates; half of what is left for reading goes to the eldest reader, the rest to those
// that have least to read. No younger request passes the eldest: the first slot and the first pages that become free
// are its own, and then its share of each step. So every request's wait is bounded.
//
// Memory. A new request takes the slot that holds the longest beginning of its tokens, or another one that becomes a
// fork of it, whichever forgets less, or one to which a longer beginning is brought back that is kept elsewhere
// (KeptPrefixes); it waits while a request that is still reading will soon hold more. It gets
// a slot only when the pages are there for what it must read. When growing sequences run short of pages all the same,
// idle slots are emptied, least recently used first, then the youngest request gives up its slot and is read again
// later. One sequence always fits.

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "base/status.h"
#include "memory/sequence_memory.h"
#include "runtime/context.h"
#include "tensor/kv_page.h"

namespace tessera {

struct SchedulerOptions {
  int64_t n_queue = 256;             // requests that wait for their first slot
  int64_t step_tokens = 512;         // of one step; at least 2
  int64_t prompt_tokens = 128;       // of these for reading while others generate; at least 1
  int64_t priority_us = 10'000'000;  // of seniority, for one level of priority
  /// Reading goes in pieces of a multiple of so many tokens, counted from where it began; the last piece may be
  /// shorter. For models whose kernels take a sequence's rows in runs. At most step_tokens / 2.
  int64_t grid_tokens = 1;
  /// Recurrent state: the last token is read alone, so that a snapshot can lie before it, and others at branches.
  bool recurrent = false;
  /// No prefix is reused, and tokens that were generated are read again one by one: for recurrent models only.
  bool forget_prefixes = false;
  /// Windows let go of what a sequence would need to be cut far back: SchedulerStep::keeps says when to keep it
  /// elsewhere. Prompts end pieces at branches, too.
  bool keep_windows = false;
};

/// What is kept of sequences beside the slots; must outlive the scheduler and may change at any time.
class KeptPrefixes {
 public:
  virtual ~KeptPrefixes() = default;
  /// The most tokens of this beginning that could be brought back.
  [[nodiscard]] virtual int64_t longest(std::span<const int32_t> tokens) const = 0;
};

inline constexpr int32_t kMaxPriority = 100;

struct SchedulerRequest {
  int64_t id = 0;                      // of the caller's choice, unique
  std::vector<int32_t> tokens;         // 1 .. n_ctx
  int32_t priority = 0;                // -kMaxPriority .. kMaxPriority; larger is sooner
  int32_t slot = -1;                   // the one to use; negative: any
  bool reuse = true;                   // of prefixes
  std::vector<int64_t> branches = {};  // lengths, ascending, where recurrent models keep snapshots
};

/// In place of the slot that a move comes from: what KeptPrefixes has of the request's beginning.
inline constexpr int32_t kFromKept = -2;

struct SequenceMove {
  int32_t to = 0;
  int32_t from = -1;   // -1: truncate `to`; kFromKept: then say restored(); else make it a fork of `from`
  int64_t length = 0;  // that `to` has afterwards
};

struct SchedulerStep {
  std::vector<SequenceMove> moves;  // in order; where there are any, there is no batch
  std::vector<BatchToken> batch;
  std::vector<int64_t> outputs;    // requests, in the order in which their tokens of the batch want logits
  std::vector<int32_t> snapshots;  // slots to make a snapshot of, behind the batch
  std::vector<int32_t> keeps;      // slots of which to keep what they hold, behind the batch
  [[nodiscard]] bool empty() const { return moves.empty() && batch.empty(); }
};

struct SchedulerCounters {
  uint64_t n_preempted = 0;  // requests that gave up their slot
  uint64_t n_evicted = 0;    // idle slots emptied for room
  uint64_t n_forks = 0;
};

/// How one request stands.
struct SchedulerView {
  int32_t slot = -1;      // -1: waits for one
  int64_t n_cached = -1;  // tokens that its first slot held when it began; -1: it never had one
  int64_t n_held = 0;     // tokens that its slot holds
  int64_t n_tokens = 0;
};

class Scheduler {
 public:
  /// memory: the book of the context that carries the steps out; must outlive this, and change only as steps say, or
  /// before set_held() says how. REQUIRES: options are within their ranges.
  /// kept: null where nothing is.
  Scheduler(const SequenceMemory& memory, const SchedulerOptions& options, const KeptPrefixes* kept = nullptr);

  /// Queues a request. Errors: kInvalidArgument (no tokens, no such slot), kCacheFull (more tokens than a sequence
  /// takes; says both), kBusy (the queue is full; says how full). Does not look into the book, which a step that is
  /// carried out may change meanwhile.
  Status submit(SchedulerRequest request, int64_t now_us);

  /// What to do next, the last step having been carried out. Valid until the next call.
  const SchedulerStep& next_step(int64_t now_us);
  /// The last step was not carried out, or not wholly: slots hold what the book says they have the length of, those of
  /// its moves nothing to be used. REQUIRES: requests whose tokens or slots were in it are ended before the next step.
  void failed();

  /// How much a move from kFromKept has brought to its slot. REQUIRES: at most the move's length, and the book's.
  void restored(int32_t slot, int64_t length);
  /// From the next step on: tokens of a step for reading while others generate. 0: none, and it is the caller who ends
  /// the wait of those that read.
  void set_prompt_tokens(int64_t n) { options_.prompt_tokens = n; }

  /// An output's next token. REQUIRES: the request has all its tokens in its slot, and fewer than n_ctx.
  void append(int64_t id, int32_t token);
  /// Other tokens in place of a request's, as after a context shift; what the slot has in common with them stays.
  /// REQUIRES: has(id), 1 .. n_ctx tokens.
  void replace(int64_t id, std::vector<int32_t> tokens);
  /// Takes a request out, wherever it is; its slot becomes idle and keeps what it holds. REQUIRES: has(id).
  void end(int64_t id, int64_t now_us);

  /// An idle slot now holds these tokens. REQUIRES: no request uses it; tokens.size() is the book's length.
  void set_held(int32_t slot, std::vector<int32_t> tokens, int64_t now_us);

  [[nodiscard]] bool has(int64_t id) const { return tasks_.contains(id); }
  [[nodiscard]] SchedulerView view(int64_t id) const;
  [[nodiscard]] std::span<const int32_t> tokens(int64_t id) const;
  /// The request that uses a slot, or -1. REQUIRES (these three): 0 <= slot < n_slots().
  [[nodiscard]] int64_t user(int32_t slot) const { return slots_[static_cast<size_t>(slot)].task; }
  [[nodiscard]] std::span<const int32_t> held(int32_t slot) const { return slots_[static_cast<size_t>(slot)].held; }
  [[nodiscard]] int64_t last_use_us(int32_t slot) const { return slots_[static_cast<size_t>(slot)].last_use_us; }
  [[nodiscard]] int32_t n_slots() const { return static_cast<int32_t>(slots_.size()); }
  [[nodiscard]] int64_t n_waiting() const { return static_cast<int64_t>(waiting_.size()); }
  [[nodiscard]] int64_t n_running() const { return static_cast<int64_t>(tasks_.size() - waiting_.size()); }
  [[nodiscard]] const SchedulerCounters& counters() const { return counters_; }

 private:
  /// Seniority, then number: smaller is served first.
  using Rank = std::pair<int64_t, int64_t>;

  struct Task {
    SchedulerRequest request;
    Rank rank;
    int32_t slot = -1;
    int64_t n_cached = -1;
    int64_t n_prompt = 0;       // tokens that were not generated
    int64_t grid_begin = 0;     // where reading began
    std::set<int64_t> stops;    // lengths at which to end a piece, for followers
    int64_t leader = -1;        // the reading request that it waits, or has waited, for; -1: none
    int64_t leader_length = 0;  // until its slot holds so much
    uint64_t last_step = 0;     // that served it
  };
  struct Slot {
    int64_t task = -1;
    std::vector<int32_t> held;
    int64_t last_use_us = 0;
  };
  /// Where a request could go.
  struct Berth {
    int32_t slot = -1;   // -1: nowhere now
    int32_t from = -1;   // the slot with the prefix, -1: none
    int64_t length = 0;  // of the prefix
    bool kept = false;   // the prefix is not in a slot
    /// Pages of the prefix that a slot has already.
    [[nodiscard]] int64_t n_shared_pages() const { return kept ? 0 : length / kPageTokens; }
  };

  Task& task(int64_t id);
  [[nodiscard]] const Task& task(int64_t id) const;
  [[nodiscard]] int64_t n_held(const Task& task) const;
  [[nodiscard]] int64_t n_ctx() const { return n_ctx_; }
  [[nodiscard]] bool idle(int32_t slot) const { return slots_[static_cast<size_t>(slot)].task < 0; }

  void begin_step();
  void mend_replaced();
  void admit_waiting(int64_t now_us);
  [[nodiscard]] Berth find_berth(const Task& task) const;
  [[nodiscard]] int32_t least_used_idle(int32_t except) const;
  bool follows(Task& task, int64_t length);
  int64_t meeting_point(Task& leader, int64_t common) const;
  void begin(Task& task, const Berth& berth, int64_t now_us);
  [[nodiscard]] bool has_room(const Task& task, const Berth& berth) const;
  bool empty_for(const Berth& berth);
  [[nodiscard]] int32_t oldest_held() const;
  [[nodiscard]] int64_t pages_of_idle(int32_t klass, const Berth& berth) const;

  void build_batch();
  void share_reading(std::span<Task* const> readers, int64_t n_free);
  [[nodiscard]] int64_t next_stop(const Task& task) const;
  [[nodiscard]] int64_t piece(const Task& task, int64_t n_free) const;
  int64_t take(Task& task, int64_t n_tokens);
  [[nodiscard]] bool batch_fits() const;
  void commit_batch();
  void make_room();
  void move(const SequenceMove& move);

  const SequenceMemory& memory_;
  const int64_t n_ctx_;  // of the book
  SchedulerOptions options_;
  const KeptPrefixes* kept_;
  std::map<int64_t, Task> tasks_;  // by id
  std::set<Rank> waiting_;         // tasks without a slot
  int64_t n_queued_ = 0;           // of these, those that never had one
  std::vector<Slot> slots_;
  std::vector<int64_t> replaced_;  // requests whose slot may hold more than it shares with them
  SchedulerStep step_;
  std::vector<KvGrowth> growth_;  // of the step's batch
  uint64_t n_steps_ = 0;
  SchedulerCounters counters_;
};

}  // namespace tessera
