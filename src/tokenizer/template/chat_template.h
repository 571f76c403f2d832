#pragma once
// Chat templates: from a chat request (JSON text) to the prompt a model was trained on.
//
// A template is a Jinja program that came with a model file, so it is untrusted: it can neither reach the outside nor
// run, nest or grow without bound (runtime.h lists the limits). The request is untrusted too. Every byte of the prompt
// knows whether the template or the request wrote it; only what the template wrote may become a special token, so a
// user who types `<|im_end|>` ends nothing.
// A ChatTemplate is immutable after parse(): any number of threads may render at once.

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "tokenizer/tokenizer.h"

namespace tessera {

/// A prompt and who wrote each byte of it.
/// What of the request's last message a prompt ends inside of, so that the answer goes on with it.
enum class Continued { kNothing, kReasoning, kContent };

struct RenderedPrompt {
  /// Bytes [begin, end) of `text`.
  struct Span {
    size_t begin;
    size_t end;
    bool from_template;  // false: role, name, content, tool arguments, … of the request
  };
  std::string text;         // UTF-8 where template and request are
  std::vector<Span> spans;  // cover `text` exactly, ascending, never empty, neighbours differ in from_template
  Continued continued = Continued::kNothing;
};

/// ChatML, as Jinja: what stands in for the template that a model file lacks.
inline constexpr std::string_view kChatMl =
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

/// One model's chat template.
class ChatTemplate {
 public:
  /// Parses `source`; an empty one (a model file without a template) means ChatML. `bos_token` and `eos_token` are the
  /// vocabulary's texts (may be empty), known to the template as variables and counted as template text.
  /// Also renders a few made-up conversations to learn what the template looks at (system role, tools, …).
  /// Errors: kInvalidData with line number and text when the source is not valid Jinja or beyond the limits.
  static Result<ChatTemplate> parse(std::string source, std::string bos_token, std::string eos_token);

  /// Renders the prompt for a chat-completion request body: `messages`, and optionally `tools`,
  /// `add_generation_prompt` (default true), `continue_final_message`, `enable_thinking`, `reasoning_effort`, and
  /// `chat_template_kwargs`, whose entries become variables. The request is first rewritten as the reference server
  /// does (request_rewrite.h); a last assistant message is continued, so the prompt ends inside it.
  /// A prompt may begin with bos_token: whoever adds BOS by the vocabulary's rule must not add it twice.
  /// Errors: kInvalidArgument: the request is malformed, or the template itself raised an error or failed on it (the
  /// message has its text); servers answer 400. kInvalidData: what the reference server answers with 500: a message
  /// without a string role, malformed tools or tool calls, pictures and sound. kUnsupported: a limit of the interpreter
  /// was hit; the message names the limit.
  Result<RenderedPrompt> render(std::string_view request_json) const;

  /// The text with which a model ends its answers for want of a token for that: of kChatMl, where the vocabulary lacks
  /// the token. Answers have to stop at it. Empty: there is no such text.
  [[nodiscard]] std::string spelled_end(const Tokenizer& tokenizer) const;

  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ChatTemplate(const ChatTemplate&) = delete;
  ChatTemplate& operator=(const ChatTemplate&) = delete;
  ~ChatTemplate();

 private:
  struct Impl;
  explicit ChatTemplate(std::unique_ptr<const Impl> impl);
  std::unique_ptr<const Impl> impl_;
};

}  // namespace tessera
