// Trial renderings (the probing half of request_rewrite.h).
//
// Each trial plants words that no template contains and looks for them in what comes out. The trials see the request
// exactly as written here: nothing is rewritten but what earlier trials have found necessary.

#include <string>

#include "tokenizer/template/format.h"
#include "tokenizer/template/request_rewrite.h"

namespace tessera::jinja {
namespace {

constexpr std::string_view kMark = "Xq7content";
constexpr std::string_view kKeyMark = "Xq7key";
constexpr std::string_view kReasoningMark = "Xq7reasoning";

class Prober {
 public:
  Prober(const Template& parsed, const std::vector<std::pair<std::string, std::string>>& constants,
         const RuntimeOptions& options)
      : parsed_(parsed), constants_(constants), options_(options) {
    options_.limits.max_steps = 2'000'000;  // trials are tiny; a template that needs more is not worth the wait
  }

  /// The output for `messages`, given as JSON.
  Result<Text> render(const std::string& messages) const {
    return parsed_.render(
        [&](Runtime& runtime) -> Result<Variables> {
          Variables variables;
          for (const auto& [name, text] : constants_) {
            ASSIGN_OR_RETURN(Value value, runtime.string(text, false));
            variables.emplace_back(name, std::move(value));
          }
          ASSIGN_OR_RETURN(Value list, parse_json(runtime, messages, true));
          variables.emplace_back("messages", std::move(list));
          variables.emplace_back("enable_thinking", Value::boolean(true));
          return variables;
        },
        options_);
  }

  [[nodiscard]] bool prints(const std::string& messages, std::string_view mark) const {
    const Result<Text> output = render(messages);
    return output.ok() && output->bytes().find(mark) != std::string::npos;
  }

  /// Prints the mark, but not inside quotes, as it would if a whole container were printed.
  [[nodiscard]] bool prints_bare(const std::string& messages, std::string_view mark) const {
    const Result<Text> output = render(messages);
    if (!output.ok()) {
      return false;
    }
    const size_t at = output->bytes().find(mark);
    if (at == std::string::npos) {
      return false;
    }
    const char before = at > 0 ? output->bytes()[at - 1] : ' ';
    return before != '\'' && before != '"';
  }

 private:
  const Template& parsed_;
  const std::vector<std::pair<std::string, std::string>>& constants_;
  RuntimeOptions options_;
};

std::string quoted(std::string_view text) {
  return std::string("\"").append(text).append("\"");
}

std::string parts(std::string_view text) {
  return R"([{"type":"text","text":)" + quoted(text) + "}]";
}

/// Whether arguments come out right when they are an object: printed, and not as Python prints a dict.
bool takes_object_arguments(const Prober& prober, const std::string& user, const std::string& empty) {
  const std::string call = R"({"role":"assistant","content":)" + empty +
                           R"(,"tool_calls":[{"type":"function","function":{"name":"f","arguments":{)" +
                           quoted(kKeyMark) + ":" + quoted(kMark) + R"(}},"id":"call00001"}]})";
  const std::string answer = R"(,{"role":"tool","content":)" + empty + R"(,"tool_call_id":"call00001"})";
  for (const std::string& rest : {std::string(), answer}) {
    const Result<Text> output = prober.render("[" + user + "," + call + rest + "]");
    if (output.ok()) {
      const std::string& bytes = output->bytes();
      return bytes.find(kMark) != std::string::npos &&
             bytes.find(std::string("'").append(kKeyMark).append("'")) == std::string::npos;
    }
  }
  return false;
}

/// Families whose templates do not show how they mark reasoning: what the reference server writes for them.
struct Family {
  std::string_view sign;  // in the template's source
  std::string_view begin;
  std::string_view end;
};
constexpr Family kChannels = {"<|channel|>", "<|channel|>analysis<|message|>",
                              "<|end|><|start|>assistant<|channel|>final<|message|>"};
constexpr Family kThoughtChannel = {"<|tool_call>", "<|channel>thought\n", "<channel|>"};

/// Whether `source` is of the family; then also fills in its reasoning marks.
bool apply_family(std::string_view source, const Family& family, Capabilities& capabilities) {
  if (source.find(family.sign) == std::string_view::npos) {
    return false;
  }
  capabilities.reasoning = true;
  capabilities.reasoning_after_prompt = true;
  capabilities.reasoning_begin = Text(std::string(family.begin), false);
  capabilities.reasoning_end = Text(std::string(family.end), false);
  return true;
}

void probe_reasoning(const Prober& prober, const std::string& user, const std::string& content,
                     Capabilities& capabilities) {
  const Result<Text> before = prober.render("[" + user + "]");
  const Result<Text> output = prober.render("[" + user + R"(,{"role":"assistant","content":)" + content +
                                            R"(,"reasoning_content":)" + quoted(kReasoningMark) + "}]");
  if (!before.ok() || !output.ok()) {
    return;
  }
  const std::string& bytes = output->bytes();
  const size_t reasoning = bytes.find(kReasoningMark);
  const size_t answer = bytes.find(kMark);
  if (reasoning == std::string::npos || answer == std::string::npos || answer < reasoning ||
      bytes.compare(0, before->size(), before->bytes()) != 0 || before->size() > reasoning) {
    return;
  }
  capabilities.reasoning = true;
  capabilities.reasoning_begin = output->slice(before->size(), reasoning);
  capabilities.reasoning_end = output->slice(reasoning + kReasoningMark.size(), answer);
}

}  // namespace

Capabilities probe_capabilities(const Template& parsed, std::string_view source,
                                const std::vector<std::pair<std::string, std::string>>& constants,
                                const RuntimeOptions& options) {
  const Prober prober(parsed, constants, options);
  Capabilities capabilities;
  const auto message = [](std::string_view role, const std::string& content) {
    return R"({"role":)" + quoted(role) + R"(,"content":)" + content + "}";
  };
  capabilities.string_content = prober.prints("[" + message("user", quoted(kMark)) + "]", kMark);
  capabilities.typed_content = prober.prints_bare("[" + message("user", parts(kMark)) + "]", kMark);
  const bool wrap = capabilities.typed_content && !capabilities.string_content;
  const auto content = [wrap](std::string_view text) { return wrap ? parts(text) : quoted(text); };
  const std::string user = message("user", content("u"));
  capabilities.system_role = prober.prints("[" + message("system", content(kMark)) + "," + user + "]", kMark);
  capabilities.object_arguments = takes_object_arguments(prober, user, content(""));
  capabilities.channels = apply_family(source, kChannels, capabilities);
  if (!capabilities.channels && !apply_family(source, kThoughtChannel, capabilities)) {
    probe_reasoning(prober, user, content(kMark), capabilities);
  }
  return capabilities;
}

}  // namespace tessera::jinja
