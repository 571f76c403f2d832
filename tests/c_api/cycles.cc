// Loading, using and freeing a model again and again leaves nothing behind: memory, file descriptors, threads and
// mappings of the process are at the end what they were after the first cycles.
//
//   cycles MODEL [N]     N cycles (60), of which the first fifth is not counted: the system's allocator, the tables of
//                        kernels and the stacks that threads leave for the next ones come to their size there.

#include <cstdio>
#include <cstdlib>
#include <dirent.h>
#include <fstream>
#include <string>
#include <tessera/tessera.h>

namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kCountsMemory = false;  // a sanitizer keeps freed memory back
#else
constexpr bool kCountsMemory = true;
#endif

struct Held {
  long resident_kib = 0;
  long n_threads = 0;
  long n_files = 0;
  long n_mappings = 0;
};

Held held() {
  Held held;
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    held.resident_kib = line.rfind("VmRSS:", 0) == 0 ? std::atol(line.c_str() + 6) : held.resident_kib;
    held.n_threads = line.rfind("Threads:", 0) == 0 ? std::atol(line.c_str() + 8) : held.n_threads;
  }
  DIR* folder = opendir("/proc/self/fd");
  while (readdir(folder) != nullptr) {
    ++held.n_files;
  }
  closedir(folder);
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    ++held.n_mappings;
  }
  return held;
}

void print(const char* what, long cycle, const Held& held) {
  std::printf("%s %ld: %ld KiB resident, %ld threads, %ld files, %ld mappings\n", what, cycle, held.resident_kib,
              held.n_threads, held.n_files, held.n_mappings);
}

// Two contexts, of which one decodes a prompt in several micro-batches, some sampled tokens, and a forked sequence.
tsr_status cycle(const char* path) {
  tsr_model_options options;
  tsr_context_options context_options;
  tsr_model* model = nullptr;
  tsr_context* context = nullptr;
  tsr_context* second = nullptr;
  tsr_sampler* sampler = nullptr;
  tsr_stream* stream = nullptr;
  tsr_batch batch;
  int32_t* ids = nullptr;
  size_t n = 0;
  int32_t id = 0;
  int32_t seq = 1;
  const char* text = nullptr;
  tsr_status status = tsr_model_options_init(&options, sizeof options);
  const auto step = [&](auto&& call) { status = status == TSR_OK ? call() : status; };
  options.n_threads = 2;
  step([&] { return tsr_model_load(path, &options, &model); });
  step([&] { return tsr_context_options_init(&context_options, sizeof context_options); });
  context_options.n_ctx = 128;
  context_options.n_ubatch = 16;
  context_options.n_seq_max = 2;
  step([&] { return tsr_context_create(model, &context_options, &context); });
  step([&] { return tsr_context_create(model, &context_options, &second); });
  step([&] { return tsr_tokenize(model, "Once upon a time there was a model", TSR_NUL_TERMINATED, 0, &ids, &n); });
  step([&] { return tsr_batch_init(&batch, sizeof batch); });
  batch.tokens = ids;
  batch.n_tokens = n;
  step([&] { return tsr_context_decode(context, &batch); });
  step([&] { return tsr_sampler_create(model, nullptr, &sampler); });
  step([&] { return tsr_stream_create(model, true, &stream); });
  batch.tokens = &id;
  batch.n_tokens = 1;
  for (int i = 0; i < 4; ++i) {
    step([&] { return tsr_sampler_sample_row(sampler, context, 0, &id); });
    step([&] { return tsr_stream_push(stream, id, &text, nullptr); });
    step([&] { return tsr_context_decode(context, &batch); });
  }
  step([&] { return tsr_context_fork(context, 0, 1, static_cast<int64_t>(n)); });
  batch.seqs = &seq;
  step([&] { return tsr_context_decode(context, &batch); });
  tsr_stream_free(stream);
  tsr_sampler_free(sampler);
  tsr_free(ids);
  tsr_context_free(second);
  tsr_context_free(context);
  tsr_model_free(model);
  return status;
}

}  // namespace

int main(int argc, char** argv) {
  const long n_cycles = argc > 2 ? std::atol(argv[2]) : 60;
  Held early;
  for (long i = 1; i <= n_cycles; ++i) {
    if (cycle(argc > 1 ? argv[1] : "") != TSR_OK) {
      std::fprintf(stderr, "cycle %ld: %s\n", i, tsr_last_error());
      return 1;
    }
    if (i == n_cycles / 5) {
      early = held();
      print("after cycle", i, early);
    } else if (i % 100 == 0) {
      print("after cycle", i, held());
    }
  }
  const Held late = held();
  print("at the end,", n_cycles, late);
  // 512 KiB: the system counts pages in batches. What 1,000 cycles may lose is half a KiB each.
  const bool flat =
      late.n_threads <= early.n_threads && late.n_files <= early.n_files &&
      (!kCountsMemory || (late.resident_kib <= early.resident_kib + 512 && late.n_mappings <= early.n_mappings + 4));
  if (!flat) {
    std::fprintf(stderr, "%ld cycles left something behind\n", n_cycles);
  }
  return flat ? 0 : 1;
}
