#pragma once
// Reads and compares reference logits (tests/data/goldens/FORMAT.md, "Logits"). nlohmann/json stays in the .cc file.

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace tessera {

/// What the reference says about one row of logits.
struct GoldenRow {
  std::map<std::string, double> stats;  // of min, max, mean, rms, lse, next: those that are given
  std::vector<std::pair<int32_t, float>> top;
  std::vector<float> all;  // every logit, where the reference kept them
  int32_t next = -1;       // the id whose log-probability `next` is
};

struct Golden {
  std::vector<int32_t> prompt;
  std::map<int64_t, GoldenRow> positions;  // by position in the prompt
  std::vector<int32_t> greedy;             // fed back after the prompt
  std::vector<GoldenRow> steps;            // steps[i]: the row that greedy[i] was taken from
};

/// Aborts on a file that is missing or damaged: test data is part of the project.
Golden read_golden(const std::string& path);

/// The largest distance of any number the reference gives for this row, and what it was. A largest logit that differs
/// counts with the distance of the two logits.
struct RowDistance {
  double worst = 0;
  std::string what;
  int64_t n_numbers = 0;
};
RowDistance distance(const GoldenRow& golden, std::span<const float> logits);

}  // namespace tessera
