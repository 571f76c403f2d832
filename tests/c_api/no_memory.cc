// Memory that runs out is an error, never a crash: the same use of a model is repeated while the first, second, third,
// … allocation of this thread or of the model's loop fails, until none does.
//
//   no_memory MODEL HYBRID [all]
//
// HYBRID has recurrent state: its sequences are changed, saved and restored while memory runs out.
// Of the whole use the later ones are so many and so alike that only some are made to fail, unless all are asked for.
// The library leaves operator new to the program, so that what replaces it here reaches the library too.

#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <tessera/tessera.hpp>
#include <vector>

#include "tests/support/allocations.h"

namespace {

using tessera::fail_one_anywhere;

float first_logit = 0;  // of a run without failures

// The first decode of sequence 0. After a failure it works with the right result, or the context says that it is dead.
tsr_status decode(tsr_context* context, const tsr_batch& batch) {
  const tsr_status status = tsr_context_decode(context, &batch);
  const tsr_status again = status == TSR_OK ? TSR_OK : tsr_context_decode(context, &batch);
  const bool is_dead = again == TSR_OUT_OF_MEMORY && tsr_context_clear(context) == TSR_OUT_OF_MEMORY;
  const float* logits = nullptr;
  const bool works = again == TSR_OK && tsr_context_logits(context, 0, &logits, nullptr) == TSR_OK &&
                     (first_logit == 0 || logits[0] == first_logit);
  if (!works && !is_dead) {
    std::fprintf(stderr, "a decode without memory left something wrong: %s\n", tsr_last_error());
    std::_Exit(1);
  }
  first_logit = works ? logits[0] : first_logit;
  return status;
}

// One whole use in C: what a failed step made is freed by the steps before it.
tsr_status use(const char* path, long fail_at = -1, long fail_in_decode_at = -1) {
  tsr_model_options options;
  tsr_context_options context_options;
  tsr_model* model = nullptr;
  tsr_context* context = nullptr;
  tsr_chat_template* chat = nullptr;
  tsr_sampler* sampler = nullptr;
  tsr_stream* stream = nullptr;
  const char* text = nullptr;
  int32_t* ids = nullptr;
  size_t n = 0;
  int32_t id = 0;
  tsr_tile* tiles = nullptr;
  size_t n_tiles = 0;
  const tsr_message message = {"user", "hi"};
  tsr_batch batch;
  tsr_status status = tsr_model_options_init(&options, sizeof options);
  options.n_threads = 1;  // helpers of loading are not of the calls that are looked at
  const auto step = [&](auto&& call) { status = status == TSR_OK ? call() : status; };
  fail_one_anywhere(fail_at);
  step([&] { return tsr_model_load(path, &options, &model); });
  step([&] { return tsr_context_options_init(&context_options, sizeof context_options); });
  context_options.n_ctx = 64;
  step([&] { return tsr_context_create(model, &context_options, &context); });
  step([&] { return tsr_chat_template_create(model, nullptr, &chat); });
  step([&] { return tsr_chat_template_encode(chat, &message, 1, &ids, &n); });
  step([&] { return tsr_batch_init(&batch, sizeof batch); });
  batch.tokens = ids;
  batch.n_tokens = n;
  if (fail_at < 0) {
    fail_one_anywhere(fail_in_decode_at);
  }
  step([&] { return decode(context, batch); });
  step([&] { return tsr_sampler_create(model, nullptr, &sampler); });
  step([&] { return tsr_sampler_sample_row(sampler, context, 0, &id); });
  step([&] { return tsr_stream_create(model, true, &stream); });
  step([&] { return tsr_stream_push(stream, id, &text, nullptr); });
  step([&] { return tsr_model_list_tiles(model, &tiles, sizeof *tiles, &n_tiles); });
  tsr_free(tiles);
  tsr_free(ids);
  tsr_stream_free(stream);
  tsr_sampler_free(sampler);
  tsr_chat_template_free(chat);
  tsr_context_free(context);
  tsr_model_free(model);
  return status;
}

// The first logit after one more token of sequence `seq`; 0 where that cannot be decoded.
float next_logit(tsr_context* context, int32_t seq) {
  const int32_t id = 5;
  tsr_batch batch;
  tsr_batch_init(&batch, sizeof batch);
  batch.tokens = &id;
  batch.seqs = &seq;
  batch.n_tokens = 1;
  const float* logits = nullptr;
  const bool ok =
      tsr_context_decode(context, &batch) == TSR_OK && tsr_context_logits(context, 0, &logits, nullptr) == TSR_OK;
  return ok ? logits[0] : 0;
}

constexpr int64_t kHeld = 8;        // tokens of sequence 0
constexpr int64_t kSnapshot = 5;    // of these, seen by a snapshot
float logit_after[kHeld + 2] = {};  // next_logit() by length, of a run without failures

// Every sequence goes on as its length says.
bool agrees(tsr_context* context, int32_t seq) {
  int64_t length = 0;
  if (tsr_context_length(context, seq, &length) != TSR_OK || length > kHeld) {
    return false;
  }
  const float logit = next_logit(context, seq);
  float& known = logit_after[length];
  known = known == 0 ? logit : known;
  return logit != 0 && logit == known;
}

// Both sequences, and sequence 0 once more from the last snapshot that the context says it has.
bool agrees(tsr_context* context) {
  int64_t length = 0;
  return agrees(context, 0) && agrees(context, 1) && tsr_context_rewind(context, 0, kHeld, &length) == TSR_OK &&
         agrees(context, 0);
}

// Changes to sequences with recurrent state, and their state as bytes. After a failure all goes on as lengths say, or
// the context says that it is dead.
tsr_status change_sequences(const tsr_model* model, long fail_at) {
  tsr_context_options options;
  tsr_context* context = nullptr;
  tsr_batch batch;
  const int32_t ids[kHeld] = {3, 1, 4, 1, 5, 9, 2, 6};
  tsr_status status = tsr_context_options_init(&options, sizeof options);
  options.n_ctx = 64;
  options.n_seq_max = 2;
  const auto step = [&](auto&& call) { status = status == TSR_OK ? call() : status; };
  step([&] { return tsr_context_create(model, &options, &context); });
  step([&] { return tsr_batch_init(&batch, sizeof batch); });
  batch.tokens = ids;
  batch.n_tokens = kSnapshot;
  step([&] { return tsr_context_decode(context, &batch); });
  step([&] { return tsr_context_snapshot(context, 0); });
  batch.tokens = ids + kSnapshot;
  batch.n_tokens = kHeld - kSnapshot;
  step([&] { return tsr_context_decode(context, &batch); });
  std::vector<char> state(size_t{1} << 20);
  size_t n_bytes = 0;
  int64_t length = 0;
  fail_one_anywhere(fail_at);
  step([&] { return tsr_context_snapshot(context, 0); });
  step([&] { return tsr_context_fork(context, 0, 1, kHeld); });
  step([&] { return tsr_state_size(context, 0, &n_bytes); });
  step([&] { return n_bytes <= state.size() ? tsr_state_get(context, 0, state.data(), n_bytes) : TSR_INTERNAL; });
  step([&] { return tsr_state_set(context, 1, state.data(), n_bytes); });
  step([&] { return tsr_context_rewind(context, 1, kSnapshot, &length); });
  step([&] { return tsr_context_truncate(context, 0, kSnapshot); });
  const long left = fail_one_anywhere(-1);
  if (context != nullptr && !agrees(context) && tsr_context_clear(context) != TSR_OUT_OF_MEMORY) {
    std::fprintf(stderr, "a change of sequences without memory left something wrong: %s\n", tsr_last_error());
    std::_Exit(1);
  }
  tsr_context_free(context);
  fail_one_anywhere(left);
  return status;
}

// A switch of the placement: whatever allocation fails, the next token is the right one, and the switch can be made.
tsr_status use_switch(const char* path, long fail_at) {
  static const char* const devices[] = {"cpu:0", "cpu:1"};
  static float next_logit = 0;
  const int32_t ids[] = {1, 5, 9};
  tsr_model_options options;
  tsr_batch batch;
  tsr_model* model = nullptr;
  tsr_context* context = nullptr;
  const float* logits = nullptr;
  fail_one_anywhere(-1);
  tsr_model_options_init(&options, sizeof options);
  options.devices = devices;
  options.n_devices = 2;
  options.n_threads = 1;
  tsr_batch_init(&batch, sizeof batch);
  batch.tokens = ids;
  batch.n_tokens = 3;
  bool good = tsr_model_load(path, &options, &model) == TSR_OK &&
              tsr_context_create(model, nullptr, &context) == TSR_OK && tsr_context_decode(context, &batch) == TSR_OK;
  fail_one_anywhere(fail_at);
  const tsr_status status = tsr_context_set_split_mode(context, TSR_SPLIT_TENSOR, nullptr);
  const long left = fail_one_anywhere(-1);
  tsr_split_mode mode = TSR_SPLIT_CUSTOM;
  good = good && tsr_model_get_split_mode(model, &mode) == TSR_OK &&
         mode == (status == TSR_OK ? TSR_SPLIT_TENSOR : TSR_SPLIT_LAYER);
  batch.n_tokens = 1;
  good = good && (status == TSR_OK || tsr_context_set_split_mode(context, TSR_SPLIT_TENSOR, nullptr) == TSR_OK) &&
         tsr_context_decode(context, &batch) == TSR_OK && tsr_context_logits(context, 0, &logits, nullptr) == TSR_OK;
  if (!good || (next_logit != 0 && logits[0] != next_logit)) {
    std::fprintf(stderr, "a switch without memory left something wrong: %s\n", tsr_last_error());
    std::_Exit(1);
  }
  next_logit = logits[0];
  tsr_context_free(context);
  tsr_model_free(model);
  fail_one_anywhere(left);
  return status;
}

}  // namespace

// Whether every failure was an error. A use begins with the failure number that it is given, step(n) is the next.
template <typename Use, typename Step>
bool sweep(const char* what, const Use& use, const Step& step) {
  long n_refused = 0;
  for (long n = 0;; n = step(n)) {
    const tsr_status status = use(n);
    const bool failed = fail_one_anywhere(-1) < 0;
    if (!failed && status == TSR_OK) {
      std::printf("%s: %ld allocations failed, the last of about %ld; each was an error\n", what, n_refused, n);
      return n_refused > 0;
    }
    if (status != TSR_OK && status != TSR_OUT_OF_MEMORY) {
      std::fprintf(stderr, "%s: allocation %ld failed, and the call said %s: %s\n", what, n, tsr_status_name(status),
                   tsr_last_error());
      return false;
    }
    n_refused += status == TSR_OUT_OF_MEMORY ? 1 : 0;
  }
}

int main(int argc, char** argv) {
  const char* path = argc > 1 ? argv[1] : "";
  const bool all = argc > 3 && std::string_view(argv[3]) == "all";
  tsr_model* hybrid = nullptr;
  if (use(path) != TSR_OK || tsr_model_load(argc > 2 ? argv[2] : "", nullptr, &hybrid) != TSR_OK) {
    std::fprintf(stderr, "%s\n", tsr_last_error());
    return 1;
  }
  const auto whole = [&](long n) { return use(path, n); };
  const auto from_decode = [&](long n) { return use(path, -1, n); };
  const auto switches = [&](long n) { return use_switch(path, n); };
  const bool good =
      sweep("whole use", whole, [&](long n) { return n + 1 + (all ? 0 : n / 64); }) &&
      sweep("from the decode on", from_decode, [](long n) { return n + 1; }) &&
      sweep("a switch", switches, [&](long n) { return n + 1 + (all ? 0 : n / 32); }) &&
      sweep("changes of sequences", [&](long n) { return change_sequences(hybrid, n); }, [](long n) { return n + 1; });
  tsr_model_free(hybrid);
  return good && use(path) == TSR_OK ? 0 : 1;
}
