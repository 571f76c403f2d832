/*
 * Answers one message: loads a model, applies its chat template, and prints the answer as it comes.
 *
 *   simple_chat MODEL.gguf [MESSAGE [MOST_TOKENS]]
 *
 * cc -std=c99 simple_chat.c $(pkg-config --cflags --libs tessera) -o simple_chat
 */
#include <stdio.h>
#include <stdlib.h>
#include <tessera/tessera.h>

/* Every call is checked the same way: what failed, and why. */
static void check(tsr_status status, const char* what) {
  if (status != TSR_OK) {
    fprintf(stderr, "%s: %s: %s\n", what, tsr_status_name(status), tsr_last_error());
    exit(1);
  }
}

static bool show_progress(double fraction, void* user) {
  (void)user;
  fprintf(stderr, "\rloading %3.0f %%", fraction * 100);
  return true; /* false would stop loading */
}

static void show_message(tsr_log_level level, const char* message, void* user) {
  (void)user;
  fprintf(stderr, "%s%s\n", level == TSR_LOG_WARNING ? "warning: " : "", message);
}

/* Decodes some tokens into sequence 0; only the last one's logits are needed. */
static void decode(tsr_context* context, const int32_t* tokens, size_t n) {
  tsr_batch batch;
  check(tsr_batch_init(&batch, sizeof batch), "batch");
  batch.tokens = tokens;
  batch.n_tokens = n;
  check(tsr_context_decode(context, &batch), "decode");
}

/* The prompt may be longer than one batch. */
static void decode_prompt(tsr_context* context, const int32_t* tokens, size_t n) {
  tsr_context_info info;
  check(tsr_context_get_info(context, &info, sizeof info), "context");
  for (size_t begin = 0; begin < n; begin += (size_t)info.n_batch) {
    size_t rest = n - begin;
    decode(context, tokens + begin, rest < (size_t)info.n_batch ? rest : (size_t)info.n_batch);
  }
}

static void generate(const tsr_model* model, tsr_context* context, tsr_sampler* sampler, long most_tokens) {
  tsr_stream* stream; /* whole characters, although a token may end inside one */
  const char* text;
  long n = 0;
  bool ended = false;
  check(tsr_stream_create(model, false, &stream), "stream");
  for (; n < most_tokens && !ended; ++n) {
    int32_t token;
    tsr_token_info info;
    check(tsr_sampler_sample_row(sampler, context, 0, &token), "sample");
    check(tsr_sampler_accept(sampler, &token, 1), "accept");
    check(tsr_token_get_info(model, token, &info, sizeof info), "token");
    ended = info.is_end;
    if (!ended) {
      check(tsr_stream_push(stream, token, &text, NULL), "stream");
      fputs(text, stdout);
      fflush(stdout);
      decode(context, &token, 1);
    }
  }
  check(tsr_stream_flush(stream, &text, NULL), "stream");
  puts(text);
  fprintf(stderr, "%ld tokens%s\n", n, ended ? ", ended by the model" : "");
  tsr_stream_free(stream);
}

int main(int argc, char** argv) {
  tsr_model_options model_options;
  tsr_context_options context_options;
  tsr_sampler_options sampler_options;
  tsr_message message = {"user", argc > 2 ? argv[2] : "Why is the sky blue?"};
  tsr_model* model;
  tsr_context* context;
  tsr_chat_template* chat;
  tsr_sampler* sampler;
  int32_t* prompt;
  size_t n_prompt;
  if (argc < 2) {
    fprintf(stderr, "usage: %s MODEL.gguf [MESSAGE [MOST_TOKENS]]\n", argv[0]);
    return 2;
  }

  check(tsr_model_options_init(&model_options, sizeof model_options), "options");
  model_options.progress = show_progress;
  model_options.log = show_message;
  check(tsr_model_load(argv[1], &model_options, &model), argv[1]);

  check(tsr_chat_template_create(model, NULL, &chat), "chat template");
  check(tsr_chat_template_encode(chat, &message, 1, &prompt, &n_prompt), "message");
  check(tsr_context_options_init(&context_options, sizeof context_options), "options");
  context_options.n_ctx = (int64_t)n_prompt + 1024;
  check(tsr_context_create(model, &context_options, &context), "context");
  check(tsr_model_sampler_options_init(model, &sampler_options, sizeof sampler_options), "options");
  check(tsr_sampler_create(model, &sampler_options, &sampler), "sampler");
  check(tsr_sampler_accept(sampler, prompt, n_prompt), "prompt");

  fprintf(stderr, "\n%zu tokens of prompt\n", n_prompt);
  decode_prompt(context, prompt, n_prompt);
  generate(model, context, sampler, argc > 3 ? strtol(argv[3], NULL, 10) : 1000);

  tsr_free(prompt);
  tsr_sampler_free(sampler);
  tsr_chat_template_free(chat);
  tsr_context_free(context);
  tsr_model_free(model);
  return 0;
}
