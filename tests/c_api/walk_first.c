/* Walks what a program does that was compiled against each struct's first layout (walk.c). The copies below stay as
 * they are whatever the header gains: a struct of the caller's ends where its copy does, and what lies behind it is
 * neither read nor written. */
#include <string.h>

#include "walk.h"

typedef struct first_context_options {
  size_t size;
  int64_t n_ctx;
  int64_t n_batch;
  int64_t n_ubatch;
  int32_t n_seq_max;
  const char* cache_type_k;
  const char* cache_type_v;
} first_context_options;

typedef struct first_model_options {
  size_t size;
  const char* const* devices;
  size_t n_devices;
  const uint64_t* device_memory;
  size_t n_device_memory;
  const char* split_mode;
  const double* tensor_split;
  size_t n_tensor_split;
  int32_t n_cuts;
  int32_t n_threads;
  const char* kernels;
  const char* cpu_isa;
  bool vocab_only;
  const tsr_context_options* planned_context;
  tsr_progress_fn progress;
  void* progress_user;
  tsr_log_fn log;
  void* log_user;
  tsr_log_level log_least;
} first_model_options;

typedef struct first_batch {
  size_t size;
  size_t n_tokens;
  const int32_t* tokens;
  const int32_t* seqs;
  const uint8_t* wants_logits;
} first_batch;

typedef struct first_switch_options {
  size_t size;
  bool no_wait;
  double deadline_s;
  uint64_t staging_bytes;
  tsr_progress_fn progress;
  void* progress_user;
} first_switch_options;

typedef struct first_placement {
  size_t size;
  tsr_split_mode split_mode;
  const double* tensor_split;
  size_t n_tensor_split;
  const int32_t* homes;
  size_t n_homes;
  uint64_t version;
  const tsr_switch_options* options;
} first_placement;

typedef struct first_sampler_options {
  size_t size;
  uint64_t seed;
  float temperature;
  float dynatemp_range;
  float dynatemp_exponent;
  int32_t top_k;
  float top_p;
  float min_p;
  float typical_p;
  float top_n_sigma;
  float xtc_probability;
  float xtc_threshold;
  int32_t min_keep;
  int32_t repeat_last_n;
  float repeat_penalty;
  float frequency_penalty;
  float presence_penalty;
  float dry_multiplier;
  float dry_base;
  int32_t dry_allowed_length;
  int32_t dry_penalty_last_n;
  int32_t mirostat;
  float mirostat_tau;
  float mirostat_eta;
  const char* const* dry_sequence_breakers;
  size_t n_dry_sequence_breakers;
  const tsr_logit_bias* logit_bias;
  size_t n_logit_bias;
  const char* samplers;
} first_sampler_options;

/* Structs that the library fills. */
typedef struct first_device_use {
  size_t size;
  const char* name;
  int64_t n_tiles;
  uint64_t weight_bytes;
  uint64_t kv_bytes;
  uint64_t scratch_bytes;
  uint64_t budget_bytes;
} first_device_use;

typedef struct first_tile {
  size_t size;
  const char* kind;
  int32_t layer;
  int32_t cut;
  int32_t device;
  uint64_t offset;
  uint64_t bytes;
} first_tile;

/* A first struct with something behind it that no member of a later version may be taken from. */
#define CALLERS(kind)           \
  struct {                      \
    first_##kind known;         \
    unsigned char behind[1024]; \
  }
#define MARK 0xee

static bool is_marked(const unsigned char* behind) {
  size_t i = 0;
  while (i < 1024 && behind[i] == MARK) {
    ++i;
  }
  return i == 1024;
}

/* Members up to the last of the first version lie where they lay. The _init function writes them and no more; one byte
 * less is no such struct. */
#define EXPECT_INIT(kind, theirs, last)                                                    \
  do {                                                                                     \
    EXPECT(offsetof(first_##kind, last) == offsetof(tsr_##kind, last));                    \
    memset(&(theirs), MARK, sizeof(theirs));                                               \
    EXPECT_BAD(tsr_##kind##_init((tsr_##kind*)&(theirs).known, sizeof(theirs).known - 1)); \
    EXPECT_OK(tsr_##kind##_init((tsr_##kind*)&(theirs).known, sizeof(theirs).known));      \
    EXPECT((theirs).known.size == sizeof(theirs).known && is_marked((theirs).behind));     \
  } while (0)

/* Draws of a chain that later members would change if they were taken from behind the struct, or as 0. */
static void expect_draws(const tsr_sampler_options* options, const tsr_sampler_options* first) {
  static const float logits[] = {2, 1.5f, 1, 0.5f};
  tsr_sampler *now = NULL, *then = NULL;
  int i, n_same = 0;
  EXPECT_OK(tsr_sampler_create(NULL, options, &now));
  EXPECT_OK(tsr_sampler_create(NULL, first, &then));
  for (i = 0; i < 50 && now != NULL && then != NULL; ++i) {
    int32_t id = TSR_NO_TOKEN, id_then = TSR_NO_TOKEN;
    EXPECT_OK(tsr_sampler_sample(now, logits, 4, &id));
    EXPECT_OK(tsr_sampler_sample(then, logits, 4, &id_then));
    n_same += id == id_then;
  }
  EXPECT(n_same == 50);
  tsr_sampler_free(now);
  tsr_sampler_free(then);
}

static void walk_first_sampler(void) {
  CALLERS(sampler_options) theirs;
  tsr_sampler_options options;
  EXPECT_INIT(sampler_options, theirs, samplers);
  EXPECT(theirs.known.top_k == 40 && theirs.known.seed == TSR_RANDOM_SEED && theirs.known.samplers == NULL);
  EXPECT_OK(tsr_sampler_options_init(&options, sizeof options));
  options.seed = theirs.known.seed = 7;
  options.samplers = theirs.known.samplers = "temperature;adaptive_p";
  expect_draws(&options, (const tsr_sampler_options*)&theirs.known);
}

static void walk_first_lists(const tsr_model* model) {
  tsr_device_use* uses = NULL;
  tsr_tile* tiles = NULL;
  first_device_use* first_uses = NULL;
  first_tile* first_tiles = NULL;
  size_t n = 0, n_first = 0, i;
  EXPECT_OK(tsr_model_list_devices(model, &uses, sizeof *uses, &n));
  EXPECT_OK(tsr_model_list_devices(model, (tsr_device_use**)&first_uses, sizeof *first_uses, &n_first));
  EXPECT(n == 2 && n_first == n);
  for (i = 0; i < n && i < n_first; ++i) {
    EXPECT(first_uses[i].size == sizeof *first_uses && strcmp(first_uses[i].name, uses[i].name) == 0);
    EXPECT(first_uses[i].budget_bytes == uses[i].budget_bytes && first_uses[i].n_tiles == uses[i].n_tiles);
  }
  tsr_free(uses);
  tsr_free(first_uses);
  EXPECT_OK(tsr_model_list_tiles(model, &tiles, sizeof *tiles, &n));
  EXPECT_OK(tsr_model_list_tiles(model, (tsr_tile**)&first_tiles, sizeof *first_tiles, &n_first));
  EXPECT(n > 2 && n_first == n);
  for (i = 0; i < n && i < n_first; ++i) {
    EXPECT(first_tiles[i].size == sizeof *first_tiles && strcmp(first_tiles[i].kind, tiles[i].kind) == 0);
    EXPECT(first_tiles[i].offset == tiles[i].offset && first_tiles[i].bytes == tiles[i].bytes);
  }
  tsr_free(tiles);
  tsr_free(first_tiles);
}

void walk_first_layouts(const char* path) {
  static const char* const devices[] = {"cpu:0", "cpu:0"};
  static const int32_t tokens[] = {1, 5, 9};
  CALLERS(model_options) loading;
  CALLERS(context_options) opening;
  CALLERS(batch) batch;
  CALLERS(switch_options) switching;
  CALLERS(placement) placement;
  tsr_model* model = NULL;
  tsr_context* context = NULL;
  tsr_split_mode mode = TSR_SPLIT_NONE;
  int64_t n_rows = -1;

  EXPECT_INIT(model_options, loading, log_least);
  EXPECT(loading.known.log_least == TSR_LOG_INFO && loading.known.devices == NULL);
  loading.known.devices = devices;
  loading.known.n_devices = 2;
  EXPECT_OK(tsr_model_load(path, (const tsr_model_options*)&loading.known, &model));
  EXPECT_INIT(context_options, opening, cache_type_v);
  EXPECT(opening.known.n_batch == 2048 && opening.known.n_seq_max == 1);
  opening.known.n_ctx = 32;
  EXPECT_OK(tsr_context_create(model, (const tsr_context_options*)&opening.known, &context));
  EXPECT_INIT(batch, batch, wants_logits);
  EXPECT(batch.known.n_tokens == 0 && batch.known.wants_logits == NULL);
  batch.known.tokens = tokens;
  batch.known.n_tokens = 3;
  EXPECT_OK(tsr_context_decode(context, (const tsr_batch*)&batch.known));
  EXPECT_OK(tsr_context_n_logits(context, &n_rows));
  EXPECT(n_rows == 1);
  EXPECT_OK(tsr_context_n_embeddings(context, &n_rows));
  EXPECT(n_rows == 0);

  EXPECT_INIT(switch_options, switching, progress_user);
  EXPECT(!switching.known.no_wait && switching.known.progress == NULL);
  EXPECT_INIT(placement, placement, options);
  EXPECT(placement.known.split_mode == TSR_SPLIT_LAYER && placement.known.homes == NULL);
  placement.known.split_mode = TSR_SPLIT_TENSOR;
  placement.known.options = (const tsr_switch_options*)&switching.known;
  EXPECT_OK(tsr_model_set_placement(model, (const tsr_placement*)&placement.known));
  EXPECT_OK(tsr_model_get_split_mode(model, &mode));
  EXPECT(mode == TSR_SPLIT_TENSOR);
  walk_first_lists(model);
  tsr_context_free(context);
  tsr_model_free(model);
  walk_first_sampler();
}
