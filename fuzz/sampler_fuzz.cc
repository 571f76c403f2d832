// libFuzzer target: sampler settings, a history and logits from any bytes; a few tokens are drawn and accepted.
// Aborts when a draw is no candidate or a distribution is none.

#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>

#include "base/check.h"
#include "runtime/sampler.h"

namespace {

// Values from the front of the input; zeros once it is used up.
class Input {
 public:
  Input(const uint8_t* data, size_t size) : data_(data), size_(size) {}

  template <typename T>
  T take() {
    T value = {};
    const size_t n = std::min(sizeof value, size_);
    std::memcpy(&value, data_, n);
    data_ += n;
    size_ -= n;
    return value;
  }
  [[nodiscard]] size_t left() const { return size_; }

 private:
  const uint8_t* data_;
  size_t size_;
};

tessera::SamplerOptions take_options(Input& in) {
  tessera::SamplerOptions options;
  for (const tessera::SamplerSetting& setting : tessera::sampler_settings()) {
    // Small whole numbers, percents or anything; what the table refuses stays at its default.
    const auto kind = in.take<uint8_t>();
    if (kind % 4 == 0) {
      continue;
    }
    const double value = kind % 4 == 1   ? static_cast<double>(in.take<int8_t>())
                         : kind % 4 == 2 ? static_cast<double>(in.take<uint8_t>()) / 100
                                         : static_cast<double>(in.take<float>());
    static_cast<void>(tessera::set_sampler_option(options, setting, value));
  }
  options.samplers.clear();
  for (size_t n = in.take<uint8_t>() % 16; n > 0; --n) {
    options.samplers.push_back(static_cast<tessera::SamplerStep>(in.take<uint8_t>() % 11));
  }
  for (size_t n = in.take<uint8_t>() % 4; n > 0; --n) {
    const int32_t id = in.take<uint8_t>() % 64 - 8;
    options.logit_bias.push_back({id, in.take<float>()});
  }
  options.seed = in.take<uint16_t>();
  return options;
}

void check_distribution(std::span<const tessera::TokenProbability> distribution, size_t n_vocab) {
  double total = 0;
  for (const tessera::TokenProbability& t : distribution) {
    CHECK(t.id >= 0 && static_cast<size_t>(t.id) < n_vocab);
    CHECK(t.probability >= 0 && t.probability <= 1);
    total += t.probability;
  }
  CHECK(distribution.empty() || std::fabs(total - 1) < 1e-9);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input in(data, size);
  const tessera::SamplerOptions options = take_options(in);
  tessera::DryBreakers breakers;
  for (size_t n = in.take<uint8_t>() % 3; n > 0; --n) {
    const int32_t sequence[] = {in.take<uint8_t>() % 8, in.take<uint8_t>() % 8};
    breakers.add(std::span(sequence).first(1 + in.take<uint8_t>() % 2));
  }
  tessera::Sampler sampler(options, breakers);
  std::vector<int32_t> history(in.take<uint8_t>());
  for (int32_t& token : history) {
    token = static_cast<int32_t>(in.take<uint8_t>() % 8);
  }
  sampler.accept(history);
  std::vector<float> logits;
  while (in.left() > 0 && logits.size() < 300) {
    const bool raw = in.take<uint8_t>() % 2 == 1;
    logits.push_back(raw ? in.take<float>() : static_cast<float>(in.take<int8_t>()) / 8);
  }
  for (int draw = 0; draw < 3; ++draw) {
    check_distribution(sampler.distribution(logits), logits.size());
    const int32_t token = sampler.sample(logits);
    CHECK(token == tessera::kNoToken || (token >= 0 && static_cast<size_t>(token) < logits.size()));
    if (token == tessera::kNoToken) {
      break;
    }
    CHECK(logits[static_cast<size_t>(token)] > -INFINITY);
    sampler.accept({&token, 1});
  }
  return 0;
}
