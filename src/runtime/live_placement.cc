#include "runtime/live_placement.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <fmt/format.h>
#include <mutex>
#include <new>
#include <thread>
#include <utility>

#include "base/threads.h"
#include "base/units.h"
#include "runtime/phase_policy.h"

namespace tessera {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMostWishes = 16;

Status shutting_down() {
  return {ErrorCode::kCancelled, "the server is shutting down"};
}

}  // namespace

class LivePlacement::Impl {
 public:
  Impl(std::shared_ptr<Model> model, TransitionOptions transition, Log log)
      : model_(std::move(model)), transition_(std::move(transition)), log_(std::move(log)) {
    transition_.progress = [this](double) { return !stopping_; };
  }

  Status start() {
    TRY(renew_view());
    ASSIGN_OR_RETURN(thread_, start_thread("placement", [this] { run(); }));
    return {};
  }

  void set_policy(SplitMeasures measures, std::array<PlacementRequest, 2> placements) {
    const std::lock_guard lock(mutex_);
    placements_ = std::move(placements);
    const std::optional<size_t> now = split_of(view_->request);
    policy_.emplace(std::move(measures), now.value_or(0));
    policy_on_ = now.has_value();
  }

  Status ask(PlacementWish wish, Done done) {
    const std::lock_guard lock(mutex_);
    if (stopping_) {
      return shutting_down();
    }
    if (wish.policy == true && !policy_) {
      return {ErrorCode::kUnsupported,
              "there are no measured speeds to choose by: this server was started without --split-policy auto, or has "
              "one device"};
    }
    if (wishes_.size() >= kMostWishes) {
      return {ErrorCode::kBusy, fmt::format("{} changes of the placement wait already", wishes_.size())};
    }
    wishes_.push_back({std::move(wish), std::move(done), Clock::now()});
    wake_.notify_all();
    return {};
  }

  ReadingPace before_step(const ServingLoad& load) {
    // While another switch is on its way there is nothing to advise; waiting for it would hold up the batches that run
    // while weights are copied ahead.
    const std::unique_lock one_at_a_time(switching_, std::try_to_lock);
    if (!one_at_a_time.owns_lock()) {
      return ReadingPace::kShared;
    }
    PhasePolicy::Advice advice;
    PlacementRequest target;
    {
      const std::lock_guard lock(mutex_);
      if (!policy_on_ || stopping_) {
        return ReadingPace::kShared;
      }
      advice = policy_->advise(load, now_us());
      if (advice.split == policy_->now()) {
        tell_choice();
        return advice.pace;
      }
      target = placements_[advice.split];
      log_.detail(fmt::format("--split-policy auto: {}", policy_->why()));
    }
    const SwitchRecord record = switch_to(target, 0, Clock::now(), true);
    if (record.status.ok()) {
      return advice.pace;
    }
    const std::lock_guard lock(mutex_);
    policy_on_ = false;
    if (!stopping_) {
      log_.warning(fmt::format("{}; --split-policy is off from now on", record.status.message()));
    }
    return ReadingPace::kShared;
  }

  std::shared_ptr<const PlacementView> view() const {
    const std::lock_guard lock(mutex_);
    return view_;
  }

  SwitchTotals totals() const {
    const std::lock_guard lock(mutex_);
    return totals_;
  }

  PolicyView policy() const {
    const std::lock_guard lock(mutex_);
    PolicyView view;
    if (policy_) {
      view.is_on = policy_on_;
      view.measures = policy_->measures();
      view.phase = policy_->phase_name();
      view.caution = policy_->caution();
      view.phase_ms = policy_->phase_us() / 1000;
      view.why = policy_->why();
    }
    return view;
  }

  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
      wake_.notify_all();
    }
    std::call_once(joined_, [&] {
      if (thread_.joinable()) {
        thread_.join();
      }
    });
  }

 private:
  struct Waiting {
    PlacementWish wish;
    Done done;
    Clock::time_point asked;
  };

  [[nodiscard]] int64_t now_us() const {
    return std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - started_).count();
  }

  // The policy's placement that this is, if it is one. REQUIRES: mutex_.
  [[nodiscard]] std::optional<size_t> split_of(const PlacementRequest& request) const {
    for (size_t i = 0; i < placements_.size(); ++i) {
      if (request.split_mode == placements_[i].split_mode && request.tensor_split == placements_[i].tensor_split) {
        return i;
      }
    }
    return std::nullopt;
  }

  void run() {
    while (const std::optional<Waiting> next = take()) {  // which goes before the next one is waited for
      try {
        stopping_ ? next->done(shutting_down(), nullptr) : fulfil(*next);
      } catch (const std::bad_alloc&) {
        log_.warning("no memory is left on the host for a change of the placement");
      }
    }
  }

  // Waits for a wish. Nothing: this has been stopped, and none is left.
  std::optional<Waiting> take() {
    std::unique_lock lock(mutex_);
    wake_.wait(lock, [&] { return stopping_ || !wishes_.empty(); });
    if (wishes_.empty()) {
      return std::nullopt;
    }
    Waiting next = std::move(wishes_.front());
    wishes_.pop_front();
    return next;
  }

  void fulfil(const Waiting& waiting) {
    std::optional<SwitchRecord> record;
    {
      const std::lock_guard one_at_a_time(switching_);
      record = carry_out(waiting);
    }
    waiting.done(record ? record->status : Status(), record ? &*record : nullptr);
  }

  // REQUIRES: switching_.
  std::optional<SwitchRecord> carry_out(const Waiting& waiting) {
    const PlacementWish& wish = waiting.wish;
    std::optional<PlacementRequest> target = wish.placement;
    if (const std::lock_guard lock(mutex_); wish.policy == true && !split_of(view_->request)) {
      target = placements_[0];  // the policy knows its two placements alone
    }
    std::optional<SwitchRecord> record;
    if (target) {
      record = switch_to(*target, wish.deadline_s, waiting.asked, false);
      if (!record->status.ok()) {
        return record;
      }
    }
    const std::lock_guard lock(mutex_);
    policy_on_ = wish.policy == true;
    if (policy_on_) {
      SplitMeasures measures = policy_->measures();
      policy_.emplace(std::move(measures), split_of(view_->request).value_or(0));
    }
    return record;
  }

  // REQUIRES: switching_.
  SwitchRecord switch_to(const PlacementRequest& target, double deadline_s, Clock::time_point asked, bool by_policy) {
    SwitchRecord record;
    record.to = target.split_mode;
    record.by_policy = by_policy;
    record.from = view()->request.split_mode;
    TransitionOptions options = transition_;
    options.deadline_s = deadline_s;
    if (by_policy) {  // the thread that decodes asks: while it copied ahead, nobody would
      options.ahead_bytes = 0;
    }
    if (deadline_s > 0) {
      // Where it was over while others had their turn, the switch is to say so.
      options.deadline_s = std::max(deadline_s - ms_between(asked, Clock::now()) / 1000, 1e-9);
    }
    Result<TransitionReport> report = model_->set_placement(target, options);
    record.waited_ms = ms_between(asked, Clock::now());
    if (report.ok()) {
      record.report = std::move(report).value();
      const TransitionReport& done = record.report;
      record.waited_ms = std::max(record.waited_ms - done.ahead_ms - done.total_ms - done.close_ms, 0.0);
      record.status = renew_view();
    } else {
      record.status = stopping_ ? shutting_down() : report.status();
    }
    note(record);
    return record;
  }

  Status renew_view() {
    ASSIGN_OR_RETURN(PlacementView view, placement_view(*model_));
    auto shared = std::make_shared<const PlacementView>(std::move(view));
    const std::lock_guard lock(mutex_);
    view_ = std::move(shared);
    return {};
  }

  void note(const SwitchRecord& record) {
    const std::lock_guard lock(mutex_);
    totals_.last = record;
    if (!record.status.ok()) {
      ++totals_.n_failed;
      return;
    }
    const TransitionReport& report = record.report;
    ++totals_.n_switches;
    totals_.seconds += report.total_ms / 1000;
    totals_.moved_bytes += report.moved_bytes;
    const std::optional<size_t> split = split_of(view_->request);
    if (policy_ && record.by_policy && split) {
      policy_->switched(*split, report.total_ms / 1000, now_us());
    }
    log_.detail(fmt::format("{} -> {}: {:.1f} MiB changed their device in {:.1f} ms, after {:.1f} ms", report.from,
                            report.to, mib(report.moved_bytes), report.total_ms, record.waited_ms));
    if (!record.by_policy && !view_->shares_note.empty()) {
      log_.warning(fmt::format("tensor_split is {}; --cuts gives more of them", view_->shares_note));
    }
  }

  // Why nothing changes, now and then. REQUIRES: mutex_.
  void tell_choice() {
    constexpr int64_t kSeldom_us = 10'000'000;
    if (log_.wants(LogLevel::kDetail) && policy_->has_decided() &&
        (told_us_ < 0 || now_us() - told_us_ >= kSeldom_us)) {
      told_us_ = now_us();
      log_.detail(fmt::format("--split-policy auto: {}", policy_->why()));
    }
  }

  const std::shared_ptr<Model> model_;
  TransitionOptions transition_;
  const Log log_;
  const Clock::time_point started_ = Clock::now();

  std::mutex switching_;  // one switch at a time, or the advice to switch; taken before mutex_

  mutable std::mutex mutex_;  // guards all below; never held while the model or a Done is called
  std::condition_variable wake_;
  std::shared_ptr<const PlacementView> view_;
  std::deque<Waiting> wishes_;
  std::optional<PhasePolicy> policy_;
  std::array<PlacementRequest, 2> placements_;  // of its splits
  bool policy_on_ = false;
  int64_t told_us_ = -1;
  SwitchTotals totals_;
  std::atomic<bool> stopping_ = false;

  std::once_flag joined_;
  std::thread thread_;
};

LivePlacement::LivePlacement(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

LivePlacement::~LivePlacement() {
  if (impl_ != nullptr) {
    impl_->stop();
  }
}

Result<std::unique_ptr<LivePlacement>> LivePlacement::start(std::shared_ptr<Model> model,
                                                            const TransitionOptions& transition, const Log& log) {
  auto impl = std::make_unique<Impl>(std::move(model), transition, log);
  TRY(impl->start());
  return std::unique_ptr<LivePlacement>(new LivePlacement(std::move(impl)));
}

void LivePlacement::set_policy(SplitMeasures measures, std::array<PlacementRequest, 2> placements) {
  impl_->set_policy(std::move(measures), std::move(placements));
}

Status LivePlacement::ask(PlacementWish wish, Done done) {
  return impl_->ask(std::move(wish), std::move(done));
}

ReadingPace LivePlacement::before_step(const ServingLoad& load) {
  return impl_->before_step(load);
}

std::shared_ptr<const PlacementView> LivePlacement::view() const {
  return impl_->view();
}

SwitchTotals LivePlacement::totals() const {
  return impl_->totals();
}

PolicyView LivePlacement::policy() const {
  return impl_->policy();
}

void LivePlacement::stop() {
  impl_->stop();
}

}  // namespace tessera
