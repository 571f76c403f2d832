#include "tests/support/run_model.h"

#include <algorithm>
#include <cstring>
#include <fmt/ranges.h>

namespace tessera {
namespace {

constexpr int64_t kMicroBatch = 24;

int32_t token_at(int64_t place, int32_t seq, int64_t n_vocab) {
  uint64_t x = static_cast<uint64_t>(place) * 0x9e3779b97f4a7c15 + static_cast<uint64_t>(seq) * 0xbf58476d1ce4e5b9 + 1;
  x = (x ^ x >> 29) * 0x94d049bb133111eb;
  return static_cast<int32_t>((x >> 33) % static_cast<uint64_t>(n_vocab));
}

Status decode_into(Context& context, const std::vector<BatchToken>& batch, RunResult& result) {
  TRY(context.decode(batch));
  for (size_t i = 0; i < batch.size(); ++i) {
    const auto row = context.logits(static_cast<int64_t>(i));
    result.logits.insert(result.logits.end(), row.begin(), row.end());
  }
  for (int64_t i = 0; i < context.n_embeddings(); ++i) {
    const auto row = context.embedding(i);
    result.embeddings.insert(result.embeddings.end(), row.begin(), row.end());
  }
  return {};
}

}  // namespace

Result<RunResult> run_model(const ModelRun& run) {
  ModelOptions options = run.model;
  const auto prompt_tokens = [&](int32_t seq) { return seq == 0 ? run.n_prompt : 9 + seq; };
  const int64_t longest = std::max<int64_t>(run.n_prompt, prompt_tokens(run.n_seqs - 1));
  options.context.n_ctx = longest + run.n_steps;
  options.context.n_seq_max = run.n_seqs;
  options.context.n_ubatch = kMicroBatch;
  options.context.embeddings = run.embeddings;
  options.context.k_type = options.context.v_type = run.kv;
  ASSIGN_OR_RETURN(const std::shared_ptr<Model> model, Model::load(options));
  ASSIGN_OR_RETURN(const std::unique_ptr<Context> context, Context::create(model, options.context));
  RunResult result;
  result.summary = model->summary();
  std::vector<BatchToken> batch;
  for (int32_t s = 0; s < run.n_seqs; ++s) {
    for (int64_t i = 0; i < prompt_tokens(s); ++i) {
      batch.push_back({token_at(i, s, result.summary.n_vocab), s, true, run.embeddings});
    }
  }
  TRY(decode_into(*context, batch, result));
  for (int64_t step = 0; step < run.n_steps; ++step) {
    batch.clear();
    for (int32_t s = 0; s < run.n_seqs; ++s) {
      batch.push_back({token_at(longest + step, s, result.summary.n_vocab), s, true, run.embeddings});
    }
    TRY(decode_into(*context, batch, result));
  }
  result.stats = context->stats();
  result.devices = model->device_use();
  return result;
}

size_t n_different(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) {
    return std::max(a.size(), b.size());
  }
  size_t n = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    n += std::memcmp(&a[i], &b[i], sizeof(float)) != 0 ? 1 : 0;
  }
  return n;
}

std::string describe(const ModelRun& run) {
  const ModelOptions& m = run.model;
  const std::string shares = m.tensor_split.empty() ? "" : fmt::format(" ({})", fmt::join(m.tensor_split, ","));
  return fmt::format("{} on {} devices{}, cuts {}, {} threads, {}/{}, {} x {}", m.split_mode,
                     std::max<size_t>(m.devices.size(), 1), shares, m.n_cuts, m.n_threads, m.kernels, m.cpu_isa,
                     dtype_name(run.kv), run.n_seqs);
}

std::string describe(const RunResult& result) {
  std::string text =
      fmt::format("{} tiles, {} steps, {} reduces, {} copies, attention cut in {} and FFN in {} of {} layers;",
                  result.stats.n_tiles, result.stats.n_steps, result.stats.n_reduces, result.stats.n_copies,
                  result.summary.n_layers_attn_cut, result.summary.n_layers_ffn_cut, result.summary.n_layer);
  for (const DeviceUse& use : result.devices) {
    text += fmt::format(" {} {}+{}+{}", use.name, use.weight_bytes, use.kv_bytes, use.scratch_bytes);
  }
  return text + " bytes (weights+KV+scratch)";
}

std::vector<std::string> cpu_names(int n) {
  std::vector<std::string> names;
  for (int i = 0; i < n; ++i) {
    names.push_back(fmt::format("cpu:{}", i));
  }
  return names;
}

}  // namespace tessera
