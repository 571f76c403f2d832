#pragma once
// The steps that keep some candidates and drop others, and the temperature. Each leaves at least one candidate of any
// that there are, at least min_keep where it takes that, and does nothing at its neutral value. Pure functions of what
// they are given; order of the candidates as sampler_candidates.h allows.

#include <cstdint>

#include "runtime/sampler_candidates.h"

namespace tessera {

/// Drops logits more than n standard deviations below the best; n <= 0 keeps all.
void keep_top_n_sigma(Candidates& candidates, double n);

/// The k largest; k <= 0 keeps all.
void keep_top_k(Candidates& candidates, int32_t k);

/// The fewest, best first, whose probabilities sum to p (Holtzman et al. 2020, nucleus sampling); p >= 1 keeps all.
void keep_top_p(Candidates& candidates, double p, size_t min_keep);

/// Those at least p times as probable as the best; p <= 0 keeps all.
void keep_min_p(Candidates& candidates, double p, size_t min_keep);

/// The fewest whose probabilities sum to p, those first whose surprise is nearest to the distribution's entropy
/// (Meister et al. 2023, locally typical sampling); p >= 1 keeps all.
void keep_typical(Candidates& candidates, double p, size_t min_keep);

/// Of several candidates with at least this probability, drops all but the least probable ("exclude top choices").
/// Does nothing when fewer than min_keep would be left.
void exclude_top_choices(Candidates& candidates, double threshold, size_t min_keep);

/// Divides logits by t; t <= 0 or NaN keeps the best alone.
void apply_temperature(Candidates& candidates, double t);

/// The temperature between t - range (at least 0) and t + range at (entropy / its maximum)^exponent of the way;
/// range <= 0: t.
void apply_dynamic_temperature(Candidates& candidates, double t, double range, double exponent);

}  // namespace tessera
