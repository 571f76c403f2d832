// llama.cpp's own routes: /completion, /infill, /tokenize, /detokenize, /apply-template.

#include <algorithm>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "server/chat_writer.h"
#include "server/generation.h"
#include "server/generation_request.h"
#include "server/infill.h"
#include "server/settings_json.h"
#include "tokenizer/utf8.h"

namespace tessera {
namespace {

// The reference's words: none, eos, word, limit.
std::string_view stop_type(StopReason stop) {
  return stop == StopReason::kContextFull ? "limit" : stop == StopReason::kGrammar ? "eos" : stop_reason_name(stop);
}

struct NativeOptions {
  bool streams = false;
  bool wants_tokens = false;
  bool wants_timings = false;  // per token
  bool is_prob = false;
  std::chrono::seconds ping{};
  std::string model;
  Json settings;                             // of the first choice
  std::vector<std::string> response_fields;  // all that the answer has; empty: everything
};

// Those of its fields that paths such as "timings/prompt_n" name, each under its whole path.
Json fields_at(const Json& json, std::span<const std::string> paths) {
  Json picked = Json::object();
  for (const std::string& path : paths) {
    const Json* at = &json;
    for (size_t begin = 0; at != nullptr && begin <= path.size();) {
      const size_t end = std::min(path.find('/', begin), path.size());
      const auto found = at->is_object() ? at->find(path.substr(begin, end - begin)) : at->end();
      at = found == at->end() ? nullptr : &*found;
      begin = end + 1;
    }
    if (at != nullptr) {
      picked[path] = *at;
    }
  }
  return picked;
}

class NativeWriter final : public ReplyWriter {
 public:
  NativeWriter(const Call& call, NativeOptions options, const std::vector<ServingRequest>& requests)
      : ReplyWriter(call, options.streams), options_(std::move(options)), model_(call.model) {
    for (const ServingRequest& request : requests) {
      Choice choice;
      choice.prompt = model_->model->tokenizer().decode(request.prompt);
      choice.n_probs = request.n_probs;
      choices_.push_back(std::move(choice));
    }
    results_.resize(choices_.size());
  }

  void begin() override {
    if (streams()) {
      exchange().begin_events(options_.ping);
    }
  }

  void on_progress(size_t choice, int64_t cached, int64_t processed, int64_t total, double ms) override {
    if (streams()) {
      send({{"index", choice},
            {"content", ""},
            {"tokens", Json::array()},
            {"stop", false},
            {"prompt_progress", {{"total", total}, {"cache", cached}, {"processed", processed}, {"time_ms", ms}}}});
    }
  }

  void on_text(size_t choice, std::string_view text, std::span<const ServingToken> tokens,
               const ServingTimings& timings) override {
    if (!streams()) {
      choices_[choice].content += text;
      choices_[choice].tokens.insert(choices_[choice].tokens.end(), tokens.begin(), tokens.end());
      return;
    }
    Json json = {{"index", choice}, {"content", text}, {"tokens", ids_of(tokens)}, {"stop", false}};
    add_probabilities(json, choice, tokens);
    if (options_.wants_timings) {
      json["timings"] = timings_json(timings);
    }
    send(json);
  }

  void on_end(size_t choice, const ServingEnd& end) override {
    Choice& c = choices_[choice];
    const std::span<const ServingToken> rest = textless_tokens(end);
    c.tokens.insert(c.tokens.end(), rest.begin(), rest.end());  // of a stream these alone
    Json json = {{"index", choice},
                 {"content", c.content},
                 {"tokens", options_.wants_tokens || streams() ? ids_of(c.tokens) : Json::array()},
                 {"id_slot", end.slot},
                 {"stop", true},
                 {"model", options_.model},
                 {"tokens_predicted", end.timings.predicted_n},
                 {"tokens_evaluated", end.n_prompt},
                 {"generation_settings", options_.settings},
                 {"prompt", c.prompt},
                 {"has_new_line", c.content.find('\n') != std::string::npos},
                 {"truncated", end.truncated || end.n_shifts > 0 || end.stop == StopReason::kContextFull},
                 {"stop_type", stop_type(end.stop)},
                 {"stopping_word", end.stop_word},
                 {"tokens_cached", end.n_prompt + end.timings.predicted_n},
                 {"seed", end.seed},
                 {"timings", timings_json(end.timings)}};
    add_probabilities(json, choice, c.tokens);
    if (!options_.response_fields.empty()) {
      json = fields_at(json, options_.response_fields);
    }
    if (!streams()) {
      results_[choice] = std::move(json);
    } else {
      send(json);
    }
  }

  void finish() override {
    if (streams()) {
      exchange().end_events();
    } else {
      reply(results_.size() == 1 ? results_[0] : Json(results_));
    }
  }

 private:
  struct Choice {
    std::string prompt;
    std::string content;
    std::vector<ServingToken> tokens;
    int32_t n_probs = 0;
  };

  static Json ids_of(std::span<const ServingToken> tokens) {
    Json ids = Json::array();
    for (const ServingToken& token : tokens) {
      ids.push_back(token.id);
    }
    return ids;
  }

  void add_probabilities(Json& json, size_t choice, std::span<const ServingToken> tokens) const {
    if (choices_[choice].n_probs > 0) {
      json["completion_probabilities"] = probabilities_json(model_->model->tokenizer(), tokens, options_.is_prob);
    }
  }

  NativeOptions options_;
  std::shared_ptr<ServedModel> model_;
  std::vector<Choice> choices_;
  std::vector<Json> results_;  // by choice; of a stream none
};

// Answers a request with the fields of /completion.
Status complete(Call& call, const Json& body, const ServingRequest& request,
                std::vector<std::vector<int32_t>> prompts) {
  const Fields fields(body);
  NativeOptions options;
  TRY(fields.read("stream", options.streams));
  TRY(fields.read("return_tokens", options.wants_tokens));
  TRY(fields.read("timings_per_token", options.wants_timings));
  TRY(fields.read("post_sampling_probs", options.is_prob));
  TRY(fields.read("response_fields", options.response_fields));
  ASSIGN_OR_RETURN(options.ping, read_ping(call, body));
  int64_t n_choices = 1;
  TRY(fields.read("n", n_choices, 1, call.server.settings().n_choices_max));
  TRY(fields.read("n_cmpl", n_choices, 1, call.server.settings().n_choices_max));
  std::vector<ServingRequest> requests;
  for (std::vector<int32_t>& prompt : prompts) {
    ServingRequest with_prompt = request;
    with_prompt.prompt = std::move(prompt);
    for (ServingRequest& choice : with_choices(std::move(with_prompt), n_choices)) {
      requests.push_back(std::move(choice));
    }
  }
  options.model = call.model->name;
  options.settings = settings_json(requests[0]);
  auto writer = std::make_shared<NativeWriter>(call, std::move(options), requests);
  return start_generation(call, std::move(requests), std::move(writer));
}

Result<std::vector<InfillFile>> read_extra(const Fields& fields) {
  std::vector<InfillFile> files;
  const Json* found = fields.find("input_extra");
  if (found == nullptr) {
    return files;
  }
  if (!found->is_array()) {
    return fields.wrong("input_extra", *found, "an array of objects with filename and text");
  }
  for (const Json& item : *found) {
    if (!item.is_object()) {
      return fields.wrong("input_extra", item, "an array of objects with filename and text");
    }
    const Fields inner(item, "input_extra");
    InfillFile file{.name = "tmp", .text = ""};
    TRY(inner.read("filename", file.name));
    TRY(inner.read("text", file.text));
    if (!inner.has("text")) {
      return Status(ErrorCode::kInvalidArgument, inner.label("text") + " is missing");
    }
    files.push_back(std::move(file));
  }
  return files;
}

}  // namespace

Status api_completion(Call& call) {
  ASSIGN_OR_RETURN(const Json body, call.take_body());
  ASSIGN_OR_RETURN(const ServingRequest request, read_generation(call, body));
  ASSIGN_OR_RETURN(std::vector<std::vector<int32_t>> prompts, read_prompts(call, body));
  return complete(call, body, request, std::move(prompts));
}

Status api_infill(Call& call) {
  ASSIGN_OR_RETURN(const Json body, call.take_body());
  const Fields fields(body);
  InfillText text;
  for (const auto& [name, target] :
       {std::pair("input_prefix", &text.prefix), std::pair("input_suffix", &text.suffix)}) {
    if (!fields.has(name)) {
      return {ErrorCode::kInvalidArgument, fields.label(name) + " is missing"};
    }
    TRY(fields.read(name, *target));
  }
  TRY(fields.read("prompt", text.prompt));
  ASSIGN_OR_RETURN(text.extra, read_extra(fields));
  ASSIGN_OR_RETURN(const ServingRequest request, read_generation(call, body));
  // A quarter of the context is the answer's where the request does not say.
  const ContextOptions& context = call.model->serving->context().options();
  const int64_t n_answer = request.max_tokens < 0 ? context.n_ctx / 4 : std::max<int64_t>(request.max_tokens, 1);
  const InfillRoom room = {.n_near = std::min(context.n_batch, context.n_ctx / 2), .n_total = context.n_ctx - n_answer};
  ASSIGN_OR_RETURN(std::vector<int32_t> prompt,
                   infill_prompt(call.model->model->tokenizer(), text, room, call.model->spm_infill));
  return complete(call, body, request, {std::move(prompt)});
}

Status api_tokenize(Call& call) {
  ASSIGN_OR_RETURN(const Json body, call.take_body());
  const Fields fields(body);
  bool add_special = false;
  bool parse_special = true;
  bool with_pieces = false;
  TRY(fields.read("add_special", add_special));
  TRY(fields.read("parse_special", parse_special));
  TRY(fields.read("with_pieces", with_pieces));
  const Json* content = fields.find("content");
  if (content == nullptr) {
    return {ErrorCode::kInvalidArgument, "field \"content\" is missing"};
  }
  ASSIGN_OR_RETURN(const std::vector<int32_t> ids, read_mixed_tokens(*call.model->model, *content, add_special,
                                                                     parse_special, fields.label("content")));
  Json tokens = Json::array();
  for (const int32_t id : ids) {
    if (!with_pieces) {
      tokens.push_back(id);
      continue;
    }
    const std::string_view piece = call.model->model->tokenizer().piece(id);
    Json bytes = Json::array();
    for (const char byte : piece) {
      bytes.push_back(static_cast<unsigned char>(byte));
    }
    tokens.push_back({{"id", id}, {"piece", with_replacements(piece) == piece ? Json(piece) : bytes}});
  }
  call.reply_json({{"tokens", tokens}});
  return {};
}

Status api_detokenize(Call& call) {
  ASSIGN_OR_RETURN(const Json body, call.take_body());
  const Fields fields(body);
  const Json* tokens = fields.find("tokens");
  if (tokens == nullptr || !tokens->is_array()) {
    return tokens == nullptr ? Status(ErrorCode::kInvalidArgument, "field \"tokens\" is missing")
                             : fields.wrong("tokens", *tokens, "an array of token ids");
  }
  for (const Json& token : *tokens) {
    if (!token.is_number_integer()) {
      return fields.wrong("tokens", token, "an array of token ids alone");
    }
  }
  ASSIGN_OR_RETURN(const std::vector<int32_t> ids,
                   read_mixed_tokens(*call.model->model, *tokens, false, true, fields.label("tokens")));
  call.reply_json({{"content", call.model->model->tokenizer().decode(ids)}});
  return {};
}

Status api_apply_template(Call& call) {
  ASSIGN_OR_RETURN(Json body, call.take_body());
  TRY(prepare_chat(call, body).status());
  ASSIGN_OR_RETURN(const ChatPrompt prompt, render_chat(call, dump_json(body)));
  call.reply_json({{"prompt", prompt.text}});
  return {};
}

}  // namespace tessera
