#include "server/chat_format.h"

#include <array>
#include <utility>

#include "server/chat_text.h"

namespace tessera {
namespace {

using Kind = ChatPiece::Kind;

constexpr std::string_view kChannel = "<|channel|>";
constexpr std::string_view kMessage = "<|message|>";
constexpr std::array<std::string_view, 5> kBodyEnds = {"<|end|>", "<|call|>", "<|return|>", "<|start|>", kChannel};
constexpr std::string_view kPythonTag = "<|python_tag|>";
constexpr std::string_view kRecipient = "to=functions.";
constexpr std::string_view kAnalysis = "analysis";  // the channel of reasoning
const ChatTools kNoTools;

}  // namespace

ChatFormat detect_chat_format(std::string_view source) {
  const auto has = [&](std::string_view mark) { return source.find(mark) != std::string_view::npos; };
  ChatFormat format;
  format.template_has_tools = has("tools");
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
    format.call_begin = "<tool_call>";
    format.call_end = "</tool_call>";
    format.syntax = has("<function=")  ? CallSyntax::kFunctionTags
                    : has("<arg_key>") ? CallSyntax::kArgTags
                                       : CallSyntax::kObject;
  } else if (has("[TOOL_CALLS]")) {
    format.tools = ToolStyle::kMistral;
    format.call_begin = "[TOOL_CALLS]";
    format.syntax = has("[ARGS]") ? CallSyntax::kNamed : CallSyntax::kObject;
    format.marks_are_special = true;
  } else if (has(kPythonTag) || (has("\"parameters\": ") && has("<|start_header_id|>"))) {
    format.tools = ToolStyle::kJson;
    format.call_begin = kPythonTag;
    format.marks_are_special = true;
  }
  return format;
}

ChatFormat with_tools(ChatFormat format) {
  if (format.tools == ToolStyle::kNone) {
    format.tools = ToolStyle::kJson;
  }
  return format;
}

Thinking thinking_after(const ChatFormat& format, std::string_view prompt, Continued continued) {
  if (format.think_begin.empty()) {
    return Thinking::kNo;
  }
  const size_t begin = prompt.rfind(format.think_begin);
  const size_t behind = begin == std::string_view::npos ? begin : begin + format.think_begin.size();
  if (continued == Continued::kReasoning ||
      (behind != std::string_view::npos && trimmed(prompt.substr(behind)).empty())) {
    return Thinking::kOpen;
  }
  return trimmed(prompt).ends_with(format.think_end) ? Thinking::kNo : Thinking::kMay;
}

ChatParser::ChatParser(ChatFormat format, std::string_view prompt, std::shared_ptr<const ChatTools> tools,
                       Continued continued)
    : format_(std::move(format)),
      tools_(std::move(tools)),
      reader_(tools_ != nullptr ? *tools_ : kNoTools, format_.tools == ToolStyle::kJson ? "" : format_.call_begin,
              format_.call_end),
      keeps_blanks_(continued != Continued::kNothing) {
  if (format_.tools == ToolStyle::kHarmony) {
    state_ = continued == Continued::kNothing ? State::kStart : State::kContent;
    channel_ = continued == Continued::kReasoning ? kAnalysis : "";
  } else if (thinking_after(format_, prompt, continued) == Thinking::kOpen) {
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

bool ChatParser::is_reasoning() const {
  return format_.tools == ToolStyle::kHarmony ? state_ == State::kContent && channel_.starts_with(kAnalysis)
                                              : state_ == State::kReasoning;
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
  if (at_start_ && tools_ != nullptr && format_.tools == ToolStyle::kJson) {
    const size_t first = held_.find_first_not_of(kBlanks);
    if (first == std::string::npos && !(is_end && keeps_blanks_)) {
      return false;
    }
    if (first != std::string::npos && held_[first] == '{') {
      reader_.start();
      state_ = State::kCall;
      return true;
    }
  }
  const std::array<std::string_view, 2> marks = {
      state_ == State::kStart ? format_.think_begin : std::string_view(),
      tools_ != nullptr ? std::string_view(format_.call_begin) : std::string_view()};
  const FoundMark found = find_first(held_, marks);
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
    reader_.start();
    begin_part();
  }
  return is_found;
}

bool ChatParser::step_reasoning(std::vector<ChatPiece>& pieces, bool is_end) {
  const std::array<std::string_view, 1> marks = {format_.think_end};
  const FoundMark found = find_first(held_, marks);
  const bool is_found = found.at != std::string_view::npos;
  const size_t n = is_found ? found.at : held_.size() - (is_end ? 0 : held_back(held_, marks));
  if (n > 0) {
    emit(pieces, ChatPiece::Kind::kReasoning, held_.substr(0, n));
  }
  held_.erase(0, n + (is_found ? marks[0].size() : 0));
  if (is_found) {
    state_ = State::kContent;
    begin_part();
  }
  return is_found;
}

bool ChatParser::step_call(std::vector<ChatPiece>& pieces, bool is_end) {
  const bool is_done = reader_.read(held_, is_end, pieces);
  if (!is_done) {
    return false;
  }
  state_ = State::kContent;
  at_start_ = pieces.empty() || pieces.back().kind != Kind::kContent;  // blanks between calls are no content
  keeps_blanks_ = false;
  return !held_.empty();
}

// Content or reasoning that did not begin in the prompt.
void ChatParser::begin_part() {
  at_start_ = true;
  keeps_blanks_ = false;
}

void ChatParser::emit(std::vector<ChatPiece>& pieces, ChatPiece::Kind kind, std::string text) {
  if (at_start_ && !keeps_blanks_) {
    text.erase(0, std::min(text.find_first_not_of(kBlanks), text.size()));
  }
  if (text.empty()) {
    return;
  }
  at_start_ = false;
  keeps_blanks_ = false;
  if (!pieces.empty() && pieces.back().kind == kind) {
    pieces.back().text += text;
  } else {
    pieces.push_back({kind, std::move(text)});
  }
}

// <|channel|>HEADER<|message|>BODY<|end|><|start|>assistant<|channel|>... A header that is none is content. Whom a
// message is to stands in the header or before its channel: <|start|>assistant to=functions.f<|channel|>commentary...
bool ChatParser::step_harmony(std::vector<ChatPiece>& pieces, bool is_end) {
  switch (state_) {
    case State::kStart: {
      constexpr std::string_view kTo = "to=";
      const std::string_view begin = trimmed(held_).substr(0, kTo.size());
      if (begin.size() < kTo.size() && kTo.starts_with(begin) && !is_end) {
        return false;
      }
      state_ = begin == kTo ? State::kBetween : State::kContent;
      return true;
    }
    case State::kHeader:
    case State::kBetween: return step_harmony_header(pieces, is_end);
    case State::kCall:
      if (!reader_.read(held_, is_end, pieces)) {
        return false;
      }
      state_ = State::kBetween;
      return !held_.empty();
    default: return step_harmony_body(pieces, is_end);
  }
}

bool ChatParser::step_harmony_header(std::vector<ChatPiece>& pieces, bool is_end) {
  const bool is_header = state_ == State::kHeader;
  const std::string_view mark = is_header ? kMessage : kChannel;
  const size_t at = search_.find(held_, mark, 0);
  if (at == std::string::npos) {
    if (is_end && is_header) {
      emit(pieces, Kind::kContent, held_);
    }
    if (is_end) {
      held_.clear();
    }
    return false;
  }
  const std::string_view text = std::string_view(held_).substr(0, at);
  if (!is_header) {
    recipient_.clear();
  }
  if (const size_t to = text.find(kRecipient); to != std::string_view::npos) {
    const size_t begin = to + kRecipient.size();
    recipient_ = text.substr(begin, std::min(text.find_first_of(" \t\n<", begin), text.size()) - begin);
  }
  channel_ = trimmed(text);
  held_.erase(0, at + mark.size());
  state_ = is_header ? State::kContent : State::kHeader;
  begin_part();
  return true;
}

bool ChatParser::step_harmony_body(std::vector<ChatPiece>& pieces, bool is_end) {
  if (tools_ != nullptr && !recipient_.empty()) {
    const std::string_view begin = trimmed(held_);
    if (begin.empty() && !is_end) {
      return false;
    }
    const std::string name = std::exchange(recipient_, "");
    if (begin.starts_with('{') && is_tool_name(name)) {
      reader_.start(name);
      state_ = State::kCall;
      return true;
    }
  }
  const FoundMark found = find_first(held_, kBodyEnds);
  const bool is_found = found.at != std::string_view::npos;
  const size_t n = is_found ? found.at : held_.size() - (is_end ? 0 : held_back(held_, kBodyEnds));
  if (n > 0) {
    emit(pieces, channel_.starts_with(kAnalysis) ? Kind::kReasoning : Kind::kContent, held_.substr(0, n));
  }
  held_.erase(0, n + (is_found ? kBodyEnds[found.mark].size() : 0));
  if (is_found) {
    const bool is_channel = kBodyEnds[found.mark] == kChannel;
    state_ = is_channel ? State::kHeader : State::kBetween;
    recipient_.clear();
  }
  return is_found;
}

}  // namespace tessera
