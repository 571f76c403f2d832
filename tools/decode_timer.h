#pragma once
// Times decoding in a context whose sequence 0 it fills with random tokens.

#include <atomic>
#include <cstdint>
#include <span>
#include <string>

#include "base/status.h"
#include "runtime/context.h"

namespace tessera {

/// One thing to time: a prompt, a generation, or one after the other, behind n_depth tokens.
struct DecodeTest {
  int64_t n_prompt = 0;
  int64_t n_gen = 0;
  int64_t n_depth = 0;

  /// Such as "pp512+tg16 @ d4096".
  [[nodiscard]] std::string name() const;
};

class DecodeTimer {
 public:
  /// The context outlives this, has room for every test, and its sequence 0 belongs to this alone. interrupted: where
  /// it is not null, what runs ends before its next micro-batch once this is true.
  explicit DecodeTimer(Context& context, const std::atomic<bool>* interrupted = nullptr);

  /// Nanoseconds of one run; filling up to the depth is not counted. Errors: those of Context::decode;
  /// kCancelled: interrupted.
  Result<double> run(const DecodeTest& test);

  /// Leaves exactly `depth` tokens in the sequence. They stay from run to run where the cache can be cut back; windows
  /// may have let go of them.
  Status go_back_to(int64_t depth);

 private:
  Status prompt(int64_t n, bool wants_logits);
  Status generate(int64_t n);
  Status decode(std::span<const BatchToken> batch);
  int32_t next_token();

  Context& context_;
  const std::atomic<bool>* const interrupted_;
  int32_t n_vocab_;
  uint64_t state_ = 1;
};

}  // namespace tessera
