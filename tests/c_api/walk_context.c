/* Walks contexts, sequences and samplers (walk.c). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "walk.h"

void keep_row(tsr_context* context, int64_t row, float* to) {
  const float* logits = NULL;
  size_t n_vocab = 0;
  EXPECT_OK(tsr_context_logits(context, row, &logits, &n_vocab));
  EXPECT(n_vocab == 288);
  if (logits != NULL) {
    memcpy(to, logits, 288 * sizeof *to);
  }
}

void walk_sequences(tsr_context* context) {
  const int32_t first[] = {1, 5, 9, 13}, next[] = {17};
  const int32_t tokens[] = {1, 1, 5, 5}, seqs[] = {1, 2, 1, 2};
  const uint8_t wants[] = {0, 0, 1, 1};
  float one[288], two[288];
  int64_t n = 0;
  EXPECT_OK(decode(context, first, NULL, NULL, 4)); /* into sequence 0, the last row wanted */
  EXPECT_OK(tsr_context_n_logits(context, &n));
  EXPECT(n == 1);
  EXPECT_OK(tsr_context_length(context, 0, &n));
  EXPECT(n == 4);
  EXPECT_OK(decode(context, tokens, seqs, wants, 4)); /* two sequences with equal content */
  EXPECT_OK(tsr_context_n_logits(context, &n));
  EXPECT(n == 2);
  keep_row(context, 0, one);
  keep_row(context, 1, two);
  EXPECT(memcmp(one, two, sizeof one) == 0 && isfinite(one[0]));

  EXPECT_OK(tsr_context_fork(context, 0, 1, 4)); /* a copy goes on as its origin does */
  EXPECT_OK(decode(context, next, NULL, NULL, 1));
  keep_row(context, 0, one);
  EXPECT_OK(decode(context, next, (const int32_t[]){1}, NULL, 1));
  keep_row(context, 0, two);
  EXPECT(memcmp(one, two, sizeof one) == 0);
  EXPECT_OK(tsr_context_truncate(context, 0, 4)); /* so does a sequence that went back */
  EXPECT_OK(decode(context, next, NULL, NULL, 1));
  keep_row(context, 0, two);
  EXPECT(memcmp(one, two, sizeof one) == 0);
  EXPECT_OK(tsr_context_truncate(context, 0, 0));
  EXPECT_OK(tsr_context_length(context, 0, &n));
  EXPECT(n == 0);
  EXPECT_OK(tsr_context_clear(context));
  EXPECT_OK(tsr_context_length(context, 1, &n));
  EXPECT(n == 0);
}

/* Rows of a token are the same whatever else is wanted; a context that was made without has none. */
void walk_embeddings(const tsr_model* model) {
  const int32_t tokens[] = {1, 5, 9};
  const uint8_t none[] = {0, 0, 0}, some[] = {1, 0, 1}, neither[] = {0, 1, 2};
  float first[64];
  const float* row = NULL;
  size_t n_embd = 0;
  int64_t n = -1;
  tsr_model_info info;
  tsr_batch batch;
  tsr_context* context = NULL;
  tsr_context_options options;
  EXPECT_OK(tsr_model_get_info(model, &info, sizeof info));
  EXPECT_OK(tsr_context_options_init(&options, sizeof options));
  EXPECT(options.embeddings == 0);
  options.n_ctx = 16;
  EXPECT_OK(tsr_batch_init(&batch, sizeof batch));
  EXPECT(batch.wants_embedding == NULL);
  batch.tokens = tokens;
  batch.n_tokens = 3;
  EXPECT_OK(tsr_context_create(model, &options, &context));
  batch.wants_logits = neither;
  EXPECT_BAD(tsr_context_decode(context, &batch));
  EXPECT_SAID("wants_logits[2] is 2; it must be 0 or 1");
  batch.wants_logits = none;
  batch.wants_embedding = some;
  EXPECT_BAD(tsr_context_decode(context, &batch));
  tsr_context_free(context);
  options.embeddings = 1;
  EXPECT_OK(tsr_context_create(model, &options, &context));
  EXPECT_OK(tsr_context_decode(context, &batch));
  EXPECT_OK(tsr_context_n_logits(context, &n));
  EXPECT(n == 0);
  EXPECT_OK(tsr_context_n_embeddings(context, &n));
  EXPECT(n == 2);
  EXPECT_OK(tsr_context_embedding(context, 1, &row, &n_embd));
  EXPECT(row != NULL && n_embd == (size_t)info.n_embd && n_embd <= 64);
  if (row != NULL && n_embd <= 64) {
    memcpy(first, row, n_embd * sizeof *first);
    batch.wants_logits = NULL;
    EXPECT_OK(tsr_context_clear(context));
    EXPECT_OK(tsr_context_decode(context, &batch));
    EXPECT_OK(tsr_context_n_logits(context, &n));
    EXPECT(n == 1);
    EXPECT_OK(tsr_context_embedding(context, 1, &row, NULL));
    EXPECT(memcmp(first, row, n_embd * sizeof *first) == 0 && isfinite(first[0]));
  }
  EXPECT_BAD(tsr_context_embedding(context, 2, &row, &n_embd));
  EXPECT(row == NULL && n_embd == 0);
  EXPECT_BAD(tsr_context_embedding(context, -1, &row, NULL));
  EXPECT_BAD(tsr_context_embedding(context, 0, NULL, &n_embd));
  EXPECT_BAD(tsr_context_embedding(NULL, 0, &row, &n_embd));
  EXPECT_BAD(tsr_context_n_embeddings(context, NULL));
  EXPECT_BAD(tsr_context_n_embeddings(NULL, &n));
  tsr_context_free(context);
}

void walk_context_errors(const tsr_model* model, tsr_context* context) {
  int32_t many[65] = {0};
  const int32_t good[] = {1, 5}, outside[] = {1, 288}, negative[] = {-1};
  const float* logits = NULL;
  tsr_context* none = NULL;
  tsr_context_info info;
  tsr_batch batch;
  size_t n_vocab = 0;
  int64_t n = 0;
  EXPECT_OK(tsr_context_get_info(context, &info, sizeof info));
  EXPECT(info.n_ctx == 96 && info.n_batch == 64 && info.n_seq_max == 3 && info.n_steps > 0);
  EXPECT_BAD(tsr_context_get_info(NULL, &info, sizeof info));
  EXPECT_BAD(tsr_context_get_info(context, NULL, sizeof info));
  EXPECT_BAD(decode(context, NULL, NULL, NULL, 2));
  EXPECT_BAD(decode(context, good, NULL, NULL, 0));
  EXPECT_BAD(decode(context, good, NULL, NULL, SIZE_MAX)); /* refused before it is read */
  EXPECT_BAD(decode(context, many, NULL, NULL, 65));
  EXPECT_BAD(decode(context, outside, NULL, NULL, 2));
  EXPECT_BAD(decode(context, negative, NULL, NULL, 1));
  EXPECT_BAD(decode(context, good, (const int32_t[]){0, 3}, NULL, 2));
  EXPECT_BAD(decode(context, good, (const int32_t[]){-1, 0}, NULL, 2));
  EXPECT_BAD(decode(NULL, good, NULL, NULL, 2));
  EXPECT_BAD(tsr_context_decode(context, NULL));
  memset(&batch, 0, sizeof batch);
  EXPECT_BAD(tsr_context_decode(context, &batch));
  EXPECT_OK(tsr_context_length(context, 0, &n));
  EXPECT(n == 0); /* failures left nothing */
  EXPECT_OK(decode(context, many, NULL, NULL, 64));
  EXPECT_STATUS(TSR_CACHE_FULL, decode(context, many, NULL, NULL, 33));
  EXPECT_SAID("raise n_ctx");
  EXPECT_OK(tsr_context_length(context, 0, &n));
  EXPECT(n == 64);

  EXPECT_OK(decode(context, many, NULL, (const uint8_t[]){0}, 1)); /* nobody wants a row */
  EXPECT_OK(tsr_context_n_logits(context, &n));
  EXPECT(n == 0);
  EXPECT_BAD(tsr_context_logits(context, 0, &logits, &n_vocab));
  EXPECT_BAD(tsr_context_logits(context, -1, &logits, NULL));
  EXPECT(logits == NULL);
  EXPECT_BAD(tsr_context_logits(NULL, 0, &logits, &n_vocab));
  EXPECT_BAD(tsr_context_logits(context, 0, NULL, &n_vocab));
  EXPECT_BAD(tsr_context_n_logits(NULL, &n));
  EXPECT_BAD(tsr_context_n_logits(context, NULL));
  EXPECT_BAD(tsr_context_length(NULL, 0, &n));
  EXPECT_BAD(tsr_context_length(context, 0, NULL));
  EXPECT_BAD(tsr_context_length(context, 3, &n));
  EXPECT_BAD(tsr_context_length(context, -1, &n));
  EXPECT_BAD(tsr_context_truncate(NULL, 0, 0));
  EXPECT_BAD(tsr_context_truncate(context, 0, 1000));
  EXPECT_BAD(tsr_context_truncate(context, 0, -1));
  EXPECT_BAD(tsr_context_truncate(context, 7, 0));
  EXPECT_BAD(tsr_context_fork(NULL, 0, 1, 0));
  EXPECT_BAD(tsr_context_fork(context, 0, 0, 1));
  EXPECT_BAD(tsr_context_fork(context, 0, 9, 1));
  EXPECT_BAD(tsr_context_fork(context, -9, 1, 1));
  EXPECT_BAD(tsr_context_fork(context, 0, 1, 1000));
  EXPECT_BAD(tsr_context_clear(NULL));
  EXPECT_BAD(tsr_context_create(NULL, NULL, &none));
  EXPECT_BAD(tsr_context_create(model, NULL, NULL));
  tsr_context_free(NULL);
}

void walk_context_options(const tsr_model* model) {
  tsr_context_options options, bad;
  tsr_context* context = NULL;
#define EXPECT_CREATE(status, field, value)                         \
  bad = options;                                                    \
  bad.field = value;                                                \
  EXPECT_STATUS(status, tsr_context_create(model, &bad, &context)); \
  EXPECT(context == NULL)
  EXPECT_OK(tsr_context_options_init(&options, sizeof options));
  options.n_ctx = 64;
  EXPECT_CREATE(TSR_INVALID_ARGUMENT, n_ctx, -1);
  EXPECT_CREATE(TSR_INVALID_ARGUMENT, n_ctx, INT64_MAX);
  EXPECT_CREATE(TSR_INVALID_ARGUMENT, n_batch, 0);
  EXPECT_CREATE(TSR_INVALID_ARGUMENT, n_ubatch, -7);
  EXPECT_CREATE(TSR_INVALID_ARGUMENT, n_seq_max, 0);
  EXPECT_CREATE(TSR_INVALID_ARGUMENT, cache_type_k, "f17");
  EXPECT_CREATE(TSR_INVALID_ARGUMENT, cache_type_v, "q6_k");
  EXPECT_CREATE(TSR_INVALID_ARGUMENT, size, 5);
  EXPECT_CREATE(TSR_UNSUPPORTED, cache_type_k, "q8_0"); /* heads of 16 are no whole blocks */
  options.n_seq_max = 64;                               /* about 500 GB */
  EXPECT_CREATE(TSR_DOES_NOT_FIT, n_ctx, 1 << 24);
  options.n_seq_max = 1;
  options.cache_type_k = "bf16";
  options.cache_type_v = "f32";
  EXPECT_STATUS(TSR_OK, tsr_context_create(model, &options, &context));
  tsr_context_free(context);
}

/* A window lets go of what lies behind it. */
void walk_window(const tsr_model* gemma) {
  tsr_context* context = open_context(gemma, 512, 1);
  int32_t tokens[64];
  int64_t length = 0;
  int i;
  for (i = 0; i < 64; ++i) {
    tokens[i] = i + 3;
  }
  for (i = 0; i < 8; ++i) {
    EXPECT_OK(decode(context, tokens, NULL, NULL, 64));
  }
  EXPECT_STATUS(TSR_UNSUPPORTED, tsr_context_truncate(context, 0, 10));
  EXPECT_OK(tsr_context_length(context, 0, &length));
  EXPECT(length == 512);
  EXPECT_OK(tsr_context_truncate(context, 0, 0));
  tsr_context_free(context);
}

/* A state goes into another context of the model, by way of memory and of a file; what is wrong changes nothing. */
void walk_states(tsr_context* context, const tsr_model* gemma) {
  static char bytes[1 << 17], again[1 << 17];
  const char* const path = "c_api_walk.state";
  const int32_t tokens[] = {1, 5, 9};
  tsr_context* foreign = open_context(gemma, 64, 1);
  float row[288], after[288];
  int32_t* ids = NULL;
  size_t n = 0, n_again = 0, n_ids = 0;
  int64_t length = 0;
  EXPECT_OK(tsr_context_clear(context));
  EXPECT_OK(decode(context, tokens, NULL, NULL, 3));
  keep_row(context, 0, row);
  EXPECT_OK(tsr_state_size(context, TSR_ALL_SEQUENCES, &n));
  EXPECT(n > 0 && n <= sizeof bytes);
  EXPECT_OK(tsr_state_get(context, TSR_ALL_SEQUENCES, bytes, n));
  EXPECT_OK(tsr_state_save(context, TSR_ALL_SEQUENCES, path));
  EXPECT_OK(decode(context, tokens, (const int32_t[]){1, 1, 1}, NULL, 3));
  EXPECT_OK(tsr_state_set(context, TSR_ALL_SEQUENCES, bytes, n));
  EXPECT_OK(tsr_context_length(context, 1, &length));
  EXPECT(length == 0);
  keep_row(context, 0, after);
  EXPECT(memcmp(row, after, sizeof row) == 0);
  EXPECT_OK(tsr_context_clear(context));
  EXPECT_OK(tsr_state_load(context, TSR_ALL_SEQUENCES, path));
  EXPECT_OK(tsr_state_size(context, TSR_ALL_SEQUENCES, &n_again));
  EXPECT(n_again == n);
  EXPECT_OK(tsr_state_get(context, TSR_ALL_SEQUENCES, again, n_again));
  EXPECT(memcmp(bytes, again, n) == 0);
  EXPECT_OK(tsr_context_tokens(context, 0, &ids, &n_ids));
  EXPECT(n_ids == 3 && memcmp(ids, tokens, sizeof tokens) == 0);
  tsr_free(ids);

  EXPECT_OK(tsr_state_size(context, 0, &n_again)); /* one sequence into another */
  EXPECT_OK(tsr_state_get(context, 0, again, n_again));
  EXPECT_OK(tsr_state_set(context, 2, again, n_again));
  EXPECT_OK(tsr_context_length(context, 2, &length));
  EXPECT(length == 3);

  EXPECT_BAD(tsr_state_set(context, 0, bytes, n));
  EXPECT_BAD(tsr_state_set(context, TSR_ALL_SEQUENCES, again, n_again));
  EXPECT_BAD(tsr_state_set(foreign, TSR_ALL_SEQUENCES, bytes, n));
  EXPECT_BAD(tsr_state_load(foreign, TSR_ALL_SEQUENCES, path));
  EXPECT_STATUS(TSR_INVALID_DATA, tsr_state_set(context, TSR_ALL_SEQUENCES, bytes, n - 1));
  bytes[n / 2] ^= 1;
  EXPECT_STATUS(TSR_INVALID_DATA, tsr_state_set(context, TSR_ALL_SEQUENCES, bytes, n));
  EXPECT_STATUS(TSR_INVALID_DATA, tsr_state_set(context, 0, bytes, 0));
  EXPECT_OK(tsr_context_length(context, 2, &length));
  EXPECT(length == 3);
  EXPECT(remove(path) == 0);
  EXPECT_STATUS(TSR_NOT_FOUND, tsr_state_load(context, 0, path));
  EXPECT_STATUS(TSR_NOT_FOUND, tsr_state_save(context, 0, "no/such/folder/state"));
  EXPECT_BAD(tsr_state_size(NULL, 0, &n));
  EXPECT_BAD(tsr_state_size(context, 0, NULL));
  EXPECT_BAD(tsr_state_size(context, 3, &n));
  EXPECT(n == 0);
  EXPECT_BAD(tsr_state_size(context, -2, &n));
  EXPECT_BAD(tsr_state_get(NULL, 0, again, n_again));
  EXPECT_BAD(tsr_state_get(context, 0, NULL, n_again));
  EXPECT_BAD(tsr_state_get(context, 0, again, n_again - 1));
  EXPECT_BAD(tsr_state_set(NULL, 0, again, n_again));
  EXPECT_BAD(tsr_state_set(context, 0, NULL, n_again));
  EXPECT_BAD(tsr_state_set(context, 3, again, n_again));
  EXPECT_BAD(tsr_state_save(NULL, 0, path));
  EXPECT_BAD(tsr_state_save(context, 0, NULL));
  EXPECT_BAD(tsr_state_load(NULL, 0, path));
  EXPECT_BAD(tsr_state_load(context, 0, NULL));
  EXPECT_BAD(tsr_context_tokens(NULL, 0, &ids, &n));
  EXPECT_BAD(tsr_context_tokens(context, 3, &ids, &n));
  EXPECT_BAD(tsr_context_tokens(context, 0, NULL, &n));
  EXPECT_BAD(tsr_context_tokens(context, 0, &ids, NULL));
  EXPECT(ids == NULL);
  tsr_context_free(foreign);
}

void walk_sampler(tsr_context* context) {
  const float logits[] = {0, 3, 1, 2}, numberless[] = {NAN, -INFINITY};
  const int32_t tokens[] = {1, 5};
  tsr_sampler_options options;
  tsr_sampler *sampler = NULL, *none = NULL;
  uint64_t seed = 0;
  int32_t id = 7, drawn[16], i;
  EXPECT_OK(tsr_sampler_options_init(&options, sizeof options));
  options.temperature = 0;
  EXPECT_OK(tsr_sampler_create(NULL, &options, &sampler));
  EXPECT_OK(tsr_sampler_sample(sampler, logits, 4, &id));
  EXPECT(id == 1);
  EXPECT_STATUS(TSR_INVALID_DATA, tsr_sampler_sample(sampler, numberless, 2, &id));
  EXPECT(id == TSR_NO_TOKEN);
  EXPECT_STATUS(TSR_INVALID_DATA, tsr_sampler_sample(sampler, NULL, 0, &id));
  EXPECT_OK(tsr_context_clear(context));
  EXPECT_OK(decode(context, tokens, NULL, NULL, 2));
  EXPECT_OK(tsr_sampler_sample_row(sampler, context, 0, &id));
  EXPECT(id >= 0 && id < 288);
  EXPECT_OK(tsr_sampler_accept(sampler, &id, 1));
  tsr_sampler_free(sampler);

  options.temperature = 2;
  options.seed = 42;
  EXPECT_OK(tsr_sampler_create(NULL, &options, &sampler));
  for (i = 0; i < 16; ++i) {
    EXPECT_OK(tsr_sampler_sample_row(sampler, context, 0, &drawn[i]));
  }
  EXPECT_OK(tsr_sampler_seed(sampler, &seed));
  EXPECT(seed == 42);
  EXPECT_OK(tsr_sampler_reset(sampler)); /* draws the same again */
  for (i = 0; i < 16; ++i) {
    EXPECT_OK(tsr_sampler_sample_row(sampler, context, 0, &id));
    EXPECT(id == drawn[i]);
  }
  id = -1;
  EXPECT_BAD(tsr_sampler_accept(sampler, &id, 1));
  EXPECT_BAD(tsr_sampler_accept(sampler, NULL, 1));
  EXPECT_BAD(tsr_sampler_accept(NULL, tokens, 2));
  EXPECT_BAD(tsr_sampler_reset(NULL));
  EXPECT_BAD(tsr_sampler_seed(NULL, &seed));
  EXPECT_BAD(tsr_sampler_seed(sampler, NULL));
  EXPECT_BAD(tsr_sampler_sample(NULL, logits, 4, &id));
  EXPECT_BAD(tsr_sampler_sample(sampler, NULL, 4, &id));
  EXPECT_BAD(tsr_sampler_sample(sampler, logits, 4, NULL));
  EXPECT_BAD(tsr_sampler_sample_row(NULL, context, 0, &id));
  EXPECT_BAD(tsr_sampler_sample_row(sampler, NULL, 0, &id));
  EXPECT_BAD(tsr_sampler_sample_row(sampler, context, 1, &id));
  EXPECT_BAD(tsr_sampler_sample_row(sampler, context, 0, NULL));
  EXPECT_BAD(tsr_sampler_create(NULL, NULL, NULL));
  tsr_sampler_free(sampler);
  options.top_p = NAN;
  EXPECT_BAD(tsr_sampler_create(NULL, &options, &none));
  EXPECT(none == NULL);
  EXPECT_OK(tsr_sampler_create(NULL, NULL, &sampler));
  EXPECT_OK(tsr_sampler_seed(sampler, &seed));
  EXPECT(seed != TSR_RANDOM_SEED);
  tsr_sampler_free(sampler);
  tsr_sampler_free(NULL);
}

/* Settings that look back, that ban, that need the vocabulary. */
/* Draws under a grammar until it is complete, twice. */
static void walk_grammar(const tsr_model* model, const tsr_sampler_options* plain) {
  tsr_sampler_options options = *plain;
  tsr_vocab_info info;
  tsr_sampler* sampler = NULL;
  float* logits;
  EXPECT_OK(tsr_vocab_get_info(model, &info, sizeof info));
  logits = calloc((size_t)info.n_tokens, sizeof *logits);
  EXPECT(logits != NULL);
  options.grammar = "root ::= \"ab\"";
  options.logit_bias = NULL;
  options.n_logit_bias = 0;
  EXPECT_OK(tsr_sampler_create(model, &options, &sampler));
  for (int round = 0; round < 2 && logits != NULL; ++round) {
    const int32_t prompt = 5;
    char text[8] = "";
    size_t n_text = 0;
    tsr_token_info token;
    const char* bytes;
    size_t n_bytes;
    EXPECT_OK(tsr_sampler_accept(sampler, &prompt, 1)); /* before the first draw: no part of the text */
    for (int i = 0; i < 3; ++i) {
      int32_t id = TSR_NO_TOKEN;
      const tsr_status status = tsr_sampler_sample(sampler, logits, (size_t)info.n_tokens, &id);
      if (id == TSR_NO_TOKEN) {
        EXPECT(status == TSR_INVALID_DATA && n_text == 2);
        break;
      }
      EXPECT_OK(tsr_sampler_accept(sampler, &id, 1));
      EXPECT_OK(tsr_token_get_info(model, id, &token, sizeof token));
      if (token.is_end) {
        break;
      }
      EXPECT_OK(tsr_token_piece(model, id, &bytes, &n_bytes));
      EXPECT(n_text + n_bytes <= 2);
      memcpy(text + n_text, bytes, n_text + n_bytes <= 2 ? n_bytes : 0);
      n_text += n_bytes;
    }
    EXPECT(n_text == 2 && memcmp(text, "ab", 2) == 0);
    EXPECT_OK(tsr_sampler_reset(sampler));
  }
  free(logits);
  tsr_sampler_free(sampler);
}

void walk_sampler_options(const tsr_model* model) {
  static const float logits[] = {0, 3, 2.9f, 1};
  static const char* const breakers[] = {"\n", NULL};
  const tsr_logit_bias ban = {1, -INFINITY}, wrong = {-1, 0}, unknown = {1 << 30, 1};
  const int32_t seen = 1;
  tsr_sampler_options options, bad;
  tsr_sampler* sampler = NULL;
  int32_t id = 0;
  EXPECT_OK(tsr_model_sampler_options_init(model, &options, sizeof options));
  EXPECT(options.size == sizeof options && options.top_k == 40 && strstr(options.samplers, "top_k;") != NULL);
  options.temperature = 0;
  options.presence_penalty = 1;
  EXPECT_OK(tsr_sampler_create(NULL, &options, &sampler));
  EXPECT_OK(tsr_sampler_sample(sampler, logits, 4, &id));
  EXPECT(id == 1);
  EXPECT_OK(tsr_sampler_accept(sampler, &seen, 1)); /* now 2 is better */
  EXPECT_OK(tsr_sampler_sample(sampler, logits, 4, &id));
  EXPECT(id == 2);
  EXPECT_OK(tsr_sampler_reset(sampler));
  EXPECT_OK(tsr_sampler_sample(sampler, logits, 4, &id));
  EXPECT(id == 1);
  tsr_sampler_free(sampler);
  options.logit_bias = &ban;
  options.n_logit_bias = 1;
  EXPECT_OK(tsr_sampler_create(NULL, &options, &sampler));
  EXPECT_OK(tsr_sampler_sample(sampler, logits, 4, &id));
  EXPECT(id == 2);
  tsr_sampler_free(sampler);
  options.dry_multiplier = 1;
  options.dry_sequence_breakers = breakers;
  options.n_dry_sequence_breakers = 1;
  EXPECT_OK(tsr_sampler_create(model, &options, &sampler));
  tsr_sampler_free(sampler);

#define EXPECT_SAMPLER(the_model, field, value)              \
  bad = options;                                             \
  bad.field = value;                                         \
  EXPECT_BAD(tsr_sampler_create(the_model, &bad, &sampler)); \
  EXPECT(sampler == NULL)
  EXPECT_SAMPLER(NULL, top_k, 1); /* DRY without a vocabulary */
  EXPECT_SAMPLER(model, grammar, "root ::= (");
  EXPECT_SAMPLER(model, json_schema, "{\"type\": 7}");
  options.dry_multiplier = 0;
  EXPECT_SAMPLER(NULL, grammar, "root ::= \"a\""); /* without a vocabulary */
  options.grammar = "root ::= \"a\"";
  EXPECT_SAMPLER(model, json_schema, "{}"); /* both */
  options.grammar = NULL;
  bad = options;
  bad.json_schema = "{\"not\": {}}";
  EXPECT_STATUS(TSR_UNSUPPORTED, tsr_sampler_create(model, &bad, &sampler));
  walk_grammar(model, &options);
  EXPECT_SAMPLER(model, n_dry_sequence_breakers, 2);
  EXPECT_SAMPLER(model, logit_bias, &wrong);
  EXPECT_SAMPLER(model, logit_bias, &unknown);
  EXPECT_SAID("logit_bias: there is no token 1073741824; the vocabulary has 288");
  EXPECT_SAMPLER(model, logit_bias, NULL);
  EXPECT_SAMPLER(model, samplers, "top_k;bottom_k");
  EXPECT_SAMPLER(model, mirostat, 7);
  EXPECT_SAMPLER(model, size, 8);
  EXPECT_BAD(tsr_model_sampler_options_init(NULL, &options, sizeof options));
  EXPECT_BAD(tsr_model_sampler_options_init(model, NULL, sizeof options));
}
