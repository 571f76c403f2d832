#include "server/chat_writer.h"

#include <algorithm>
#include <fmt/format.h>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>

#include "runtime/grammar/gbnf_text.h"
#include "server/chat_messages.h"
#include "server/tool_grammar.h"

namespace tessera {
namespace {

// Control tokens stand for no text: a grammar names them.
MarkSpelling mark_spelling(const Model& model) {
  return [&model](std::string_view mark) {
    const std::optional<int32_t> id = model.tokenizer().find(mark);
    return id && model.tokenizer().is_control(*id) ? fmt::format("<[{}]>", *id) : gbnf_literal(mark);
  };
}

// Restricts the answer to what tools and schema ask for.
Status restrict_answer(const Call& call, const PreparedChat& chat, Thinking thinking, SamplerOptions& sampling) {
  const ToolRequest& tools = chat.tools;
  const MarkSpelling spelling = mark_spelling(*call.model->model);
  const bool enforces =
      !tools.tools.empty() && (tools.required || tools.restricted || !tools.parallel || !sampling.json_schema.empty() ||
                               std::ranges::any_of(tools.tools, &ToolSpec::strict));
  if (enforces && !sampling.grammar.empty()) {
    return {ErrorCode::kInvalidArgument,
            "a grammar cannot restrict an answer in which tool calls are enforced (by \"tool_choice\", \"strict\" or "
            "\"parallel_tool_calls\"); leave one out"};
  }
  if (enforces) {
    ASSIGN_OR_RETURN(sampling.grammar, tool_grammar(chat.format, tools, thinking, sampling.json_schema, spelling));
    sampling.json_schema.clear();
  } else if (!sampling.json_schema.empty() && (thinking != Thinking::kNo || chat.format.tools == ToolStyle::kHarmony)) {
    ASSIGN_OR_RETURN(sampling.grammar, thinking_schema_grammar(chat.format, thinking, sampling.json_schema, spelling));
    sampling.json_schema.clear();
  }
  return {};
}

ReasoningLimit reasoning_limit(const ChatFormat& format, Thinking thinking, Continued continued, int64_t budget,
                               const Tokenizer& tokenizer) {
  ReasoningLimit limit;
  const bool is_harmony = format.tools == ToolStyle::kHarmony;
  if (budget < 0 || (thinking == Thinking::kNo && !is_harmony)) {
    return limit;
  }
  limit.n_tokens = budget;
  limit.begin = is_harmony ? "<|channel|>analysis<|message|>" : format.think_begin;
  limit.end = is_harmony ? "<|end|>" : format.think_end;
  const std::optional<int32_t> id = tokenizer.find(limit.end);
  limit.end_tokens = id ? std::vector{*id} : tokenizer.encode(limit.end, {.parse_special = true});
  limit.is_open = thinking == Thinking::kOpen || (is_harmony && continued == Continued::kReasoning);
  limit.repeats = is_harmony;
  return limit;
}

// OpenAI's fields before there were tools. An empty list offers nothing, and two choices ask for none of it.
Status refuse_functions(const Fields& fields) {
  for (const auto& [old, now] : {std::pair("functions", "tools"), std::pair("function_call", "tool_choice")}) {
    const Json* found = fields.find(old);
    if (found != nullptr && !(found->is_array() && found->empty()) && *found != "none" && *found != "auto") {
      return {ErrorCode::kUnsupported,
              fmt::format("{}: this server does not know the older form of tool calls; use \"{}\"", fields.label(old),
                          now)};
    }
  }
  return {};
}

}  // namespace

Result<PreparedChat> prepare_chat(const Call& call, Json& body, const ToolFields& names) {
  const Fields fields(body);
  TRY(check_messages(fields));
  TRY(refuse_functions(fields));
  if (fields.has("chat_template")) {
    return Status(ErrorCode::kUnsupported,
                  "field \"chat_template\": a request cannot bring its own; start the server with --chat-template or "
                  "--chat-template-file");
  }
  PreparedChat chat;
  chat.format = call.model->chat_format;
  ASSIGN_OR_RETURN(chat.reasoning,
                   read_reasoning(call.model->reasoning, chat.format.tools == ToolStyle::kHarmony, body));
  ASSIGN_OR_RETURN(chat.tools, read_tools(body, names));
  if (!chat.tools.tools.empty()) {
    if (chat.format.tools == ToolStyle::kNone && !chat.format.template_has_tools) {
      write_tools_into_messages(body, chat.tools.tools);
    }
    chat.format = with_tools(chat.format);
  }
  return chat;
}

Result<ChatRequest> read_chat(const Call& call, Json body, const ToolFields& names) {
  const Tokenizer& tokenizer = call.model->model->tokenizer();
  ChatRequest request;
  ASSIGN_OR_RETURN(request.serving, read_generation(call, body));
  ASSIGN_OR_RETURN(PreparedChat chat, prepare_chat(call, body, names));
  ASSIGN_OR_RETURN(ChatPrompt prompt, render_chat(call, dump_json(body)));
  request.serving.prompt = std::move(prompt.tokens);
  request.serving.branches = chat_branches(call, body, request.serving.prompt);
  request.prompt = std::move(prompt.text);
  request.continued = prompt.continued;
  const std::string end = call.model->chat_template->spelled_end(tokenizer);
  std::vector<std::string>& stop = request.serving.stop;
  if (!end.empty() && !request.serving.ignore_eos && std::ranges::count(stop, end) == 0) {
    stop.push_back(end);
    request.spelled_end = end;
  }
  const Thinking thinking = thinking_after(chat.format, request.prompt, request.continued);
  TRY(restrict_answer(call, chat, thinking, request.serving.sampling));
  request.serving.reasoning =
      reasoning_limit(chat.format, thinking, request.continued, chat.reasoning.budget, tokenizer);
  request.format = std::move(chat.format);
  const std::optional<int32_t> think_end = tokenizer.find(request.format.think_end);
  const bool thinks_in_control = think_end && tokenizer.is_control(*think_end);
  request.inlines_reasoning = chat.reasoning.is_inline;
  if (!chat.reasoning.is_apart) {
    request.format.think_begin.clear();
    request.format.think_end.clear();
  }
  if (!chat.tools.tools.empty()) {
    request.tools = chat_tools(chat.tools.tools);
  }
  const bool has_marks = request.tools != nullptr || request.format.tools == ToolStyle::kHarmony;
  request.serving.show_special = thinks_in_control || (request.format.marks_are_special && has_marks);
  return request;
}

Result<ConvertedChat> read_converted(const Call& call, const Json& body, Result<Json> (*convert)(const Json& body),
                                     const ToolFields& names) {
  ConvertedChat chat;
  const Fields fields(body);
  std::string model;
  TRY(fields.read("stream", chat.streams));
  TRY(fields.read("model", model));
  ASSIGN_OR_RETURN(chat.ping, read_ping(call, body));
  ASSIGN_OR_RETURN(Json converted, convert(body));
  ASSIGN_OR_RETURN(chat.request, read_chat(call, std::move(converted), names));
  return chat;
}

Result<std::string> content_text(const Json& content, const std::string& label) {
  if (content.is_string()) {
    return content.get<std::string>();
  }
  const auto wrong = [&](const Json& found, std::string_view wanted) {
    return Status(ErrorCode::kInvalidArgument,
                  fmt::format("field \"{}\" is or has {} where {} must be", label, json_kind(found), wanted));
  };
  if (!content.is_array()) {
    return wrong(content, "a string or an array of text parts");
  }
  std::string text;
  for (const Json& part : content) {
    if (!part.is_object()) {
      return wrong(part, "a text part");
    }
    const Fields fields(part, label);
    std::string type;
    std::string value;
    TRY(fields.read("type", type));
    if (!type.ends_with("text")) {  // text, input_text, output_text
      return Status(ErrorCode::kUnsupported,
                    fmt::format("{} is \"{}\"; this server reads text", fields.label("type"), type.substr(0, 40)));
    }
    TRY(fields.read("text", value));
    text += (text.empty() ? "" : "\n") + value;
  }
  return text;
}

std::vector<ChatCall> ChatAnswer::whole_calls() const {
  std::vector<ChatCall> result;
  std::ranges::copy_if(calls, std::back_inserter(result), &ChatCall::is_whole);
  return result;
}

ChatWriter::ChatWriter(const Call& call, bool streams, const ChatRequest& request, size_t n_choices)
    : ReplyWriter(call, streams),
      parsers_(n_choices, ChatParser(request.format, request.prompt, request.tools, request.continued)),
      spelled_end_(request.spelled_end),
      inlines_reasoning_(request.inlines_reasoning),
      think_begin_(request.format.think_begin.empty() ? "<think>" : request.format.think_begin),
      think_end_(request.format.think_end.empty() ? "</think>" : request.format.think_end),
      is_open_(n_choices),
      answers_(n_choices) {}

void ChatWriter::on_text(size_t choice, std::string_view text, std::span<const ServingToken> tokens,
                         const ServingTimings& timings) {
  (void)timings;
  const bool was_reasoning = parsers_[choice].is_reasoning();
  add(choice, was_reasoning, parsers_[choice].push(text), tokens);
}

void ChatWriter::on_end(size_t choice, const ServingEnd& end) {
  const bool was_reasoning = parsers_[choice].is_reasoning();
  add(choice, was_reasoning, parsers_[choice].finish(), textless_tokens(end));
  ServingEnd& ended = answers_[choice].end;
  ended = end;
  if (ended.stop == StopReason::kWord && ended.stop_word == spelled_end_) {
    ended.stop = StopReason::kEos;
    ended.stop_word.clear();
  }
  on_answer(choice);
}

// Reasoning as content, between its marks.
std::vector<ChatPiece> ChatWriter::inlined(size_t choice, std::vector<ChatPiece> pieces) {
  std::vector<ChatPiece> result;
  const auto close = [&] {
    if (is_open_[choice]) {
      result.push_back({ChatPiece::Kind::kContent, think_end_});
      is_open_[choice] = false;
    }
  };
  for (ChatPiece& piece : pieces) {
    if (piece.kind == ChatPiece::Kind::kReasoning) {
      piece = {ChatPiece::Kind::kContent, (is_open_[choice] ? "" : think_begin_) + piece.text};
      is_open_[choice] = true;
    } else {
      close();
    }
    result.push_back(std::move(piece));
  }
  if (!parsers_[choice].is_reasoning()) {
    close();
  }
  return result;
}

void ChatWriter::add(size_t choice, bool was_reasoning, std::vector<ChatPiece> pieces,
                     std::span<const ServingToken> tokens) {
  ChatAnswer& answer = answers_[choice];
  const auto is_reasoning = [](const ChatPiece& piece) { return piece.kind == ChatPiece::Kind::kReasoning; };
  if (was_reasoning || parsers_[choice].is_reasoning() || std::ranges::any_of(pieces, is_reasoning)) {
    answer.n_reasoning += std::ssize(tokens);
  }
  if (inlines_reasoning_) {
    pieces = inlined(choice, std::move(pieces));
  }
  for (const ChatPiece& piece : pieces) {
    switch (piece.kind) {
      case ChatPiece::Kind::kReasoning: answer.reasoning += piece.text; break;
      case ChatPiece::Kind::kContent: answer.content += piece.text; break;
      case ChatPiece::Kind::kCall: answer.calls.push_back({piece.text, "", false}); break;
      case ChatPiece::Kind::kArguments: answer.calls.back().arguments += piece.text; break;
      case ChatPiece::Kind::kCallEnd: answer.calls.back().is_whole = true; break;
    }
  }
  if (streams()) {
    on_pieces(choice, pieces, tokens);
  } else {
    answer.tokens.insert(answer.tokens.end(), tokens.begin(), tokens.end());
  }
}

}  // namespace tessera
