#include "runtime/serving.h"

#include <algorithm>
#include <condition_variable>
#include <fmt/format.h>
#include <map>
#include <mutex>
#include <new>
#include <set>
#include <thread>
#include <utility>

#include "base/threads.h"
#include "kernels/ops/delta_rule.h"
#include "memory/sequence_memory.h"
#include "runtime/common_prefix.h"
#include "runtime/generate.h"
#include "runtime/kept_prompts.h"
#include "runtime/memory_plan.h"
#include "runtime/scheduler.h"
#include "runtime/serving_job.h"

namespace tessera {
namespace {

using Clock = ServingJob::Clock;

constexpr int64_t kLeastPromptTokens = 64;
// A server that has nothing to do for so long writes its idle slots to the folder of kept prompts: soon enough to lose
// little when it is killed, late enough not to write between the requests of one conversation with tools.
constexpr int64_t kIdleUsBeforeSaving = 1'000'000;

int64_t us_since(Clock::time_point start) {
  return std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - start).count();
}

SchedulerOptions scheduler_options(const Context& context, const ServingOptions& options) {
  SchedulerOptions result;
  result.n_queue = options.n_queue;
  // One micro-batch: its bounds do not cut what the grid keeps together.
  result.step_tokens = std::min(context.options().n_ubatch, context.options().n_batch);
  const int64_t n_prompt = options.prompt_tokens_per_step > 0 ? options.prompt_tokens_per_step : result.step_tokens / 4;
  result.prompt_tokens = std::max(n_prompt, kLeastPromptTokens);
  result.priority_us = options.priority_ms * 1000;
  result.recurrent = has_recurrent_state(*context.model().state());
  result.grid_tokens = result.recurrent ? std::min(kDeltaChunk, result.step_tokens / 2) : 1;
  result.forget_prefixes = result.recurrent && options.batch_invariant;
  result.keep_windows =
      options.cache.wanted() && std::ranges::any_of(context.memory().kv().config().classes,
                                                    [](const KvClassConfig& klass) { return klass.window > 0; });
  return result;
}

Status check_options(const Context& context, const ServingOptions& options) {
  if (context.options().n_ubatch < 2 || context.options().n_batch < 2) {
    return {ErrorCode::kInvalidArgument, "serving needs a --batch-size and --ubatch-size of at least 2"};
  }
  if (options.n_queue < 0 || options.prompt_tokens_per_step < 0 || options.priority_ms < 0 ||
      options.priority_ms > 1'000'000'000) {
    return {ErrorCode::kInvalidArgument,
            "the queue, the prompt tokens per step and the worth of a priority level "
            "cannot be negative; a level is worth at most 1,000,000,000 ms"};
  }
  return {};
}

}  // namespace

class Serving::Impl {
 public:
  // cache: null where nothing is kept.
  Impl(std::unique_ptr<Context> context, std::unique_ptr<KeptPrompts> cache, const ServingOptions& options, Log log)
      : context_(std::move(context)),
        options_(options),
        cache_(std::move(cache)),
        log_(std::move(log)),
        tokenizer_(context_->model().tokenizer()),
        samplers_(context_->model()),
        pace_(scheduler_options(*context_, options)),
        scheduler_(context_->memory(), pace_, cache_.get()),
        saved_us_(static_cast<size_t>(scheduler_.n_slots()), -1) {
    for (int32_t s = 0; s < scheduler_.n_slots(); ++s) {
      scheduler_.set_held(s, context_->tokens(s), 0);
    }
    count_pages();
  }

  Status start() {
    if (cache_ != nullptr) {
      TRY(cache_->start([this] {
        const std::lock_guard lock(mutex_);
        wake_.notify_all();
      }));
    }
    ASSIGN_OR_RETURN(thread_, start_thread("serving", [this] { run(); }));
    return {};
  }

  Status check_length(const ServingRequest& request) const {
    if (const Status whole = check_whole(request); whole.ok() || !request.context_shift) {
      return whole;
    }
    bool truncated = false;
    return fitting_prompt(request, truncated).status();
  }

  Result<int64_t> submit(ServingRequest request, std::shared_ptr<ServingSink> sink) {
    TRY(check_request(request));
    bool truncated = false;
    ASSIGN_OR_RETURN(std::vector<int32_t> tokens, fitting_prompt(request, truncated));
    SchedulerRequest scheduled;
    scheduled.tokens = tokens;
    scheduled.priority = request.priority;
    scheduled.slot = request.slot;
    scheduled.reuse = request.cache_prompt && request.pooling.value_or(Pooling::kLast) == Pooling::kLast;
    if (!truncated) {
      scheduled.branches = request.branches;
    }
    const auto shared = std::make_shared<const ServingRequest>(std::move(request));
    ASSIGN_OR_RETURN(Sampler sampler, make_sampler(*shared));
    // Its place is made before the scheduler hears of it: memory cannot run out in between.
    decltype(jobs_) made;
    made.emplace(
        0, std::make_unique<ServingJob>(shared, std::move(sink), std::move(sampler), tokenizer_, tokens, truncated));
    // Embeddings are submitted from sinks, too, which must not wait for a file.
    if (cache_ != nullptr && shared->cache_prompt && !shared->pooling) {
      cache_->warm(std::span(tokens).first(tokens.size() - 1), longest_held(tokens));
    }
    const std::lock_guard lock(mutex_);
    TRY(dead_);
    if (closing_) {
      return Status(ErrorCode::kCancelled, "the server is shutting down");
    }
    scheduled.id = next_id_;
    const Status queued = scheduler_.submit(std::move(scheduled), now_us());
    counters_.n_refused += queued.code() == ErrorCode::kBusy ? 1 : 0;
    TRY(queued);
    ++counters_.n_requests;
    auto job = made.extract(made.begin());
    job.key() = next_id_;
    jobs_.insert(std::move(job));
    ++n_open_;
    wake_.notify_all();
    return next_id_++;
  }

  void cancel(int64_t request) {
    const std::lock_guard lock(mutex_);
    if (jobs_.contains(request)) {
      cancelled_.insert(request);
      wake_.notify_all();
    }
  }

  std::vector<SlotView> slots() const {
    const std::lock_guard lock(mutex_);
    std::vector<SlotView> views;
    for (int32_t s = 0; s < scheduler_.n_slots(); ++s) {
      SlotView view;
      view.slot = s;
      view.request = scheduler_.user(s);
      view.n_held = static_cast<int64_t>(scheduler_.held(s).size());
      if (view.request >= 0) {
        const SchedulerView task = scheduler_.view(view.request);
        const ServingJob& job = *jobs_.at(view.request);
        view.n_prompt = job.n_prompt();
        view.n_cached = task.n_cached;
        view.n_predicted = n_predicted_of(view.request);
        view.settings = job.request();
      } else {
        view.idle_ms = static_cast<double>(now_us() - scheduler_.last_use_us(s)) / 1000;
      }
      views.push_back(std::move(view));
    }
    return views;
  }

  ServingCounters counters() const {
    const std::lock_guard lock(mutex_);
    ServingCounters counters = counters_;
    counters.n_waiting = scheduler_.n_waiting();
    counters.n_running = scheduler_.n_running();
    counters.n_preempted = scheduler_.counters().n_preempted;
    counters.n_evicted = scheduler_.counters().n_evicted;
    counters.n_forks = scheduler_.counters().n_forks;
    if (cache_ != nullptr) {
      counters.cache = cache_->counters();
    }
    return counters;
  }

  [[nodiscard]] bool wants_branches() const {
    return (pace_.recurrent && !pace_.forget_prefixes) || pace_.keep_windows;
  }

  // Runs fn(slot) while no step does and the slot is idle; then what the slot holds is what the context says.
  Status with_idle_slot(int32_t slot, const std::function<Status()>& fn) {
    if (slot < 0 || slot >= scheduler_.n_slots()) {
      return {ErrorCode::kInvalidArgument, fmt::format("slot {}; there are {}", slot, scheduler_.n_slots())};
    }
    const std::lock_guard one_at_a_time(slot_mutex_);
    const Pause paused(*this);
    {
      const std::lock_guard lock(mutex_);
      TRY(dead_);
      if (scheduler_.user(slot) >= 0) {
        return {ErrorCode::kBusy, fmt::format("slot {} is in use by request {}", slot, scheduler_.user(slot))};
      }
    }
    Status done = fn();
    std::vector<int32_t> tokens = context_->tokens(slot);
    const std::lock_guard lock(mutex_);
    scheduler_.set_held(slot, std::move(tokens), now_us());
    count_pages();
    return done;
  }

  void pause() {
    std::unique_lock lock(mutex_);
    ++n_pauses_;
    rest_.wait(lock, [&] { return !in_step_; });
  }

  void resume() {
    const std::lock_guard lock(mutex_);
    CHECK(n_pauses_ > 0);
    --n_pauses_;
    wake_.notify_all();
  }

  Status drain(std::chrono::milliseconds grace) {
    std::unique_lock lock(mutex_);
    closing_ = true;
    const auto all_ended = [&] { return n_open_ == 0; };
    if (rest_.wait_for(lock, grace, all_ended)) {
      return {};
    }
    const size_t n_left = jobs_.size();
    for (const auto& [id, job] : jobs_) {
      cancelled_.insert(id);
    }
    wake_.notify_all();
    rest_.wait(lock, all_ended);
    return {ErrorCode::kDeadlineExceeded,
            fmt::format("{} requests had not ended after {} ms and were cancelled", n_left, grace.count())};
  }

  void stop() {
    {
      const std::lock_guard lock(mutex_);
      closing_ = true;
      stopping_ = true;
      wake_.notify_all();
    }
    std::call_once(joined_, [&] {
      if (thread_.joinable()) {
        thread_.join();
      }
      if (cache_ != nullptr) {
        cache_->finish();
      }
    });
  }

  std::unique_ptr<Context> context_;
  ServingOptions options_;
  std::unique_ptr<KeptPrompts> cache_;  // null: nothing is kept

 private:
  // Also where memory runs out meanwhile.
  class Pause {
   public:
    explicit Pause(Impl& serving) : serving_(serving) { serving_.pause(); }
    ~Pause() { serving_.resume(); }
    Pause(const Pause&) = delete;
    Pause& operator=(const Pause&) = delete;

   private:
    Impl& serving_;
  };

  // What the serving thread takes out of the lock to do.
  struct Ending {
    std::unique_ptr<ServingJob> job;
    StopReason stop = StopReason::kNone;
    Status status;
  };
  // Those of one turn, finished when this goes at the latest: also where memory runs out meanwhile, each is told and
  // counted down, since drain() waits for that.
  class Endings : public std::vector<Ending> {
   public:
    explicit Endings(Impl& serving) : serving_(serving) {}
    ~Endings() { serving_.finish(*this); }
    Endings(const Endings&) = delete;
    Endings& operator=(const Endings&) = delete;

   private:
    Impl& serving_;
  };

  [[nodiscard]] int64_t now_us() const { return us_since(started_); }

  Status check_request(const ServingRequest& request) const {
    const auto n_vocab = context_->model().summary().n_vocab;
    for (const int32_t id : request.prompt) {
      if (id < 0 || id >= n_vocab) {
        return {ErrorCode::kInvalidArgument, fmt::format("token id {} is not in the vocabulary of {}", id, n_vocab)};
      }
    }
    if (request.pooling && !context_->options().embeddings) {
      return {ErrorCode::kUnsupported, "this server makes no embeddings; start it with --embeddings"};
    }
    if (request.n_probs < 0) {
      return {ErrorCode::kInvalidArgument, fmt::format("n_probs is {}; it cannot be negative", request.n_probs)};
    }
    if (request.priority < -kMaxPriority || request.priority > kMaxPriority) {
      return {ErrorCode::kInvalidArgument,
              fmt::format("priority is {}; it must be {} to {}", request.priority, -kMaxPriority, kMaxPriority)};
    }
    return {};
  }

  // The longest beginning of a prompt in any slot.
  int64_t longest_held(std::span<const int32_t> tokens) const {
    const std::lock_guard lock(mutex_);
    int64_t longest = 0;
    for (int32_t s = 0; s < scheduler_.n_slots(); ++s) {
      longest = std::max(longest, common_prefix(scheduler_.held(s), tokens));
    }
    return longest;
  }

  [[nodiscard]] Status check_whole(const ServingRequest& request) const {
    return check_prompt(request.prompt.size(), context_->options().n_ctx, !request.pooling);
  }

  // The prompt, or where it is too long and may be shifted, what shifts leave of it.
  Result<std::vector<int32_t>> fitting_prompt(const ServingRequest& request, bool& truncated) const {
    std::vector<int32_t> tokens = request.prompt;
    const int64_t n_ctx = context_->options().n_ctx;
    const Status fits = check_whole(request);
    if (fits.ok()) {
      return tokens;
    }
    if (fits.code() != ErrorCode::kCacheFull || !request.context_shift) {
      return fits;
    }
    const size_t n_keep = kept_tokens(tokenizer_, tokens, request.n_keep);
    while (std::cmp_greater_equal(tokens.size(), n_ctx)) {
      const size_t before = tokens.size();
      tokens = shift_tokens(tokens, n_keep);
      if (tokens.size() == before) {
        return fits;
      }
    }
    truncated = true;
    return tokens;
  }

  Result<Sampler> make_sampler(const ServingRequest& request) {
    const std::lock_guard lock(sampler_mutex_);
    return samplers_.make(request.sampling, request.ignore_eos);
  }

  // The serving thread.
  void run() {
    bool goes_on = true;
    bool out_of_memory = false;
    while (goes_on) {
      try {
        if (std::exchange(out_of_memory, false)) {
          die({ErrorCode::kOutOfMemory, "no memory is left on the host while requests are served; start again"});
        }
        goes_on = run_once();
      } catch (const std::bad_alloc&) {
        out_of_memory = true;
      }
    }
    end_all(StopReason::kCancelled, {});
    save_rest();
  }

  // Waits for something to do and does it. False: the thread is to end.
  bool run_once() {
    Endings endings(*this);
    bool ready = false;
    int32_t slot_to_save = -1;
    {
      std::unique_lock lock(mutex_);
      in_step_ = false;
      rest_.notify_all();
      while (!stopping_ && cancelled_.empty() && (n_pauses_ > 0 || !has_work()) && slot_to_save < 0) {
        slot_to_save = wait_for_work(lock);
      }
      if (stopping_) {
        return false;
      }
      take_cancelled(endings);
      ready = n_pauses_ == 0 && has_work();
      in_step_ = ready || slot_to_save >= 0;
    }
    finish(endings);
    if (slot_to_save >= 0) {
      cache_->keep(*context_, slot_to_save, 0);
    }
    if (ready) {
      step();
    }
    return true;
  }

  // Every request that was queued wants something until it has ended. REQUIRES: mutex_.
  [[nodiscard]] bool has_work() const { return !jobs_.empty(); }

  // Waits until something may have changed. Result: an idle slot whose prompt is to be written now, or -1.
  int32_t wait_for_work(std::unique_lock<std::mutex>& lock) {
    const int32_t slot = n_pauses_ > 0 || has_work() ? -1 : next_unsaved();
    if (slot < 0 || cache_->busy()) {
      wake_.wait(lock);
      return -1;
    }
    const int64_t wait_us = scheduler_.last_use_us(slot) + kIdleUsBeforeSaving - now_us();
    if (wait_us > 0) {
      wake_.wait_for(lock, std::chrono::microseconds(wait_us));
      return -1;
    }
    saved_us_[static_cast<size_t>(slot)] = scheduler_.last_use_us(slot);
    return slot;
  }

  // The idle slot used least recently whose prompt has not been written since; -1: there is none, or no folder.
  // REQUIRES: mutex_.
  [[nodiscard]] int32_t next_unsaved() const {
    int32_t oldest = -1;
    for (int32_t s = 0; cache_ != nullptr && cache_->has_folder() && dead_.ok() && s < scheduler_.n_slots(); ++s) {
      const int64_t used = scheduler_.last_use_us(s);
      const bool unsaved =
          scheduler_.user(s) < 0 && !scheduler_.held(s).empty() && saved_us_[static_cast<size_t>(s)] != used;
      oldest = unsaved && (oldest < 0 || used < scheduler_.last_use_us(oldest)) ? s : oldest;
    }
    return oldest;
  }

  // At the end, what idle slots hold goes to the folder. Somebody who has paused the steps has the context.
  void save_rest() {
    while (true) {
      int32_t slot = -1;
      {
        const std::lock_guard lock(mutex_);
        slot = n_pauses_ > 0 ? -1 : next_unsaved();
        if (slot < 0) {
          return;
        }
        saved_us_[static_cast<size_t>(slot)] = scheduler_.last_use_us(slot);
      }
      cache_->flush();
      cache_->keep(*context_, slot, 0);
    }
  }

  void step() {
    SchedulerStep step;
    std::vector<std::pair<ServingJob*, int64_t>> rows;
    {
      const std::lock_guard lock(mutex_);
      step = scheduler_.next_step(now_us());
      rows = mark_embeddings(step);
    }
    Status status = make_moves(step);
    tell_begun();
    if (status.ok()) {
      heed_pace(step);
      status = decode(step);
    }
    if (!status.ok()) {
      fail(step, status);
      return;
    }
    for (size_t i = 0; i < rows.size(); ++i) {
      rows[i].first->add_row(rows[i].second, context_->embedding(static_cast<int64_t>(i)));
    }
    if (!step.batch.empty()) {
      report_reading(step);
      advance(step);
    }
    for (size_t i = 0; cache_ != nullptr && i < step.keeps.size(); ++i) {
      cache_->keep(*context_, step.keeps[i], 0);
    }
  }

  void tell_begun() {
    std::vector<std::pair<ServingJob*, SchedulerView>> begun;
    {
      const std::lock_guard lock(mutex_);
      for (int32_t s = 0; s < scheduler_.n_slots(); ++s) {
        if (const int64_t id = scheduler_.user(s); id >= 0 && !jobs_.at(id)->has_begun()) {
          begun.emplace_back(jobs_.at(id).get(), scheduler_.view(id));
        }
      }
    }
    for (const auto& [job, view] : begun) {
      job->begin(view.slot, view.n_cached);
    }
  }

  // Tokens of requests for embeddings want their rows, and no logits. Result: for each row whose it is, and its
  // position. REQUIRES: mutex_.
  std::vector<std::pair<ServingJob*, int64_t>> mark_embeddings(SchedulerStep& step) {
    std::vector<std::pair<ServingJob*, int64_t>> rows;
    if (!context_->options().embeddings) {
      return rows;
    }
    std::map<int32_t, int64_t> positions;  // by slot: of its next token in the batch
    for (const BatchToken& token : step.batch) {
      --positions[token.seq];
    }
    for (auto& [slot, position] : positions) {
      position += scheduler_.view(scheduler_.user(slot)).n_held;
    }
    for (BatchToken& token : step.batch) {
      ServingJob* job = jobs_.at(scheduler_.user(token.seq)).get();
      const int64_t position = positions[token.seq]++;
      token.wants_logits = token.wants_logits && !job->is_embedding();
      token.wants_embedding = job->wants_row(position);
      if (token.wants_embedding) {
        rows.emplace_back(job, position);
      }
    }
    return rows;
  }

  // Lets whoever places the model see what is to be done.
  void heed_pace(const SchedulerStep& step) {
    if (!options_.before_step || step.batch.empty()) {
      return;
    }
    ServingLoad load;
    {
      const std::lock_guard lock(mutex_);
      load = load_of(step);
    }
    const ReadingPace pace = options_.before_step(load);
    const std::lock_guard lock(mutex_);
    scheduler_.set_prompt_tokens(pace == ReadingPace::kShared  ? pace_.prompt_tokens
                                 : pace == ReadingPace::kWhole ? pace_.step_tokens
                                                               : 0);
  }

  // REQUIRES: mutex_; the step is the scheduler's last.
  [[nodiscard]] ServingLoad load_of(const SchedulerStep& step) const {
    std::map<int32_t, int64_t> n_step;  // tokens of the step, by slot
    for (const BatchToken& token : step.batch) {
      ++n_step[token.seq];
    }
    ServingLoad load;
    for (int32_t s = 0; s < scheduler_.n_slots(); ++s) {
      const int64_t id = scheduler_.user(s);
      if (id < 0) {
        continue;
      }
      const SchedulerView view = scheduler_.view(id);
      const auto found = n_step.find(s);
      const int64_t n_read = found == n_step.end() ? 0 : found->second;
      const int64_t n_lacking = view.n_tokens - view.n_held + n_read;  // the step's are counted as held
      const bool reads = n_lacking > 1;
      load.n_reading += reads ? 1 : 0;
      load.n_prompt += reads ? n_lacking : 0;
      load.n_before += reads ? view.n_held - n_read : 0;
      load.step_prompt += reads ? n_read : 0;
      load.n_generating += reads ? 0 : 1;
      load.step_generated += reads ? 0 : n_read;
      load.n_predict += expected_tokens(*jobs_.at(id)->request(), n_predicted_of(id));
    }
    return load;
  }

  // REQUIRES: mutex_.
  [[nodiscard]] int64_t n_predicted_of(int64_t id) const {
    const auto found = n_predicted_.find(id);
    return found == n_predicted_.end() ? 0 : found->second;
  }

  // What an answer is expected to have still: it becomes as long as those before it, and one that is longer goes on for
  // a while. REQUIRES: mutex_.
  [[nodiscard]] int64_t expected_tokens(const ServingRequest& request, int64_t n_predicted) const {
    constexpr int64_t kFirstGuess = 256;
    int64_t n_answers = 0;
    for (const uint64_t n : counters_.n_ended) {
      n_answers += static_cast<int64_t>(n);
    }
    const int64_t mean = n_answers > 0 ? static_cast<int64_t>(counters_.predicted_tokens) / n_answers : kFirstGuess;
    const int64_t expected = std::max(mean - n_predicted, mean / 4);
    return request.max_tokens < 0 ? expected
                                  : std::min(expected, std::max<int64_t>(request.max_tokens - n_predicted, 0));
  }

  Status make_moves(const SchedulerStep& step) {
    for (const SequenceMove& move : step.moves) {
      if (move.from == kFromKept) {
        TRY(bring_back(move));
        continue;
      }
      keep_before(move);
      TRY(move.from >= 0 ? context_->fork(move.from, move.to, move.length) : context_->truncate(move.to, move.length));
    }
    return {};
  }

  Status bring_back(const SequenceMove& move) {
    std::vector<int32_t> tokens;
    {
      const std::lock_guard lock(mutex_);
      const std::span<const int32_t> held = scheduler_.held(move.to);
      tokens.assign(held.begin(), held.end());
    }
    const KeptPrompts::Fetched fetched = cache_->fetch(tokens);
    keep_before(move);
    ASSIGN_OR_RETURN(const int64_t length, cache_->restore(*context_, move.to, fetched, tokens));
    const std::lock_guard lock(mutex_);
    scheduler_.restored(move.to, length);
    return {};
  }

  // What a move takes from a slot is kept, but for what stays in slots. A request that shifts its own context has no
  // use for what it drops.
  void keep_before(const SequenceMove& move) {
    if (cache_ == nullptr || context_->length(move.to) == 0) {
      return;
    }
    {
      const std::lock_guard lock(mutex_);
      const int64_t id = scheduler_.user(move.to);
      if (id >= 0 && move.from == -1 && jobs_.at(id)->has_begun()) {
        return;
      }
    }
    const std::vector<int32_t> lost = context_->tokens(move.to);
    int64_t n_stay = move.from == -1 ? move.length : 0;
    for (int32_t s = 0; s < context_->options().n_seq_max; ++s) {
      if (s != move.to) {
        n_stay = std::max(n_stay, context_->memory().rewind_length(s, common_prefix(context_->tokens(s), lost)));
      }
    }
    cache_->keep(*context_, move.to, n_stay);
  }

  Status decode(const SchedulerStep& step) {
    if (step.batch.empty()) {
      return {};
    }
    TRY(context_->decode(step.batch));
    for (const int32_t slot : step.snapshots) {
      // Without memory for it others read from further back.
      (void)context_->snapshot(slot);
    }
    return {};
  }

  void report_reading(const SchedulerStep& step) {
    std::vector<std::pair<ServingJob*, int64_t>> reading;
    {
      const std::lock_guard lock(mutex_);
      std::set<int32_t> slots;
      for (const BatchToken& token : step.batch) {
        slots.insert(token.seq);
      }
      ++counters_.n_steps;
      counters_.n_busy_slots += slots.size();
      for (const int32_t slot : slots) {
        const int64_t id = scheduler_.user(slot);
        ServingJob* job = jobs_.at(id).get();
        const int64_t n_held = scheduler_.view(id).n_held;
        counters_.n_tokens_max = std::max(counters_.n_tokens_max, n_held);
        if (job->n_predicted() == 0) {
          reading.emplace_back(job, n_held);
        }
      }
      count_pages();
    }
    for (const auto& [job, n_held] : reading) {
      job->progress(n_held);
    }
  }

  // A token for each output, and then what becomes of its request.
  void advance(const SchedulerStep& step) {
    std::vector<std::pair<ServingJob*, int64_t>> outputs;  // with its number of tokens
    {
      const std::lock_guard lock(mutex_);
      for (const int64_t id : step.outputs) {
        outputs.emplace_back(jobs_.at(id).get(), scheduler_.view(id).n_tokens);
      }
    }
    std::vector<bool> goes_on;
    int64_t n_logits = 0;
    for (const auto& [job, n_tokens] : outputs) {
      if (job->is_embedding()) {
        job->finish_embedding();
        goes_on.push_back(false);
      } else {
        goes_on.push_back(job->choose(context_->logits(n_logits++), n_tokens));
      }
    }
    Endings endings(*this);
    {
      const std::lock_guard lock(mutex_);
      for (size_t i = 0; i < outputs.size(); ++i) {
        const int64_t id = step.outputs[i];
        n_predicted_[id] = outputs[i].first->n_predicted();
        if (!goes_on[i]) {
          take(id, StopReason::kNone, {}, endings);
        } else if (!extend(id, *outputs[i].first)) {
          take(id, StopReason::kContextFull, {}, endings);
        }
      }
    }
  }

  // Adds the token that was chosen; a full context is shifted if that was asked for. False: it is full. REQUIRES:
  // mutex_.
  bool extend(int64_t id, ServingJob& job) {
    const std::span<const int32_t> tokens = scheduler_.tokens(id);
    if (std::cmp_less(tokens.size(), context_->options().n_ctx)) {
      scheduler_.append(id, job.token());
      return true;
    }
    if (!job.request()->context_shift) {
      return false;
    }
    std::vector<int32_t> left = shift_tokens(tokens, job.n_keep());
    if (left.size() == tokens.size()) {
      return false;
    }
    left.push_back(job.token());
    scheduler_.replace(id, std::move(left));
    job.count_shift();
    return true;
  }

  // REQUIRES: mutex_.
  void take_cancelled(std::vector<Ending>& endings) {
    for (const int64_t id : std::exchange(cancelled_, {})) {
      if (jobs_.contains(id)) {
        take(id, StopReason::kCancelled, {}, endings);
      }
    }
  }

  // Takes a request out of everything; its end is told outside the lock. REQUIRES: mutex_, jobs_.contains(id).
  void take(int64_t id, StopReason stop, Status status, std::vector<Ending>& endings) {
    endings.reserve(endings.size() + 1);
    scheduler_.end(id, now_us());
    endings.push_back({std::move(jobs_.at(id)), stop, std::move(status)});
    jobs_.erase(id);
    n_predicted_.erase(id);
    cancelled_.erase(id);
  }

  // REQUIRES: mutex_.
  void count(const ServingEnd& end) {
    ++counters_.n_ended[static_cast<size_t>(end.stop)];
    counters_.prompt_tokens += static_cast<uint64_t>(end.timings.prompt_n);
    counters_.cached_tokens += static_cast<uint64_t>(end.timings.cached_n);
    counters_.prompt_ms += end.timings.prompt_ms;
    counters_.predicted_tokens += static_cast<uint64_t>(end.timings.predicted_n);
    counters_.predicted_ms += end.timings.predicted_ms;
  }

  // REQUIRES: not mutex_.
  void finish(std::vector<Ending>& endings) {
    if (endings.empty()) {
      return;
    }
    {
      // Before anybody hears of the end: who does may ask for the totals.
      const std::lock_guard lock(mutex_);
      for (Ending& ending : endings) {
        ending.job->settle(ending.stop, std::move(ending.status));
        count(ending.job->ending());
      }
    }
    for (Ending& ending : endings) {
      try {
        ending.job->tell_end();
      } catch (...) {
        // It has ended all the same. Whoever waits behind the sink learns of the failure when that goes, now.
      }
      ending.job.reset();
    }
    const std::lock_guard lock(mutex_);
    n_open_ -= static_cast<int64_t>(endings.size());
    endings.clear();
    rest_.notify_all();
  }

  // A step failed: its requests end with that. A lost device takes all with it.
  void fail(const SchedulerStep& step, const Status& status) {
    if (status.code() == ErrorCode::kDeviceLost) {
      die(status);
      return;
    }
    log_.warning(fmt::format("a step failed: {}", status.message()));
    Endings endings(*this);
    {
      const std::lock_guard lock(mutex_);
      scheduler_.failed();
      std::set<int32_t> slots;
      for (const SequenceMove& move : step.moves) {
        slots.insert(move.to);
      }
      for (const BatchToken& token : step.batch) {
        slots.insert(token.seq);
      }
      for (const int32_t slot : slots) {
        if (const int64_t id = scheduler_.user(slot); id >= 0) {
          take(id, StopReason::kNone, status, endings);
        }
      }
    }
  }

  void die(const Status& status) {
    {
      const std::lock_guard lock(mutex_);
      dead_ = status;
    }
    end_all(StopReason::kNone, status);
    log_.warning(fmt::format("no more requests are served: {}", status.message()));
  }

  void end_all(StopReason stop, const Status& status) {
    Endings endings(*this);
    {
      const std::lock_guard lock(mutex_);
      closing_ = true;
      while (!jobs_.empty()) {
        take(jobs_.begin()->first, stop, status, endings);
      }
    }
  }

  // REQUIRES: mutex_, and no call of the context runs.
  void count_pages() {
    const KvCache& kv = context_->memory().kv();
    counters_.kv_pages_used = 0;
    counters_.kv_pages_max = 0;
    for (size_t klass = 0; klass < kv.config().classes.size(); ++klass) {
      counters_.kv_pages_used += kv.pages_used(static_cast<int32_t>(klass));
      counters_.kv_pages_max += kv.config().classes[klass].n_pages;
    }
  }

  Log log_;
  const Tokenizer& tokenizer_;
  const Clock::time_point started_ = Clock::now();

  std::mutex sampler_mutex_;
  SamplerMaker samplers_;  // guarded by sampler_mutex_; its samplers run on the serving thread

  const SchedulerOptions pace_;

  std::mutex slot_mutex_;  // one save, restore or erase at a time

  mutable std::mutex mutex_;      // guards all below; never held while the context or a sink is called
  std::condition_variable wake_;  // the serving thread: there may be something to do
  std::condition_variable rest_;  // others: a step or a request has ended
  Scheduler scheduler_;
  std::map<int64_t, std::unique_ptr<ServingJob>> jobs_;  // what is in a job is the serving thread's
  std::map<int64_t, int64_t> n_predicted_;               // by request, as slots() tells
  std::set<int64_t> cancelled_;
  int64_t next_id_ = 1;
  int64_t n_open_ = 0;  // requests whose on_end has not returned
  int n_pauses_ = 0;
  bool in_step_ = false;
  bool closing_ = false;   // submit() refuses
  bool stopping_ = false;  // the thread ends
  Status dead_;
  ServingCounters counters_;
  std::vector<int64_t> saved_us_;  // by slot: its last use when it was given to the folder of prompts

  std::once_flag joined_;
  std::thread thread_;
};

Serving::Serving(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Serving::~Serving() {
  if (impl_ != nullptr) {
    impl_->stop();
  }
}

Result<std::unique_ptr<Serving>> Serving::start(std::unique_ptr<Context> context, const ServingOptions& options,
                                                const Log& log) {
  TRY(context->model().text_status());
  TRY(check_options(*context, options));
  std::unique_ptr<KeptPrompts> cache;
  if (options.cache.wanted() && !scheduler_options(*context, options).forget_prefixes) {
    ASSIGN_OR_RETURN(cache, KeptPrompts::open(*context, options.cache, log));
  }
  auto impl = std::make_unique<Impl>(std::move(context), std::move(cache), options, log);
  TRY(impl->start());
  return std::unique_ptr<Serving>(new Serving(std::move(impl)));
}

Result<int64_t> Serving::submit(ServingRequest request, std::shared_ptr<ServingSink> sink) {
  return impl_->submit(std::move(request), std::move(sink));
}

Status Serving::check_length(const ServingRequest& request) const {
  return impl_->check_length(request);
}

void Serving::cancel(int64_t request) {
  impl_->cancel(request);
}

std::vector<SlotView> Serving::slots() const {
  return impl_->slots();
}

ServingCounters Serving::counters() const {
  return impl_->counters();
}

Result<Serving::SlotFile> Serving::save_slot(int32_t slot, const std::string& path) {
  const Clock::time_point start = Clock::now();
  SlotFile file;
  const Status status = impl_->with_idle_slot(slot, [&]() -> Status {
    ASSIGN_OR_RETURN(file.n_bytes, impl_->context_->state_bytes(slot));
    file.n_tokens = impl_->context_->length(slot);
    return impl_->context_->save_state(slot, path);
  });
  TRY(status);
  file.ms = static_cast<double>(us_since(start)) / 1000;
  return file;
}

Result<Serving::SlotFile> Serving::restore_slot(int32_t slot, const std::string& path) {
  const Clock::time_point start = Clock::now();
  SlotFile file;
  const Status status = impl_->with_idle_slot(slot, [&]() -> Status {
    TRY(impl_->context_->load_state(slot, path));
    file.n_tokens = impl_->context_->length(slot);
    ASSIGN_OR_RETURN(file.n_bytes, impl_->context_->state_bytes(slot));
    return {};
  });
  TRY(status);
  file.ms = static_cast<double>(us_since(start)) / 1000;
  return file;
}

Result<int64_t> Serving::erase_slot(int32_t slot) {
  int64_t n_tokens = 0;
  const Status status = impl_->with_idle_slot(slot, [&]() -> Status {
    n_tokens = impl_->context_->length(slot);
    return impl_->context_->truncate(slot, 0);
  });
  TRY(status);
  return n_tokens;
}

void Serving::pause() {
  impl_->pause();
}

void Serving::resume() {
  impl_->resume();
}

Status Serving::drain(std::chrono::milliseconds grace) {
  return impl_->drain(grace);
}

void Serving::stop() {
  impl_->stop();
}

bool Serving::wants_branches() const {
  return impl_->wants_branches();
}

Context& Serving::context() {
  return *impl_->context_;
}

const ServingOptions& Serving::options() const {
  return impl_->options_;
}

}  // namespace tessera
