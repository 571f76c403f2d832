// Asks the reference engine (llama.cpp) what its sampling steps leave; scripts/sampling_golden.py feeds it. Compile
// with -std=c++20 -lllama -lggml -lggml-base. Cases come on standard input as lines of a word and its values, each case
// ended by `end`; one JSON object a case goes to standard output (tests/data/goldens/FORMAT.md).
//
//   json OBJECT    printed as the case's options      opt NAME VALUE    one of them, for the engine
//   chain STEP..   steps to apply                      logits F..        one for each token
//   history ID..   tokens accepted before              breaker ID..      a DRY breaker, may repeat
//   draws N        apply the chain N times, keeping its state
//   name TEXT      model FILE: of steps that look at a vocabulary
//   model FILE, text HEX, breaker_text HEX    instead of the above: what DRY subtracts after the text, all logits 0

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <llama.h>
#include <map>
#include <sstream>
#include <string>
#include <vector>

// Exported by the library for its tests.
llama_sampler* llama_sampler_init_dry_testing(float multiplier, float base, int32_t allowed_length, int32_t last_n,
                                              const std::vector<std::vector<llama_token>>& breakers);

namespace {

struct Case {
  std::string json;
  std::map<std::string, double> options;
  std::vector<std::string> chain;
  std::vector<float> logits;
  std::vector<int> history;
  std::vector<std::vector<int>> breakers;
  int draws = 0;
  std::string model, name, text;
  std::vector<std::string> breaker_texts;
};

const llama_vocab* vocab_of(const std::string& path) {
  static std::map<std::string, llama_model*> models;
  llama_model*& model = models[path];
  if (model == nullptr) {
    llama_model_params params = llama_model_default_params();
    params.vocab_only = true;
    model = llama_model_load_from_file(path.c_str(), params);
    if (model == nullptr) {
      std::fprintf(stderr, "cannot read %s\n", path.c_str());
      std::exit(1);
    }
  }
  return llama_model_get_vocab(model);
}

llama_sampler* make_step(const std::string& step, const Case& c) {
  const auto get = [&](const char* name, double fallback) {
    const auto found = c.options.find(name);
    return static_cast<float>(found == c.options.end() ? fallback : found->second);
  };
  const auto get_int = [&](const char* name, int fallback) { return static_cast<int>(get(name, fallback)); };
  const auto min_keep = static_cast<size_t>(get_int("min_keep", 0));
  const auto n_vocab = static_cast<int>(c.logits.size());
  if (step == "penalties") {
    return llama_sampler_init_penalties(n_vocab, get_int("repeat_last_n", 64), get("repeat_penalty", 1),
                                        get("frequency_penalty", 0), get("presence_penalty", 0));
  }
  if (step == "dry") {
    return llama_sampler_init_dry_testing(get("dry_multiplier", 0), get("dry_base", 1.75),
                                          get_int("dry_allowed_length", 2), get_int("dry_penalty_last_n", 64),
                                          c.breakers);
  }
  if (step == "top_n_sigma")
    return llama_sampler_init_top_n_sigma(get("top_n_sigma", -1));
  if (step == "top_k")
    return llama_sampler_init_top_k(get_int("top_k", 40));
  if (step == "typ_p")
    return llama_sampler_init_typical(get("typical_p", 1), min_keep);
  if (step == "top_p")
    return llama_sampler_init_top_p(get("top_p", 0.95), min_keep);
  if (step == "min_p")
    return llama_sampler_init_min_p(get("min_p", 0.05), min_keep);
  if (step == "xtc")
    return llama_sampler_init_xtc(get("xtc_probability", 0), get("xtc_threshold", 0.1), min_keep, 1);
  if (step == "temperature") {
    return llama_sampler_init_temp_ext(get("temperature", 0.8), get("dynatemp_range", 0), get("dynatemp_exponent", 1));
  }
  if (step == "mirostat1") {
    return llama_sampler_init_mirostat(n_vocab, 7, get("mirostat_tau", 5), get("mirostat_eta", 0.1), 100);
  }
  if (step == "mirostat2")
    return llama_sampler_init_mirostat_v2(7, get("mirostat_tau", 5), get("mirostat_eta", 0.1));
  if (step == "adaptive_p")
    return llama_sampler_init_adaptive_p(get("adaptive_target", -1), get("adaptive_decay", 0.9), 7);
  if (step == "infill")
    return llama_sampler_init_infill(vocab_of(c.model));
  std::fprintf(stderr, "unknown step %s\n", step.c_str());
  std::exit(1);
}

template <typename T>
void print_list(const std::vector<T>& list, const char* format) {
  std::printf("[");
  for (size_t i = 0; i < list.size(); ++i) {
    std::printf("%s", i > 0 ? "," : "");
    std::printf(format, list[i]);
  }
  std::printf("]");
}

// Ids that are left, ascending, and their probabilities.
void print_left(const llama_token_data_array& left) {
  std::map<int, double> weights;
  double largest = -INFINITY;
  double total = 0;
  for (size_t i = 0; i < left.size; ++i) {
    largest = std::max(largest, static_cast<double>(left.data[i].logit));
  }
  for (size_t i = 0; i < left.size; ++i) {
    if (left.data[i].logit > -INFINITY) {
      total += weights[left.data[i].id] = std::exp(static_cast<double>(left.data[i].logit) - largest);
    }
  }
  std::vector<int> ids;
  std::vector<double> probabilities;
  for (const auto& [id, weight] : weights) {
    ids.push_back(id);
    probabilities.push_back(weight / total);
  }
  std::printf("[");
  print_list(ids, "%d");
  std::printf(",");
  print_list(probabilities, "%.6g");
  std::printf("]");
}

std::vector<llama_token_data> candidates_of(const std::vector<float>& logits) {
  std::vector<llama_token_data> data;
  for (size_t i = 0; i < logits.size(); ++i) {
    data.push_back({static_cast<int>(i), logits[i], 0});
  }
  return data;
}

void print_steps(const Case& c) {
  std::vector<llama_token_data> data = candidates_of(c.logits);
  llama_token_data_array left{data.data(), data.size(), -1, false};
  for (size_t i = 0; i < c.chain.size(); ++i) {
    llama_sampler* step = make_step(c.chain[i], c);
    for (const int token : c.history)
      llama_sampler_accept(step, token);
    llama_sampler_apply(step, &left);
    llama_sampler_free(step);
    std::printf("%s[\"%s\",", i > 0 ? "," : "", c.chain[i].c_str());
    print_left(left);
    std::printf("]");
  }
}

void print_draws(const Case& c) {
  std::vector<llama_sampler*> steps;
  for (const std::string& name : c.chain)
    steps.push_back(make_step(name, c));
  for (int i = 0; i < c.draws; ++i) {
    std::vector<llama_token_data> data = candidates_of(c.logits);
    llama_token_data_array left{data.data(), data.size(), -1, false};
    for (llama_sampler* step : steps)
      llama_sampler_apply(step, &left);
    for (llama_sampler* step : steps)
      llama_sampler_accept(step, left.data[left.selected].id);
    std::printf("%s[%d,", i > 0 ? "," : "", left.data[left.selected].id);
    print_left(left);
    std::printf("]");
  }
  for (llama_sampler* step : steps)
    llama_sampler_free(step);
}

void run(const Case& c) {
  std::printf("{%s\"options\":%s,\"logits\":", c.name.empty() ? "" : ("\"model\":\"" + c.name + "\",").c_str(),
              c.json.c_str());
  print_list(c.logits, "%.6g");
  if (!c.history.empty()) {
    std::printf(",\"history\":");
    print_list(c.history, "%d");
  }
  if (!c.breakers.empty()) {
    std::printf(",\"breakers\":[");
    for (size_t i = 0; i < c.breakers.size(); ++i) {
      std::printf("%s", i > 0 ? "," : "");
      print_list(c.breakers[i], "%d");
    }
    std::printf("]");
  }
  std::printf(",\"after\":[");
  c.draws == 0 ? print_steps(c) : print_draws(c);
  std::printf("]}\n");
}

void run_text(const Case& c) {
  const llama_vocab* vocab = vocab_of(c.model);
  std::vector<llama_token> ids(c.text.size() + 8);
  ids.resize(static_cast<size_t>(llama_tokenize(vocab, c.text.data(), static_cast<int>(c.text.size()), ids.data(),
                                                static_cast<int>(ids.size()), false, false)));
  std::vector<const char*> breakers;
  for (const std::string& b : c.breaker_texts)
    breakers.push_back(b.c_str());
  llama_sampler* dry = llama_sampler_init_dry(vocab, 1, 1.75F, 2, 500, breakers.data(), breakers.size());
  for (const llama_token id : ids)
    llama_sampler_accept(dry, id);
  std::vector<llama_token_data> data =
      candidates_of(std::vector<float>(static_cast<size_t>(llama_vocab_n_tokens(vocab)), 0.0F));
  llama_token_data_array left{data.data(), data.size(), -1, false};
  llama_sampler_apply(dry, &left);
  llama_sampler_free(dry);
  std::printf("{\"case\":%s,\"ids\":", c.json.c_str());
  print_list(ids, "%d");
  std::printf(",\"penalties\":[");
  bool first = true;
  for (const llama_token_data& d : data) {
    if (d.logit != 0) {
      std::printf("%s[%d,%.6g]", first ? "" : ",", d.id, static_cast<double>(-d.logit));
      first = false;
    }
  }
  std::printf("]}\n");
}

std::string bytes_of(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  }
  return bytes;
}

template <typename T>
std::vector<T> rest_of(std::istringstream& in) {
  std::vector<T> values;
  for (T value; in >> value;)
    values.push_back(value);
  return values;
}

}  // namespace

int main() {
  llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
  Case c;
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream in(line);
    std::string word, value;
    in >> word;
    if (word == "json")
      std::getline(in >> std::ws, c.json);
    if (word == "opt")
      in >> value >> c.options[value];
    if (word == "chain")
      c.chain = rest_of<std::string>(in);
    if (word == "logits")
      c.logits = rest_of<float>(in);
    if (word == "history")
      c.history = rest_of<int>(in);
    if (word == "breaker")
      c.breakers.push_back(rest_of<int>(in));
    if (word == "draws")
      in >> c.draws;
    if (word == "model")
      in >> c.model;
    if (word == "name")
      in >> c.name;
    if (word == "text" && in >> value)
      c.text = bytes_of(value);
    if (word == "breaker_text" && in >> value)
      c.breaker_texts.push_back(bytes_of(value));
    if (word == "end") {
      c.model.empty() || !c.name.empty() ? run(c) : run_text(c);
      c = Case();
    }
  }
}
