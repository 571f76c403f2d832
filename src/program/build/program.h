#pragma once
// The program of one architecture: what it computes, written for no device in particular.
//
// A straight list of nodes over values. A value is *whole* (each row complete: the residual stream, norms), *cut* (rows
// divided over the groups of an axis: heads, feed-forward columns, vocabulary), *expert rows* (below) or *partial*
// (per-cut pieces that a reduce has still to add). Nothing here knows devices, cuts in number, or batch sizes; lowering
// (program/lower) turns a program and a placement into steps. Immutable once built.

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "tensor/tensor_table.h"

namespace tessera {

/// kExpertRows: one row for each expert of each token, divided over the experts of a layer as a cut value is over
/// groups.
enum class ValueKind : uint8_t { kWhole, kCut, kPartial, kCache, kExpertRows };

using ValueId = int32_t;
using NodeId = int32_t;

struct ValueInfo {
  ValueKind kind = ValueKind::kWhole;
  CutAxis axis = CutAxis::kNone;  // of cut and partial values
  int32_t layer = -1;             // whose axis
  int64_t width = 0;              // floats per row: of the whole row; of one group when cut; of the sum when partial
  bool per_output = false;        // one row per wanted output instead of one per token
  bool is_embedding = false;      // of these: outputs are the tokens whose embeddings are wanted, not logits
  NodeId producer = -1;
};

/// A product's weight with the optional tensors that belong to it.
struct Weight {
  TensorIndex weight = kNoTensor;
  TensorIndex scale = kNoTensor;  // [1]: multiplies the result
  TensorIndex bias = kNoTensor;   // [rows]: added after the scale
  [[nodiscard]] bool has_epilogue() const { return scale != kNoTensor || bias != kNoTensor; }
};

enum class GluActivation : uint8_t { kSilu, kGeluTanh, kSigmoid, kSiluClamped };

/// What a router's logits mean (docs/gguf-facts.md 2.5).
enum class Gating : uint8_t { kSoftmax, kSigmoid, kSoftmaxOfChosen, kSqrtSoftplus };

/// How experts are chosen and weighed.
struct RouteRule {
  Gating gating = Gating::kSoftmax;
  int64_t n_used = 1;
  int64_t n_groups = 1;  // neighbouring experts in equal groups, of which only the best n_groups_used are candidates
  int64_t n_groups_used = 1;
  bool normalize = false;  // weights of a token sum to 1
  float scale = 1;         // of the weights, after that
};

// What each kind of node does; inputs and outputs are whole unless said otherwise.
struct EmbedNode {
  TensorIndex table;
  float scale;
};  // () -> x [tokens, n_embd]: rows of the table * scale
struct RmsNormNode {
  TensorIndex weight;
  float eps;
  int64_t group_width;
};  // x -> y, whole or cut; groups per head when cut
struct LinearNode {
  Weight w;
};  // whole -> cut (rows cut), cut -> partial (columns cut)
struct AffineNode {
  TensorIndex scale;
  TensorIndex bias;
};  // cut -> cut: the epilogue of a row-cut weight
struct ReduceNode {
  TensorIndex scale;
  TensorIndex bias;
};  // partial -> whole, with the weight's epilogue
struct AddNode {};  // a, b -> a + b
struct ScaleNode {
  float scale;
  float softcap;
};  // x -> softcap(x * scale), whole or cut
struct RopeTableNode {
  TensorIndex inv_freq;
  float magnitude;
};  // () -> [tokens, n_pairs, 2]
struct RopeNode {
  int64_t head_dim;
  int64_t n_pairs;
  bool neox;
};  // table, cut... -> cut...
struct AppendNode {
  int32_t layer;
};  // k, v (cut) -> cache
struct AttentionNode {
  int32_t layer;
  int64_t n_rep;
  float scale;
  float softcap;
  int64_t window;
  TensorIndex sinks;  // [n_head] or kNoTensor
};  // q (cut), cache -> cut
struct GluNode {
  GluActivation activation;
  float limit = 0;  // kSiluClamped (kernels/ops/glu.h)
  float alpha = 0;
};  // gate, up (cut or expert rows) -> the same
struct RouteNode {
  int32_t layer;
  TensorIndex router;          // [n_experts, n_embd]
  TensorIndex bias;            // [n_experts]: of the logits
  TensorIndex selection_bias;  // [n_experts]: joins for the choice alone
  RouteRule rule;
};  // h -> routing [tokens, 2 * n_used]: the chosen experts, ascending (i32), then their weights (f32)
struct ExpertLinearNode {
  Weight w;
};  // h (whole) or expert rows, routing -> expert rows: every row times its expert's weight, then scale and bias
struct ExpertSumNode {};  // expert rows, routing -> partial: a token's weighted rows, in ascending order of experts
struct GateRowsNode {
  TensorIndex gate;  // [1, n_embd]
};  // x, h -> x * sigmoid(gate . h), whole
struct SplitHeadsNode {
  int64_t head_dim;
};  // x (cut, heads of 2 * head_dim) -> their first halves, their second halves (cut)
struct ShortConvNode {
  int32_t layer;
  TensorIndex weight;
};  // x (cut) -> cut, over the channels of the layer's recurrent state
struct DeltaGatesNode {
  int32_t layer;
  TensorIndex dt_bias;
  TensorIndex a;
};  // alpha, beta (cut, one per value head) -> log of the decay, strength (cut)
struct DeltaRuleNode {
  int32_t layer;
  float eps;
};  // q k v, log of the decay, strength (cut) -> cut
struct GatedNormNode {
  TensorIndex weight;
  float eps;
};  // x, z (cut) -> cut, per head of the weight's width
struct GatherOutputsNode {};  // x [tokens, w] -> [outputs, w]
struct LogitsNode {};         // cut over the vocabulary -> the caller
struct EmbeddingsNode {};     // whole, of embeddings -> the caller

using NodeOp = std::variant<EmbedNode, RmsNormNode, LinearNode, AffineNode, ReduceNode, AddNode, ScaleNode,
                            RopeTableNode, RopeNode, AppendNode, AttentionNode, GluNode, GatherOutputsNode, LogitsNode,
                            EmbeddingsNode, RouteNode, ExpertLinearNode, ExpertSumNode, GateRowsNode, SplitHeadsNode,
                            ShortConvNode, DeltaGatesNode, DeltaRuleNode, GatedNormNode>;

struct Node {
  NodeOp op;
  std::vector<ValueId> inputs;
  std::vector<ValueId> outputs;
};

/// What the cache of one layer stores.
struct KvLayerSpec {
  int64_t n_kv_heads = 0;
  int64_t k_dim = 0;
  int64_t v_dim = 0;
  int64_t window = 0;  // 0: full attention. Layers of one window form a class
};

/// The recurrent state of one layer: the last inputs of a short convolution over the channels of q, k and v, and one
/// matrix per value head. The layer's attention axis counts key heads.
struct RecLayerSpec {
  int64_t n_key_heads = 0;  // 0: the layer has no such state
  int64_t n_rep = 0;        // value heads per key head
  int64_t k_dim = 0;
  int64_t v_dim = 0;
  int64_t n_taps = 0;  // inputs that the convolution sees, the current one included
  bool tiled = false;  // value head r of key head g is r * n_key_heads + g; otherwise g * n_rep + r
  [[nodiscard]] int64_t channels_per_group() const { return 2 * k_dim + n_rep * v_dim; }
};

struct Program {
  std::vector<ValueInfo> values;
  std::vector<Node> nodes;
  std::vector<KvLayerSpec> kv_layers;    // by layer; n_kv_heads is 0 where nothing is appended
  std::vector<RecLayerSpec> rec_layers;  // by layer
  int64_t n_embd = 0;
  int64_t n_vocab = 0;
};

}  // namespace tessera
