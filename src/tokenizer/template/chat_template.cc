#include "tokenizer/template/chat_template.h"

#include <algorithm>
#include <ctime>
#include <utility>

#include "tokenizer/template/jinja.h"
#include "tokenizer/template/request_rewrite.h"

namespace tessera {
namespace {

using Constants = std::vector<std::pair<std::string, std::string>>;

std::string date(const char* format) {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  char text[64];
  return {text, std::strftime(text, sizeof(text), format, &local)};
}

/// The variables that do not come from the request.
Constants constants(const std::string& bos_token, const std::string& eos_token) {
  return {{"bos_token", bos_token},
          {"eos_token", eos_token},
          {"date_string", date("%d %b %Y")},
          {"datetime", date("%b %d %Y")}};
}

size_t common_prefix(std::string_view a, std::string_view b) {
  return static_cast<size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
}

/// Opens the assistant's turn with the generation prompt and writes into it what the request wants continued. Returns
/// what the text ends inside of.
Continued append_continuation(jinja::Text& text, const jinja::Text& generation_prompt,
                              const jinja::Continuation& continuation, const jinja::Capabilities& capabilities) {
  const jinja::Text& begin = capabilities.reasoning_begin;
  if (!capabilities.reasoning) {
    text.append(generation_prompt);
    text.append(continuation.content);
    return continuation.content.empty() ? Continued::kNothing : Continued::kContent;
  }
  if (capabilities.reasoning_after_prompt) {  // unless the prompt itself, with thinking off, opens the reasoning
    text.append(generation_prompt, 0,
                std::min(generation_prompt.bytes().find(begin.bytes()), generation_prompt.size()));
    text.append(begin);
  } else {  // the turn opens as the prompt does; a line break between that and the reasoning's mark is left out
    size_t mark = common_prefix(generation_prompt.view(), begin.view());
    text.append(begin, 0, mark);
    while (mark < begin.size() && begin.bytes()[mark] == '\n') {
      ++mark;
    }
    text.append(begin, mark, begin.size());
  }
  text.append(continuation.reasoning);
  if (continuation.content.empty()) {
    return Continued::kReasoning;
  }
  text.append(capabilities.reasoning_end);
  text.append(continuation.content);
  return Continued::kContent;
}

}  // namespace

struct ChatTemplate::Impl {
  jinja::Template parsed;
  std::string bos_token;
  std::string eos_token;
  bool is_chatml = false;  // kChatMl
  jinja::RuntimeOptions options;
  jinja::Capabilities capabilities;

  /// Renders the request; the part of it that is to be continued goes to `*continuation`.
  Result<jinja::Text> render(std::string_view request, bool force_generation_prompt,
                             jinja::Continuation* continuation) const {
    return parsed.render(
        [&](jinja::Runtime& runtime) -> Result<jinja::Variables> {
          ASSIGN_OR_RETURN(jinja::RewrittenRequest rewritten, jinja::rewrite_request(runtime, request, capabilities));
          jinja::Variables variables;
          for (auto& [name, text] : constants(bos_token, eos_token)) {
            ASSIGN_OR_RETURN(jinja::Value value, runtime.string(std::move(text), false));
            variables.emplace_back(name, std::move(value));
          }
          if (rewritten.add_generation_prompt || force_generation_prompt) {  // else not defined, as in the reference
            variables.emplace_back("add_generation_prompt", jinja::Value::boolean(true));
          }
          for (auto& variable : rewritten.variables) {
            variables.push_back(std::move(variable));
          }
          *continuation = std::move(rewritten.continuation);
          return variables;
        },
        options);
  }
};

std::string ChatTemplate::spelled_end(const Tokenizer& tokenizer) const {
  constexpr std::string_view kEnd = "<|im_end|>";
  return std::string(impl_->is_chatml && !tokenizer.find(kEnd) ? kEnd : "");
}

ChatTemplate::ChatTemplate(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

Result<ChatTemplate> ChatTemplate::parse(std::string source, std::string bos_token, std::string eos_token) {
  if (source.empty()) {
    source = kChatMl;
  }
  ASSIGN_OR_RETURN(jinja::Template parsed, jinja::Template::parse(source));
  auto impl = std::make_unique<Impl>(
      Impl{std::move(parsed), std::move(bos_token), std::move(eos_token), source == kChatMl, {}, {}});
  impl->options.chain_undefined = true;
  impl->options.mutable_lists = true;
  impl->capabilities =
      jinja::probe_capabilities(impl->parsed, source, constants(impl->bos_token, impl->eos_token), impl->options);
  return ChatTemplate(std::move(impl));
}

Result<RenderedPrompt> ChatTemplate::render(std::string_view request_json) const {
  RenderedPrompt prompt;
  jinja::Continuation continuation;
  ASSIGN_OR_RETURN(jinja::Text text, impl_->render(request_json, false, &continuation));
  if (!continuation.content.empty() || !continuation.reasoning.empty()) {
    // What the template adds to make the assistant speak: where the output with the generation prompt departs.
    jinja::Continuation same_again;
    ASSIGN_OR_RETURN(const jinja::Text prompted, impl_->render(request_json, true, &same_again));
    const size_t same = common_prefix(text.view(), prompted.view());
    prompt.continued =
        append_continuation(text, prompted.slice(same, prompted.size()), continuation, impl_->capabilities);
  }
  prompt.text = text.bytes();
  size_t begin = 0;
  text.for_each_run(0, text.size(), [&](std::string_view run, bool from_user) {
    prompt.spans.push_back({begin, begin + run.size(), !from_user});
    begin += run.size();
  });
  return prompt;
}

}  // namespace tessera
