#pragma once
// ModelReader: how an architecture file reads hyper-parameters and tensors.
//
// Keys are given without the `<architecture>.` prefix. The first mistake (missing key, wrong type, missing tensor,
// wrong shape) is remembered and every later call returns a harmless value, so that architecture files read as straight
// code; finish() returns that mistake. A tensor that nothing asked for is a mistake too.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "gguf/gguf.h"
#include "models/architecture.h"
#include "models/rope_scaling.h"
#include "program/build/program.h"
#include "tensor/tensor_table.h"

namespace tessera {

/// Where a weight lives and how it is cut.
struct TileSlot {
  TileKind tile = TileKind::kReplica;
  int32_t layer = -1;
  CutRule cut;
};

/// What a weight's optional scale does. The reference engine differs from architecture to architecture; files follow
/// it.
enum class ScaleRule : uint8_t {
  kBeforeBias,  // product * scale + bias
  kAfterBias,   // (product + bias) * scale
  kUnused,      // the file may have one, the architecture never applied it
};

class ModelReader {
 public:
  explicit ModelReader(const GgufFile& file);

  // Hyper-parameters. The forms with a fallback accept a missing key.
  int64_t integer(std::string_view key);
  int64_t integer(std::string_view key, int64_t fallback);
  float number(std::string_view key);
  float number(std::string_view key, float fallback);
  bool has(std::string_view key) const;
  /// The key's value as it lies in the file, or null.
  const MetaValue* find(std::string_view key) const;
  /// One value per layer, from a scalar or an array.
  std::vector<int64_t> per_layer(std::string_view key);
  std::vector<int64_t> per_layer(std::string_view key, int64_t fallback);
  std::vector<uint8_t> flags_per_layer(std::string_view key);

  /// The last n layers of the file are no part of the forward pass: their tensors are known and not used, and n_layer()
  /// becomes smaller. Before anything is read per layer.
  void skip_last_layers(int64_t n);

  int64_t n_layer() const { return n_layer_; }
  int64_t n_embd() const { return n_embd_; }

  /// The token embedding table, read on the host. Sets the vocabulary's size from its rows.
  TensorIndex embedding();
  /// output.weight, or the embedding table where the file has none (tied), with scale and bias.
  Weight head();

  /// A vector of n floats that every device holds.
  TensorIndex vector(const std::string& name, int64_t n);
  /// The same, or kNoTensor where the file has none.
  TensorIndex optional_vector(const std::string& name, int64_t n);
  /// `stem`.weight [rows, columns] with `stem`.scale and `stem`.bias where the file has them.
  Weight weight(const std::string& stem, int64_t rows, int64_t columns, const TileSlot& slot,
                ScaleRule rule = ScaleRule::kBeforeBias);
  /// `name` [rows, columns], which every device holds as floats.
  TensorIndex matrix(const std::string& name, int64_t rows, int64_t columns);
  /// The weights of a layer's experts, each [rows, columns]: `blk.N.<name>_exps`, whose scale has one element and whose
  /// bias one row per expert, or one tensor for each, `blk.N.<name>.E.weight`, as older files have it. With n_parts > 1
  /// the file's tensor has n_parts times the rows for each expert, of which this is part `part`.
  Weight experts(int32_t layer, std::string_view name, int64_t rows, int64_t columns, ScaleRule rule, int64_t part = 0,
                 int64_t n_parts = 1);
  /// Whether the file has a tensor.
  bool has_tensor(const std::string& name) const { return file_.find(name) != nullptr; }
  /// A tensor that the file may have and the forward pass does not use.
  void skip_tensor(const std::string& name) { source(name, false); }
  /// A small matrix that every device holds, `name` [rows, columns], as the vector of its transpose.
  TensorIndex transposed(const std::string& name, int64_t rows, int64_t columns);
  /// A vector that the model computes itself.
  TensorIndex constant(std::string name, std::vector<float> values);

  /// Rope frequencies as the file's keys say: base and scaling from `rope.*`, per-pair divisors from
  /// `rope_freqs.weight`.
  RopeParams rope_params(int64_t head_dim);

  /// The table so far, for a Builder. Complete before the first Builder call.
  TensorTable& table() { return table_; }

  /// Marks a mistake of the architecture's own finding; only the first counts.
  void fail(ErrorCode code, std::string message);

  /// The first mistake; or, when nothing failed, the first tensor that was never asked for.
  Status finish() const;

  /// Common facts, filled from the common keys.
  ModelInfo info() const;

 private:
  template <typename T>
  T take(Result<T> result, T fallback);
  std::string full_key(std::string_view key) const;
  /// Index in the file, -1 and a mistake (when required) if it is missing.
  int32_t source(const std::string& name, bool required);
  /// Index in the file of a matrix [rows, columns]; -1 and a mistake if it is missing or has another shape.
  int32_t matrix_source(const std::string& name, int64_t rows, int64_t columns);
  TensorIndex add(TensorSpec spec);
  /// Adds the file's matrix [rows, columns]; kNoTensor and a mistake as matrix_source().
  TensorIndex add_matrix(const std::string& name, int64_t rows, int64_t columns, const TileSlot& slot);
  /// The values of a tensor of the file, as float32; zeros and a mistake where it cannot be read.
  std::vector<float> values(int32_t source);
  /// A bias that joins before the scale: the same as bias * scale joining after it.
  TensorIndex scaled_bias(const Weight& w);
  TensorIndex add_vector(const std::string& name, int64_t n, bool required);
  /// A tensor of experts in one piece, kNoTensor where an optional one is missing.
  TensorIndex expert_tensor(const std::string& name, int32_t layer, int64_t rows, int64_t columns, int64_t part,
                            int64_t n_parts, bool required);
  TensorIndex separate_experts(const std::string& prefix, int32_t layer, int64_t rows, int64_t columns);

  const GgufFile& file_;
  std::string arch_;
  int64_t n_layer_ = 0;
  int64_t n_file_layers_ = 0;  // with those that are skipped
  int64_t n_embd_ = 0;
  TensorTable table_;
  std::vector<bool> used_;
  Status error_;
};

}  // namespace tessera
