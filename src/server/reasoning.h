#pragma once
// What a chat request says of reasoning, in the words of all APIs: whether, how hard, how long, and where its text
// goes.

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "base/status.h"
#include "server/request_fields.h"

namespace tessera {

/// What requests do not say.
struct ReasoningDefaults {
  /// "none": reasoning stays in the content; "auto", "deepseek": it is apart; "deepseek-legacy": apart, but in streams
  /// in the content between its marks.
  std::string format = "auto";
  int64_t budget = -1;          // tokens; negative: no limit, 0: none
  std::string template_kwargs;  // JSON object of variables for the chat template; "": none
};

struct ReasoningSettings {
  bool is_apart = true;
  bool is_inline = false;  // told apart, and shown in the content between its marks
  int64_t budget = -1;
};

/// Errors: kInvalidArgument: no object, or a format that is not known.
Status check_reasoning(const ReasoningDefaults& defaults);

/// Reads reasoning_format, reasoning_effort, reasoning_budget (or thinking_budget_tokens) and chat_template_kwargs, and
/// puts into the body what the template is to know: the server's template_kwargs behind the request's, enable_thinking
/// where there shall be no reasoning. is_gpt_oss: it knows three efforts. Errors: kInvalidArgument naming the field.
Result<ReasoningSettings> read_reasoning(const ReasoningDefaults& defaults, bool is_gpt_oss, Json& body);

}  // namespace tessera
