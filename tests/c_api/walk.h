/* What the walk's files share: checks that count, helpers, and the walks themselves. */
#ifndef TESSERA_TESTS_WALK_H
#define TESSERA_TESTS_WALK_H

#include <stdio.h>
#include <tessera/tessera.h>

extern int n_checks, n_failed;
extern char llama_path[4096], gemma_path[4096];

#define EXPECT(condition)                                                     \
  do {                                                                        \
    ++n_checks;                                                               \
    if (!(condition)) {                                                       \
      ++n_failed;                                                             \
      fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
    }                                                                         \
  } while (0)

/* A status that was expected to be another. The text must be there after a failure. */
#define EXPECT_STATUS(wanted, call)                                                                \
  do {                                                                                             \
    tsr_status status_ = (call);                                                                   \
    ++n_checks;                                                                                    \
    if (status_ != (wanted) || (status_ != TSR_OK && tsr_last_error()[0] == '\0')) {               \
      ++n_failed;                                                                                  \
      fprintf(stderr, "%s:%d: %s, not %s: %s: %s\n", __FILE__, __LINE__, tsr_status_name(status_), \
              tsr_status_name(wanted), #call, status_ == TSR_OK ? "" : tsr_last_error());          \
    }                                                                                              \
  } while (0)
#define EXPECT_OK(call) EXPECT_STATUS(TSR_OK, call)
#define EXPECT_BAD(call) EXPECT_STATUS(TSR_INVALID_ARGUMENT, call)
/* What the last failure said holds this text. */
#define EXPECT_SAID(text) EXPECT(strstr(tsr_last_error(), text) != NULL)

/* A model with default options; ends the program when there is none. */
tsr_model* load_model(const char* path);
/* A context that takes batches of 64 tokens. */
tsr_context* open_context(const tsr_model* model, int64_t n_ctx, int32_t n_seq_max);
tsr_status decode(tsr_context* context, const int32_t* tokens, const int32_t* seqs, const uint8_t* wants, size_t n);
/* Copies a row of 288 logits: the row itself goes with the next decode. */
void keep_row(tsr_context* context, int64_t row, float* to);

/* walk_text.c; model: tiny-llama, gemma: tiny-gemma3 */
void walk_tokens(const tsr_model* model);
void walk_begin_token(const tsr_model* gemma);
void walk_token_errors(const tsr_model* model);
void walk_vocab(const tsr_model* model);
void walk_stream(const tsr_model* model);
void walk_templates(const tsr_model* model);

/* walk_context.c; context: of 96 positions and 3 sequences */
void walk_context_options(const tsr_model* model);
void walk_sequences(tsr_context* context);
void walk_embeddings(const tsr_model* model);
void walk_context_errors(const tsr_model* model, tsr_context* context);
void walk_window(const tsr_model* gemma);
void walk_states(tsr_context* context, const tsr_model* gemma);
void walk_sampler(tsr_context* context);
void walk_sampler_options(const tsr_model* model);

/* walk_special.c; context: as above, hybrid: tiny-qwen35, path: of tiny-qwen3moe */
void walk_rewind(tsr_context* context);
void walk_hybrid(const tsr_model* hybrid);
void walk_experts(const char* path);

/* walk_switch.c; path: of tiny-llama */
void walk_switches(const char* path);

/* walk_first.c; path: of tiny-llama */
void walk_first_layouts(const char* path);

#endif
