// Prefill and generation speed of one model through the engine, as the reference's own bench counts them: no
// tokenizing, no sampling, fixed token ids. Prints one JSON object a line for each repetition.
//
//   speed_bench MODEL [--prefill 512] [--generate 128] [--repeat 1] [--threads 2] [--device cpu:0,cpu:1]
//               [--split-mode layer] [--cuts 0] [--kernels auto] [--cpu-isa auto]

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fmt/format.h>
#include <string>

#include "runtime/context.h"

namespace tessera {
namespace {

struct Options {
  ModelOptions model;
  int prefill = 512;
  int generate = 128;
  int repeat = 1;
};

std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    parts.push_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

bool parse(int argc, char** argv, Options& options) {
  if (argc < 2 || argc % 2 != 0) {
    return false;
  }
  options.model.path = argv[1];
  for (int i = 2; i < argc; i += 2) {
    const std::string flag = argv[i];
    const std::string value = argv[i + 1];
    if (flag == "--prefill") {
      options.prefill = std::atoi(value.c_str());
    } else if (flag == "--generate") {
      options.generate = std::atoi(value.c_str());
    } else if (flag == "--repeat") {
      options.repeat = std::atoi(value.c_str());
    } else if (flag == "--threads") {
      options.model.n_threads = std::atoi(value.c_str());
    } else if (flag == "--device") {
      options.model.devices = split(value);
    } else if (flag == "--split-mode") {
      options.model.split_mode = value;
    } else if (flag == "--cuts") {
      options.model.n_cuts = std::atoi(value.c_str());
    } else if (flag == "--kernels") {
      options.model.kernels = value;
    } else if (flag == "--cpu-isa") {
      options.model.cpu_isa = value;
    } else {
      return false;
    }
  }
  return true;
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// One prompt in one decode, then one token at a time from an empty context. Tokens per second of each; 0: not asked.
Status measure(Context& context, const Options& options, double& prefill_per_s, double& generate_per_s) {
  const auto n_vocab = static_cast<int32_t>(context.model().summary().n_vocab);
  TRY(context.clear());
  std::vector<BatchToken> prompt;
  for (int32_t i = 0; i < options.prefill; ++i) {
    prompt.push_back({(i * 7919 + 13) % n_vocab, 0, i + 1 == options.prefill});
  }
  auto start = std::chrono::steady_clock::now();
  TRY(context.decode(prompt));
  prefill_per_s = options.prefill / seconds_since(start);
  TRY(context.clear());
  start = std::chrono::steady_clock::now();
  for (int32_t i = 0; i < options.generate; ++i) {
    const BatchToken token{(i * 31 + 5) % n_vocab, 0, true};
    TRY(context.decode({&token, 1}));
  }
  generate_per_s = options.generate / seconds_since(start);
  return {};
}

Status run(Options& options) {
  ContextOptions& context_options = options.model.context;
  context_options.n_ctx = std::max(options.prefill, options.generate);
  context_options.n_batch = std::max<int64_t>(context_options.n_batch, options.prefill);
  ASSIGN_OR_RETURN(const std::shared_ptr<Model> model, Model::load(options.model));
  ASSIGN_OR_RETURN(const std::unique_ptr<Context> context, Context::create(model, context_options));
  double prefill = 0;
  double generate = 0;
  Options warm_up = options;
  warm_up.prefill = std::min(options.prefill, 64);
  warm_up.generate = std::min(options.generate, 8);
  TRY(measure(*context, warm_up, prefill, generate));
  for (int i = 0; i < options.repeat; ++i) {
    TRY(measure(*context, options, prefill, generate));
    fmt::print(
        "{{\"prefill_per_second\":{:.2f},\"generate_per_second\":{:.2f},\"kernel_class\":\"{}\",\"cpu_isa\":\"{}\","
        "\"load_ms\":{:.0f}}}\n",
        prefill, generate, model->summary().kernel_class, model->summary().cpu_isa, model->summary().load_ms);
    std::fflush(stdout);
  }
  return {};
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  tessera::Options options;
  if (!tessera::parse(argc, argv, options)) {
    std::fputs(
        "usage: speed_bench MODEL [--prefill N] [--generate N] [--repeat N] [--threads N] [--device LIST]\n"
        "                   [--split-mode MODE] [--cuts N] [--kernels SET] [--cpu-isa ISA]\n",
        stderr);
    return 2;
  }
  const tessera::Status status = tessera::run(options);
  if (!status.ok()) {
    fmt::print(stderr, "speed_bench: {}\n", status.message());
    return 1;
  }
  return 0;
}
