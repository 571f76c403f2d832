// Guessing what was meant: flags.h, edit_distance() and nearest().

#include <algorithm>
#include <vector>

#include "base/flags.h"

namespace tessera {
namespace {

constexpr size_t kMaxSuggestedLength = 64;  // nobody mistypes a longer flag; bounds the work of edit_distance

}  // namespace

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before(b.size() + 1);  // distances of a[0, i-1) to each beginning of b
  std::vector<size_t> above(b.size() + 1);   // of a[0, i)
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) {
    above[j] = j;
  }
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substituted = above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({substituted, above[j] + 1, row[j - 1] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
    before.swap(above);
    above.swap(row);
  }
  return above[b.size()];
}

std::string_view nearest(std::string_view given, std::span<const std::string_view> candidates) {
  const auto bare = [](std::string_view text) {
    return text.substr(std::min(text.find_first_not_of('-'), text.size()));
  };
  const std::string_view wanted = bare(given);
  if (wanted.empty() || wanted.size() > kMaxSuggestedLength) {
    return {};
  }
  std::string_view best;
  constexpr size_t kMostSteps = 3;
  size_t best_distance = kMostSteps + 1;
  for (const std::string_view candidate : candidates) {
    size_t distance = edit_distance(wanted, bare(candidate));
    if (wanted.size() >= 3 && bare(candidate).starts_with(wanted)) {
      distance = 0;
    }
    if (distance > std::min(wanted.size(), bare(candidate).size()) / 3) {
      continue;
    }
    const bool is_shorter_beginning = distance == 0 && best_distance == 0 && candidate.size() < best.size();
    if (distance < best_distance || is_shorter_beginning) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

}  // namespace tessera
