#pragma once
// Rope frequencies under the scalings that stretch a model's context: linear, YaRN, and per-pair divisors (Llama 3).
//
// Pure arithmetic on a model's hyper-parameters, done once when a model is loaded. Everything is folded into one
// frequency per pair and one magnitude: angle = position * inv_freq[i]; cos and sin are multiplied by magnitude.
//   plain    inv_freq[i] = freq_base^(-2i / n_rot) / freq_factors[i]
//   linear   plain / factor (position interpolation, Chen et al. 2023, arXiv:2306.15595)
//   YaRN     a blend of plain (pairs that turn often within the original context) and plain / factor (pairs that turn
//            seldom), "NTK by parts" of Peng et al. 2023, arXiv:2309.00071, section 3.2; attention temperature of its
//            section 3.4: magnitude 1 + 0.1 ln(factor). As the reference engine does, the ramp's ends are rounded
//            outwards to whole pairs.
// A float64 forward pass with these numbers meets the reference engine's logits within 3e-5, for tiny-llama-linear,
// -yarn, -tied (tests/data/tiny) and variants of every key below; only an ext_factor above 0 other than 1 is unchecked.
//
// Keys, as the reference engine reads them (`<arch>.rope.` before each): scaling.type (missing: linear), scaling.factor
// (missing: scale_linear; type none switches it off), scaling.attn_factor, scaling.original_context_length (missing:
// the context length); mistral3 and its kin alone also scaling.yarn_beta_fast, yarn_beta_slow, yarn_log_multiplier. For
// llama and mistral3 it ignores scaling.yarn_ext_factor and yarn_attn_factor, for llama all keys that begin with yarn.

#include <cstdint>
#include <vector>

#include "base/status.h"

namespace tessera {

enum class RopeScaling : uint8_t { kNone, kLinear, kYarn };

/// What a model file says of one rope. Defaults: the reference engine's where a key is missing.
struct RopeParams {
  int64_t n_rot = 0;  // elements of a head that rotate
  float freq_base = 10000;
  RopeScaling scaling = RopeScaling::kNone;
  float factor = 1;                 // how much longer the context became; 0 means 1
  int64_t original_context = 0;     // positions the model was first trained on (YaRN)
  float ext_factor = -1;            // share of the blend; below 0: 1 for YaRN, else 0
  float attn_factor = 1;            // multiplies the magnitude
  float beta_fast = 32;             // turns within the original context from which a pair keeps its frequency
  float beta_slow = 1;              // turns below which a pair is fully interpolated
  float yarn_log_multiplier = 0;    // m: magnitude is divided by 1 + 0.1 m ln(factor) instead of kept; 0: absent
  std::vector<float> freq_factors;  // [n_rot / 2] divisors; empty: none
};

/// What the rope_table kernel needs.
struct RopeSetting {
  std::vector<float> inv_freq;  // [n_rot / 2] radians per position
  float magnitude = 1;
};

/// Errors: kInvalidData, naming the value that no frequency can be made of.
Status check_rope(const RopeParams& params);

/// The frequencies. Total: for parameters that check_rope refuses the numbers mean nothing, but nothing breaks.
RopeSetting make_rope(const RopeParams& params);

}  // namespace tessera
