/* Walks what only some models have: recurrent state, experts (walk.c). */
#include <math.h>
#include <string.h>

#include "walk.h"

static const int32_t prompt[] = {1, 5, 9, 13, 17, 21}, answer[] = {25};

static void expect_rewind(tsr_context* context, int64_t wanted, int64_t reached) {
  int64_t length = -1;
  EXPECT_OK(tsr_context_rewind(context, 0, wanted, &length));
  EXPECT(length == reached);
  EXPECT_OK(tsr_context_length(context, 0, &length));
  EXPECT(length == reached);
}

/* Without recurrent state every length can be had, and snapshots are nothing. */
void walk_rewind(tsr_context* context) {
  int64_t length = 7;
  bool keeps = true;
  EXPECT_OK(tsr_context_clear(context));
  EXPECT_OK(decode(context, prompt, NULL, NULL, 6));
  EXPECT_OK(tsr_context_keeps_snapshots(context, &keeps));
  EXPECT(!keeps);
  EXPECT_OK(tsr_context_snapshot(context, 0));
  expect_rewind(context, 100, 6);
  expect_rewind(context, 5, 5);
  expect_rewind(context, 0, 0);
  EXPECT_BAD(tsr_context_rewind(context, 0, -1, &length));
  EXPECT(length == 0);
  EXPECT_BAD(tsr_context_rewind(context, 3, 0, &length));
  EXPECT_BAD(tsr_context_rewind(context, -1, 0, &length));
  EXPECT_BAD(tsr_context_rewind(context, 0, 0, NULL));
  EXPECT_BAD(tsr_context_rewind(NULL, 0, 0, &length));
  EXPECT_BAD(tsr_context_snapshot(context, 3));
  EXPECT_BAD(tsr_context_snapshot(context, -1));
  EXPECT_BAD(tsr_context_snapshot(NULL, 0));
  EXPECT_BAD(tsr_context_keeps_snapshots(context, NULL));
  EXPECT_BAD(tsr_context_keeps_snapshots(NULL, &keeps));
}

/* A sequence goes back to its snapshot, and on from there as it did before. */
void walk_hybrid(const tsr_model* hybrid) {
  tsr_context* context = open_context(hybrid, 64, 1);
  tsr_context_options options;
  float before[288], after[288];
  bool keeps = false;
  EXPECT_OK(tsr_context_keeps_snapshots(context, &keeps));
  EXPECT(keeps);
  EXPECT_OK(decode(context, prompt, NULL, NULL, 4));
  EXPECT_OK(tsr_context_snapshot(context, 0));
  EXPECT_OK(decode(context, answer, NULL, NULL, 1));
  keep_row(context, 0, before);
  EXPECT(isfinite(before[0]));
  EXPECT_OK(decode(context, prompt + 4, NULL, NULL, 2));
  EXPECT_STATUS(TSR_UNSUPPORTED, tsr_context_truncate(context, 0, 5));
  expect_rewind(context, 7, 7);
  expect_rewind(context, 6, 4);
  EXPECT_OK(decode(context, answer, NULL, NULL, 1));
  keep_row(context, 0, after);
  EXPECT(memcmp(before, after, sizeof before) == 0);
  EXPECT_OK(tsr_context_truncate(context, 0, 4));
  expect_rewind(context, 3, 0);
  tsr_context_free(context);

  EXPECT_OK(tsr_context_options_init(&options, sizeof options));
  EXPECT(options.n_snapshots == 0 && options.snapshot_bytes == 0);
  options.n_ctx = 64;
  options.n_snapshots = TSR_NO_SNAPSHOTS;
  EXPECT_OK(tsr_context_create(hybrid, &options, &context));
  EXPECT_OK(tsr_context_keeps_snapshots(context, &keeps));
  EXPECT(!keeps);
  EXPECT_OK(decode(context, prompt, NULL, NULL, 4));
  EXPECT_OK(tsr_context_snapshot(context, 0));
  EXPECT_OK(decode(context, answer, NULL, NULL, 1));
  expect_rewind(context, 4, 0);
  tsr_context_free(context);
  options.n_snapshots = 1; /* the second takes the place of the first */
  EXPECT_OK(tsr_context_create(hybrid, &options, &context));
  EXPECT_OK(decode(context, prompt, NULL, NULL, 4));
  EXPECT_OK(tsr_context_snapshot(context, 0));
  EXPECT_OK(decode(context, answer, NULL, NULL, 1));
  EXPECT_OK(tsr_context_snapshot(context, 0));
  EXPECT_OK(decode(context, answer, NULL, NULL, 1));
  expect_rewind(context, 5, 5);
  expect_rewind(context, 4, 0);
  tsr_context_free(context);
  options.snapshot_bytes = 1; /* room for none */
  EXPECT_OK(tsr_context_create(hybrid, &options, &context));
  EXPECT_OK(tsr_context_keeps_snapshots(context, &keeps));
  EXPECT(!keeps);
  tsr_context_free(context);
  options.n_snapshots = -2;
  EXPECT_BAD(tsr_context_create(hybrid, &options, &context));
  EXPECT(context == NULL);
  /* A caller of the first version, whose struct ends before these members: what lies behind it is not read. */
  options.size = offsetof(tsr_context_options, n_snapshots);
  EXPECT_OK(tsr_context_create(hybrid, &options, &context));
  EXPECT_OK(tsr_context_keeps_snapshots(context, &keeps));
  EXPECT(keeps);
  tsr_context_free(context);
  EXPECT_OK(tsr_context_options_init(&options, offsetof(tsr_context_options, n_snapshots)));
  EXPECT(options.n_snapshots == -2 && options.n_batch == 2048);
}

/* The experts of a layer are tiles one after the other, and tell which they are. */
static void expect_experts_in_order(const tsr_model* model) {
  tsr_tile* tiles = NULL;
  size_t n = 0, i;
  int32_t n_experts = 0;
  EXPECT_OK(tsr_model_list_tiles(model, &tiles, sizeof *tiles, &n));
  for (i = 0; i < n; ++i) {
    const bool is_expert = strcmp(tiles[i].kind, "expert") == 0;
    const bool goes_on = i > 0 && tiles[i - 1].expert >= 0;
    EXPECT(tiles[i].expert == (!is_expert ? -1 : goes_on ? tiles[i - 1].expert + 1 : 0));
    n_experts += is_expert;
  }
  EXPECT(n_experts > 1);
  tsr_free(tiles);
}

/* The last row of a prompt; -> tiles on the second device. */
static int64_t run(const char* path, const tsr_model_options* options, float* row) {
  tsr_model* model = NULL;
  tsr_device_use* uses = NULL;
  size_t n = 0;
  int64_t n_tiles = 0;
  tsr_context* context;
  EXPECT_OK(tsr_model_load(path, options, &model));
  if (model == NULL) {
    return 0;
  }
  context = open_context(model, 32, 1);
  EXPECT_OK(decode(context, prompt, NULL, NULL, 6));
  keep_row(context, 0, row);
  EXPECT_OK(tsr_model_list_devices(model, &uses, sizeof *uses, &n));
  n_tiles = n == 2 ? uses[1].n_tiles : 0;
  /* Where experts are copied from, nothing is computed. */
  EXPECT(n_tiles == 0 || (uses[1].scratch_bytes == 0) == (options->expert_slots > 0));
  expect_experts_in_order(model);
  tsr_free(uses);
  tsr_context_free(context);
  tsr_model_free(model);
  return n_tiles;
}

/* Where experts live, and who computes them, changes no bit; nor do the threads' CPUs. */
void walk_experts(const char* path) {
  static const char* const devices[] = {"cpu:0", "cpu:0"};
  static const char* const overrides[] = {"ffn_.*_exps=CPU", NULL};
  static const char* const odd[] = {"no_such_tensor=cpu:0"};
  const double shares[] = {1, 0};
  tsr_model_options options, bad;
  tsr_model* model = NULL;
  float one[288], other[288];
  EXPECT_OK(tsr_model_options_init(&options, sizeof options));
  EXPECT(options.n_cpu_moe == 0 && options.numa == NULL);
  options.devices = devices;
  options.n_devices = 2;
  options.tensor_split = shares;
  options.n_tensor_split = 2;
  options.n_threads = 2;
  EXPECT(run(path, &options, one) == 0);
  EXPECT(isfinite(one[0]));
  options.n_cpu_moe = 99;
  EXPECT(run(path, &options, other) > 0);
  EXPECT(memcmp(one, other, sizeof one) == 0);
  options.expert_slots = 2;
  EXPECT(run(path, &options, other) > 0);
  EXPECT(memcmp(one, other, sizeof one) == 0);
  options.n_cpu_moe = 0;
  options.expert_slots = 0;
  options.override_tensor = overrides;
  options.n_override_tensor = 1;
  options.numa = "distribute";
  options.cpu_strict = true;
  EXPECT(run(path, &options, other) > 0);
  EXPECT(memcmp(one, other, sizeof one) == 0);

#define EXPECT_REFUSED(field, value)              \
  bad = options;                                  \
  bad.field = value;                              \
  EXPECT_BAD(tsr_model_load(path, &bad, &model)); \
  EXPECT(model == NULL)
  EXPECT_REFUSED(n_override_tensor, 2); /* the second is NULL */
  EXPECT_REFUSED(override_tensor, NULL);
  EXPECT_REFUSED(override_tensor, odd);
  EXPECT_REFUSED(n_cpu_moe, -1);
  EXPECT_REFUSED(expert_slots, -1);
  EXPECT_REFUSED(expert_slots, 1025);
  EXPECT_REFUSED(cpu_mask, "wide");
  EXPECT_REFUSED(cpu_mask, "0");
  EXPECT_REFUSED(cpu_range, "7");
  EXPECT_REFUSED(numa, "moon");
  bad = options; /* a caller of the first version: what lies behind its struct is not read */
  bad.n_cpu_moe = -1;
  bad.size = offsetof(tsr_model_options, override_tensor);
  EXPECT(run(path, &bad, other) == 0);
  EXPECT(memcmp(one, other, sizeof one) == 0);
  bad.size = offsetof(tsr_model_options, override_tensor) - 1;
  EXPECT_BAD(tsr_model_load(path, &bad, &model));
}
