/* Walks every function of tessera.h on tiny models: results, each documented error, NULL in every place.
 *
 *   walk DATA_FOLDER     (tests/data)
 */
#include "walk.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int n_checks = 0, n_failed = 0;

char llama_path[4096], gemma_path[4096];
static char hybrid_path[4096], experts_path[4096];

tsr_model* load_model(const char* path) {
  tsr_model* model = NULL;
  EXPECT_OK(tsr_model_load(path, NULL, &model));
  if (model == NULL) {
    fprintf(stderr, "no model, no walk\n");
    exit(1);
  }
  return model;
}

tsr_context* open_context(const tsr_model* model, int64_t n_ctx, int32_t n_seq_max) {
  tsr_context_options options;
  tsr_context* context = NULL;
  EXPECT_OK(tsr_context_options_init(&options, sizeof options));
  options.n_ctx = n_ctx;
  options.n_batch = 64;
  options.n_seq_max = n_seq_max;
  EXPECT_OK(tsr_context_create(model, &options, &context));
  return context;
}

tsr_status decode(tsr_context* context, const int32_t* tokens, const int32_t* seqs, const uint8_t* wants, size_t n) {
  tsr_batch batch;
  tsr_status status = tsr_batch_init(&batch, sizeof batch);
  batch.tokens = tokens;
  batch.seqs = seqs;
  batch.wants_logits = wants;
  batch.n_tokens = n;
  return status != TSR_OK ? status : tsr_context_decode(context, &batch);
}

static void walk_errors(void) {
  int code;
  tsr_model* model = (tsr_model*)&code;
  EXPECT(strcmp(tsr_last_error(), "") == 0);
  EXPECT(strcmp(tsr_status_name(TSR_OK), "ok") == 0);
  EXPECT(strcmp(tsr_status_name(TSR_DOES_NOT_FIT), "does_not_fit") == 0);
  for (code = TSR_OK; code <= TSR_INTERNAL; ++code) {
    EXPECT(strcmp(tsr_status_name((tsr_status)code), "unknown") != 0);
  }
  EXPECT(strcmp(tsr_status_name((tsr_status)(TSR_INTERNAL + 1)), "unknown") == 0);
  EXPECT(strchr(tsr_version(), '.') != NULL);
  tsr_free(NULL);

  EXPECT_STATUS(TSR_NOT_FOUND, tsr_model_load("no/such/file.gguf", NULL, &model));
  EXPECT(model == NULL); /* outputs are empty after a failure */
  EXPECT(strstr(tsr_last_error(), "no/such/file.gguf") != NULL);
  EXPECT_STATUS(TSR_OK, tsr_context_options_init(&(tsr_context_options){0}, sizeof(tsr_context_options)));
  EXPECT(strstr(tsr_last_error(), "no/such/file.gguf") != NULL); /* success leaves the text */
}

static void walk_machine(void) {
  tsr_device_info* devices = NULL;
  struct { /* what a later version might have */
    tsr_device_info known;
    uint64_t later;
  }* larger = NULL;
  size_t n = 0;
  EXPECT_OK(tsr_list_devices(&devices, sizeof *devices, &n));
  EXPECT(n >= 1 && strcmp(devices[0].name, "cpu:0") == 0 && devices[0].n_threads >= 1);
  EXPECT(n >= 1 && devices[0].size == sizeof *devices && devices[0].memory_bytes > devices[0].available_bytes);
  EXPECT(n >= 1 && strlen(devices[0].description) > 0);
  tsr_free(devices);
  EXPECT_OK(tsr_list_devices((tsr_device_info**)&larger, sizeof *larger, &n));
  EXPECT(larger[0].known.size == sizeof(tsr_device_info) && larger[0].later == 0);
  tsr_free(larger);
  EXPECT_OK(tsr_list_devices(&devices, sizeof(size_t), &n)); /* an earlier version knew less */
  EXPECT(devices[0].size == sizeof(size_t));
  tsr_free(devices);
  EXPECT_BAD(tsr_list_devices(NULL, sizeof *devices, &n));
  EXPECT_BAD(tsr_list_devices(&devices, sizeof *devices, NULL));
  EXPECT_BAD(tsr_list_devices(&devices, 0, &n));
  EXPECT_BAD(tsr_list_devices(&devices, 100000, &n));
  EXPECT_SAID("struct_size is 100000, not 8 to 4096; give sizeof(tsr_device_info)");
  EXPECT_BAD(tsr_list_devices(&devices, sizeof *devices + 1, &n));
  EXPECT_SAID("give sizeof(tsr_device_info)");
  EXPECT(devices == NULL && n == 0);
}

static void walk_option_structs(void) {
  struct {
    tsr_model_options known;
    uint64_t later;
  } later;
  tsr_model_options options;
  tsr_model* model = NULL;
  tsr_batch batch;
  tsr_sampler_options sampling;
  EXPECT_OK(tsr_model_options_init(&options, sizeof options));
  EXPECT(options.size == sizeof options && options.log_least == TSR_LOG_INFO && options.devices == NULL);
  EXPECT_BAD(tsr_model_options_init(NULL, sizeof options));
  EXPECT_BAD(tsr_model_options_init(&options, 3));
  EXPECT_BAD(tsr_batch_init(NULL, sizeof batch));
  EXPECT_BAD(tsr_context_options_init(NULL, sizeof(tsr_context_options)));
  EXPECT_BAD(tsr_sampler_options_init(NULL, sizeof sampling));
  EXPECT_OK(tsr_sampler_options_init(&sampling, sizeof sampling));
  EXPECT(sampling.top_k == 40 && sampling.seed == TSR_RANDOM_SEED);

  EXPECT_OK(tsr_model_options_init(&later.known, sizeof later));
  EXPECT(later.known.size == sizeof later && later.later == 0);
  EXPECT_OK(tsr_model_load(llama_path, &later.known, &model)); /* unknown members at 0 do no harm */
  tsr_model_free(model);
  later.later = 1;
  EXPECT_STATUS(TSR_UNSUPPORTED, tsr_model_load(llama_path, &later.known, &model));
  memset(&options, 0, sizeof options); /* never begun with its _init function */
  EXPECT_BAD(tsr_model_load(llama_path, &options, &model));
  memset(&options, 0xee, sizeof options);
  EXPECT_BAD(tsr_model_load(llama_path, &options, &model));
}

struct heard {
  int n_progress, n_messages;
  double last;
  double stop_at;
};

static bool on_progress(double fraction, void* user) {
  struct heard* heard = user;
  EXPECT(fraction >= heard->last && fraction <= 1);
  heard->last = fraction;
  ++heard->n_progress;
  return fraction < heard->stop_at;
}

static void on_message(tsr_log_level level, const char* message, void* user) {
  EXPECT(level >= TSR_LOG_DETAIL && level <= TSR_LOG_WARNING && strlen(message) > 0);
  ++((struct heard*)user)->n_messages;
}

static void walk_loading(void) {
  static const char* const two_devices[] = {"cpu:0", "cpu:0"};
  static const char* const no_device[] = {NULL};
  static const char* const odd_device[] = {"quantum:7"};
  const double shares[] = {5, 4}, nonsense[] = {-1, 2};
  const uint64_t budget[] = {1 << 16};
  tsr_model_options options, bad;
  tsr_context_options plan;
  tsr_model* model = NULL;
  struct heard heard = {0, 0, 0, 2};
  EXPECT_OK(tsr_model_options_init(&options, sizeof options));
  options.devices = two_devices;
  options.n_devices = 2;
  options.split_mode = "tensor";
  options.tensor_split = shares;
  options.n_tensor_split = 2;
  options.n_threads = 1;
  options.kernels = "scalar";
  options.cpu_isa = "portable";
  options.progress = on_progress;
  options.progress_user = &heard;
  options.log = on_message; /* of shares that cuts cannot express */
  options.log_user = &heard;
  EXPECT_OK(tsr_model_load(llama_path, &options, &model));
  EXPECT(heard.n_progress > 0 && heard.last == 1 && heard.n_messages > 0);
  tsr_model_free(model);

  heard.last = 0;
  heard.stop_at = 0;
  EXPECT_STATUS(TSR_CANCELLED, tsr_model_load(llama_path, &options, &model));
  EXPECT(model == NULL);
  options.progress = NULL;

#define EXPECT_LOAD(status, field, value)                          \
  bad = options;                                                   \
  bad.field = value;                                               \
  EXPECT_STATUS(status, tsr_model_load(llama_path, &bad, &model)); \
  EXPECT(model == NULL)

  EXPECT_LOAD(TSR_INVALID_ARGUMENT, split_mode, "diagonal");
  EXPECT_LOAD(TSR_INVALID_ARGUMENT, kernels, "magic");
  EXPECT_LOAD(TSR_INVALID_ARGUMENT, cpu_isa, "z80");
  EXPECT_LOAD(TSR_INVALID_ARGUMENT, n_cuts, -1);
  EXPECT_LOAD(TSR_INVALID_ARGUMENT, n_cuts, 1000);
  EXPECT_LOAD(TSR_INVALID_ARGUMENT, n_threads, -5);
  EXPECT_SAID("n_threads is -5; it must be 0 to 1024");
  EXPECT_LOAD(TSR_INVALID_ARGUMENT, n_threads, 1025);
  EXPECT_LOAD(TSR_INVALID_ARGUMENT, devices, NULL);
  EXPECT_LOAD(TSR_INVALID_ARGUMENT, tensor_split, nonsense);
  EXPECT_LOAD(TSR_INVALID_ARGUMENT, tensor_split, NULL);
  EXPECT_LOAD(TSR_INVALID_ARGUMENT, n_device_memory, 1);
  EXPECT_LOAD(TSR_INVALID_ARGUMENT, log_least, (tsr_log_level)3);
  options.tensor_split = NULL;
  options.n_tensor_split = 0;
  options.n_devices = 1;
  EXPECT_LOAD(TSR_INVALID_ARGUMENT, devices, no_device);
  EXPECT_LOAD(TSR_UNSUPPORTED, devices, odd_device);
  options.n_device_memory = 1;
  EXPECT_LOAD(TSR_DOES_NOT_FIT, device_memory, budget);
  options.n_device_memory = 0;
  EXPECT_OK(tsr_context_options_init(&plan, sizeof plan));
  plan.cache_type_k = "q3_k"; /* a type, but of no cache */
  EXPECT_LOAD(TSR_INVALID_ARGUMENT, planned_context, &plan);
  EXPECT(strstr(tsr_last_error(), "cache_type_k") != NULL && strstr(tsr_last_error(), "q8_0") != NULL);
  plan.cache_type_k = "floats";
  EXPECT_LOAD(TSR_INVALID_ARGUMENT, planned_context, &plan);
  plan.cache_type_k = NULL;
  plan.n_ctx = -1;
  EXPECT_LOAD(TSR_INVALID_ARGUMENT, planned_context, &plan);
  EXPECT_SAID("n_ctx is -1; it must be 0 to 16777216");
  plan.n_ctx = 0;
  plan.n_batch = 0;
  EXPECT_LOAD(TSR_INVALID_ARGUMENT, planned_context, &plan);
  EXPECT_SAID("n_batch is 0; it must be 1 to 16777216");
  plan.n_batch = 1;
  plan.n_ubatch = 65537;
  EXPECT_LOAD(TSR_INVALID_ARGUMENT, planned_context, &plan);
  EXPECT_SAID("n_ubatch is 65537; it must be 1 to 65536");
  plan.n_ubatch = 1;
  plan.n_seq_max = 4097;
  EXPECT_LOAD(TSR_INVALID_ARGUMENT, planned_context, &plan);
  EXPECT_SAID("n_seq_max is 4097; it must be 1 to 4096");
  EXPECT_BAD(tsr_model_load(NULL, NULL, &model));
  EXPECT_BAD(tsr_model_load(llama_path, NULL, NULL));
}

static void walk_model_facts(const tsr_model* model) {
  tsr_model_info info;
  const char* key = NULL;
  char* value = NULL;
  size_t n = 0, n_bytes = 0, i;
  EXPECT_OK(tsr_model_get_info(model, &info, sizeof info));
  EXPECT(info.size == sizeof info && strcmp(info.architecture, "llama") == 0 && strcmp(info.split_mode, "layer") == 0);
  EXPECT(info.n_vocab == 288 && info.n_embd == 64 && info.has_text && info.can_decode && info.n_cuts == 1);
  EXPECT(info.file_bytes > 0 && info.n_layer > 0 && strlen(info.kernel_class) > 0 && info.chat_template != NULL);
  EXPECT_BAD(tsr_model_get_info(NULL, &info, sizeof info));
  EXPECT_BAD(tsr_model_get_info(model, NULL, sizeof info));
  EXPECT_BAD(tsr_model_get_info(model, &info, 0));

  EXPECT_OK(tsr_model_n_metadata(model, &n));
  EXPECT(n > 10);
  for (i = 0; i < n; ++i) {
    EXPECT_OK(tsr_model_metadata_key(model, i, &key));
    EXPECT_OK(tsr_model_metadata(model, key, &value, &n_bytes));
    EXPECT(value != NULL && strlen(value) <= n_bytes);
    tsr_free(value);
  }
  EXPECT_BAD(tsr_model_metadata_key(model, n, &key));
  EXPECT(key == NULL);
  EXPECT_OK(tsr_model_metadata(model, "general.architecture", &value, NULL));
  EXPECT(strcmp(value, "llama") == 0);
  tsr_free(value);
  EXPECT_OK(tsr_model_metadata(model, "llama.embedding_length", &value, &n_bytes));
  EXPECT(strcmp(value, "64") == 0 && n_bytes == 2);
  tsr_free(value);
  EXPECT_OK(tsr_model_metadata(model, "tokenizer.ggml.tokens", &value, &n_bytes));
  EXPECT(value[0] == '[' && value[n_bytes - 1] == ']');
  tsr_free(value);
  EXPECT_STATUS(TSR_NOT_FOUND, tsr_model_metadata(model, "no.such.key", &value, &n_bytes));
  EXPECT(value == NULL);
  EXPECT_BAD(tsr_model_metadata(model, NULL, &value, &n_bytes));
  EXPECT_BAD(tsr_model_metadata(NULL, "a", &value, &n_bytes));
  EXPECT_BAD(tsr_model_metadata(model, "a", NULL, &n_bytes));
  EXPECT_BAD(tsr_model_n_metadata(NULL, &n));
  EXPECT_BAD(tsr_model_n_metadata(model, NULL));
  EXPECT_BAD(tsr_model_metadata_key(NULL, 0, &key));
  EXPECT_BAD(tsr_model_metadata_key(model, 0, NULL));
}

static void walk_placement(void) {
  static const char* const devices[] = {"cpu:0", "cpu:0"};
  tsr_model_options options;
  tsr_model* model = NULL;
  tsr_device_use* uses = NULL;
  tsr_tile* tiles = NULL;
  size_t n_uses = 0, n_tiles = 0, i;
  uint64_t bytes[2] = {0, 0};
  int64_t counts[2] = {0, 0};
  EXPECT_OK(tsr_model_options_init(&options, sizeof options));
  options.devices = devices;
  options.n_devices = 2;
  options.split_mode = "tensor";
  EXPECT_OK(tsr_model_load(llama_path, &options, &model));
  EXPECT_OK(tsr_model_list_devices(model, &uses, sizeof *uses, &n_uses));
  EXPECT_OK(tsr_model_list_tiles(model, &tiles, sizeof *tiles, &n_tiles));
  EXPECT(n_uses == 2 && strcmp(uses[0].name, "cpu:0") == 0 && strcmp(uses[1].name, "cpu:0#2") == 0);
  for (i = 0; i < n_tiles; ++i) {
    EXPECT(tiles[i].device >= 0 && tiles[i].device < 2 && tiles[i].cut >= 0 && tiles[i].cut < 2);
    EXPECT((strcmp(tiles[i].kind, "head") == 0) == (tiles[i].layer == -1));
    bytes[tiles[i].device] += tiles[i].bytes;
    ++counts[tiles[i].device];
  }
  for (i = 0; i < n_uses; ++i) {
    EXPECT(counts[i] > 0 && counts[i] == uses[i].n_tiles);
    EXPECT(bytes[i] > 0 && bytes[i] <= uses[i].weight_bytes && uses[i].weight_bytes <= uses[i].budget_bytes);
    EXPECT(uses[i].kv_bytes == 0 && uses[i].scratch_bytes == 0);
  }
  tsr_free(uses);
  tsr_free(tiles);
  EXPECT_BAD(tsr_model_list_devices(NULL, &uses, sizeof *uses, &n_uses));
  EXPECT_BAD(tsr_model_list_devices(model, NULL, sizeof *uses, &n_uses));
  EXPECT_BAD(tsr_model_list_devices(model, &uses, sizeof *uses, NULL));
  EXPECT_BAD(tsr_model_list_devices(model, &uses, 1, &n_uses));
  EXPECT_BAD(tsr_model_list_tiles(NULL, &tiles, sizeof *tiles, &n_tiles));
  EXPECT_BAD(tsr_model_list_tiles(model, NULL, sizeof *tiles, &n_tiles));
  EXPECT_BAD(tsr_model_list_tiles(model, &tiles, sizeof *tiles, NULL));
  EXPECT_BAD(tsr_model_list_tiles(model, &tiles, SIZE_MAX, &n_tiles));
  tsr_model_free(model);
}

static void walk_vocab_only(void) {
  tsr_model_options options;
  tsr_model* model = NULL;
  tsr_model_info info;
  tsr_context* context = NULL;
  tsr_device_use* uses = NULL;
  size_t n = 1;
  int32_t* ids = NULL;
  EXPECT_OK(tsr_model_options_init(&options, sizeof options));
  options.vocab_only = true;
  EXPECT_OK(tsr_model_load(llama_path, &options, &model));
  EXPECT_OK(tsr_model_get_info(model, &info, sizeof info));
  EXPECT(!info.can_decode && info.has_text && info.n_vocab == 0);
  EXPECT_OK(tsr_model_list_devices(model, &uses, sizeof *uses, &n));
  EXPECT(n == 0);
  tsr_free(uses);
  EXPECT_OK(tsr_tokenize(model, "a", 1, 0, &ids, &n));
  tsr_free(ids);
  EXPECT_BAD(tsr_context_create(model, NULL, &context));
  EXPECT(context == NULL);
  tsr_model_free(model);
}

/* What was made from a model outlives the model's handle. */
static void walk_lifetimes(void) {
  const int32_t token = 1;
  tsr_model* model = load_model(llama_path);
  tsr_context* context = open_context(model, 32, 1);
  tsr_chat_template* chat = NULL;
  tsr_stream* stream = NULL;
  const tsr_message message = {"user", "hi"};
  int32_t* ids = NULL;
  size_t n = 0;
  const char* text = NULL;
  EXPECT_OK(tsr_chat_template_create(model, NULL, &chat));
  EXPECT_OK(tsr_stream_create(model, false, &stream));
  tsr_model_free(model);
  EXPECT_OK(decode(context, &token, NULL, NULL, 1));
  tsr_context_free(context);
  EXPECT_OK(tsr_chat_template_encode(chat, &message, 1, &ids, &n));
  tsr_free(ids);
  tsr_chat_template_free(chat);
  EXPECT_OK(tsr_stream_push(stream, 5, &text, NULL));
  tsr_stream_free(stream);
  tsr_model_free(NULL);
}

int main(int argc, char** argv) {
  tsr_model *model, *gemma, *hybrid;
  tsr_context* context;
  if (argc != 2) {
    fprintf(stderr, "usage: %s DATA_FOLDER\n", argv[0]);
    return 2;
  }
  snprintf(llama_path, sizeof llama_path, "%s/tiny/tiny-llama.gguf", argv[1]);
  snprintf(gemma_path, sizeof gemma_path, "%s/tiny/tiny-gemma3.gguf", argv[1]);
  snprintf(hybrid_path, sizeof hybrid_path, "%s/tiny/tiny-qwen35.gguf", argv[1]);
  snprintf(experts_path, sizeof experts_path, "%s/tiny/tiny-qwen3moe.gguf", argv[1]);
  walk_errors();
  walk_machine();
  walk_option_structs();
  walk_loading();
  walk_placement();
  walk_vocab_only();
  model = load_model(llama_path);
  walk_model_facts(model);
  walk_tokens(model);
  walk_token_errors(model);
  walk_vocab(model);
  walk_stream(model);
  walk_templates(model);
  walk_context_options(model);
  context = open_context(model, 96, 3);
  walk_sequences(context);
  walk_embeddings(model);
  walk_context_errors(model, context);
  walk_sampler(context);
  walk_sampler_options(model);
  gemma = load_model(gemma_path);
  walk_states(context, gemma);
  walk_rewind(context);
  tsr_context_free(context);
  tsr_model_free(model);
  walk_begin_token(gemma);
  walk_window(gemma);
  tsr_model_free(gemma);
  hybrid = load_model(hybrid_path);
  walk_hybrid(hybrid);
  tsr_model_free(hybrid);
  walk_experts(experts_path);
  walk_switches(llama_path);
  walk_first_layouts(llama_path);
  walk_lifetimes();
  printf("%d checks, %d failed\n", n_checks, n_failed);
  return n_failed == 0 ? 0 : 1;
}
