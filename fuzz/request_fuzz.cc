// libFuzzer target: a request's body, read as every type of field and, as what a model wrote, in pieces as every chat
// format. Aborts when text that is told apart is more than was written, or depends on the pieces.

#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/check.h"
#include "server/chat_format.h"
#include "server/chat_tools.h"
#include "server/reasoning.h"
#include "server/request_fields.h"

namespace {

void read_fields(const tessera::Json& object) {
  const tessera::Fields fields(object);
  for (const auto& [name, value] : object.items()) {
    bool flag = false;
    std::string text;
    int64_t number = 0;
    double real = 0;
    std::vector<std::string> texts;
    (void)fields.read(name, flag).ok();
    (void)fields.read(name, text).ok();
    if (fields.read(name, number, -5, 1'000'000).ok()) {
      CHECK(number >= -5 && number <= 1'000'000);
    }
    if (fields.read(name, real, -1.5, 1e10).ok()) {
      CHECK(real >= -1.5 && real <= 1e10);
    }
    (void)fields.read(name, texts).ok();
    if (value.is_object()) {
      read_fields(value);
    }
  }
}

// All that a parser makes of a text, in pieces of `step` bytes.
std::string parsed(const char* source, std::string_view text, size_t step) {
  tessera::ChatTools tools;
  tools.names = {"f"};
  tools.strings = {{{"f", "s"}, tessera::ChatTools::Text::kPlain}};
  tessera::ChatParser parser(tessera::with_tools(tessera::detect_chat_format(source)), "",
                             std::make_shared<const tessera::ChatTools>(tools));
  using Kind = tessera::ChatPiece::Kind;
  std::string all;
  Kind last = Kind::kCallEnd;
  bool in_call = false;
  const auto add = [&](const std::vector<tessera::ChatPiece>& pieces) {
    for (const auto& piece : pieces) {
      CHECK(in_call || (piece.kind != Kind::kArguments && piece.kind != Kind::kCallEnd));
      in_call = piece.kind == Kind::kCall || piece.kind == Kind::kArguments;
      if (piece.kind != last || piece.kind == Kind::kCall) {
        all += std::to_string(static_cast<int>(piece.kind)) + ":";
      }
      last = piece.kind;
      all += piece.text;
    }
  };
  for (size_t i = 0; i < text.size(); i += step) {
    add(parser.push(text.substr(i, step)));
  }
  add(parser.finish());
  return all;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr std::array<const char*, 5> kSources = {"", "<tool_call><think></think>", "[TOOL_CALLS]", "<|python_tag|>",
                                                   "<|channel|><|message|>"};
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  if (const auto body = tessera::parse_json_object(input); body.ok()) {
    read_fields(*body);
    CHECK(!tessera::dump_json(*body).empty());
    tessera::Json chat = *body;
    (void)tessera::read_reasoning({}, false, chat).ok();
    if (const auto tools = tessera::read_tools(chat, {}); tools.ok() && !tools->tools.empty()) {
      (void)tessera::chat_tools(tools->tools);
      tessera::write_tools_into_messages(chat, tools->tools);
    }
  }
  for (const char* source : kSources) {
    CHECK(parsed(source, input, 3) == parsed(source, input, size + 1));
  }
  return 0;
}
