#pragma once
// What a chat model's text is made of: reasoning, content and tool calls, told apart while the text arrives.
//
// Which marks a model writes is known from its chat template, which has to read them back. Reasoning and content pass
// on as they come, but for what may yet become a mark; a tool call is passed on when it is whole. What looks like a
// call and is none (its JSON is broken, it has no name) is content: nothing the model wrote is lost or an error.
// Plain state machines; one parser per answer.

#include <cstddef>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera {

enum class ToolStyle {
  kNone,
  kTagged,   // <tool_call>...</tool_call> around JSON (Hermes, Qwen), <function=...> (Qwen coder) or <arg_key> (GLM)
  kMistral,  // [TOOL_CALLS] before JSON, or before name[ARGS]{...}
  kJson,     // the whole answer is {"name": ..., "parameters": ...} (Llama 3), perhaps behind <|python_tag|>
  kHarmony,  // <|channel|>... of gpt-oss, for reasoning, too
};

struct ChatFormat {
  ToolStyle tools = ToolStyle::kNone;
  std::string think_begin;  // empty: the model marks no reasoning
  std::string think_end;
  bool marks_are_special = false;  // marks are control tokens: the text must have them
};

/// REQUIRES: nothing; a template that is not known writes content alone.
ChatFormat detect_chat_format(std::string_view template_source);

struct ChatPiece {
  enum class Kind { kReasoning, kContent, kToolCall };
  Kind kind = Kind::kContent;
  std::string text;  // kToolCall: the arguments, a JSON object
  std::string name;  // of the tool
};

/// Parameters of tools whose schema says "string": (tool, parameter).
using StringParameters = std::set<std::pair<std::string, std::string>>;

class ChatParser {
 public:
  /// prompt_end: the text of the prompt, which may end inside reasoning. has_tools: calls are looked for.
  ChatParser(ChatFormat format, bool has_tools, std::string_view prompt, StringParameters string_parameters = {});

  std::vector<ChatPiece> push(std::string_view text);
  /// The answer has ended.
  std::vector<ChatPiece> finish();

 private:
  enum class State { kStart, kContent, kReasoning, kCall, kHeader, kBetween };

  bool step(std::vector<ChatPiece>& pieces, bool is_end);
  bool step_text(std::vector<ChatPiece>& pieces, bool is_end);
  bool step_reasoning(std::vector<ChatPiece>& pieces, bool is_end);
  bool step_call(std::vector<ChatPiece>& pieces, bool is_end);
  bool step_harmony(std::vector<ChatPiece>& pieces, bool is_end);
  void end_harmony_body(std::vector<ChatPiece>& pieces);
  void emit(std::vector<ChatPiece>& pieces, ChatPiece::Kind kind, std::string text);
  void emit_calls(std::vector<ChatPiece>& pieces, const std::string& body, std::string_view as_written);

  ChatFormat format_;
  bool has_tools_;
  StringParameters string_parameters_;
  std::string call_begin_;
  std::string call_end_;  // empty: at the end of the answer
  State state_ = State::kStart;
  std::string held_;
  bool trims_ = true;  // blanks before content or reasoning are left out
  // gpt-oss
  std::string header_;
  std::string body_;
};

}  // namespace tessera
