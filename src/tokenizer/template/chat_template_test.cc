// Chat templates against the reference server's recorded prompts: tests/data/goldens (FORMAT.md there) and
// tests/data/requests (scripts/request_golden.py).

#include "tokenizer/template/chat_template.h"

#include <filesystem>
#include <fstream>
#include <sstream>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

#include "tokenizer/template/format.h"
#include "tokenizer/template/jinja.h"

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;

Json read_json(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream content;
  content << in.rdbuf();
  return Json::parse(content.str());
}

std::vector<std::filesystem::path> files_in(const std::string& folder, std::string_view ending) {
  std::vector<std::filesystem::path> files;
  for (const auto& file : std::filesystem::directory_iterator(std::filesystem::path(TESSERA_TEST_DATA) / folder)) {
    if (file.path().filename().string().ends_with(ending)) {
      files.push_back(file.path());
    }
  }
  return files;
}

std::string request_of(const Json& golden) {
  return golden.contains("raw_request") ? golden["raw_request"].get<std::string>() : golden["request"].dump();
}

/// Renders all cases of a golden file and compares prompt or kind of error; returns the number of cases.
size_t compare(const std::filesystem::path& path) {
  const Json file = read_json(path);
  const Json& source = file["chat_template"];
  const Result<ChatTemplate> parsed =
      ChatTemplate::parse(source.is_null() ? "" : source.get<std::string>(), file["bos_token"], file["eos_token"]);
  if (!parsed.ok()) {
    ADD_FAILURE() << path << ": " << parsed.status().message();
    return 0;
  }
  for (const Json& golden : file["cases"]) {
    SCOPED_TRACE(path.filename().string() + " " + golden["name"].get<std::string>() + " " +
                 request_of(golden).substr(0, 600));
    const Result<RenderedPrompt> prompt = parsed->render(request_of(golden));
    if (golden["status"] == 200) {
      EXPECT_TRUE(prompt.ok()) << prompt.status().message();
      EXPECT_EQ(prompt.ok() ? prompt->text : "", golden["prompt"].get<std::string>());
    } else {
      EXPECT_FALSE(prompt.ok()) << prompt->text;
      EXPECT_EQ(prompt.status().code(), golden["status"] == 400 ? ErrorCode::kInvalidArgument : ErrorCode::kInvalidData)
          << prompt.status().message();
    }
  }
  return file["cases"].size();
}

TEST(ChatTemplate, RendersWhatTheReferenceServerRenders) {
  size_t n = 0;
  for (const auto& path : files_in("goldens/jinja", ".json")) {
    n += compare(path);
  }
  for (const auto& path : files_in("goldens/real", ".templates.json")) {
    n += compare(path);
  }
  EXPECT_EQ(n, 117U);
}

TEST(ChatTemplate, RewritesRequestsAsTheReferenceServerDoes) {
  size_t n = 0;
  for (const auto& path : files_in("requests", ".json")) {
    n += compare(path);
  }
  EXPECT_GT(n, 400U);
}

TEST(ChatTemplate, WithoutRewritingEqualsTheLibrary) {
  size_t n = 0;
  for (const auto& path : files_in("goldens/jinja", ".json")) {
    const Json file = read_json(path);
    const Result<jinja::Template> parsed = jinja::Template::parse(file["chat_template"].get<std::string>());
    ASSERT_TRUE(parsed.ok());
    for (const Json& golden : file["cases"]) {
      if (!golden.contains("jinja2")) {
        continue;
      }
      SCOPED_TRACE(path.filename().string() + " " + golden["name"].get<std::string>());
      ++n;
      const jinja::RuntimeOptions strict;
      const Result<jinja::Text> text = parsed->render(
          [&](jinja::Runtime& runtime) -> Result<jinja::Variables> {
            jinja::Variables variables;
            Json given = golden["request"];
            given["bos_token"] = file["bos_token"];
            given["eos_token"] = file["eos_token"];
            if (!given.contains("add_generation_prompt")) {
              given["add_generation_prompt"] = true;
            }
            for (const auto& [name, value] : given.items()) {
              ASSIGN_OR_RETURN(jinja::Value parsed_value, jinja::parse_json(runtime, value.dump(), true));
              variables.emplace_back(name, std::move(parsed_value));
            }
            return variables;
          },
          strict);
      if (golden["jinja2"].is_object()) {
        EXPECT_FALSE(text.ok());
      } else {
        ASSERT_TRUE(text.ok()) << text.status().message();
        EXPECT_EQ(text->bytes(), golden["jinja2"].get<std::string>());
      }
    }
  }
  EXPECT_GT(n, 60U);
}

TEST(ChatTemplate, SaysWhatAnAnswerGoesOnWith) {
  constexpr const char* kThinks =
      "{% for m in messages %}<{{ m.role }}>{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>"
      "{% endif %}{{ m.content }}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}";
  const auto continued = [](const char* source, const std::string& last) {
    const auto parsed = ChatTemplate::parse(source, "", "");
    const auto prompt = parsed->render(
        R"({"messages": [{"role": "user", "content": "<think>"}, {"role": "assistant", )" + last + "}]}");
    EXPECT_TRUE(prompt.ok()) << prompt.status().message();
    return prompt->continued;
  };
  EXPECT_EQ(continued(kThinks, R"("content": "so")"), Continued::kContent);
  EXPECT_EQ(continued(kThinks, R"("content": "so", "reasoning_content": "why")"), Continued::kContent);
  EXPECT_EQ(continued(kThinks, R"("content": "", "reasoning_content": "why")"), Continued::kReasoning);
  EXPECT_EQ(continued(kThinks, R"("content": [{"type": "text", "text": ""}], "reasoning_content": "why")"),
            Continued::kReasoning);
  EXPECT_EQ(continued(kThinks, R"("content": "")"), Continued::kNothing);
  EXPECT_EQ(continued(kChatMl.data(), R"("content": "so")"), Continued::kContent);
  EXPECT_EQ(continued(kChatMl.data(), R"("content": "", "reasoning_content": "why")"), Continued::kNothing);
}

}  // namespace
}  // namespace tessera
