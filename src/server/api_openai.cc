// OpenAI's /v1/completions and /v1/chat/completions, with what llama.cpp's server adds to them.

#include <algorithm>
#include <ctime>
#include <fmt/format.h>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/decimal.h"
#include "server/chat_writer.h"

namespace tessera {
namespace {

// What both routes read beside the generation itself.
struct OpenAiOptions {
  bool streams = false;
  bool wants_usage = false;  // in a chunk of its own at the end of a stream
  bool wants_logprobs = false;
  std::chrono::seconds ping{};
  int64_t n = 1;
  std::string id;
  std::string model;
  int64_t created = 0;
};

Result<OpenAiOptions> read_options(Call& call, const Json& body, std::string_view id_prefix) {
  const Fields fields(body);
  OpenAiOptions options;
  TRY(fields.read("stream", options.streams));
  TRY(fields.read("n", options.n, 1, call.server.settings().n_choices_max));
  if (const Json* stream_options = fields.find("stream_options")) {
    if (!stream_options->is_object()) {
      return fields.wrong("stream_options", *stream_options, "an object");
    }
    TRY(Fields(*stream_options, "stream_options").read("include_usage", options.wants_usage));
  }
  std::string model;
  TRY(fields.read("model", model));  // there is one; its name is checked all the same
  ASSIGN_OR_RETURN(options.ping, read_ping(call, body));
  options.id = call.server.new_id(id_prefix);
  options.model = call.model->name;
  options.created = static_cast<int64_t>(std::time(nullptr));
  return options;
}

Json envelope(const OpenAiOptions& options, std::string_view object) {
  return {{"id", options.id},
          {"object", object},
          {"created", options.created},
          {"model", options.model},
          {"system_fingerprint", "tessera"},
          {"choices", Json::array()}};
}

// A model's answers are text.
Status refuse_audio(const Fields& fields) {
  std::vector<std::string> modalities;
  TRY(fields.read("modalities", modalities));
  const bool is_text = std::ranges::all_of(modalities, [](const std::string& name) { return name == "text"; });
  if (is_text && !fields.has("audio")) {
    return {};
  }
  return {ErrorCode::kUnsupported, fmt::format("{}: this server answers with text; leave it out",
                                               fields.label(is_text ? "audio" : "modalities"))};
}

// ---- /v1/chat/completions

class OpenAiChatWriter final : public ChatWriter {
 public:
  OpenAiChatWriter(const Call& call, OpenAiOptions options, const ChatRequest& request)
      : ChatWriter(call, options.streams, request, static_cast<size_t>(options.n)),
        options_(std::move(options)),
        model_(call.model),
        n_calls_(n_choices()) {}

  void begin() override {
    if (!streams()) {
      return;
    }
    exchange().begin_events(options_.ping);
    for (size_t i = 0; i < n_choices(); ++i) {
      send_delta(i, {{"role", "assistant"}, {"content", nullptr}}, {});
    }
  }

  void on_progress(size_t choice, int64_t cached, int64_t processed, int64_t total, double ms) override {
    if (streams() && choice == 0) {
      Json chunk = envelope(options_, "chat.completion.chunk");
      chunk["prompt_progress"] = {{"total", total}, {"cache", cached}, {"processed", processed}, {"time_ms", ms}};
      send(chunk);
    }
  }

  void finish() override {
    Usage usage;
    for (size_t i = 0; i < n_choices(); ++i) {
      usage.add(answer(i).end, i == 0, answer(i).n_reasoning);
    }
    if (streams()) {
      if (options_.wants_usage) {
        Json chunk = envelope(options_, "chat.completion.chunk");
        chunk["usage"] = usage.json();
        chunk["timings"] = timings_json(answer(0).end.timings);
        send(chunk);
      }
      (void)exchange().send_events("data: [DONE]\n\n");
      exchange().end_events();
      return;
    }
    Json json = envelope(options_, "chat.completion");
    for (size_t i = 0; i < n_choices(); ++i) {
      json["choices"].push_back(choice_json(i));
    }
    json["usage"] = usage.json();
    json["timings"] = timings_json(answer(0).end.timings);
    reply(json);
  }

 protected:
  void on_pieces(size_t choice, std::span<const ChatPiece> pieces, std::span<const ServingToken> tokens) override {
    // The probabilities go with the first piece, or alone where the text is held back.
    Json logprobs = options_.wants_logprobs && !tokens.empty() ? logprobs_json(tokens) : Json();
    for (const ChatPiece& piece : pieces) {
      Json delta;
      switch (piece.kind) {
        case ChatPiece::Kind::kReasoning: delta["reasoning_content"] = piece.text; break;
        case ChatPiece::Kind::kContent: delta["content"] = piece.text; break;
        case ChatPiece::Kind::kCall: {
          Json call = {{"index", n_calls_[choice]++}};
          call.update(call_json(piece.text, ""));
          delta["tool_calls"] = Json::array({std::move(call)});
          break;
        }
        case ChatPiece::Kind::kArguments:
          delta["tool_calls"] =
              Json::array({{{"index", n_calls_[choice] - 1}, {"function", {{"arguments", piece.text}}}}});
          break;
        case ChatPiece::Kind::kCallEnd: continue;
      }
      send_delta(choice, std::move(delta), std::exchange(logprobs, Json()));
    }
    if (!logprobs.is_null()) {
      send_delta(choice, Json::object(), std::move(logprobs));
    }
  }

  void on_answer(size_t choice) override {
    if (streams()) {
      Json chunk = envelope(options_, "chat.completion.chunk");
      chunk["choices"].push_back({{"index", choice}, {"delta", Json::object()}, {"finish_reason", reason_of(choice)}});
      if (!options_.wants_usage && n_choices() == 1) {
        chunk["timings"] = timings_json(answer(choice).end.timings);
      }
      send(chunk);
    }
  }

 private:
  [[nodiscard]] std::string_view reason_of(size_t choice) const {
    const std::string_view reason = finish_reason(answer(choice).end.stop);
    return reason == "stop" && !answer(choice).whole_calls().empty() ? "tool_calls" : reason;
  }

  [[nodiscard]] Json logprobs_json(std::span<const ServingToken> tokens) const {
    return {{"content", probabilities_json(model_->model->tokenizer(), tokens)}};
  }

  Json call_json(std::string_view name, std::string_view arguments) {
    return {{"id", fmt::format("call_{}_{}", options_.id.substr(options_.id.find('-') + 1), n_call_ids_++)},
            {"type", "function"},
            {"function", {{"name", name}, {"arguments", arguments}}}};
  }

  void send_delta(size_t choice, Json delta, Json logprobs) {
    Json chunk = envelope(options_, "chat.completion.chunk");
    Json json = {{"index", choice}, {"delta", std::move(delta)}, {"finish_reason", nullptr}};
    if (!logprobs.is_null()) {
      json["logprobs"] = std::move(logprobs);
    }
    chunk["choices"].push_back(std::move(json));
    send(chunk);
  }

  Json choice_json(size_t choice) {
    const ChatAnswer& a = answer(choice);
    const std::vector<ChatCall> calls = a.whole_calls();
    Json message = {{"role", "assistant"}, {"content", a.content.empty() && !calls.empty() ? Json() : Json(a.content)}};
    if (!a.reasoning.empty()) {
      message["reasoning_content"] = a.reasoning;
    }
    for (const ChatCall& call : calls) {
      message["tool_calls"].push_back(call_json(call.name, call.arguments));
    }
    Json json = {{"index", choice}, {"message", std::move(message)}, {"finish_reason", reason_of(choice)}};
    if (options_.wants_logprobs) {
      json["logprobs"] = logprobs_json(a.tokens);
    }
    return json;
  }

  OpenAiOptions options_;
  std::shared_ptr<ServedModel> model_;
  std::vector<int64_t> n_calls_;  // per choice, sent so far
  int64_t n_call_ids_ = 0;
};

// ---- /v1/completions

class OpenAiTextWriter final : public ReplyWriter {
 public:
  OpenAiTextWriter(const Call& call, OpenAiOptions options, std::vector<std::string> echoes)
      : ReplyWriter(call, options.streams), options_(std::move(options)), model_(call.model), choices_(echoes.size()) {
    for (size_t i = 0; i < echoes.size(); ++i) {
      choices_[i].text = std::move(echoes[i]);
    }
  }

  void begin() override {
    if (streams()) {
      exchange().begin_events(options_.ping);
      for (size_t i = 0; i < choices_.size(); ++i) {
        if (!choices_[i].text.empty()) {
          send_chunk(i, choices_[i].text, {}, Json());
        }
      }
    }
  }

  void on_text(size_t choice, std::string_view text, std::span<const ServingToken> tokens,
               const ServingTimings& /*timings*/) override {
    if (streams()) {
      send_chunk(choice, text, tokens, Json());
    } else {
      choices_[choice].text += text;
      choices_[choice].tokens.insert(choices_[choice].tokens.end(), tokens.begin(), tokens.end());
    }
  }

  void on_end(size_t choice, const ServingEnd& end) override {
    usage_.add(end, choice % static_cast<size_t>(options_.n) == 0);
    choices_[choice].end = end;
    const std::span<const ServingToken> rest = textless_tokens(end);
    if (streams()) {
      send_chunk(choice, "", rest, finish_reason(end.stop));
    } else {
      choices_[choice].tokens.insert(choices_[choice].tokens.end(), rest.begin(), rest.end());
    }
  }

  void finish() override {
    Json json = envelope(options_, "text_completion");
    if (streams()) {
      if (options_.wants_usage) {
        json["usage"] = usage_.json();
        json["timings"] = timings_json(choices_[0].end.timings);
        send(json);
      }
      (void)exchange().send_events("data: [DONE]\n\n");
      exchange().end_events();
      return;
    }
    for (size_t i = 0; i < choices_.size(); ++i) {
      json["choices"].push_back(
          choice_json(i, choices_[i].text, choices_[i].tokens, finish_reason(choices_[i].end.stop)));
    }
    json["usage"] = usage_.json();
    json["timings"] = timings_json(choices_[0].end.timings);
    reply(json);
  }

 private:
  struct Choice {
    std::string text;
    std::vector<ServingToken> tokens;
    ServingEnd end;
  };

  // OpenAI's older form of probabilities: parallel lists.
  [[nodiscard]] Json logprobs_json(std::span<const ServingToken> tokens) const {
    Json json = {{"tokens", Json::array()},
                 {"token_logprobs", Json::array()},
                 {"top_logprobs", Json::array()},
                 {"text_offset", Json::array()}};
    size_t offset = 0;
    for (const ServingToken& token : tokens) {
      json["tokens"].push_back(token.bytes);
      json["token_logprobs"].push_back(as_written(token.logprob));
      json["text_offset"].push_back(offset);
      offset += token.bytes.size();
      Json top = Json::object();
      for (const TokenProb& other : token.top) {
        top[std::string(model_->model->tokenizer().piece(other.id))] = as_written(other.logprob);
      }
      json["top_logprobs"].push_back(std::move(top));
    }
    return json;
  }

  [[nodiscard]] Json choice_json(size_t choice, std::string_view text, std::span<const ServingToken> tokens,
                                 const Json& reason) const {
    return {{"index", choice},
            {"text", text},
            {"logprobs", options_.wants_logprobs ? logprobs_json(tokens) : Json()},
            {"finish_reason", reason}};
  }

  void send_chunk(size_t choice, std::string_view text, std::span<const ServingToken> tokens, const Json& reason) {
    Json chunk = envelope(options_, "text_completion");
    chunk["choices"].push_back(choice_json(choice, text, tokens, reason));
    send(chunk);
  }

  OpenAiOptions options_;
  std::shared_ptr<ServedModel> model_;
  std::vector<Choice> choices_;
  Usage usage_;
};

}  // namespace

Status api_chat_completions(Call& call) {
  ASSIGN_OR_RETURN(Json body, call.take_body());
  ASSIGN_OR_RETURN(OpenAiOptions options, read_options(call, body, "chatcmpl-"));
  const Fields fields(body);
  int32_t n_top = 0;
  TRY(fields.read("logprobs", options.wants_logprobs));
  TRY(fields.read("top_logprobs", n_top, 0, 20));
  if (n_top > 0 && !options.wants_logprobs) {
    return {ErrorCode::kInvalidArgument, "field \"top_logprobs\" needs \"logprobs\": true"};
  }
  TRY(refuse_audio(fields));
  ASSIGN_OR_RETURN(ChatRequest request, read_chat(call, std::move(body)));
  request.serving.wants_logprobs = options.wants_logprobs;
  request.serving.n_probs = std::max(n_top, request.serving.n_probs);
  const int64_t n = options.n;
  auto writer = std::make_shared<OpenAiChatWriter>(call, std::move(options), request);
  return start_generation(call, with_choices(std::move(request.serving), n), std::move(writer));
}

Status api_openai_completions(Call& call) {
  ASSIGN_OR_RETURN(const Json body, call.take_body());
  ASSIGN_OR_RETURN(OpenAiOptions options, read_options(call, body, "cmpl-"));
  const Fields fields(body);
  int32_t n_top = -1;
  TRY(fields.read("logprobs", n_top, 0, kProbsMax));
  bool echo = false;
  TRY(fields.read("echo", echo));
  std::string suffix;
  TRY(fields.read("suffix", suffix));
  if (!suffix.empty()) {
    return {ErrorCode::kUnsupported,
            "field \"suffix\": this API does not fill in the middle; /infill does, with input_prefix and input_suffix"};
  }
  int64_t n_best = options.n;
  TRY(fields.read("best_of", n_best, 1, std::numeric_limits<int32_t>::max()));
  if (n_best > options.n) {
    return {ErrorCode::kUnsupported,
            fmt::format("field \"best_of\" is {} and \"n\" is {}: this server does not choose among answers; ask for "
                        "all of them with \"n\"",
                        n_best, options.n)};
  }
  if (echo && n_top >= 0) {  // the prompt's are not kept while it is read
    return {ErrorCode::kUnsupported,
            "fields \"echo\" and \"logprobs\": this server has no probabilities of a prompt's tokens; leave one of the "
            "two out, or score a text with `tessera perplexity` or `tessera logits`"};
  }
  ASSIGN_OR_RETURN(ServingRequest request, read_generation(call, body));
  if (!fields.has("max_tokens") && !fields.has("max_completion_tokens") && !fields.has("n_predict") &&
      request.max_tokens < 0) {
    request.max_tokens = 16;  // OpenAI's default
  }
  options.wants_logprobs = n_top >= 0;
  request.wants_logprobs = options.wants_logprobs;
  request.n_probs = std::max(n_top, request.n_probs);
  ASSIGN_OR_RETURN(std::vector<std::vector<int32_t>> prompts, read_prompts(call, body));
  std::vector<ServingRequest> requests;
  std::vector<std::string> echoes;
  for (std::vector<int32_t>& prompt : prompts) {
    const std::string text = echo ? call.model->model->tokenizer().decode(prompt, {.show_special = false}) : "";
    request.prompt = std::move(prompt);
    for (ServingRequest& choice : with_choices(request, options.n)) {
      requests.push_back(std::move(choice));
      echoes.push_back(text);
    }
  }
  auto writer = std::make_shared<OpenAiTextWriter>(call, std::move(options), std::move(echoes));
  return start_generation(call, std::move(requests), std::move(writer));
}

}  // namespace tessera
