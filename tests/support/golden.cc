#include "tests/support/golden.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/check.h"

namespace tessera {
namespace {

using nlohmann::json;

std::vector<float> floats_of_base64(const std::string& text) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  uint32_t bits = 0;
  int n_bits = 0;
  for (const char c : text) {
    const size_t digit = kDigits.find(c);
    if (digit == std::string_view::npos) {
      break;  // padding
    }
    bits = bits << 6 | static_cast<uint32_t>(digit);
    n_bits += 6;
    if (n_bits >= 8) {
      n_bits -= 8;
      bytes.push_back(static_cast<char>(bits >> n_bits & 255));
    }
  }
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  return values;
}

GoldenRow row_of(const json& record) {
  GoldenRow row;
  for (const char* name : {"min", "max", "mean", "rms", "lse", "next"}) {
    if (record.contains(name)) {
      row.stats[name] = record[name];
    }
  }
  for (const json& pair : record["top"]) {
    row.top.emplace_back(pair[0], pair[1]);
  }
  return row;
}

}  // namespace

Golden read_golden(const std::string& path) {
  std::ifstream file(path);
  CHECK(file.good());
  const json data = json::parse(file);
  Golden golden;
  golden.prompt = data["prompt"].get<std::vector<int32_t>>();
  for (const json& record : data.value("positions", json::array())) {
    const int64_t p = record["p"];
    GoldenRow& row = golden.positions[p] = row_of(record);
    if (row.stats.contains("next")) {
      row.next = golden.prompt.at(static_cast<size_t>(p) + 1);
    }
  }
  GoldenRow& last = golden.positions[static_cast<int64_t>(golden.prompt.size()) - 1];
  if (data["last"]["encoding"] == "f32le-base64") {
    last.all = floats_of_base64(data["last"]["data"]);
  } else {
    for (const json& pair : data["last"]["top"]) {
      last.top.emplace_back(pair[0], pair[1]);
    }
  }
  golden.greedy = data["greedy"]["tokens"].get<std::vector<int32_t>>();
  for (const json& record : data["greedy"]["steps"]) {
    golden.steps.push_back(row_of(record));
  }
  return golden;
}

RowDistance distance(const GoldenRow& golden, std::span<const float> logits) {
  RowDistance result;
  const auto take = [&](const std::string& what, double wanted, double found) {
    const double d = std::isfinite(found) ? std::abs(wanted - found) : INFINITY;
    if (d > result.worst) {
      result.worst = d;
      result.what = what;
    }
    ++result.n_numbers;
  };
  double sum = 0;
  double squares = 0;
  for (const float x : logits) {
    sum += static_cast<double>(x);
    squares += static_cast<double>(x) * static_cast<double>(x);
  }
  const auto [least, most] = std::ranges::minmax(logits);
  double exponentials = 0;
  for (const float x : logits) {
    exponentials += std::exp(static_cast<double>(x) - static_cast<double>(most));
  }
  const auto n = static_cast<double>(logits.size());
  std::map<std::string, double> found = {
      {"min", least}, {"max", most}, {"mean", sum / n}, {"rms", std::sqrt(squares / n)}};
  found["lse"] = static_cast<double>(most) + std::log(exponentials);
  if (golden.next >= 0) {
    found["next"] = static_cast<double>(logits[static_cast<size_t>(golden.next)]) - found["lse"];
  }
  for (const auto& [name, wanted] : golden.stats) {
    take(name, wanted, found[name]);
  }
  for (const auto& [id, wanted] : golden.top) {
    take("logit " + std::to_string(id), static_cast<double>(wanted),
         static_cast<double>(logits[static_cast<size_t>(id)]));
  }
  if (!golden.top.empty()) {
    take("the largest logit", static_cast<double>(golden.top[0].second), static_cast<double>(most));
  }
  for (size_t i = 0; i < golden.all.size(); ++i) {
    take("logit " + std::to_string(i), static_cast<double>(golden.all[i]), static_cast<double>(logits[i]));
  }
  return result;
}

}  // namespace tessera
