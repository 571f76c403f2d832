// What calls look like, chat_format_test.cc tells; here is what reading them costs.

#include "server/call_reader.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

constexpr size_t kValueBytes = 200'000;

// Reads the text behind a begin mark in pieces of 3 bytes. Result: the arguments.
std::string arguments_of(CallReader& reader, std::string_view text) {
  std::string held;
  std::vector<ChatPiece> pieces;
  reader.start();
  bool done = false;
  for (size_t at = 0; at < text.size() && !done; at += 3) {
    held += text.substr(at, 3);
    done = reader.read(held, false, pieces);
  }
  EXPECT_TRUE(done || reader.read(held, true, pieces));
  std::string arguments;
  for (const ChatPiece& piece : pieces) {
    arguments += piece.kind == ChatPiece::Kind::kArguments ? piece.text : "";
  }
  return arguments;
}

TEST(CallReader, LongValuesBetweenTagsAreLookedAtOnce) {
  const ChatTools tools{{"f"}, {{{"f", "s"}, ChatTools::Text::kPlain}}};
  const std::string value(kValueBytes, '<');  // each may begin a mark
  for (const std::string& text : {"<function=f><parameter=s>" + value + "</parameter></function></call>",
                                  "f<arg_key>s</arg_key><arg_value>" + value + "</arg_value></call>"}) {
    CallReader reader(tools, "<call>", "</call>");
    EXPECT_EQ(arguments_of(reader, text), "{\"s\":\"" + value + "\"}");
    EXPECT_LT(reader.n_bytes_searched(), 8 * text.size());
  }
}

TEST(CallReader, LongCallsInAnotherOrderAreLookedAtOnce) {
  const ChatTools tools{{"f"}, {}};
  const std::string value(kValueBytes, 'a');
  const std::string text = R"({"arguments":{"s":")" + value + R"("},"name":"f"}</call>)";
  CallReader reader(tools, "<call>", "</call>");
  EXPECT_EQ(arguments_of(reader, text), "{\"s\":\"" + value + "\"}");
  EXPECT_LT(reader.n_bytes_searched(), 8 * text.size());
}

}  // namespace
}  // namespace tessera
