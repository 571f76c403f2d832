/* Reads a prompt with whole layers on each device and generates with every layer split over both: the switch happens
 * between the two, with everything that was read in place.
 *
 *   switch_placement MODEL.gguf [PROMPT [MOST_TOKENS]]
 *
 * cc -std=c99 switch_placement.c $(pkg-config --cflags --libs tessera) -o switch_placement
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tessera/tessera.h>

static void check(tsr_status status, const char* what) {
  if (status != TSR_OK) {
    fprintf(stderr, "%s: %s\n", what, tsr_last_error());
    exit(1);
  }
}

static void decode(tsr_context* context, const int32_t* tokens, size_t n) {
  tsr_batch batch;
  check(tsr_batch_init(&batch, sizeof batch), "batch");
  batch.tokens = tokens;
  batch.n_tokens = n;
  check(tsr_context_decode(context, &batch), "decode");
}

static void generate(const tsr_model* model, tsr_context* context, int most) {
  tsr_sampler_options options;
  tsr_sampler* sampler;
  tsr_stream* stream;
  tsr_token_info info;
  const char* text;
  check(tsr_model_sampler_options_init(model, &options, sizeof options), "options");
  options.temperature = 0;
  check(tsr_sampler_create(model, &options, &sampler), "sampler");
  check(tsr_stream_create(model, false, &stream), "stream");
  for (int i = 0; i < most; ++i) {
    int32_t token;
    check(tsr_sampler_sample_row(sampler, context, 0, &token), "sample");
    check(tsr_sampler_accept(sampler, &token, 1), "accept");
    check(tsr_token_get_info(model, token, &info, sizeof info), "token");
    if (info.is_end) {
      break;
    }
    check(tsr_stream_push(stream, token, &text, NULL), "stream");
    fputs(text, stdout);
    decode(context, &token, 1);
  }
  check(tsr_stream_flush(stream, &text, NULL), "stream");
  puts(text);
  tsr_stream_free(stream);
  tsr_sampler_free(sampler);
}

int main(int argc, char** argv) {
  static const char* const devices[] = {"cpu:0", "cpu:1"};
  const char* prompt = argc > 2 ? argv[2] : "Once upon a time there was"; /* to be continued: no template is used */
  tsr_model_options model_options;
  tsr_context_options context_options;
  tsr_model* model;
  tsr_context* context;
  int32_t* ids;
  size_t n_ids;
  if (argc < 2) {
    fprintf(stderr, "usage: %s MODEL.gguf [PROMPT [MOST_TOKENS]]\n", argv[0]);
    return 2;
  }
  check(tsr_model_options_init(&model_options, sizeof model_options), "options");
  model_options.devices = devices;
  model_options.n_devices = 2;
  model_options.split_mode = "layer";
  check(tsr_model_load(argv[1], &model_options, &model), argv[1]);
  check(tsr_tokenize(model, prompt, strlen(prompt), TSR_TOKENIZE_ADD_SPECIAL, &ids, &n_ids), "prompt");
  check(tsr_context_options_init(&context_options, sizeof context_options), "options");
  context_options.n_ctx = (int64_t)n_ids + 256;
  context_options.n_batch = (int64_t)n_ids;
  check(tsr_context_create(model, &context_options, &context), "context");
  decode(context, ids, n_ids);

  if (tsr_context_set_split_mode(context, TSR_SPLIT_TENSOR, NULL) != TSR_OK) {
    fprintf(stderr, "goes on under layer: %s\n", tsr_last_error()); /* nothing was lost */
  } else {
    fprintf(stderr, "%zu tokens read under layer, goes on under tensor\n", n_ids);
  }
  generate(model, context, argc > 3 ? atoi(argv[3]) : 128); /* the first token is drawn from the prompt's logits */

  tsr_free(ids);
  tsr_context_free(context);
  tsr_model_free(model);
  return 0;
}
