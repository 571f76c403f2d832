// OpenAI's /v1/responses, by way of the chat form. Nothing is stored: each request brings its whole conversation.

#include <ctime>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "server/chat_writer.h"

namespace tessera {
namespace {

Status bad(std::string message) {
  return {ErrorCode::kInvalidArgument, std::move(message)};
}

Status add_item(const Json& item, const std::string& label, Json& messages) {
  if (!item.is_object()) {
    return bad(fmt::format("field \"{}\" is {}; it must be an object", label, json_kind(item)));
  }
  const Fields fields(item, label);
  std::string type = "message";
  std::string id;
  TRY(fields.read("type", type));
  TRY(fields.read("call_id", id));
  if (type == "message") {
    std::string role;
    TRY(fields.read("role", role));
    const Json* content = fields.find("content");
    if (role.empty() || content == nullptr) {
      return bad(fmt::format("field \"{}\" needs a role and content", label));
    }
    ASSIGN_OR_RETURN(const std::string text, content_text(*content, label + ".content"));
    messages.push_back({{"role", role}, {"content", text}});
    return {};
  }
  if (type == "function_call") {
    std::string name;
    std::string arguments;
    TRY(fields.read("name", name));
    TRY(fields.read("arguments", arguments));
    const Json call = {{"id", id}, {"type", "function"}, {"function", {{"name", name}, {"arguments", arguments}}}};
    if (messages.empty() || messages.back()["role"] != "assistant") {
      messages.push_back({{"role", "assistant"}, {"content", ""}});
    }
    messages.back()["tool_calls"].push_back(call);
    return {};
  }
  if (type == "function_call_output") {
    const Json* output = fields.find("output");
    ASSIGN_OR_RETURN(const std::string text, content_text(output == nullptr ? Json("") : *output, label + ".output"));
    messages.push_back({{"role", "tool"}, {"tool_call_id", id}, {"content", text}});
    return {};
  }
  if (type == "reasoning") {  // what the model thought before is not shown to it again
    return {};
  }
  return {ErrorCode::kUnsupported,
          fmt::format("{} is \"{}\"; this server reads messages, function calls and their outputs",
                      fields.label("type"), type.substr(0, 40))};
}

const ToolFields kToolFields = {.name = "name", .parameters = "parameters"};

Status convert_tools(const Fields& fields, Json& out) {
  const Json* tools = fields.find("tools");
  if (tools == nullptr) {
    return {};
  }
  if (!tools->is_array()) {
    return fields.wrong("tools", *tools, "an array");
  }
  out["tools"] = Json::array();
  for (size_t i = 0; i < tools->size(); ++i) {
    const Json& tool = (*tools)[i];
    if (!tool.is_object() || tool.value("type", Json()) != "function") {
      return {ErrorCode::kUnsupported, fmt::format("field \"tools[{}]\" is no function; this server runs no tools", i)};
    }
    Json function = Json::object();
    for (const char* name : {"name", "description", "strict", "parameters"}) {
      if (tool.contains(name)) {
        function[name] = tool[name];
      }
    }
    out["tools"].push_back({{"type", "function"}, {"function", std::move(function)}});
  }
  return {};
}

Result<Json> to_chat(const Json& body) {
  const Fields fields(body);
  if (fields.has("previous_response_id") || fields.has("conversation")) {
    return Status(ErrorCode::kUnsupported,
                  "field \"previous_response_id\": this server stores no responses; send the "
                  "whole conversation as \"input\"");
  }
  Json out = Json::object();
  for (const char* same : {"temperature", "top_k", "top_p", "min_p", "seed", "tool_choice", "parallel_tool_calls",
                           "cache_prompt", "id_slot", "chat_template_kwargs", "enable_thinking", "reasoning_format",
                           "reasoning_budget", "logit_bias", "samplers", "priority"}) {
    if (body.contains(same)) {
      out[same] = body[same];
    }
  }
  if (body.contains("max_output_tokens")) {
    int64_t n = -1;
    TRY(fields.read("max_output_tokens", n, 1, 1'000'000'000));
    out["max_tokens"] = n;
  }
  for (const auto& [name, inner, target] :
       {std::tuple("reasoning", "effort", "reasoning_effort"), std::tuple("text", "format", "response_format")}) {
    if (const Json* object = fields.find(name)) {
      if (!object->is_object()) {
        return fields.wrong(name, *object, "an object");
      }
      if (object->contains(inner) && !(*object)[inner].is_null()) {
        out[target] = (*object)[inner];
      }
    }
  }
  TRY(convert_tools(fields, out));
  Json messages = Json::array();
  std::string instructions;
  TRY(fields.read("instructions", instructions));
  if (!instructions.empty()) {
    messages.push_back({{"role", "system"}, {"content", instructions}});
  }
  const Json* input = fields.find("input");
  if (input == nullptr) {
    return bad("field \"input\" is missing");
  }
  if (input->is_string()) {
    messages.push_back({{"role", "user"}, {"content", *input}});
  } else if (input->is_array() && !input->empty()) {
    for (size_t i = 0; i < input->size(); ++i) {
      TRY(add_item((*input)[i], fmt::format("input[{}]", i), messages));
    }
  } else {
    return fields.wrong("input", *input, "a string or an array with at least one item");
  }
  out["messages"] = std::move(messages);
  return out;
}

class ResponsesWriter final : public ChatWriter {
 public:
  ResponsesWriter(Call& call, const Json& body, bool streams, std::chrono::seconds ping, const ChatRequest& request)
      : ChatWriter(call, streams, request, 1), ping_(ping), id_(call.server.new_id("resp_")) {
    const auto echoed = [&](const char* name, const Json& otherwise) {
      const auto found = body.find(name);
      return found == body.end() ? otherwise : *found;
    };
    base_ = {{"id", id_},
             {"object", "response"},
             {"created_at", static_cast<int64_t>(std::time(nullptr))},
             {"status", "in_progress"},
             {"error", nullptr},
             {"incomplete_details", nullptr},
             {"instructions", echoed("instructions", nullptr)},
             {"max_output_tokens", echoed("max_output_tokens", nullptr)},
             {"model", call.model->name},
             {"output", Json::array()},
             {"parallel_tool_calls", echoed("parallel_tool_calls", true)},
             {"previous_response_id", nullptr},
             {"store", false},
             {"temperature", request.serving.sampling.temperature},
             {"tool_choice", echoed("tool_choice", "auto")},
             {"tools", echoed("tools", Json::array())},
             {"top_p", request.serving.sampling.top_p},
             {"metadata", echoed("metadata", Json::object())}};
  }

  void begin() override {
    if (streams()) {
      exchange().begin_events(ping_);
      send_event("response.created", {{"response", base_}});
      send_event("response.in_progress", {{"response", base_}});
    }
  }

  void finish() override {
    const ServingEnd& end = answer(0).end;
    const bool is_cut = finish_reason(end.stop) == "length";
    const std::string_view status = is_cut ? "incomplete" : "completed";
    close_item(status);
    base_["status"] = status;
    if (is_cut) {
      base_["incomplete_details"] = {{"reason", "max_output_tokens"}};
    }
    base_["usage"] = {{"input_tokens", end.n_prompt},
                      {"input_tokens_details", {{"cached_tokens", end.timings.cached_n}}},
                      {"output_tokens", end.timings.predicted_n},
                      {"output_tokens_details", {{"reasoning_tokens", answer(0).n_reasoning}}},
                      {"total_tokens", end.n_prompt + end.timings.predicted_n}};
    if (streams()) {
      send_event(is_cut ? "response.incomplete" : "response.completed", {{"response", base_}});
      exchange().end_events();
    } else {
      reply(base_);
    }
  }

 protected:
  void on_pieces(size_t /*choice*/, std::span<const ChatPiece> pieces,
                 std::span<const ServingToken> /*tokens*/) override {
    for (const ChatPiece& piece : pieces) {
      add(piece);
    }
  }

  // Without a stream the output is put together at the end, by the same steps.
  void on_answer(size_t choice) override {
    if (streams()) {
      return;
    }
    const ChatAnswer& a = answer(choice);
    if (!a.reasoning.empty()) {
      add({ChatPiece::Kind::kReasoning, a.reasoning});
    }
    if (!a.content.empty()) {
      add({ChatPiece::Kind::kContent, a.content});
    }
    for (const ChatCall& call : a.calls) {
      add({ChatPiece::Kind::kCall, call.name});
      add({ChatPiece::Kind::kArguments, call.arguments});
      if (call.is_whole) {
        add({ChatPiece::Kind::kCallEnd, ""});
      }
    }
  }

 private:
  void add(const ChatPiece& piece) {
    switch (piece.kind) {
      case ChatPiece::Kind::kCall: open_call(piece.text); return;
      case ChatPiece::Kind::kArguments: {
        item_["arguments"].get_ref<std::string&>() += piece.text;
        Json delta = call_position();
        delta["delta"] = piece.text;
        send_event("response.function_call_arguments.delta", std::move(delta));
        return;
      }
      case ChatPiece::Kind::kCallEnd: close_call(true); return;
      default: break;
    }
    const bool is_text = piece.kind == ChatPiece::Kind::kContent;
    open_item(is_text);
    item_["content"][0]["text"].get_ref<std::string&>() += piece.text;
    Json delta = position();
    delta["delta"] = piece.text;
    send_event(is_text ? "response.output_text.delta" : "response.reasoning_text.delta", std::move(delta));
  }

  void open_item(bool is_text) {
    const std::string_view type = is_text ? "message" : "reasoning";
    if (!item_.is_null() && item_["type"] == type) {
      return;
    }
    close_item();
    if (is_text) {
      item_ = {{"type", "message"}, {"id", item_id("msg_")}, {"status", "in_progress"}, {"role", "assistant"}};
    } else {
      item_ = {{"type", "reasoning"}, {"id", item_id("rs_")}, {"summary", Json::array()}, {"status", "in_progress"}};
    }
    item_["content"] = Json::array();
    send_event("response.output_item.added", {{"output_index", base_["output"].size()}, {"item", item_}});
    Json part = {{"type", is_text ? "output_text" : "reasoning_text"}, {"text", ""}};
    if (is_text) {
      part["annotations"] = Json::array();
    }
    item_["content"].push_back(std::move(part));
    send_part("response.content_part.added");
  }

  // status: of a message or reasoning; that of a call says whether it is whole.
  void close_item(std::string_view status = "completed") {
    if (item_.is_null()) {
      return;
    }
    if (item_["type"] == "function_call") {
      close_call(false);
      return;
    }
    Json done = position();
    done["text"] = item_["content"][0]["text"];
    send_event(item_["type"] == "message" ? "response.output_text.done" : "response.reasoning_text.done",
               std::move(done));
    send_part("response.content_part.done");
    item_["status"] = status;
    put_item(std::exchange(item_, Json()));
  }

  void open_call(std::string_view name) {
    close_item();
    item_ = {{"type", "function_call"}, {"id", item_id("fc_")},   {"call_id", item_id("call_")}, {"name", name},
             {"arguments", ""},         {"status", "in_progress"}};
    send_event("response.output_item.added", {{"output_index", base_["output"].size()}, {"item", item_}});
  }

  // A call that was cut off says so, and nobody hears that its arguments are done.
  void close_call(bool is_whole) {
    if (is_whole) {
      Json done = call_position();
      done["arguments"] = item_["arguments"];
      done["name"] = item_["name"];
      send_event("response.function_call_arguments.done", std::move(done));
    }
    item_["status"] = is_whole ? "completed" : "incomplete";
    put_item(std::exchange(item_, Json()));
  }

  [[nodiscard]] Json call_position() const {
    return {{"item_id", item_["id"]}, {"output_index", base_["output"].size()}};
  }

  void put_item(Json item) {
    send_event("response.output_item.done", {{"output_index", base_["output"].size()}, {"item", item}});
    base_["output"].push_back(std::move(item));
  }

  [[nodiscard]] Json position() const {
    return {{"item_id", item_["id"]},
            {"output_index", base_["output"].size()},
            {"content_index", 0},
            {"logprobs", Json::array()}};
  }

  void send_part(std::string_view event) {
    Json json = position();
    json.erase("logprobs");
    json["part"] = item_["content"][0];
    send_event(event, std::move(json));
  }

  void send_event(std::string_view type, Json fields) {
    if (!streams()) {
      return;
    }
    Json json = {{"type", type}, {"sequence_number", n_events_++}};
    json.update(fields);
    send(json, type);
  }

  std::string item_id(std::string_view prefix) { return fmt::format("{}{}_{}", prefix, id_.substr(5), n_ids_++); }

  std::chrono::seconds ping_;
  std::string id_;
  Json base_;  // the response so far
  Json item_;  // what is being sent; null: nothing
  int64_t n_events_ = 0;
  int64_t n_ids_ = 0;
};

}  // namespace

Status api_responses(Call& call) {
  ASSIGN_OR_RETURN(const Json body, call.take_body());
  ASSIGN_OR_RETURN(ConvertedChat chat, read_converted(call, body, to_chat, kToolFields));
  auto writer = std::make_shared<ResponsesWriter>(call, body, chat.streams, chat.ping, chat.request);
  return start_generation(call, with_choices(std::move(chat.request.serving), 1), std::move(writer));
}

}  // namespace tessera
