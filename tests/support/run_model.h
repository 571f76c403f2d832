#pragma once
// One whole use of a model, from loading to the last decode, with every logit kept: what tests of placements compare.

#include <string>
#include <vector>

#include "base/status.h"
#include "runtime/context.h"

namespace tessera {

struct ModelRun {
  ModelOptions model;  // path, devices, split, kernels, threads; its context is filled from what follows
  DType kv = DType::kF16;
  int32_t n_seqs = 1;
  int64_t n_prompt = 34;  // tokens of the first sequence: more than a KV page of 32; others have 10, 11, …
  int64_t n_steps = 2;    // decodes of one token per sequence afterwards
  bool embeddings = false;
};

struct RunResult {
  std::vector<float> logits;      // of every token decoded, in order
  std::vector<float> embeddings;  // of the same tokens, where asked for
  ModelSummary summary;
  ContextStats stats;
  std::vector<DeviceUse> devices;
};

/// Loads, decodes the prompts of all sequences as one batch (in micro-batches of 24), then steps. Token ids follow from
/// their place alone. Errors: those of loading, creating and decoding.
Result<RunResult> run_model(const ModelRun& run);

/// Number of logits whose bits differ; the larger size when sizes differ.
size_t n_different(const std::vector<float>& a, const std::vector<float>& b);

/// "tensor on 2 devices (3,1), 4 cuts, 2 threads, fast/avx2, f16 x 4: …" with tiles, steps, reduces, bytes per device.
std::string describe(const ModelRun& run);
std::string describe(const RunResult& result);

/// {"cpu:0", "cpu:1", …}
std::vector<std::string> cpu_names(int n);

}  // namespace tessera
