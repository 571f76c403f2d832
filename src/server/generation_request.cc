#include "server/generation_request.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fmt/format.h>
#include <limits>
#include <nlohmann/json.hpp>

#include "runtime/generate.h"

namespace tessera {
namespace {

constexpr int64_t kTokensMax = 1'000'000'000;

Status bad(std::string message) {
  return {ErrorCode::kInvalidArgument, std::move(message)};
}

Status read_samplers(const Fields& fields, SamplerOptions& options) {
  const Json* found = fields.find("samplers");
  if (found == nullptr) {
    return {};
  }
  if (found->is_string()) {  // letters
    ASSIGN_OR_RETURN(options.samplers, parse_sampler_letters(found->get_ref<const std::string&>()));
    return {};
  }
  std::vector<std::string> names;
  TRY(fields.read("samplers", names));
  std::string joined;
  for (const std::string& name : names) {
    joined += (joined.empty() ? "" : ";") + name;
  }
  ASSIGN_OR_RETURN(options.samplers, parse_sampler_names(joined));
  return {};
}

Status read_numbers(const Fields& fields, SamplerOptions& options) {
  for (const SamplerSetting& setting : sampler_settings()) {
    const Json* found = fields.find(setting.name);
    if (found == nullptr) {
      continue;
    }
    if (!found->is_number()) {
      return fields.wrong(setting.name, *found, "a number");
    }
    TRY(set_sampler_option(options, setting, found->get<double>()));
  }
  return {};
}

// A token id, or a text all of whose tokens are meant.
Status add_bias(const Fields& fields, const Tokenizer& tokenizer, const Json& token, const Json& value,
                SamplerOptions& options) {
  const bool is_ban = value.is_boolean() && !value.get<bool>();
  const double number = is_ban              ? -std::numeric_limits<double>::infinity()
                        : value.is_number() ? value.get<double>()
                                            : NAN;
  if (std::isnan(number)) {
    return fields.wrong("logit_bias", value, "made of tokens and numbers, or false for a ban");
  }
  constexpr double kMax = std::numeric_limits<float>::max();
  const auto bias = static_cast<float>(is_ban ? number : std::clamp(number, -kMax, kMax));
  if (token.is_string()) {
    for (const int32_t id : tokenizer.encode(token.get_ref<const std::string&>(), {.parse_special = true})) {
      options.logit_bias.push_back({id, bias});
    }
    return {};
  }
  int32_t id = 0;
  const Json holder = {{"logit_bias", token}};
  TRY(Fields(holder).read("logit_bias", id, 0, tokenizer.n_vocab() - 1));
  options.logit_bias.push_back({id, bias});
  return {};
}

Status read_logit_bias(const Fields& fields, const Tokenizer& tokenizer, SamplerOptions& options) {
  const Json* found = fields.find("logit_bias");
  if (found == nullptr) {
    return {};
  }
  if (found->is_object()) {  // OpenAI's: {"15043": 1.5}
    for (const auto& [key, value] : found->items()) {
      int64_t id = 0;
      const auto* end = key.data() + key.size();
      const auto [rest, error] = std::from_chars(key.data(), end, id);
      if (error != std::errc() || rest != end) {
        return bad(fmt::format("{}: \"{}\" is no token id", fields.label("logit_bias"), key.substr(0, 40)));
      }
      TRY(add_bias(fields, tokenizer, id, value, options));
    }
    return {};
  }
  if (!found->is_array()) {
    return fields.wrong("logit_bias", *found, "an object or an array of [token, bias]");
  }
  for (const Json& pair : *found) {
    if (!pair.is_array() || pair.size() != 2) {
      return fields.wrong("logit_bias", pair, "an array of pairs [token, bias]");
    }
    TRY(add_bias(fields, tokenizer, pair[0], pair[1], options));
  }
  return {};
}

Status read_sampling(const Fields& fields, const Tokenizer& tokenizer, SamplerOptions& options) {
  TRY(read_numbers(fields, options));
  TRY(read_samplers(fields, options));
  TRY(read_logit_bias(fields, tokenizer, options));
  TRY(fields.read("dry_sequence_breakers", options.dry_sequence_breakers));
  int64_t seed = options.seed == kRandomSeed ? -1 : static_cast<int64_t>(options.seed);
  TRY(fields.read("seed", seed, std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()));
  options.seed = seed < 0 ? kRandomSeed : static_cast<uint64_t>(seed);
  return {};
}

// The schema of a response_format, "" where it asks for none. OpenAI's chat completions wrap it, its responses do not.
Result<std::string> response_schema(const Fields& fields) {
  const Json* format = fields.find("response_format");
  if (format == nullptr) {
    return std::string();
  }
  if (!format->is_object()) {
    return fields.wrong("response_format", *format, "an object");
  }
  const Fields inner(*format, "response_format");
  std::string type = "text";
  TRY(inner.read("type", type));
  if (type == "text") {
    return std::string();
  }
  if (type != "json_object" && type != "json_schema") {
    return bad(fmt::format(R"({} is "{}"; known are text, json_object and json_schema)", inner.label("type"), type));
  }
  const Json* holder = format;
  if (const Json* wrapped = inner.find("json_schema")) {
    if (!wrapped->is_object()) {
      return inner.wrong("json_schema", *wrapped, "an object");
    }
    holder = wrapped;
  }
  const Json* schema = Fields(*holder, "response_format").find("schema");
  if (schema == nullptr) {
    return type == "json_object" ? Result<std::string>(R"({"type": "object"})")
                                 : bad(fmt::format("{} has no schema", inner.label("json_schema")));
  }
  if (!schema->is_object()) {
    return inner.wrong("schema", *schema, "an object");
  }
  return schema->dump();
}

// What the answer is restricted to, in place of what the server restricts answers to by itself.
Status read_constraints(const Fields& fields, SamplerOptions& options) {
  std::string grammar;
  TRY(fields.read("grammar", grammar));
  ASSIGN_OR_RETURN(std::string schema, response_schema(fields));
  if (const Json* found = fields.find("json_schema")) {
    if (!found->is_object()) {
      return fields.wrong("json_schema", *found, "an object");
    }
    schema = found->dump();
  }
  if (!grammar.empty() && !schema.empty()) {
    return bad("one of a grammar and a JSON schema can restrict an answer, not both");
  }
  if (!grammar.empty() || !schema.empty()) {
    options.grammar = std::move(grammar);
    options.json_schema = std::move(schema);
  }
  return {};
}

// Adapters of llama.cpp's requests. An empty list asks for none.
Status refuse_adapters(const Fields& fields) {
  const Json* found = fields.find("lora");
  if (found == nullptr) {
    return {};
  }
  if (!found->is_array()) {
    return fields.wrong("lora", *found, "an array");
  }
  return found->empty() ? Status()
                        : Status(ErrorCode::kUnsupported,
                                 fmt::format("{}: this server applies no adapters; leave it out, or serve a file that "
                                             "the adapter was merged into",
                                             fields.label("lora")));
}

}  // namespace

Result<ServingRequest> read_generation(const Call& call, const Json& body) {
  const Fields fields(body);
  ServingRequest request = call.model->defaults;
  for (const std::string_view name : {"max_tokens", "max_completion_tokens", "n_predict"}) {
    TRY(fields.read(name, request.max_tokens, -2, kTokensMax));
  }
  TRY(fields.read("n_keep", request.n_keep, -1, kTokensMax));
  // The half that a shift drops is fixed; what people send here is checked all the same.
  int64_t n_discard = 0;
  TRY(fields.read("n_discard", n_discard, 0, kTokensMax));
  TRY(fields.read("stop", request.stop));
  if (request.stop.size() > 64 || std::ranges::any_of(request.stop, [](const auto& s) { return s.size() > 4096; })) {
    return bad(fields.label("stop") + " has more than 64 words, or one of more than 4096 bytes");
  }
  TRY(fields.read("ignore_eos", request.ignore_eos));
  TRY(fields.read("cache_prompt", request.cache_prompt));
  TRY(fields.read("t_max_predict_ms", request.max_ms, -1, kTokensMax));
  TRY(fields.read("n_probs", request.n_probs, 0, kProbsMax));
  TRY(fields.read("post_sampling_probs", request.post_sampling_probs));
  TRY(fields.read("id_slot", request.slot, -1, std::numeric_limits<int32_t>::max()));
  TRY(fields.read("priority", request.priority, -100, 100));
  TRY(fields.read("return_progress", request.wants_progress));
  TRY(refuse_adapters(fields));
  TRY(read_constraints(fields, request.sampling));
  TRY(read_sampling(fields, call.model->model->tokenizer(), request.sampling));
  return request;
}

Result<std::vector<int32_t>> read_mixed_tokens(const Model& model, const Json& value, bool add_special,
                                               bool parse_special, std::string_view label) {
  const Tokenizer& tokenizer = model.tokenizer();
  if (value.is_string()) {
    return tokenizer.encode(value.get_ref<const std::string&>(),
                            {.parse_special = parse_special, .add_special = add_special});
  }
  if (!value.is_array()) {
    return bad(
        fmt::format("{} is {}; it must be a string or an array of strings and token ids", label, json_kind(value)));
  }
  std::vector<int32_t> ids;
  bool is_first = true;
  for (const Json& part : value) {
    if (part.is_string()) {
      const auto more = tokenizer.encode(part.get_ref<const std::string&>(),
                                         {.parse_special = parse_special, .add_special = add_special && is_first});
      ids.insert(ids.end(), more.begin(), more.end());
    } else if (part.is_number_integer() && part.get<int64_t>() >= 0 && part.get<int64_t>() < tokenizer.n_vocab()) {
      ids.push_back(part.get<int32_t>());
    } else {
      return bad(fmt::format("{} has {} where a string or a token id from 0 to {} must be", label,
                             part.is_number() ? part.dump() : json_kind(part), tokenizer.n_vocab() - 1));
    }
    is_first = false;
  }
  return ids;
}

Result<std::vector<std::vector<int32_t>>> read_prompts(const Call& call, const Json& body, std::string_view field,
                                                       int64_t n_max) {
  const Fields fields(body);
  const Json* found = fields.find(field);
  if (found == nullptr) {
    return bad(fields.label(field) + " is missing");
  }
  std::vector<const Json*> parts;
  const bool is_list = found->is_array() && !found->empty() &&
                       (std::ranges::all_of(*found, [](const Json& p) { return p.is_string(); }) ||
                        std::ranges::any_of(*found, [](const Json& p) { return p.is_array(); }));
  if (is_list) {
    for (const Json& part : *found) {
      parts.push_back(&part);
    }
  } else {
    parts.push_back(found);
  }
  n_max = n_max > 0 ? n_max : call.server.settings().n_choices_max;
  if (std::cmp_greater(parts.size(), n_max)) {
    return bad(fmt::format("{} has {} prompts; one request may have {}", fields.label(field), parts.size(), n_max));
  }
  std::vector<std::vector<int32_t>> prompts;
  for (const Json* part : parts) {
    ASSIGN_OR_RETURN(std::vector<int32_t> ids,
                     read_mixed_tokens(*call.model->model, *part, true, true, fields.label(field)));
    const Tokenizer& tokenizer = call.model->model->tokenizer();
    if (ids.empty() && tokenizer.bos()) {
      ids.push_back(*tokenizer.bos());  // an empty prompt: the model begins by itself
    }
    prompts.push_back(std::move(ids));
  }
  return prompts;
}

Result<ChatPrompt> render_chat(const Call& call, std::string_view request_json) {
  ASSIGN_OR_RETURN(const RenderedPrompt rendered, call.model->chat_template->render(request_json));
  ChatPrompt prompt;
  prompt.tokens = encode_prompt(call.model->model->tokenizer(), rendered);
  prompt.text = rendered.text;
  prompt.continued = rendered.continued;
  return prompt;
}

// Two renderings with other first messages tell where the system part ends, whatever the template does with it; the
// messages differ in their first character, so this prompt's own parts from one of them at the latest place that all
// chats share.
std::vector<int64_t> chat_branches(const Call& call, Json body, std::span<const int32_t> prompt) {
  const auto messages = body.find("messages");
  if (!call.model->serving->wants_branches() || messages == body.end() || !messages->is_array() || prompt.empty()) {
    return {};
  }
  const auto is_system = [](const Json& message) {
    const std::string role = message.is_object() ? message.value("role", Json()).dump() : std::string();
    return role == "\"system\"" || role == "\"developer\"";
  };
  Json leading = Json::array();
  for (const Json& message : *messages) {
    if (!is_system(message)) {
      break;
    }
    leading.push_back(message);
  }
  if (leading.empty() && !body.contains("tools")) {
    return {};
  }
  size_t common = prompt.size() - 1;
  for (const char* other : {"A", "b"}) {
    Json all = leading;
    all.push_back({{"role", "user"}, {"content", other}});
    body["messages"] = std::move(all);
    const auto rendered = render_chat(call, dump_json(body));
    if (!rendered.ok()) {
      return {};
    }
    const auto parting = std::ranges::mismatch(prompt.first(common), rendered->tokens).in1;
    common = static_cast<size_t>(parting - prompt.begin());
  }
  return common == 0 ? std::vector<int64_t>() : std::vector{static_cast<int64_t>(common)};
}

std::vector<ServingRequest> with_choices(ServingRequest request, int64_t n) {
  std::vector<ServingRequest> requests;
  for (int64_t i = 0; i < n; ++i) {
    requests.push_back(request);
    if (request.sampling.seed != kRandomSeed) {
      ++request.sampling.seed;
    }
  }
  return requests;
}

}  // namespace tessera
