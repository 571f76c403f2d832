#pragma once
// From rows of hidden state to one vector for a text: pooling and normalising. Pure; any thread.

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "runtime/engine.h"

namespace tessera {

/// What becomes of the rows of a text's tokens: all of them, their mean, the last one.
enum class Pooling : uint8_t { kNone, kMean, kLast };

/// "none", "mean", "last".
std::string_view pooling_name(Pooling pooling);
/// Errors: kInvalidArgument; kUnsupported for "cls" and "rank", which want other models.
Result<Pooling> parse_pooling(std::string_view name);
/// What the model file says (<arch>.pooling_type), or kLast where it says nothing. Errors: kUnsupported, kInvalidData.
Result<Pooling> model_pooling(const Model& model);
/// Whether the file says how to pool, as those of embedding models do.
bool is_embedding_model(const Model& model);

/// Takes rows in the order of their positions.
class EmbeddingPool {
 public:
  /// n_tokens: of the text.
  EmbeddingPool(Pooling pooling, int64_t n_tokens) : pooling_(pooling), n_tokens_(n_tokens) {}

  /// Whether the row of this token has a part in the result.
  [[nodiscard]] bool wants(int64_t position) const { return pooling_ != Pooling::kLast || position + 1 == n_tokens_; }
  /// row: [n_embd] f32. Position 0 begins anew.
  void add(int64_t position, std::span<const float> row);
  /// [n_rows, n_embd] f32, one row but for kNone, not normalised.
  [[nodiscard]] std::vector<float> result() const;

 private:
  Pooling pooling_;
  int64_t n_tokens_;
  std::vector<float> rows_;
  std::vector<double> sum_;  // of kMean
};

/// Divides x by its norm: -1 none, 0 the largest absolute value (scaled to 32760, as 16-bit integers hold), 1 taxicab,
/// 2 Euclidean, p > 2 the p-norm. A vector of zeros stays.
void normalize_embedding(std::span<float> x, int32_t norm);
inline constexpr int32_t kEmbeddingNormMin = -1;
inline constexpr int32_t kEmbeddingNormMax = 64;

}  // namespace tessera
