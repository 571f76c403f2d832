#include "server/chat_messages.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace tessera {
namespace {

Status check(const Json& body) {
  return check_messages(Fields(body));
}

Status check_one(const char* message) {
  return check({{"messages", Json::array({{{"role", "user"}, {"content", "a"}}, Json::parse(message)})}});
}

TEST(ChatMessages, TextPasses) {
  for (const char* message : {
           R"({"role": "user", "content": "a"})",
           R"({"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": ""}]})",
           R"({"role": "user", "content": []})",
           R"({"role": "user", "content": null})",
           R"({"role": "assistant", "content": null, "tool_calls": []})",
           R"({"role": "assistant", "tool_calls": [{}]})",
           R"({"role": "tool", "tool_call_id": "c", "content": "a", "more": 5})",
       }) {
    EXPECT_TRUE(check_one(message).ok()) << message << check_one(message).message();
  }
}

TEST(ChatMessages, ErrorsNameFieldAndWhatItMustBe) {
  const auto error_of = [](const Json& body) { return check(body).message(); };
  EXPECT_EQ(error_of(Json::object()), "field \"messages\" is missing; it must be an array of messages");
  EXPECT_EQ(error_of({{"messages", "a"}}), "field \"messages\" is a string; it must be an array of messages");
  EXPECT_EQ(error_of({{"messages", Json::array()}}), "field \"messages\" is empty; it needs at least one message");
  for (const auto& [message, error] : std::initializer_list<std::pair<const char*, const char*>>{
           {"5", "field \"messages[1]\" is a number; it must be an object with \"role\" and \"content\""},
           {R"({"content": "a"})",
            "field \"messages[1].role\" is missing; it must be \"system\", \"user\", \"assistant\" or \"tool\""},
           {R"({"role": 5, "content": "a"})", "field \"messages[1].role\" is 5; it must be a string"},
           {R"({"role": "user"})",
            "field \"messages[1].content\" is missing; it must be a string or an array of text parts"},
           {R"({"role": "assistant"})",
            "field \"messages[1].content\" is missing; it must be a string or an array of text parts, unless there are "
            "\"tool_calls\""},
           {R"({"role": "user", "content": 5})",
            "field \"messages[1].content\" is 5; it must be a string or an array of text parts"},
           {R"({"role": "user", "content": ["a"]})",
            "field \"messages[1].content[0]\" is a string; it must be an object with \"type\" and \"text\""},
           {R"({"role": "user", "content": [{"text": "a"}]})",
            "field \"messages[1].content[0].type\" is missing; it must be \"text\""},
           {R"({"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text"}]})",
            "field \"messages[1].content[1].text\" is missing; it must be a string"}}) {
    EXPECT_EQ(check_one(message).message(), error);
    EXPECT_EQ(check_one(message).code(), ErrorCode::kInvalidArgument) << message;
  }
}

TEST(ChatMessages, WhatCannotBeRead) {
  for (const char* type : {"image_url", "input_audio", "file"}) {
    const Json part = {{"type", type}};
    const Json message = {{"role", "user"}, {"content", Json::array({part})}};
    const Status status = check_one(message.dump().c_str());
    EXPECT_EQ(status.code(), ErrorCode::kUnsupported);
    EXPECT_EQ(status.message(),
              std::string("field \"messages[1].content[0].type\" is \"") + type + "\"; this server reads text");
  }
  EXPECT_EQ(check_one(R"({"role": "assistant", "content": null, "function_call": {"name": "f"}})").code(),
            ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace tessera
