#include "server/chat_format.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>

#include "server/request_fields.h"

namespace tessera {
namespace {

constexpr std::string_view kBlanks = " \t\r\n";

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(kBlanks);
  return begin == std::string_view::npos ? std::string_view()
                                         : text.substr(begin, text.find_last_not_of(kBlanks) + 1 - begin);
}

// Bytes at the end of text that may yet become one of the marks.
size_t held_back(std::string_view text, std::span<const std::string_view> marks) {
  size_t most = 0;
  for (const std::string_view mark : marks) {
    for (size_t n = mark.empty() ? 0 : std::min(mark.size() - 1, text.size()); n > most; --n) {
      if (text.ends_with(mark.substr(0, n))) {
        most = n;
      }
    }
  }
  return most;
}

struct Found {
  size_t at = std::string_view::npos;
  size_t mark = 0;  // index
};

Found find_first(std::string_view text, std::span<const std::string_view> marks) {
  Found found;
  for (size_t i = 0; i < marks.size(); ++i) {
    const size_t at = marks[i].empty() ? std::string_view::npos : text.find(marks[i]);
    if (at < found.at) {
      found = {at, i};
    }
  }
  return found;
}

std::optional<ChatPiece> call_of(const Json& json) {
  const auto name = json.is_object() ? json.find("name") : json.end();
  if (!json.is_object() || name == json.end() || !name->is_string()) {
    return std::nullopt;
  }
  ChatPiece piece{ChatPiece::Kind::kToolCall, "{}", name->get<std::string>()};
  for (const char* key : {"arguments", "parameters"}) {
    if (const auto found = json.find(key); found != json.end() && !found->is_null()) {
      piece.text = found->is_string() ? found->get<std::string>() : dump_json(*found);
    }
  }
  return piece;
}

// What tools are called; anything else between the marks is no call.
bool is_name(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("_-.:/").find(c) != std::string_view::npos;
  });
}

// A value as a template writes it: a string as it is, anything else as JSON.
Json parameter_value(std::string_view text, bool is_string) {
  if (!is_string) {
    if (auto json = parse_json(text); json.ok()) {
      return std::move(json).value();
    }
  }
  return std::string(text);
}

// Without the newline that templates put on each side.
std::string_view without_newlines(std::string_view text) {
  text.remove_prefix(text.starts_with('\n') ? 1 : 0);
  text.remove_suffix(text.ends_with('\n') ? 1 : 0);
  return text;
}

// begin NAME middle VALUE end, as often as it comes: <parameter=NAME>VALUE</parameter>.
Json marked_parameters(std::string_view text, std::array<std::string_view, 3> marks, const std::string& tool,
                       const StringParameters& strings) {
  Json parameters = Json::object();
  while (parameters.size() < kJsonMembersMax) {
    const size_t begin = text.find(marks[0]);
    const size_t middle = begin == std::string_view::npos ? begin : text.find(marks[1], begin + marks[0].size());
    if (middle == std::string_view::npos) {
      break;
    }
    const size_t value = middle + marks[1].size();
    const size_t end = std::min(text.find(marks[2], value), text.size());
    const std::string name(trimmed(text.substr(begin + marks[0].size(), middle - begin - marks[0].size())));
    const std::string_view written = without_newlines(text.substr(value, end - value));
    parameters[name] = parameter_value(written, strings.contains({tool, name}));
    text = text.substr(std::min(end + marks[2].size(), text.size()));
  }
  return parameters;
}

std::optional<ChatPiece> marked_call(std::string_view body, const StringParameters& strings) {
  constexpr std::string_view kFunction = "<function=";
  if (body.starts_with(kFunction)) {
    const size_t end = body.find('>');
    if (end == std::string_view::npos) {
      return std::nullopt;
    }
    const std::string name(trimmed(body.substr(kFunction.size(), end - kFunction.size())));
    const Json parameters =
        marked_parameters(body.substr(end + 1), {"<parameter=", ">", "</parameter>"}, name, strings);
    return ChatPiece{ChatPiece::Kind::kToolCall, dump_json(parameters), name};
  }
  const size_t end = std::min(body.find("<arg_key>"), body.size());
  const std::string name(trimmed(body.substr(0, end)));
  if (!is_name(name)) {
    return std::nullopt;
  }
  // The key's end, blanks and the value's begin are one mark to the loop: take the keys' ends out first.
  std::string rest(body.substr(end));
  for (size_t at = rest.find("</arg_key>"); at != std::string::npos; at = rest.find("</arg_key>", at)) {
    rest.erase(at, std::string_view("</arg_key>").size());
  }
  const Json parameters = marked_parameters(rest, {"<arg_key>", "<arg_value>", "</arg_value>"}, name, strings);
  return ChatPiece{ChatPiece::Kind::kToolCall, dump_json(parameters), name};
}

// name[ARGS]{...} or name{...}, perhaps with [CALL_ID]... behind the name.
std::optional<ChatPiece> mistral_call(std::string_view body) {
  const size_t json = body.find('{');
  const std::string name(trimmed(body.substr(0, std::min(body.find('['), json))));
  if (json == std::string_view::npos || !is_name(name)) {
    return std::nullopt;
  }
  const auto parsed = parse_json_object(body.substr(json));
  if (!parsed.ok()) {
    return std::nullopt;
  }
  return ChatPiece{ChatPiece::Kind::kToolCall, dump_json(*parsed), name};
}

std::vector<ChatPiece> calls_of(std::string_view body, const StringParameters& strings) {
  std::vector<ChatPiece> calls;
  if (const auto json = parse_json(body); json.ok()) {
    const bool is_list = json->is_array();
    for (size_t i = 0; i < (is_list ? json->size() : 1); ++i) {
      auto call = call_of(is_list ? (*json)[i] : *json);
      if (!call) {
        return {};
      }
      calls.push_back(std::move(*call));
    }
    return calls;
  }
  auto call = body.find('{') != std::string_view::npos && !body.starts_with('<') ? mistral_call(body) : std::nullopt;
  if (!call) {
    call = marked_call(body, strings);
  }
  if (call) {
    calls.push_back(std::move(*call));
  }
  return calls;
}

constexpr std::string_view kChannel = "<|channel|>";
constexpr std::string_view kMessage = "<|message|>";
constexpr std::array<std::string_view, 5> kBodyEnds = {"<|end|>", "<|call|>", "<|return|>", "<|start|>", kChannel};
constexpr std::string_view kPythonTag = "<|python_tag|>";

}  // namespace

ChatFormat detect_chat_format(std::string_view source) {
  const auto has = [&](std::string_view mark) { return source.find(mark) != std::string_view::npos; };
  ChatFormat format;
  if (has(kChannel) && has(kMessage)) {
    format.tools = ToolStyle::kHarmony;
    format.marks_are_special = true;
    return format;
  }
  if (has("<think>") || has("</think>")) {
    format.think_begin = "<think>";
    format.think_end = "</think>";
  }
  if (has("<tool_call>")) {
    format.tools = ToolStyle::kTagged;
  } else if (has("[TOOL_CALLS]")) {
    format.tools = ToolStyle::kMistral;
    format.marks_are_special = true;
  } else if (has(kPythonTag) || (has("\"parameters\": ") && has("<|start_header_id|>"))) {
    format.tools = ToolStyle::kJson;
    format.marks_are_special = true;
  }
  return format;
}

ChatParser::ChatParser(ChatFormat format, bool has_tools, std::string_view prompt, StringParameters string_parameters)
    : format_(std::move(format)), has_tools_(has_tools), string_parameters_(std::move(string_parameters)) {
  if (format_.tools == ToolStyle::kTagged) {
    call_begin_ = "<tool_call>";
    call_end_ = "</tool_call>";
  } else if (format_.tools == ToolStyle::kMistral) {
    call_begin_ = "[TOOL_CALLS]";
  } else if (format_.tools == ToolStyle::kJson) {
    call_begin_ = kPythonTag;
  }
  const size_t begin = format_.think_begin.empty() ? std::string_view::npos : prompt.rfind(format_.think_begin);
  if (begin != std::string_view::npos && prompt.find(format_.think_end, begin) == std::string_view::npos &&
      trimmed(prompt.substr(begin + format_.think_begin.size())).empty()) {
    state_ = State::kReasoning;
  }
}

std::vector<ChatPiece> ChatParser::push(std::string_view text) {
  held_ += text;
  std::vector<ChatPiece> pieces;
  while (step(pieces, false)) {
  }
  return pieces;
}

std::vector<ChatPiece> ChatParser::finish() {
  std::vector<ChatPiece> pieces;
  while (step(pieces, true)) {
  }
  return pieces;
}

// Takes something off held_. False: there is nothing more to take yet.
bool ChatParser::step(std::vector<ChatPiece>& pieces, bool is_end) {
  if (format_.tools == ToolStyle::kHarmony) {
    return step_harmony(pieces, is_end);
  }
  switch (state_) {
    case State::kReasoning: return step_reasoning(pieces, is_end);
    case State::kCall: return step_call(pieces, is_end);
    default: return step_text(pieces, is_end);
  }
}

bool ChatParser::step_text(std::vector<ChatPiece>& pieces, bool is_end) {
  if (state_ == State::kStart && has_tools_ && format_.tools == ToolStyle::kJson) {
    const size_t first = held_.find_first_not_of(kBlanks);
    if (first == std::string::npos) {
      return false;
    }
    if (held_[first] == '{') {
      state_ = State::kCall;
      return true;
    }
  }
  const std::array<std::string_view, 2> marks = {state_ == State::kStart ? format_.think_begin : std::string_view(),
                                                 has_tools_ ? call_begin_ : std::string_view()};
  const Found found = find_first(held_, marks);
  const bool is_found = found.at != std::string_view::npos;
  const size_t n = is_found ? found.at : held_.size() - (is_end ? 0 : held_back(held_, marks));
  const bool is_blank = trimmed(std::string_view(held_).substr(0, n)).empty();
  // Reasoning comes first or not at all: a mark behind text is text.
  if (is_found && found.mark == 0 && !is_blank) {
    state_ = State::kContent;
    return true;
  }
  if (!is_found && n == 0) {
    return false;
  }
  emit(pieces, ChatPiece::Kind::kContent, held_.substr(0, n));
  held_.erase(0, n);
  if (!is_blank) {
    state_ = State::kContent;
  }
  if (is_found) {
    held_.erase(0, marks[found.mark].size());
    state_ = found.mark == 0 ? State::kReasoning : State::kCall;
    trims_ = true;
  }
  return is_found;
}

bool ChatParser::step_reasoning(std::vector<ChatPiece>& pieces, bool is_end) {
  const std::array<std::string_view, 1> marks = {format_.think_end};
  const Found found = find_first(held_, marks);
  const bool is_found = found.at != std::string_view::npos;
  const size_t n = is_found ? found.at : held_.size() - (is_end ? 0 : held_back(held_, marks));
  if (n > 0) {
    emit(pieces, ChatPiece::Kind::kReasoning, held_.substr(0, n));
  }
  held_.erase(0, n + (is_found ? marks[0].size() : 0));
  if (is_found) {
    state_ = State::kContent;
    trims_ = true;
  }
  return is_found;
}

bool ChatParser::step_call(std::vector<ChatPiece>& pieces, bool is_end) {
  const bool has_end = !call_end_.empty();
  const std::string_view mark = has_end ? std::string_view(call_end_) : std::string_view(call_begin_);
  const size_t end = held_.find(mark);
  if (end == std::string::npos && !is_end) {
    return false;
  }
  const size_t n = std::min(end, held_.size());
  const std::string body = held_.substr(0, n);
  if (body.empty() && end == std::string::npos) {
    state_ = State::kContent;
    return false;
  }
  std::string written = state_ == State::kCall && format_.tools != ToolStyle::kJson ? call_begin_ + body : body;
  if (has_end && end != std::string::npos) {
    written += call_end_;
  }
  emit_calls(pieces, std::string(trimmed(body)), written);
  held_.erase(0, std::min(n + mark.size(), held_.size()));
  state_ = has_end || end == std::string::npos ? State::kContent : State::kCall;
  trims_ = true;
  return !held_.empty();
}

void ChatParser::emit_calls(std::vector<ChatPiece>& pieces, const std::string& body, std::string_view as_written) {
  std::vector<ChatPiece> calls = calls_of(body, string_parameters_);
  if (calls.empty()) {
    trims_ = false;
    emit(pieces, ChatPiece::Kind::kContent, std::string(as_written));
    return;
  }
  std::ranges::move(calls, std::back_inserter(pieces));
}

void ChatParser::emit(std::vector<ChatPiece>& pieces, ChatPiece::Kind kind, std::string text) {
  if (trims_) {
    text.erase(0, std::min(text.find_first_not_of(kBlanks), text.size()));
  }
  if (text.empty()) {
    return;
  }
  trims_ = false;
  if (!pieces.empty() && pieces.back().kind == kind) {
    pieces.back().text += text;
  } else {
    pieces.push_back({kind, std::move(text), ""});
  }
}

// <|channel|>HEADER<|message|>BODY<|end|><|start|>assistant<|channel|>... A header that is none is content.
bool ChatParser::step_harmony(std::vector<ChatPiece>& pieces, bool is_end) {
  const std::string_view text = held_;
  if (state_ == State::kHeader || state_ == State::kBetween) {
    const std::string_view mark = state_ == State::kHeader ? kMessage : kChannel;
    const size_t at = text.find(mark);
    if (at == std::string_view::npos) {
      if (is_end && state_ == State::kHeader) {
        emit(pieces, ChatPiece::Kind::kContent, held_);
      }
      if (is_end) {
        held_.clear();
      }
      return false;
    }
    header_ = state_ == State::kHeader ? held_.substr(0, at) : "";
    held_.erase(0, at + mark.size());
    state_ = state_ == State::kHeader ? State::kContent : State::kHeader;
    trims_ = true;
    return true;
  }
  const Found found = find_first(text, kBodyEnds);
  const bool is_found = found.at != std::string_view::npos;
  const size_t n = is_found ? found.at : text.size() - (is_end ? 0 : held_back(text, kBodyEnds));
  if (header_.find("to=functions.") != std::string::npos) {
    body_ += held_.substr(0, n);
  } else if (n > 0) {
    const bool is_reasoning = trimmed(header_).starts_with("analysis");
    emit(pieces, is_reasoning ? ChatPiece::Kind::kReasoning : ChatPiece::Kind::kContent, held_.substr(0, n));
  }
  held_.erase(0, n + (is_found ? kBodyEnds[found.mark].size() : 0));
  if (is_found || is_end) {
    end_harmony_body(pieces);
  }
  if (is_found) {
    state_ = kBodyEnds[found.mark] == kChannel ? State::kHeader : State::kBetween;
  }
  return is_found;
}

void ChatParser::end_harmony_body(std::vector<ChatPiece>& pieces) {
  constexpr std::string_view kTo = "to=functions.";
  if (const size_t at = header_.find(kTo); at != std::string::npos) {
    const size_t begin = at + kTo.size();
    const size_t end = std::min(header_.find_first_of(" \t\n<", begin), header_.size());
    const auto arguments = parse_json_object(body_);
    if (arguments.ok()) {
      pieces.push_back({ChatPiece::Kind::kToolCall, dump_json(*arguments), header_.substr(begin, end - begin)});
    } else {
      emit(pieces, ChatPiece::Kind::kContent, body_);
    }
  }
  header_.clear();
  body_.clear();
}

}  // namespace tessera
