#include "runtime/embedding.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fmt/format.h>

namespace tessera {
namespace {

// Numbers of <arch>.pooling_type.
constexpr std::string_view kFileNames[] = {"none", "mean", "cls", "last", "rank"};

std::string pooling_key(const Model& model) {
  return model.summary().architecture + ".pooling_type";
}

}  // namespace

std::string_view pooling_name(Pooling pooling) {
  switch (pooling) {
    case Pooling::kNone: return "none";
    case Pooling::kMean: return "mean";
    case Pooling::kLast: break;
  }
  return "last";
}

Result<Pooling> parse_pooling(std::string_view name) {
  for (const Pooling pooling : {Pooling::kNone, Pooling::kMean, Pooling::kLast}) {
    if (name == pooling_name(pooling)) {
      return pooling;
    }
  }
  if (name == "cls" || name == "rank") {
    return Status(ErrorCode::kUnsupported,
                  fmt::format("pooling '{}' is for models that read in both directions; use none, mean or last", name));
  }
  return Status(ErrorCode::kInvalidArgument,
                fmt::format("'{}' is no pooling; there are none, mean and last", name.substr(0, 40)));
}

Result<Pooling> model_pooling(const Model& model) {
  const Result<std::string> text = model.metadata_text(pooling_key(model));
  if (!text.ok()) {
    return Pooling::kLast;
  }
  size_t number = std::size(kFileNames);
  const char* const end = text.value().data() + text.value().size();
  const auto [rest, error] = std::from_chars(text.value().data(), end, number);
  if (error != std::errc() || rest != end || number >= std::size(kFileNames)) {
    return Status(ErrorCode::kInvalidData,
                  fmt::format("{} is {}; it must be 0 to {}; choose with --pooling", pooling_key(model),
                              text.value().substr(0, 40), std::size(kFileNames) - 1));
  }
  return parse_pooling(kFileNames[number]);
}

bool is_embedding_model(const Model& model) {
  return model.metadata_text(pooling_key(model)).ok();
}

void EmbeddingPool::add(int64_t position, std::span<const float> row) {
  if (position == 0) {
    rows_.clear();
    sum_.clear();
  }
  if (pooling_ == Pooling::kMean) {
    sum_.resize(row.size());
    std::ranges::transform(sum_, row, sum_.begin(), [](double sum, float x) { return sum + static_cast<double>(x); });
    return;
  }
  if (pooling_ == Pooling::kLast) {
    rows_.clear();
  }
  rows_.insert(rows_.end(), row.begin(), row.end());
}

std::vector<float> EmbeddingPool::result() const {
  if (pooling_ != Pooling::kMean) {
    return rows_;
  }
  std::vector<float> mean(sum_.size());
  std::ranges::transform(sum_, mean.begin(),
                         [&](double sum) { return static_cast<float>(sum / static_cast<double>(n_tokens_)); });
  return mean;
}

void normalize_embedding(std::span<float> x, int32_t norm) {
  if (norm < 0) {
    return;
  }
  constexpr double kInt16Scale = 32760;  // as the reference has it
  double largest = 0;
  for (const float value : x) {
    largest = std::max(largest, std::fabs(static_cast<double>(value)));
  }
  if (!(largest > 0)) {
    return;
  }
  double length = largest / kInt16Scale;
  if (norm > 0) {
    double sum = 0;  // of parts of the largest, whose powers are numbers whatever the norm is
    for (const float value : x) {
      sum += std::pow(std::fabs(static_cast<double>(value)) / largest, norm);
    }
    length = largest * std::pow(sum, 1.0 / norm);
  }
  for (float& value : x) {
    value = static_cast<float>(static_cast<double>(value) / length);
  }
}

}  // namespace tessera
