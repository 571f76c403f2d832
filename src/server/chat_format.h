#pragma once
// What a chat model's text is made of: reasoning, content and tool calls, told apart while the text arrives.
//
// Which marks a model writes is known from its chat template, which has to read them back. Reasoning and content pass
// on as they come, but for what may yet become a mark; calls as call_reader.h says. Nothing the model wrote is lost or
// an error. Plain state machines; one parser per answer.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "server/call_reader.h"
#include "tokenizer/template/chat_template.h"

namespace tessera {

enum class ToolStyle {
  kNone,
  kTagged,   // <tool_call>...</tool_call> around JSON (Hermes, Qwen), <function=...> (Qwen coder) or <arg_key> (GLM)
  kMistral,  // [TOOL_CALLS] before JSON, or before name[ARGS]{...}
  kJson,     // the whole answer is {"name": ..., "parameters": ...} (Llama 3), perhaps behind <|python_tag|>
  kHarmony,  // <|channel|>... of gpt-oss, for reasoning, too
};

/// How the template writes a call between its marks. Readers take every form; this is what a grammar asks for.
enum class CallSyntax {
  kObject,        // {"name": ..., "arguments": {...}}
  kNamed,         // name[ARGS]{...}
  kFunctionTags,  // <function=name><parameter=key>value</parameter></function>
  kArgTags,       // name<arg_key>key</arg_key><arg_value>value</arg_value>
};

struct ChatFormat {
  ToolStyle tools = ToolStyle::kNone;
  CallSyntax syntax = CallSyntax::kObject;
  std::string call_begin;   // mark before a call; empty: none (kHarmony has its own)
  std::string call_end;     // mark behind it; empty: none
  std::string think_begin;  // empty: the model marks no reasoning
  std::string think_end;
  bool marks_are_special = false;   // marks are control tokens: the text must have them
  bool template_has_tools = false;  // the template shows the model the tools
};

/// REQUIRES: nothing; a template that is not known writes content alone.
ChatFormat detect_chat_format(std::string_view template_source);

/// The same for a request with tools: where the template knows no calls, a call is an answer that is JSON, as of
/// ToolStyle::kJson.
ChatFormat with_tools(ChatFormat format);

/// How an answer begins.
enum class Thinking {
  kNo,    // the model marks no reasoning, or the prompt has ended it
  kMay,   // it may open it
  kOpen,  // the prompt ends inside
};
Thinking thinking_after(const ChatFormat& format, std::string_view prompt, Continued continued = Continued::kNothing);

class ChatParser {
 public:
  /// prompt: its text, which may end inside reasoning. tools: calls are looked for; null: they are not. continued: the
  /// first blanks of an answer that goes on are part of it; otherwise they are left out.
  ChatParser(ChatFormat format, std::string_view prompt, std::shared_ptr<const ChatTools> tools = nullptr,
             Continued continued = Continued::kNothing);

  std::vector<ChatPiece> push(std::string_view text);
  /// The answer has ended.
  std::vector<ChatPiece> finish();
  /// What comes next belongs to reasoning, unless it ends that.
  [[nodiscard]] bool is_reasoning() const;

 private:
  enum class State { kStart, kContent, kReasoning, kCall, kHeader, kBetween };

  bool step(std::vector<ChatPiece>& pieces, bool is_end);
  bool step_text(std::vector<ChatPiece>& pieces, bool is_end);
  bool step_reasoning(std::vector<ChatPiece>& pieces, bool is_end);
  bool step_call(std::vector<ChatPiece>& pieces, bool is_end);
  bool step_harmony(std::vector<ChatPiece>& pieces, bool is_end);
  bool step_harmony_header(std::vector<ChatPiece>& pieces, bool is_end);
  bool step_harmony_body(std::vector<ChatPiece>& pieces, bool is_end);
  void emit(std::vector<ChatPiece>& pieces, ChatPiece::Kind kind, std::string text);
  void begin_part();

  ChatFormat format_;
  std::shared_ptr<const ChatTools> tools_;
  CallReader reader_;
  State state_ = State::kStart;
  std::string held_;
  MarkSearch search_;          // of a header's end
  bool at_start_ = true;       // of content or reasoning; blanks there are left out
  bool keeps_blanks_ = false;  // but not here: the message began in the prompt
  // Of a message of gpt-oss.
  std::string channel_;
  std::string recipient_;  // the tool whose arguments it may have; empty: none, or that is decided
};

}  // namespace tessera
