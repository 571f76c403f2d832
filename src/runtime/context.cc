#include "runtime/context.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <fmt/format.h>
#include <memory>
#include <new>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "memory/sequence_memory.h"
#include "memory/state_format.h"
#include "runtime/context_memory.h"
#include "runtime/context_state.h"
#include "runtime/memory_plan.h"
#include "runtime/micro_batch.h"
#include "runtime/model_state.h"
#include "runtime/placement_switch.h"

namespace tessera {
namespace {

// A call from the progress function of a switch, which runs on the loop thread.
Status switching_status() {
  return {ErrorCode::kBusy, "the model's placement is being switched; call when that has returned"};
}

}  // namespace

class Context::Impl {
 public:
  Impl(std::shared_ptr<Model> model, const ContextOptions& options, ContextSizes sizes, SequenceMemory memory)
      : model_(std::move(model)),
        m_(*model_->state()),
        options_(options),
        sizes_(std::move(sizes)),
        memory_(std::move(memory)),
        place_(m_, options_, sizes_, memory_),
        tokens_(static_cast<size_t>(options.n_seq_max)) {
    logits_.width = m_.definition.info.n_vocab;
    embeddings_.width = m_.definition.info.n_embd;
  }

  ~Impl() {
    for (const auto& device : m_.devices.devices) {
      settle(device->compute_queue());
    }
  }

  Status open() { return place_.open(); }

  // Ok while the context may be used.
  [[nodiscard]] Status alive() const { return dead_.ok() ? m_.lost : dead_; }

  Status decode(std::span<const BatchToken> batch, const DecodeProgress& progress) {
    TRY(alive());
    TRY(check_batch(batch));
    std::vector<int64_t> lengths;  // by sequence, to go back to
    for (int32_t s = 0; s < options_.n_seq_max; ++s) {
      lengths.push_back(memory_.length(s));
    }
    forget_outputs();
    const std::vector<std::span<const BatchToken>> pieces = cut_batch(batch, sizes_.shape);
    if (pieces.size() > 1) {
      TRY(make_room_for_outputs(count_wanted(batch)));
    }
    try {
      return run_pieces(pieces, lengths, progress);
    } catch (const std::bad_alloc&) {
      // The book of pages may be half written: nothing may use it any more.
      forget_outputs();
      dead_ = Status(ErrorCode::kOutOfMemory, "no memory is left in the middle of a batch; make the context again");
      return dead_;
    }
  }

  Status truncate(int32_t seq, int64_t new_length) {
    TRY(change_book([&](std::vector<RecMove>& moves) { return memory_.truncate(seq, new_length, moves); }));
    forget_tokens();
    return {};
  }

  Status fork(int32_t from, int32_t to, int64_t length) {
    std::vector<int32_t> copy = tokens(from);
    TRY(change_book([&](std::vector<RecMove>& moves) { return memory_.fork(from, to, length, moves); }));
    tokens_[static_cast<size_t>(to)] = std::move(copy);
    forget_tokens();
    return {};
  }

  Status snapshot(int32_t seq) {
    return change_book([&](std::vector<RecMove>& moves) -> Status {
      TRY(memory_.snapshot(seq, moves));
      for (const RecMove& move : moves) {
        const Status ready = place_.rec().ready_snapshot(move.to);
        if (!ready.ok()) {
          memory_.drop_snapshot(seq);
          return ready;
        }
      }
      return {};
    });
  }

  void clear() {
    memory_.clear();
    forget_tokens();
  }

  [[nodiscard]] std::vector<int32_t> tokens(int32_t seq) const {
    return seq >= 0 && seq < options_.n_seq_max ? tokens_[static_cast<size_t>(seq)] : std::vector<int32_t>();
  }

  Result<uint64_t> state_bytes(int32_t seq) {
    ASSIGN_OR_RETURN(const StateContent content, content(seq));
    return content.n_bytes;
  }

  Status get_state(int32_t seq, std::span<std::byte> out) {
    ASSIGN_OR_RETURN(const StateContent content, content(seq));
    if (out.size() != content.n_bytes) {
      return {ErrorCode::kInvalidArgument,
              fmt::format("the state has {} bytes, there is room for {}", content.n_bytes, out.size())};
    }
    write_state(*shape_, content, out);
    DeviceLists lists;
    for (const StateSequence& sequence : content.sequences) {
      add_state_copies({m_, *shape_, memory_, place_.kv_bases(), place_.rec()}, sequence,
                       content.whole ? sequence.seq : seq, out.data(), false, lists);
    }
    TRY(run_copies(lists));
    if (content.n_logits > 0) {
      const uint64_t n_bytes = static_cast<uint64_t>(content.n_logits * shape_->n_vocab) * sizeof(float);
      std::memcpy(out.subspan(content.logits_offset, n_bytes).data(), logits_.row(0).data(), n_bytes);
    }
    seal_state(out);
    return {};
  }

  Status set_state(int32_t seq, std::span<const std::byte> bytes) {
    TRY(check_state_seq(seq));
    TRY(make_shape());
    ASSIGN_OR_RETURN(StateContent content, read_state(*shape_, seq == kAllSequences, bytes));
    ASSIGN_OR_RETURN(SequenceMemory book, restored_book(memory_, m_.kv_classes, content, seq));
    // All that needs memory comes before the first byte is changed.
    DeviceLists lists;
    for (const StateSequence& sequence : content.sequences) {
      const int32_t to = content.whole ? sequence.seq : seq;
      for (const RecSnapshot& snapshot : book.snapshots(to)) {
        TRY(place_.rec().ready_snapshot(snapshot.place));
      }
      // Restoring only reads the bytes.
      add_state_copies({m_, *shape_, book, place_.kv_bases(), place_.rec()}, sequence, to,
                       const_cast<std::byte*>(bytes.data()), true, lists);
    }
    std::vector<float> logits(static_cast<size_t>(content.n_logits * shape_->n_vocab));
    if (!logits.empty()) {
      const std::span<float> all(logits);
      std::memcpy(logits.data(), bytes.subspan(content.logits_offset, all.size_bytes()).data(), all.size_bytes());
    }
    memory_ = std::move(book);
    if (content.whole) {
      std::ranges::for_each(tokens_, [](std::vector<int32_t>& tokens) { tokens.clear(); });
      forget_outputs();
      logits_.held = std::move(logits);
      logits_.n_rows = content.n_logits;
    }
    for (StateSequence& sequence : content.sequences) {
      tokens_[static_cast<size_t>(content.whole ? sequence.seq : seq)] = std::move(sequence.tokens);
    }
    const Status copied = run_copies(lists);
    if (copied.code() == ErrorCode::kOutOfMemory) {
      dead_ = Status(ErrorCode::kOutOfMemory, "no memory is left while a state is restored; make the context again");
      return dead_;
    }
    return copied;
  }

  Status on_loop(const std::function<Status()>& fn) {
    return m_.loop->run([&] { return m_.switching ? switching_status() : fn(); });
  }

  // The same for what changes sequences.
  Status on_living_loop(const std::function<Status()>& fn) {
    return on_loop([&] {
      const Status status = alive();
      return status.ok() ? fn() : status;
    });
  }

  // Rows that a decode leaves.
  struct Outputs {
    int64_t width = 0;
    int64_t n_rows = 0;
    const float* direct = nullptr;  // of a batch of one micro-batch: the side's own
    std::vector<float> held;        // of a batch of several

    [[nodiscard]] std::span<const float> row(int64_t i) const {
      CHECK(i >= 0 && i < n_rows);
      const auto n = static_cast<size_t>(width);
      return {(direct != nullptr ? direct : held.data()) + static_cast<size_t>(i) * n, n};
    }
  };

  std::shared_ptr<Model> model_;
  ModelState& m_;
  ContextOptions options_;
  ContextSizes sizes_;
  SequenceMemory memory_;
  ContextMemory place_;                       // refers to the three before it
  std::vector<std::vector<int32_t>> tokens_;  // by sequence: what it holds
  Outputs logits_;
  Outputs embeddings_;

 private:
  // Rows of a micro-batch that wait to be taken from the host's block.
  struct Waiting {
    int64_t n_rows = 0;
    float* to = nullptr;  // null: they stay
  };
  // The last micro-batch of one parity.
  struct Side {
    std::shared_ptr<const Lowered> lowered;  // what ran
    std::vector<Event> events;               // by its segments
    Waiting logits;
    Waiting embeddings;
  };

  Status check_batch(std::span<const BatchToken> batch) const {
    if (static_cast<int64_t>(batch.size()) > options_.n_batch) {
      return {ErrorCode::kInvalidArgument,
              fmt::format("a batch of {} tokens; --batch-size allows {}", batch.size(), options_.n_batch)};
    }
    std::vector<int64_t> added(static_cast<size_t>(options_.n_seq_max), 0);
    for (const BatchToken& token : batch) {
      if (token.token < 0 || token.token >= m_.definition.info.n_vocab) {
        return {ErrorCode::kInvalidArgument,
                fmt::format("token id {} is not in the vocabulary of {}", token.token, m_.definition.info.n_vocab)};
      }
      if (token.seq < 0 || token.seq >= options_.n_seq_max) {
        return {ErrorCode::kInvalidArgument,
                fmt::format("sequence {} of a context with {}", token.seq, options_.n_seq_max)};
      }
      if (token.wants_embedding && !options_.embeddings) {
        return {ErrorCode::kInvalidArgument,
                "a token asks for its embedding, but the context was made without; set its option embeddings"};
      }
      ++added[static_cast<size_t>(token.seq)];
    }
    for (int32_t s = 0; s < options_.n_seq_max; ++s) {
      const int64_t wanted = memory_.length(s) + added[static_cast<size_t>(s)];
      if (wanted > options_.n_ctx) {
        return {ErrorCode::kCacheFull,
                fmt::format("sequence {} would have {} tokens, the context holds {}; raise --ctx-size", s, wanted,
                            options_.n_ctx)};
      }
    }
    return {};
  }

  Status check_state_seq(int32_t seq) const {
    if (seq != kAllSequences && (seq < 0 || seq >= options_.n_seq_max)) {
      return {ErrorCode::kInvalidArgument, fmt::format("sequence {} of a context with {}", seq, options_.n_seq_max)};
    }
    return {};
  }

  Status make_shape() {
    if (!shape_) {
      ASSIGN_OR_RETURN(shape_, state_shape(m_, options_));
    }
    return {};
  }

  // What a state would hold now.
  Result<StateContent> content(int32_t seq) {
    TRY(check_state_seq(seq));
    TRY(make_shape());
    return content_of(*shape_, memory_, m_.kv_classes, tokens_, seq, logits_.n_rows);
  }

  // Changes the book of sequences and moves the bytes that follow it. Without memory half way the two may no longer
  // agree: nothing may use them any more.
  template <typename Change>
  Status change_book(const Change& change) {
    try {
      std::vector<RecMove> moves;
      TRY(change(moves));
      place_.rec().submit(moves);
      return {};
    } catch (const std::bad_alloc&) {
      dead_ = Status(ErrorCode::kOutOfMemory, "no memory is left while sequences change; make the context again");
      return dead_;
    }
  }

  // Copies to or from a caller's bytes, which nothing touches any more afterwards. Errors: kOutOfMemory when not all
  // were made; those of drain().
  Status run_copies(DeviceLists& lists) {
    try {
      m_.submit(lists);
      return drain();
    } catch (const std::bad_alloc&) {
      for (const auto& device : m_.devices.devices) {
        settle(device->compute_queue());
      }
      return {ErrorCode::kOutOfMemory, "no memory is left to copy a state"};
    }
  }

  // After sequences have become shorter.
  void forget_tokens() {
    for (size_t s = 0; s < tokens_.size(); ++s) {
      const auto length = static_cast<size_t>(memory_.length(static_cast<int32_t>(s)));
      tokens_[s].resize(std::min(tokens_[s].size(), length));
    }
  }

  void forget_outputs() {
    for (Outputs* outputs : {&logits_, &embeddings_}) {
      outputs->n_rows = 0;
      outputs->direct = nullptr;
    }
  }

  Status make_room_for_outputs(const WantedRows& wanted) {
    try {
      logits_.held.resize(static_cast<size_t>(wanted.n_logits * logits_.width));
      embeddings_.held.resize(static_cast<size_t>(wanted.n_embeddings * embeddings_.width));
      return {};
    } catch (const std::bad_alloc&) {
      return {ErrorCode::kOutOfMemory,
              fmt::format("no memory is left on the host for {} rows of logits and {} embeddings; lower --batch-size",
                          wanted.n_logits, wanted.n_embeddings)};
    }
  }

  // So many more rows will come to `host`.
  static void expect(Outputs& outputs, Waiting& waiting, int64_t n_rows, const float* host, bool only_one) {
    waiting.n_rows = n_rows;
    waiting.to = only_one ? nullptr : outputs.held.data() + outputs.n_rows * outputs.width;
    outputs.direct = only_one ? host : nullptr;
    outputs.n_rows += n_rows;
  }

  static void take(const Outputs& outputs, Waiting& waiting, const float* host) {
    if (waiting.to != nullptr) {
      std::copy_n(host, waiting.n_rows * outputs.width, waiting.to);
    }
    waiting.n_rows = 0;
  }

  Status run_pieces(std::span<const std::span<const BatchToken>> pieces, const std::vector<int64_t>& lengths,
                    const DecodeProgress& progress) {
    int64_t n_given = 0;
    for (const auto& piece : pieces) {
      if (progress && !progress(n_given)) {
        const Status drained = drain();
        forget_outputs();
        TRY(drained);
        return {ErrorCode::kCancelled, fmt::format("stopped after {} tokens of a batch", n_given)};
      }
      n_given += static_cast<int64_t>(piece.size());
      const Status status = run_piece(piece, pieces.size() == 1);
      if (!status.ok()) {
        forget_outputs();
        return roll_back(lengths, status);
      }
    }
    const Status drained = drain();
    if (!drained.ok()) {
      forget_outputs();
    }
    return drained;
  }

  // Every sequence back to its old length. check_batch() has ruled out a full cache, so this is for failures that no
  // batch can foresee; where a window has let go of pages or recurrent state has gone on meanwhile, the sequence is
  // emptied and the message says so.
  Status roll_back(const std::vector<int64_t>& lengths, const Status& why) {
    std::string message = why.message();
    const Status drained = drain();
    for (int32_t s = 0; s < options_.n_seq_max; ++s) {
      if (!truncate(s, lengths[static_cast<size_t>(s)]).ok()) {
        TRY(truncate(s, 0));
        message += fmt::format("; sequence {} had to be emptied", s);
      }
    }
    TRY(drained);
    return {why.code(), std::move(message)};
  }

  // Waits until the queue runs nothing of this context any more; without memory to ask for that, it asks again.
  static void settle(Queue& queue) {
    for (;;) {
      try {
        // A poisoned queue has nothing more to run; its status was reported by the decode that met it.
        (void)queue.synchronize();
        return;
      } catch (const std::bad_alloc&) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    }
  }

  Status run_piece(std::span<const BatchToken> piece, bool only_one) {
    const size_t parity = next_side_++ % 2;
    Side& side = sides_[parity];
    std::byte* const inputs = place_.host_inputs(parity);
    TRY(finish_side(side, parity));
    std::vector<KvToken> tokens(piece.size());
    for (size_t i = 0; i < piece.size(); ++i) {
      tokens[i].seq = piece[i].seq;
    }
    TRY(fill_embeddings(m_, place_.host_layout(), piece, inputs));
    TRY(memory_.prepare(tokens, batch_));
    place_.copy_pages(batch_.kv.copies);
    for (const BatchToken& token : piece) {
      tokens_[static_cast<size_t>(token.seq)].push_back(token.token);
    }
    LaunchSizes sizes;
    sizes.n_tokens = static_cast<int32_t>(piece.size());
    sizes.n_seqs = static_cast<int32_t>(batch_.kv.row_seqs.size());
    fill_inputs(place_.host_layout(), sizes_.shape, piece, batch_, inputs);
    const WantedRows wanted = count_wanted(piece);
    sizes.n_outputs = wanted.n_logits;
    submit(side, parity, sizes, wanted.n_embeddings);
    expect(logits_, side.logits, wanted.n_logits, place_.host_logits(parity), only_one);
    expect(embeddings_, side.embeddings, wanted.n_embeddings, place_.host_embeddings(parity), only_one);
    memory_.trim_windows();
    return {};
  }

  void submit(Side& side, size_t parity, const LaunchSizes& sizes, int32_t n_embeddings) {
    const std::shared_ptr<const Lowered>& lowered = place_.lowered();
    // Before a switch everything was drained: a program waits for nothing that another one did.
    const bool same_program = side.lowered == lowered;
    std::vector<Event> events(lowered->segments.size());
    for (size_t s = 0; s < lowered->segments.size(); ++s) {
      const bool is_embeddings = std::cmp_equal(s, lowered->embedding_segment);
      if (is_embeddings && n_embeddings == 0) {
        continue;
      }
      LaunchSizes own_sizes = sizes;
      own_sizes.n_outputs = is_embeddings ? n_embeddings : sizes.n_outputs;
      const Segment& segment = lowered->segments[s];
      Queue& queue = m_.devices[static_cast<size_t>(segment.device)].compute_queue();
      for (const int32_t wait : segment.waits) {
        queue.wait(events[static_cast<size_t>(wait)]);
      }
      for (const int32_t wait : segment.waits_previous) {
        if (same_program) {
          queue.wait(side.events[static_cast<size_t>(wait)]);
        }
      }
      queue.submit(segment.commands[parity], own_sizes);
      events[s] = queue.record();
    }
    side.events = std::move(events);
    side.lowered = lowered;
  }

  // Waits until a side's host blocks may be written again, and takes its outputs.
  Status finish_side(Side& side, size_t parity) {
    if (side.lowered == nullptr) {
      return {};
    }
    for (const int32_t segment : side.lowered->upload_segments) {
      side.events[static_cast<size_t>(segment)].wait();
    }
    if (side.logits.n_rows > 0) {
      for (const int32_t segment : side.lowered->download_segments) {
        side.events[static_cast<size_t>(segment)].wait();
      }
      take(logits_, side.logits, place_.host_logits(parity));
    }
    if (side.embeddings.n_rows > 0) {
      side.events[static_cast<size_t>(side.lowered->embedding_segment)].wait();
      take(embeddings_, side.embeddings, place_.host_embeddings(parity));
    }
    return {};
  }

  // Waits for everything submitted; the context is dead once a queue has failed.
  Status drain() {
    for (const auto& device : m_.devices.devices) {
      const Status status = device->compute_queue().synchronize();
      if (!status.ok() && dead_.ok()) {
        dead_ = Status(ErrorCode::kDeviceLost,
                       fmt::format("device {} failed: {}. Its contents are gone; load the model again",
                                   device->info().name, status.message()));
      }
    }
    TRY(dead_);
    for (size_t parity = 0; parity < sides_.size(); ++parity) {
      TRY(finish_side(sides_[parity], parity));
    }
    return {};
  }

  std::array<Side, 2> sides_;
  size_t next_side_ = 0;
  MemoryBatch batch_;
  Status dead_;
  std::optional<StateShape> shape_;  // once a state was asked for
};

Context::Context(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Context::~Context() {
  if (impl_ != nullptr) {
    const std::shared_ptr<Model> keep = impl_->model_;
    (void)keep->state()->loop->run([&]() -> Status {
      impl_.reset();
      return {};
    });
  }
}

Result<std::unique_ptr<Context>> Context::create(std::shared_ptr<Model> model, const ContextOptions& options) {
  ModelState& state = *model->state();
  if (state.loop == nullptr) {
    return Status(ErrorCode::kInvalidArgument, "the model was opened for its vocabulary only");
  }
  ASSIGN_OR_RETURN(const ContextOptions full, with_context_size(state, options));
  ASSIGN_OR_RETURN(ContextSizes sizes, context_sizes(state, full));
  RecMemoryConfig rec;
  rec.present = has_recurrent_state(state);
  rec.n_snapshots = sizes.n_snapshots;
  KvCacheConfig config;
  for (size_t c = 0; c < state.kv_classes.windows.size(); ++c) {
    config.classes.push_back({state.kv_classes.windows[c], sizes.class_pages[c]});
  }
  config.n_seq_max = full.n_seq_max;
  config.n_ctx = full.n_ctx;
  std::unique_ptr<Impl> opened;
  const bool nested = state.loop->is_current();  // from a callback, in the middle of another context's call
  // On the loop thread from birth to death: an Impl that fails to open gives its bytes back there too.
  const Status status = state.loop->run([&]() -> Status {
    TRY(state.switching ? switching_status() : state.lost);
    end_copying_ahead(state, !nested);
    TRY(state.lost);
    ASSIGN_OR_RETURN(SequenceMemory memory, SequenceMemory::create(std::move(config), rec));
    auto impl = std::make_unique<Impl>(model, full, std::move(sizes), std::move(memory));
    TRY(impl->open());
    opened = std::move(impl);
    return {};
  });
  TRY(status);
  return std::unique_ptr<Context>(new Context(std::move(opened)));
}

Status Context::decode(std::span<const BatchToken> batch, const DecodeProgress& progress) {
  return impl_->on_loop([&] { return impl_->decode(batch, progress); });
}

std::span<const float> Context::logits(int64_t i) const {
  return impl_->logits_.row(i);
}
int64_t Context::n_outputs() const {
  return impl_->logits_.n_rows;
}
std::span<const float> Context::embedding(int64_t i) const {
  return impl_->embeddings_.row(i);
}
int64_t Context::n_embeddings() const {
  return impl_->embeddings_.n_rows;
}
int64_t Context::length(int32_t seq) const {
  int64_t length = 0;
  // Refused only while the model goes away: then nothing is there.
  (void)impl_->on_loop([&]() -> Status {
    length = impl_->memory_.length(seq);
    return {};
  });
  return length;
}

std::vector<int32_t> Context::tokens(int32_t seq) const {
  std::vector<int32_t> tokens;
  (void)impl_->on_loop([&]() -> Status {
    tokens = impl_->tokens(seq);
    return {};
  });
  return tokens;
}

Status Context::truncate(int32_t seq, int64_t new_length) {
  return impl_->on_living_loop([&] { return impl_->truncate(seq, new_length); });
}

Result<int64_t> Context::rewind(int32_t seq, int64_t wanted) {
  int64_t length = 0;
  TRY(impl_->on_living_loop([&] {
    length = impl_->memory_.rewind_length(seq, wanted);
    return impl_->truncate(seq, wanted < 0 ? wanted : length);
  }));
  return length;
}

Status Context::snapshot(int32_t seq) {
  return impl_->on_living_loop([&] { return impl_->snapshot(seq); });
}

bool Context::keeps_snapshots() const {
  return impl_->sizes_.n_snapshots > 0;
}

Status Context::fork(int32_t from, int32_t to, int64_t length) {
  return impl_->on_living_loop([&] { return impl_->fork(from, to, length); });
}

Status Context::clear() {
  return impl_->on_living_loop([&]() -> Status {
    impl_->clear();
    return {};
  });
}

Result<uint64_t> Context::state_bytes(int32_t seq) {
  uint64_t n_bytes = 0;
  TRY(impl_->on_living_loop([&]() -> Status {
    ASSIGN_OR_RETURN(n_bytes, impl_->state_bytes(seq));
    return {};
  }));
  return n_bytes;
}

Status Context::get_state(int32_t seq, std::span<std::byte> out) {
  return impl_->on_living_loop([&] { return impl_->get_state(seq, out); });
}

Status Context::set_state(int32_t seq, std::span<const std::byte> bytes) {
  return impl_->on_living_loop([&] { return impl_->set_state(seq, bytes); });
}

const ContextOptions& Context::options() const {
  return impl_->options_;
}
ContextStats Context::stats() const {
  ContextStats stats;
  // Refused only while the model goes away or switches.
  (void)impl_->on_loop([&]() -> Status {
    stats = impl_->place_.stats();
    return {};
  });
  return stats;
}
Model& Context::model() const {
  return *impl_->model_;
}
const SequenceMemory& Context::memory() const {
  return impl_->memory_;
}

}  // namespace tessera
