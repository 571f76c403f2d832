#pragma once
// Chat requests and their answers, as far as the three chat APIs agree: the prompt, and reasoning, content and tool
// calls told apart.

#include <chrono>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/chat_format.h"
#include "server/chat_tools.h"
#include "server/generation.h"
#include "server/generation_request.h"

namespace tessera {

/// A chat request that was read: what is generated, and how its text is taken apart.
struct ChatRequest {
  ServingRequest serving;  // prompt included
  std::string prompt;      // its text
  Continued continued = Continued::kNothing;
  std::string spelled_end;  // a stop word that nobody asked for: the model has no token for the end; empty: it has
  ChatFormat format;
  std::shared_ptr<const ChatTools> tools;  // that may be called; null: none
  bool inlines_reasoning = false;          // it is shown as content, between its marks
};

/// A request in OpenAI's form as its template is to see it.
struct PreparedChat {
  ToolRequest tools;
  ReasoningSettings reasoning;
  ChatFormat format;
};
/// Reads what it says of tools and reasoning, and rewrites the body where the template needs it.
///
/// Errors: those of check_messages(), read_tools() and read_reasoning(); kUnsupported: a template of its own, or the
/// fields that OpenAI had before there were tools.
Result<PreparedChat> prepare_chat(const Call& call, Json& body, const ToolFields& names = {});

/// Reads a request in OpenAI's form. Errors: those of read_generation(), prepare_chat(), tool_grammar() and the
/// template; kInvalidArgument: a grammar beside calls that are enforced.
Result<ChatRequest> read_chat(const Call& call, Json body, const ToolFields& names = {});

/// A chat request of another API.
struct ConvertedChat {
  ChatRequest request;
  bool streams = false;
  std::chrono::seconds ping{};
};
/// Reads what those APIs say as OpenAI's does, and the rest as `convert` puts it into OpenAI's form. Errors: those of
/// `convert` and read_chat(); kInvalidArgument. names: what the API calls the fields of a tool.
Result<ConvertedChat> read_converted(const Call& call, const Json& body, Result<Json> (*convert)(const Json& body),
                                     const ToolFields& names);

/// Text of a message's content: a string, or a list of text parts ("text", "input_text", ...), joined by newlines.
/// label: what it is called in errors. Errors: kInvalidArgument; kUnsupported for parts of another type.
Result<std::string> content_text(const Json& content, const std::string& label);

struct ChatCall {
  std::string name;
  std::string arguments;  // as the model wrote them
  bool is_whole = false;  // it was not cut off
};

/// What one choice has brought so far.
struct ChatAnswer {
  std::string reasoning;
  std::string content;
  std::vector<ChatCall> calls;
  /// Those that were not cut off: what replies that are no streams have of calls.
  [[nodiscard]] std::vector<ChatCall> whole_calls() const;
  std::vector<ServingToken> tokens;
  int64_t n_reasoning = 0;  // tokens of reasoning, its marks included; 0 where it is not told apart
  ServingEnd end;
};

/// A ReplyWriter that takes text apart; for streams it hears of each piece, and at the end there is everything.
class ChatWriter : public ReplyWriter {
 public:
  ChatWriter(const Call& call, bool streams, const ChatRequest& request, size_t n_choices);

  void on_text(size_t choice, std::string_view text, std::span<const ServingToken> tokens,
               const ServingTimings& timings) final;
  void on_end(size_t choice, const ServingEnd& end) final;

 protected:
  /// tokens: those of this text. Only where streams().
  virtual void on_pieces(size_t choice, std::span<const ChatPiece> pieces, std::span<const ServingToken> tokens) = 0;
  /// answer(choice) is complete.
  virtual void on_answer(size_t choice) { (void)choice; }

  [[nodiscard]] const ChatAnswer& answer(size_t choice) const { return answers_[choice]; }
  [[nodiscard]] size_t n_choices() const { return answers_.size(); }

 private:
  void add(size_t choice, bool was_reasoning, std::vector<ChatPiece> pieces, std::span<const ServingToken> tokens);
  [[nodiscard]] std::vector<ChatPiece> inlined(size_t choice, std::vector<ChatPiece> pieces);

  std::vector<ChatParser> parsers_;
  std::string spelled_end_;
  bool inlines_reasoning_;
  std::string think_begin_, think_end_;
  std::vector<bool> is_open_;  // by choice: the begin mark of inlined reasoning has been written, and not its end
  std::vector<ChatAnswer> answers_;
};

}  // namespace tessera
