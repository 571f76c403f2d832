/* Walks switches of the placement (walk.c). */
#include <math.h>
#include <string.h>

#include "walk.h"

static bool stop_at_half(double fraction, void* user) {
  ++*(int*)user;
  return fraction < 0.5;
}

/* What a callback calls of the model is refused. */
static bool call_within(double fraction, void* user) {
  const int32_t token = 1;
  (void)fraction;
  EXPECT_STATUS(TSR_BUSY, decode((tsr_context*)user, &token, NULL, NULL, 1));
  EXPECT_STATUS(TSR_BUSY, tsr_context_set_split_mode((tsr_context*)user, TSR_SPLIT_NONE, NULL));
  return true;
}

/* Everything is as it was when `row` was kept, and the next token's row is `next`. The context is left as it was. */
static void expect_same(tsr_context* context, const float* row, const float* next) {
  const int32_t token = 29;
  const float* logits = NULL;
  float other[288];
  int64_t n = 0;
  EXPECT_OK(tsr_context_logits(context, 0, &logits, NULL));
  EXPECT(logits != NULL && memcmp(logits, row, sizeof other) == 0);
  EXPECT_OK(tsr_context_length(context, 0, &n));
  EXPECT(n == 5);
  EXPECT_OK(tsr_context_fork(context, 0, 1, 5));
  EXPECT_OK(decode(context, &token, (const int32_t[]){1}, NULL, 1));
  keep_row(context, 0, other);
  EXPECT(memcmp(other, next, sizeof other) == 0);
  EXPECT_OK(tsr_context_truncate(context, 0, 4));
  EXPECT_OK(decode(context, (const int32_t[]){17}, NULL, NULL, 1));
}

static void walk_split_modes(tsr_model* model, tsr_context* context, const float* row, const float* next) {
  const double shares[] = {1, 3}, none[] = {0, 0}, negative[] = {-1, 2};
  tsr_split_mode mode = TSR_SPLIT_CUSTOM;
  EXPECT_OK(tsr_model_get_split_mode(model, &mode));
  EXPECT(mode == TSR_SPLIT_LAYER);
  EXPECT_OK(tsr_context_set_split_mode(context, TSR_SPLIT_TENSOR, NULL));
  expect_same(context, row, next);
  EXPECT_OK(tsr_model_get_split_mode(model, &mode));
  EXPECT(mode == TSR_SPLIT_TENSOR);
  EXPECT_OK(tsr_model_set_split_mode(model, TSR_SPLIT_LAYER, shares));
  expect_same(context, row, next);
  EXPECT_OK(tsr_model_set_split_mode(model, TSR_SPLIT_NONE, NULL));
  expect_same(context, row, next);
  EXPECT_BAD(tsr_model_set_split_mode(NULL, TSR_SPLIT_LAYER, NULL));
  EXPECT_BAD(tsr_model_set_split_mode(model, (tsr_split_mode)4, NULL));
  EXPECT_BAD(tsr_model_set_split_mode(model, TSR_SPLIT_CUSTOM, NULL)); /* needs homes */
  EXPECT_SAID("TSR_SPLIT_CUSTOM needs a home for every tile");
  EXPECT_BAD(tsr_model_set_split_mode(model, TSR_SPLIT_TENSOR, none));
  EXPECT_BAD(tsr_context_set_split_mode(NULL, TSR_SPLIT_LAYER, NULL));
  EXPECT_BAD(tsr_context_set_split_mode(context, (tsr_split_mode)-1, NULL));
  EXPECT_BAD(tsr_context_set_split_mode(context, TSR_SPLIT_TENSOR, negative));
  EXPECT_BAD(tsr_model_get_split_mode(NULL, &mode));
  EXPECT_BAD(tsr_model_get_split_mode(model, NULL));
  EXPECT_OK(tsr_model_get_split_mode(model, &mode));
  EXPECT(mode == TSR_SPLIT_NONE);
  expect_same(context, row, next);
}

static void walk_options(tsr_context* context, const float* row, const float* next) {
  tsr_switch_options options;
  tsr_placement placement;
  int n_calls = 0;
  EXPECT_OK(tsr_switch_options_init(&options, sizeof options));
  EXPECT_BAD(tsr_switch_options_init(NULL, sizeof options));
  EXPECT_BAD(tsr_switch_options_init(&options, 4));
  EXPECT_OK(tsr_placement_init(&placement, sizeof placement));
  EXPECT(placement.split_mode == TSR_SPLIT_LAYER && placement.homes == NULL);
  EXPECT_BAD(tsr_placement_init(NULL, sizeof placement));
  EXPECT_BAD(tsr_placement_init(&placement, 4));
  placement.options = &options;
  options.progress = stop_at_half;
  options.progress_user = &n_calls;
  EXPECT_STATUS(TSR_CANCELLED, tsr_context_set_placement(context, &placement));
  EXPECT(n_calls > 1 && strstr(tsr_last_error(), "the none placement holds") != NULL);
  expect_same(context, row, next);
  options.progress = NULL;
  options.deadline_s = 1e-9;
  EXPECT_STATUS(TSR_DEADLINE_EXCEEDED, tsr_context_set_placement(context, &placement));
  options.deadline_s = -1;
  EXPECT_BAD(tsr_context_set_placement(context, &placement));
  options.deadline_s = NAN;
  EXPECT_BAD(tsr_context_set_placement(context, &placement));
  options.deadline_s = 60;
  options.size = 4;
  EXPECT_BAD(tsr_context_set_placement(context, &placement));
  options.size = sizeof options;
  options.no_wait = true;
  options.staging_bytes = 1 << 20;
  options.ahead_bytes = 1 << 20; /* nothing is copied ahead without waiting */
  options.progress = call_within;
  options.progress_user = context;
  EXPECT_OK(tsr_context_set_placement(context, &placement)); /* nobody else calls: not busy */
  expect_same(context, row, next);
}

static void walk_general_form(tsr_model* model, tsr_context* context, const float* row, const float* next) {
  tsr_placement placement, *held = NULL, *again = NULL;
  tsr_tile* tiles = NULL;
  int32_t homes[64], outside[64];
  size_t n = 0, i;
  EXPECT_OK(tsr_model_list_tiles(model, &tiles, sizeof *tiles, &n));
  EXPECT(n > 2 && n <= 64);
  n = n > 64 ? 64 : n;
  for (i = 0; i < n; ++i) {
    homes[i] = (int32_t)(i % 2);
    outside[i] = 2;
  }
  tsr_free(tiles);
  EXPECT_OK(tsr_placement_init(&placement, sizeof placement));
  placement.split_mode = TSR_SPLIT_CUSTOM;
  placement.homes = homes;
  placement.n_homes = n;
  EXPECT_OK(tsr_model_set_placement(model, &placement));
  expect_same(context, row, next);
  EXPECT_OK(tsr_model_placement(model, &held, sizeof *held));
  EXPECT(held != NULL && held->split_mode == TSR_SPLIT_CUSTOM && held->n_homes == n && held->n_tensor_split == 0);
  EXPECT(held != NULL && memcmp(held->homes, homes, n * sizeof *homes) == 0);

  EXPECT_OK(tsr_model_set_split_mode(model, TSR_SPLIT_TENSOR, (const double[]){3, 1}));
  EXPECT_OK(tsr_model_placement(model, &again, sizeof *again));
  EXPECT(again != NULL && again->split_mode == TSR_SPLIT_TENSOR && again->n_tensor_split == 2 && again->n_homes == 0);
  EXPECT(again != NULL && again->tensor_split[0] == 3 && again->tensor_split[1] == 1);
  EXPECT(again != NULL && held != NULL && again->version == held->version + 1);
  EXPECT_OK(tsr_model_set_placement(model, held)); /* what held may be asked for again */
  expect_same(context, row, next);
  tsr_free(held);
  tsr_free(again);

  placement.homes = outside;
  EXPECT_BAD(tsr_model_set_placement(model, &placement));
  EXPECT_SAID("the model has devices 0 to 1");
  placement.homes = NULL;
  EXPECT_BAD(tsr_model_set_placement(model, &placement));
  EXPECT_SAID("homes is NULL");
  placement.n_homes = 0;
  EXPECT_BAD(tsr_model_set_placement(model, &placement));
  EXPECT_SAID("one for each of");
  placement.homes = homes;
  placement.n_homes = n - 1;
  EXPECT_BAD(tsr_model_set_placement(model, &placement));
  placement.n_homes = SIZE_MAX / 8; /* refused before it is read */
  EXPECT_BAD(tsr_context_set_placement(context, &placement));
  EXPECT_BAD(tsr_model_set_placement(NULL, &placement));
  EXPECT_BAD(tsr_model_set_placement(model, NULL));
  EXPECT_BAD(tsr_context_set_placement(NULL, &placement));
  EXPECT_BAD(tsr_context_set_placement(context, NULL));
  EXPECT_BAD(tsr_model_placement(NULL, &held, sizeof *held));
  EXPECT_BAD(tsr_model_placement(model, NULL, sizeof *held));
  EXPECT_BAD(tsr_model_placement(model, &held, 1));
  expect_same(context, row, next);
}

void walk_switches(const char* path) {
  static const char* const devices[] = {"cpu:0", "cpu:0"};
  const int32_t tokens[] = {1, 5, 9, 13, 17}, token = 29;
  tsr_model_options options;
  tsr_model* model = NULL;
  tsr_context* context = NULL;
  float row[288], next[288];
  tsr_split_mode mode = TSR_SPLIT_TENSOR;
  tsr_placement* held = NULL;
  EXPECT(strcmp(tsr_split_mode_name(TSR_SPLIT_CUSTOM), "custom") == 0);
  EXPECT(strcmp(tsr_split_mode_name((tsr_split_mode)-1), "unknown") == 0);
  EXPECT_OK(tsr_model_options_init(&options, sizeof options));
  options.devices = devices;
  options.n_devices = 2;
  options.n_threads = 2;
  EXPECT_OK(tsr_model_load(path, &options, &model));
  context = open_context(model, 32, 2);
  EXPECT_OK(decode(context, tokens, NULL, NULL, 5));
  keep_row(context, 0, row);
  EXPECT_OK(tsr_context_fork(context, 0, 1, 5));
  EXPECT_OK(decode(context, &token, (const int32_t[]){1}, NULL, 1));
  keep_row(context, 0, next);
  EXPECT_OK(tsr_context_truncate(context, 0, 4));
  EXPECT_OK(decode(context, tokens + 4, NULL, NULL, 1));
  walk_split_modes(model, context, row, next);
  walk_options(context, row, next);
  walk_general_form(model, context, row, next);
  tsr_model_free(model);
  EXPECT_OK(tsr_context_set_split_mode(context, TSR_SPLIT_LAYER, NULL)); /* the model lives on */
  expect_same(context, row, next);
  tsr_context_free(context);

  options.vocab_only = true;
  EXPECT_OK(tsr_model_load(path, &options, &model));
  EXPECT_STATUS(TSR_UNSUPPORTED, tsr_model_get_split_mode(model, &mode));
  EXPECT_STATUS(TSR_UNSUPPORTED, tsr_model_placement(model, &held, sizeof *held));
  EXPECT(held == NULL);
  EXPECT_BAD(tsr_model_set_split_mode(model, TSR_SPLIT_NONE, NULL));
  tsr_model_free(model);
}
