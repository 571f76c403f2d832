#pragma once
// Builder: how an architecture file writes its program.
//
// One method per operation; each checks the shapes of its inputs against the tensor table. The first mistake is
// remembered and returned by finish(), so that architecture files read as straight code. A mistake can come from a
// file (a tensor of another shape), so it is a Status, never a CHECK. A value's first dimension is the batch's tokens,
// or its wanted outputs behind gather_outputs(); what follows that is norms, sums, scales, products cut by rows,
// logits.

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "program/build/program.h"

namespace tessera {

/// A value in the making. Cheap to copy; belongs to one Builder.
struct Value {
  ValueId id = -1;
};

/// One rope setting's table for this batch, and how heads are rotated with it.
struct RopeRef {
  Value table;
  int64_t head_dim = 0;
  int64_t n_pairs = 0;
  bool neox = false;
};

class Builder {
 public:
  /// The table must outlive the builder.
  Builder(const TensorTable& table, int64_t n_embd);

  /// Rows of `table` for this batch's tokens, times scale. -> [n_tokens, n_embd]
  Value embed(TensorIndex table, float scale = 1);

  /// RMS norm of whole rows (whole x), or of each group of group_width elements (cut x: per head). weight may be
  /// kNoTensor. -> shape of x
  Value rms_norm(Value x, TensorIndex weight, float eps, int64_t group_width = 0);

  /// x times the weight, plus scale and bias where the weight has them and is cut by rows.
  /// x whole [n_tokens, columns] -> cut [n_tokens, rows] over the weight's axis, for a weight cut by rows;
  /// x cut [n_tokens, columns] -> partial [n_tokens, rows], for a weight cut by columns: reduce() must follow. A weight
  /// that is not cut is a mistake: give it a cut rule (one cut is possible).
  Value linear(const Weight& w, Value x);

  /// Adds the partial's pieces; then scale and bias of the weight that made it, if one did. -> whole [n_tokens, rows]
  Value reduce(Value partial);

  /// a + b, both whole and of one shape. -> whole, the same shape
  Value add(Value a, Value b);
  /// x * factor, then softcap * tanh(x / softcap) unless softcap is 0; x whole or cut. -> shape of x
  Value scale(Value x, float factor, float softcap = 0);

  /// Cosines and sines for this batch's positions (see kernels/ops/rope_table.h).
  RopeRef rope_table(TensorIndex inv_freq, float magnitude, int64_t head_dim, bool neox);
  /// Rotates the heads of each value (q and k together: one launch). Replaces the values.
  void rope(const RopeRef& rope, std::span<Value* const> heads);

  /// Writes k and v to the layer's cache. -> the cache as attention sees it.
  Value append(int32_t layer, const KvLayerSpec& spec, Value k, Value v);
  /// Causal attention of q over the layer's cache; the window is the cache's. q cut [n_tokens, n_rep * k_dim per KV
  /// head], n_rep query heads in a row for each KV head. sinks: [n_head] logits that join the softmax's denominator, or
  /// kNoTensor. -> cut [n_tokens, n_rep * v_dim per KV head]
  Value attention(Value q, Value cache, float scale, float softcap = 0, TensorIndex sinks = kNoTensor);

  /// activation(gate) * up, both cut over one axis with equal widths, or both expert rows. limit and alpha: of
  /// kSiluClamped (kernels/ops/glu.h). -> the same shape
  Value glu(GluActivation activation, Value gate, Value up, float limit = 0, float alpha = 0);

  // Experts (builder_experts.cc).
  /// Chooses rule.n_used experts for every row of h (whole, [n_tokens, n_embd]) and weighs them. -> routing
  Value route(const RouteNode& route, Value h);
  /// Each row times the weight of its expert, scale and bias included. x: whole, one row per token, or expert rows of
  /// the weight's layer. -> expert rows
  Value expert_linear(const Weight& w, Value x, Value routing);
  /// The weighted sum of every token's expert rows. -> partial, one piece per cut; reduce() must follow
  Value expert_sum(Value rows, Value routing);
  /// x * sigmoid(gate . h) row by row; gate [1, n_embd] is a replica. x and h whole. -> shape of x
  Value gate_rows(TensorIndex gate, Value x, Value h);

  /// Divides each head of 2 * head_dim elements: its first half, its second half, both cut [n_tokens, heads, head_dim].
  std::pair<Value, Value> split_heads(Value x, int64_t head_dim);

  /// Causal convolution over the last spec.n_taps tokens of each channel, then silu; earlier tokens are kept in the
  /// layer's state. x cut [n_tokens, 2 * k_dim + n_rep * v_dim per key head]; weight [n_taps, channels], oldest tap
  /// first. -> the same shape
  Value short_conv(int32_t layer, const RecLayerSpec& spec, TensorIndex weight, Value x);
  /// What the value heads forget and how much they learn: a * softplus(alpha + dt_bias) and sigmoid(beta).
  /// alpha, beta cut [n_tokens, n_rep per key head]; dt_bias, a [value heads]. REQUIRES: short_conv() of the layer.
  /// -> both cut, the same shape
  std::pair<Value, Value> delta_gates(int32_t layer, TensorIndex dt_bias, TensorIndex a, Value alpha, Value beta);
  /// The gated delta rule over the layer's state (kernels/ops/delta_rule.h), queries and keys normalised first.
  /// -> cut [n_tokens, n_rep * v_dim per key head]
  Value delta_rule(Value qkv, Value log_decay, Value strength, float eps);
  /// rms_norm of each head of the weight's width, times silu(z). -> shape of x
  Value gated_norm(Value x, Value z, TensorIndex weight, float eps);

  /// Rows of x whose logits are wanted. -> [n_outputs, width]
  Value gather_outputs(Value x);
  /// Marks x (cut over the vocabulary) as the program's result.
  void logits(Value x);
  /// Rows of x whose embeddings are wanted: of such rows norms and embeddings() alone are made, behind logits(), and
  /// nothing of that runs where no token asks for its embedding. -> [n_embeddings, width]
  Value gather_embeddings(Value x);
  /// Marks x (whole, of rows of gather_embeddings) as what callers get for a token in place of logits.
  void embeddings(Value x);

  /// The finished program, or the first mistake.
  Result<Program> finish() &&;

 private:
  Value new_value(ValueKind kind, CutAxis axis, int32_t layer, int64_t width, bool per_output);
  Value add_node(NodeOp op, std::vector<ValueId> inputs, Value output);
  std::pair<Value, Value> add_pair(NodeOp op, std::vector<ValueId> inputs, ValueInfo like, int64_t width);
  Value fail(std::string message);
  [[nodiscard]] bool is_of_layer(Value x, int32_t layer, int64_t width) const;
  [[nodiscard]] const ValueInfo& info(Value v) const { return program_.values[static_cast<size_t>(v.id)]; }
  [[nodiscard]] bool bad(Value v) const { return v.id < 0 || !error_.ok(); }

  const TensorTable& table_;
  Program program_;
  Status error_;
};

}  // namespace tessera
