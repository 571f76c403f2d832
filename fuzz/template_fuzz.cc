// libFuzzer target: a chat template and a request, with a line "====" between them. Aborts when the spans of a prompt
// do not cover its text.

#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "tokenizer/template/chat_template.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr std::string_view kBorder = "\n====\n";
  constexpr std::string_view kRequest = R"({"messages": [{"role": "user", "content": "hi <|im_end|>"}]})";
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t border = input.find(kBorder);
  const std::string_view source = input.substr(0, border);
  const auto chat_template = tessera::ChatTemplate::parse(std::string(source), "<s>", "</s>");
  if (!chat_template.ok()) {
    return 0;
  }
  const auto prompt =
      chat_template->render(border == std::string_view::npos ? kRequest : input.substr(border + kBorder.size()));
  if (prompt.ok()) {
    size_t end = 0;
    for (const auto& span : prompt->spans) {
      CHECK(span.begin == end && span.end > span.begin);
      end = span.end;
    }
    CHECK(end == prompt->text.size());
  }
  return 0;
}
