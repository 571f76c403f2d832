#pragma once
// The tensor table of a model: every weight it has, which tile it belongs to, and how it is cut.
//
// An architecture file fills it; placement makes tiles from it; the program refers to its entries by index. It holds no
// bytes: `source` says where in the model file they are, `constant` holds the few that the model computed itself.

#include <cstdint>
#include <string>
#include <vector>

#include "tensor/cut_rule.h"
#include "tensor/dtype.h"

namespace tessera {

/// What kind of home a tensor has (docs/design.md, vocabulary). The first two are no tiles: they do not move.
enum class TileKind : uint8_t {
  kReplica,  // small; every device holds it: norms, biases, scales, rope frequencies. Stored as f32
  kHost,     // read from the file by the host, row by row: embedding tables
  kAttn,     // attn(layer, cut)
  kFfn,      // ffn(layer, cut)
  kHead,     // head(cut)
  kExpert,   // expert(layer, expert)
};

using TensorIndex = int32_t;
inline constexpr TensorIndex kNoTensor = -1;

/// More experts in a layer, and more of them for one token, than any model has.
inline constexpr int64_t kMaxExperts = 1024;
inline constexpr int64_t kMaxExpertsUsed = 64;

/// Where the rows of one expert begin.
struct ExpertSource {
  int32_t source = -1;  // index among the file's tensors
  int64_t row = 0;      // in that tensor, counted in rows of the spec's columns
};

struct TensorSpec {
  std::string name;  // as in the file; constants get a name of their own
  DType dtype = DType::kF32;
  int64_t rows = 1;     // outputs of a product; 1 for vectors
  int64_t columns = 0;  // inputs of a product; length of vectors
  TileKind tile = TileKind::kReplica;
  int32_t layer = -1;  // -1: none (head, final norm)
  CutRule cut;
  int32_t source = -1;  // index among the file's tensors; -1: constant
  std::vector<float> constant;
  /// kExpert: by expert. Then rows and columns are those of one expert, and `source` is unused.
  std::vector<ExpertSource> experts;
};

/// Groups of the splittable axes of one layer.
struct LayerAxes {
  int64_t n_kv_heads = 0;  // of a recurrent layer: key heads
  int64_t n_ff = 0;
  int64_t n_experts = 0;
};

struct TensorTable {
  std::vector<TensorSpec> tensors;
  std::vector<LayerAxes> layers;
  int64_t n_vocab = 0;

  /// Groups of an axis in a layer (the layer does not matter for kHead).
  [[nodiscard]] int64_t n_groups(CutAxis axis, int32_t layer) const {
    switch (axis) {
      case CutAxis::kAttention: return layers[static_cast<size_t>(layer)].n_kv_heads;
      case CutAxis::kFeedForward: return layers[static_cast<size_t>(layer)].n_ff;
      case CutAxis::kHead: return n_vocab;
      case CutAxis::kExpert: return layers[static_cast<size_t>(layer)].n_experts;
      case CutAxis::kNone: break;
    }
    return 0;
  }
};

}  // namespace tessera
