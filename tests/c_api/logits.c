/* Writes the logits of every token of a prompt, as float32 rows, to standard output.
 *
 *   logits MODEL SPLIT_MODE N_DEVICES N_CUTS TOKEN...
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tessera/tessera.h>

#define MOST 256

static void check(tsr_status status) {
  if (status != TSR_OK) {
    fprintf(stderr, "%s: %s\n", tsr_status_name(status), tsr_last_error());
    exit(1);
  }
}

int main(int argc, char** argv) {
  static const char* const devices[] = {"cpu:0", "cpu:0", "cpu:0"};
  tsr_model_options options;
  tsr_context_options context_options;
  tsr_batch batch;
  tsr_model* model;
  tsr_context* context;
  int32_t tokens[MOST];
  uint8_t wants[MOST];
  if (argc < 6 || argc - 5 > MOST) {
    return 2;
  }
  check(tsr_model_options_init(&options, sizeof options));
  options.split_mode = argv[2];
  options.devices = devices;
  options.n_devices = (size_t)atoi(argv[3]);
  options.n_cuts = atoi(argv[4]);
  check(tsr_model_load(argv[1], &options, &model));
  check(tsr_context_options_init(&context_options, sizeof context_options));
  context_options.n_ctx = argc;
  check(tsr_context_create(model, &context_options, &context));
  check(tsr_batch_init(&batch, sizeof batch));
  for (int i = 5; i < argc; ++i) {
    tokens[batch.n_tokens++] = atoi(argv[i]);
  }
  memset(wants, 1, sizeof wants);
  batch.tokens = tokens;
  batch.wants_logits = wants;
  check(tsr_context_decode(context, &batch));
  for (size_t row = 0; row < batch.n_tokens; ++row) {
    const float* logits;
    size_t n_vocab;
    check(tsr_context_logits(context, (int64_t)row, &logits, &n_vocab));
    if (fwrite(logits, sizeof *logits, n_vocab, stdout) != n_vocab) {
      return 1;
    }
  }
  tsr_context_free(context);
  tsr_model_free(model);
  return 0;
}
