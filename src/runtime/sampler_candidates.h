#pragma once
// The candidates for the next token while the chain's steps thin them out.
//
// They begin as the model's logits, of which nothing is copied: edits of single logits and the choice of the k largest
// work on that form, so that the usual chain costs one pass over the vocabulary. A list is made when a step needs one.
// Temperature is kept beside the logits; only edits after it fold it in. NaN and -inf are no candidates; +inf counts as
// the largest float. Buffers are reused from token to token. Not thread-safe.

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <limits>
#include <span>
#include <vector>

#include "runtime/grammar/token_mask.h"

namespace tessera {

struct TokenProbability {
  int32_t id = 0;
  float logit = 0;
  double probability = 0;
};

/// The larger logit, then the lower id.
inline bool better(const TokenProbability& a, const TokenProbability& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

/// Sum of the probabilities, which need not be 1.
inline double total_weight(const std::vector<TokenProbability>& list) {
  double total = 0;
  for (const TokenProbability& c : list) {
    total += c.probability;
  }
  return total;
}

/// Extends the sorted beginning of a list from n_sorted to n elements. Result: how many are sorted now.
template <typename T, typename Less>
size_t sort_further(std::vector<T>& list, size_t n_sorted, size_t n, const Less& less) {
  n = std::min(n, list.size());
  if (n <= n_sorted) {
    return n_sorted;
  }
  const auto begin = list.begin() + static_cast<std::ptrdiff_t>(n_sorted);
  const auto end = list.begin() + static_cast<std::ptrdiff_t>(n);
  if (end != list.end()) {
    std::nth_element(begin, std::prev(end), list.end(), less);
  }
  std::sort(begin, end, less);
  return n;
}

/// The largest logit's id, the lowest among equals; -1 when all are NaN or -inf.
int32_t largest_logit(std::span<const float> logits);

class Candidates {
 public:
  /// All tokens. logits: [n_vocab] f32, which must stay valid until the list is made or the next reset.
  void reset(std::span<const float> logits);

  /// Drops all tokens that the mask does not allow. REQUIRES: after reset(), before anything else. Logits beyond the
  /// mask's vocabulary are dropped.
  void keep_allowed(const TokenMask& mask);

  /// Replaces the logit of every candidate among ids by change(old, its index in ids). A result of -inf drops the
  /// candidate, NaN changes nothing. REQUIRES: ids ascend; ids outside the vocabulary are passed over.
  template <typename Change>
  void edit(std::span<const int32_t> ids, const Change& change);

  /// Keeps the best k, best first; with k or fewer nothing happens. REQUIRES: k > 0.
  void keep_best(size_t k);

  /// The candidates, in any order. Who changes the order, or drops the best, calls changed() after it.
  std::vector<TokenProbability>& list();

  /// Makes every probability in the list a weight: proportional to the probability, and 1 for the best.
  void weigh();

  /// How much larger the best logit is than this one, at the present temperature. REQUIRES: weighed.
  [[nodiscard]] double below_best(const TokenProbability& c) const {
    return (largest_ - static_cast<double>(c.logit)) / temperature_;
  }

  /// Sorts so far that the first n of the list are the best n, best first.
  void sort_first(size_t n);

  /// Drops what lies more than distance below the best at the present temperature, before anything is weighed; what
  /// lies hardly beyond may stay. REQUIRES: distance >= 0.
  void drop_far_below(double distance);

  /// Keeps the first n of the list.
  void keep_first(size_t n);

  /// Keeps what wanted(candidate) is true for, in its order.
  template <typename Wanted>
  void keep_if(const Wanted& wanted);

  /// Forgets how far the list is sorted, and the weights.
  void changed() {
    n_sorted_ = 0;
    weighed_ = false;
  }

  /// Divides all logits by t > 0.
  void scale_temperature(double t);

 private:
  void make_list(double least);
  void fold_temperature();
  void copy_logits();
  template <typename Change>
  static void apply(float& logit, const Change& change, size_t i);

  std::span<const float> logits_;  // [n_vocab], while there is no list
  std::vector<float> edited_;      // [n_vocab], what logits_ refers to after an edit
  std::vector<TokenProbability> list_;
  bool is_list_ = false;
  bool weighed_ = false;    // the list's probabilities are weights
  double largest_ = 0;      // logit, when it was weighed
  size_t n_sorted_ = 0;     // of the list
  double temperature_ = 1;  // by which the logits are still to be divided
};

template <typename Change>
void Candidates::apply(float& logit, const Change& change, size_t i) {
  if (logit > -std::numeric_limits<float>::infinity()) {
    const float changed = change(std::min(logit, std::numeric_limits<float>::max()), i);
    logit = changed == changed ? changed : logit;
  }
}

template <typename Change>
void Candidates::edit(std::span<const int32_t> ids, const Change& change) {
  if (ids.empty()) {
    return;
  }
  fold_temperature();
  if (!is_list_) {
    copy_logits();
    for (size_t i = 0; i < ids.size(); ++i) {
      if (ids[i] >= 0 && static_cast<size_t>(ids[i]) < edited_.size()) {
        apply(edited_[static_cast<size_t>(ids[i])], change, i);
      }
    }
    return;
  }
  for (TokenProbability& c : list_) {
    const auto found = std::lower_bound(ids.begin(), ids.end(), c.id);
    if (found != ids.end() && *found == c.id) {
      apply(c.logit, change, static_cast<size_t>(found - ids.begin()));
      c.logit = std::min(c.logit, std::numeric_limits<float>::max());
    }
  }
  std::erase_if(list_, [](const TokenProbability& c) { return !(c.logit > -std::numeric_limits<float>::infinity()); });
  changed();
}

template <typename Wanted>
void Candidates::keep_if(const Wanted& wanted) {
  size_t n = 0;
  size_t n_sorted = 0;
  for (size_t i = 0; i < list_.size(); ++i) {
    if (wanted(list_[i])) {
      n_sorted += i < n_sorted_ ? 1 : 0;
      list_[n++] = list_[i];
    }
  }
  list_.resize(n);
  n_sorted_ = n_sorted;
}

}  // namespace tessera
