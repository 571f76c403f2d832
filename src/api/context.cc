// tessera.h: contexts.

#include <algorithm>
#include <fmt/format.h>

#include "api/handles.h"
#include "runtime/cache_types.h"

namespace tessera::api {
namespace {

constexpr const char* kCacheType = "f16";

tsr_context_options default_context_options() {
  const ContextOptions defaults;
  tsr_context_options options = {};
  options.n_ctx = defaults.n_ctx;
  options.n_batch = defaults.n_batch;
  options.n_ubatch = defaults.n_ubatch;
  options.n_seq_max = defaults.n_seq_max;
  return options;
}

Result<DType> cache_type(const char* name, const char* field) {
  const Result<DType> type = cache_type_from_name(option_or(name, kCacheType));
  TRY(type.status().with_context(field));
  return *type;
}

Status check_seq(const Context& context, int32_t seq) {
  if (seq < 0 || seq >= context.options().n_seq_max) {
    return {ErrorCode::kInvalidArgument,
            fmt::format("sequence {} of a context with {}", seq, context.options().n_seq_max)};
  }
  return {};
}

// An element of wants_logits or wants_embedding, or what NULL means for it.
Result<bool> wish_of(const uint8_t* wishes, size_t i, const char* field, bool without) {
  if (wishes == nullptr) {
    return without;
  }
  if (wishes[i] > 1) {
    return Status(ErrorCode::kInvalidArgument,
                  fmt::format("{}[{}] is {}; it must be 0 or 1", field, i, static_cast<int>(wishes[i])));
  }
  return wishes[i] == 1;
}

Result<std::vector<BatchToken>> tokens_of(const tsr_batch& batch, int64_t n_batch) {
  ASSIGN_OR_RETURN(const auto ids, array_argument(batch.tokens, batch.n_tokens, "tokens"));
  // Before anything of the caller's size is made.
  if (ids.empty() || ids.size() > static_cast<size_t>(n_batch)) {
    return Status(ErrorCode::kInvalidArgument,
                  fmt::format("a batch of {} tokens; this context takes 1 to {}", ids.size(), n_batch));
  }
  std::vector<BatchToken> tokens(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    tokens[i].token = ids[i];
    tokens[i].seq = batch.seqs != nullptr ? batch.seqs[i] : 0;
    ASSIGN_OR_RETURN(tokens[i].wants_logits, wish_of(batch.wants_logits, i, "wants_logits", i + 1 == ids.size()));
    ASSIGN_OR_RETURN(tokens[i].wants_embedding, wish_of(batch.wants_embedding, i, "wants_embedding", false));
  }
  return tokens;
}

}  // namespace

Result<ContextOptions> context_options(const tsr_context_options* given) {
  ContextOptions options;
  if (given == nullptr) {
    return options;
  }
  ASSIGN_OR_RETURN(const tsr_context_options known, read_struct(given, "tsr_context_options"));
  TRY(check_field("n_ctx", known.n_ctx, 0, kMaxContext));
  TRY(check_field("n_batch", known.n_batch, 1, kMaxContext));
  TRY(check_field("n_ubatch", known.n_ubatch, 1, kMaxUbatch));
  TRY(check_field("n_seq_max", known.n_seq_max, 1, kMaxSequences));
  options.n_ctx = known.n_ctx;
  options.n_batch = known.n_batch;
  options.n_ubatch = known.n_ubatch;
  options.n_seq_max = known.n_seq_max;
  if (known.n_snapshots < TSR_NO_SNAPSHOTS) {
    return Status(ErrorCode::kInvalidArgument,
                  fmt::format("n_snapshots is {}; TSR_NO_SNAPSHOTS keeps none", known.n_snapshots));
  }
  if (known.n_snapshots != 0) {
    options.n_snapshots = std::max(known.n_snapshots, 0);
  }
  if (known.snapshot_bytes != 0) {
    options.snapshot_bytes = known.snapshot_bytes;
  }
  options.embeddings = known.embeddings != 0;
  ASSIGN_OR_RETURN(options.k_type, cache_type(known.cache_type_k, "cache_type_k"));
  ASSIGN_OR_RETURN(options.v_type, cache_type(known.cache_type_v, "cache_type_v"));
  return options;
}

Result<std::span<const float>> logits_row(const Context& context, int64_t row) {
  if (row < 0 || row >= context.n_outputs()) {
    return Status(ErrorCode::kInvalidArgument,
                  fmt::format("row {} of logits; the last decode left {}", row, context.n_outputs()));
  }
  return context.logits(row);
}

}  // namespace tessera::api

using namespace tessera;
using namespace tessera::api;

tsr_status tsr_context_options_init(tsr_context_options* options, size_t struct_size) {
  return guarded([&] { return init_struct(options, struct_size, default_context_options(), "tsr_context_options"); });
}

tsr_status tsr_context_create(const tsr_model* model, const tsr_context_options* options, tsr_context** context) {
  return guarded([&]() -> Status {
    TRY(need_output(context, "context"));
    TRY(need(model, "model"));
    ASSIGN_OR_RETURN(const ContextOptions wanted, context_options(options));
    auto handle = std::make_unique<tsr_context>();
    ASSIGN_OR_RETURN(handle->context, Context::create(model->model, wanted));
    *context = handle.release();
    return {};
  });
}

void tsr_context_free(tsr_context* context) {
  delete context;
}

tsr_status tsr_context_get_info(tsr_context* context, tsr_context_info* info, size_t struct_size) {
  return on_context(context, [&](Context& c) -> Status {
    tsr_context_info known = {};
    known.n_ctx = c.options().n_ctx;
    known.n_batch = c.options().n_batch;
    known.n_ubatch = c.options().n_ubatch;
    known.n_seq_max = c.options().n_seq_max;
    known.n_steps = c.stats().n_steps;
    known.n_reduces = c.stats().n_reduces;
    known.n_copies = c.stats().n_copies;
    known.copy_bytes_per_token = c.stats().copy_bytes_per_token;
    return write_struct(info, struct_size, known, "tsr_context_info");
  });
}

tsr_status tsr_batch_init(tsr_batch* batch, size_t struct_size) {
  return guarded([&] { return init_struct(batch, struct_size, tsr_batch{}, "tsr_batch"); });
}

tsr_status tsr_context_decode(tsr_context* context, const tsr_batch* batch) {
  return on_context(context, [&](Context& c) -> Status {
    ASSIGN_OR_RETURN(const tsr_batch known, read_struct(batch, "tsr_batch"));
    ASSIGN_OR_RETURN(const std::vector<BatchToken> tokens, tokens_of(known, c.options().n_batch));
    return c.decode(tokens);
  });
}

tsr_status tsr_context_n_logits(tsr_context* context, int64_t* n_rows) {
  return on_context(context, [&](Context& c) -> Status {
    TRY(need_output(n_rows, "n_rows"));
    *n_rows = c.n_outputs();
    return {};
  });
}

tsr_status tsr_context_logits(tsr_context* context, int64_t row, const float** logits, size_t* n_vocab) {
  return on_context(context, [&](Context& c) -> Status {
    TRY(need_sized_output(logits, "logits", n_vocab));
    ASSIGN_OR_RETURN(const std::span<const float> found, logits_row(c, row));
    *logits = found.data();
    if (n_vocab != nullptr) {
      *n_vocab = found.size();
    }
    return {};
  });
}

tsr_status tsr_context_n_embeddings(tsr_context* context, int64_t* n_rows) {
  return on_context(context, [&](Context& c) -> Status {
    TRY(need_output(n_rows, "n_rows"));
    *n_rows = c.n_embeddings();
    return {};
  });
}

tsr_status tsr_context_embedding(tsr_context* context, int64_t row, const float** embedding, size_t* n_embd) {
  return on_context(context, [&](Context& c) -> Status {
    TRY(need_sized_output(embedding, "embedding", n_embd));
    if (row < 0 || row >= c.n_embeddings()) {
      return {ErrorCode::kInvalidArgument, fmt::format("embedding {}; the last decode left {}", row, c.n_embeddings())};
    }
    *embedding = c.embedding(row).data();
    if (n_embd != nullptr) {
      *n_embd = c.embedding(row).size();
    }
    return {};
  });
}

tsr_status tsr_context_length(tsr_context* context, int32_t seq, int64_t* length) {
  return on_context(context, [&](Context& c) -> Status {
    TRY(need_output(length, "length"));
    TRY(check_seq(c, seq));
    *length = c.length(seq);
    return {};
  });
}

tsr_status tsr_context_truncate(tsr_context* context, int32_t seq, int64_t new_length) {
  return on_context(context, [&](Context& c) { return c.truncate(seq, new_length); });
}

tsr_status tsr_context_rewind(tsr_context* context, int32_t seq, int64_t wanted, int64_t* length) {
  return on_context(context, [&](Context& c) -> Status {
    TRY(need_output(length, "length"));
    TRY(check_seq(c, seq));
    ASSIGN_OR_RETURN(*length, c.rewind(seq, wanted));
    return {};
  });
}

tsr_status tsr_context_snapshot(tsr_context* context, int32_t seq) {
  return on_context(context, [&](Context& c) -> Status {
    TRY(check_seq(c, seq));
    return c.snapshot(seq);
  });
}

tsr_status tsr_context_keeps_snapshots(tsr_context* context, bool* keeps) {
  return on_context(context, [&](Context& c) -> Status {
    TRY(need_output(keeps, "keeps"));
    *keeps = c.keeps_snapshots();
    return {};
  });
}

tsr_status tsr_context_fork(tsr_context* context, int32_t from, int32_t to, int64_t length) {
  return on_context(context, [&](Context& c) { return c.fork(from, to, length); });
}

tsr_status tsr_context_clear(tsr_context* context) {
  return on_context(context, [&](Context& c) { return c.clear(); });
}

tsr_status tsr_context_tokens(tsr_context* context, int32_t seq, int32_t** ids, size_t* n) {
  return on_context(context, [&](Context& c) -> Status {
    TRY(need_output(ids, "ids"));
    TRY(need_output(n, "n"));
    TRY(check_seq(c, seq));
    give_ids(c.tokens(seq), ids, n);
    return {};
  });
}

tsr_status tsr_state_size(tsr_context* context, int32_t seq, size_t* n_bytes) {
  return on_context(context, [&](Context& c) -> Status {
    TRY(need_output(n_bytes, "n_bytes"));
    ASSIGN_OR_RETURN(*n_bytes, c.state_bytes(seq));
    return {};
  });
}

tsr_status tsr_state_get(tsr_context* context, int32_t seq, void* bytes, size_t n_bytes) {
  return on_context(context, [&](Context& c) -> Status {
    TRY(need(bytes, "bytes"));
    return c.get_state(seq, {static_cast<std::byte*>(bytes), n_bytes});
  });
}

tsr_status tsr_state_set(tsr_context* context, int32_t seq, const void* bytes, size_t n_bytes) {
  return on_context(context, [&](Context& c) -> Status {
    TRY(need(bytes, "bytes"));
    return c.set_state(seq, {static_cast<const std::byte*>(bytes), n_bytes});
  });
}

tsr_status tsr_state_save(tsr_context* context, int32_t seq, const char* path) {
  return on_context(context, [&](Context& c) -> Status {
    TRY(need(path, "path"));
    return c.save_state(seq, path);
  });
}

tsr_status tsr_state_load(tsr_context* context, int32_t seq, const char* path) {
  return on_context(context, [&](Context& c) -> Status {
    TRY(need(path, "path"));
    return c.load_state(seq, path);
  });
}

static_assert(kAllSequences == TSR_ALL_SEQUENCES);
