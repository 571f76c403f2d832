// tessera.h: chat templates.

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "api/handles.h"
#include "runtime/generate.h"

namespace tessera::api {
namespace {

// A text as JSON; bytes that are not UTF-8 become U+FFFD.
std::string json_text(const char* text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// Written by hand: trees of JSON allocate when they are destroyed, which must work without memory too.
Result<std::string> request_of(const tsr_message* messages, size_t n_messages) {
  ASSIGN_OR_RETURN(const auto given, array_argument(messages, n_messages, "messages"));
  std::string list;
  for (const tsr_message& message : given) {
    TRY(need(message.role, "the role of a message"));
    TRY(need(message.content, "the content of a message"));
    list += list.empty() ? "" : ",";
    list += fmt::format(R"({{"role":{},"content":{}}})", json_text(message.role), json_text(message.content));
  }
  return fmt::format(R"({{"messages":[{}]}})", list);
}

Status render(const tsr_chat_template* chat, std::string_view request, char** text, size_t* n_bytes) {
  TRY(need(chat, "chat"));
  ASSIGN_OR_RETURN(const RenderedPrompt prompt, chat->chat_template.render(request));
  give_text(prompt.text, text, n_bytes);
  return {};
}

Status encode(const tsr_chat_template* chat, std::string_view request, int32_t** ids, size_t* n) {
  TRY(need(chat, "chat"));
  ASSIGN_OR_RETURN(const RenderedPrompt prompt, chat->chat_template.render(request));
  give_ids(encode_prompt(chat->model->tokenizer(), prompt), ids, n);
  return {};
}

}  // namespace
}  // namespace tessera::api

using namespace tessera;
using namespace tessera::api;

tsr_status tsr_chat_template_create(const tsr_model* model, const char* source, tsr_chat_template** chat) {
  return guarded([&]() -> Status {
    TRY(need_output(chat, "chat"));
    TRY(need(model, "model"));
    TRY(model->model->text_status());
    ASSIGN_OR_RETURN(ChatTemplate parsed, model->model->chat_template(option_or(source, "")));
    *chat = new tsr_chat_template{model->model, std::move(parsed)};
    return {};
  });
}

void tsr_chat_template_free(tsr_chat_template* chat) {
  delete chat;
}

tsr_status tsr_chat_template_render(const tsr_chat_template* chat, const tsr_message* messages, size_t n_messages,
                                    char** text, size_t* n_bytes) {
  return guarded([&]() -> Status {
    TRY(need_sized_output(text, "text", n_bytes));
    ASSIGN_OR_RETURN(const std::string request, request_of(messages, n_messages));
    return render(chat, request, text, n_bytes);
  });
}

tsr_status tsr_chat_template_render_json(const tsr_chat_template* chat, const char* json, size_t n_json_bytes,
                                         char** text, size_t* n_bytes) {
  return guarded([&]() -> Status {
    TRY(need_sized_output(text, "text", n_bytes));
    ASSIGN_OR_RETURN(const std::string_view request, text_argument(json, n_json_bytes, "json"));
    return render(chat, request, text, n_bytes);
  });
}

tsr_status tsr_chat_template_encode(const tsr_chat_template* chat, const tsr_message* messages, size_t n_messages,
                                    int32_t** ids, size_t* n) {
  return guarded([&]() -> Status {
    TRY(need_output(ids, "ids"));
    TRY(need_output(n, "n"));
    ASSIGN_OR_RETURN(const std::string request, request_of(messages, n_messages));
    return encode(chat, request, ids, n);
  });
}

tsr_status tsr_chat_template_encode_json(const tsr_chat_template* chat, const char* json, size_t n_json_bytes,
                                         int32_t** ids, size_t* n) {
  return guarded([&]() -> Status {
    TRY(need_output(ids, "ids"));
    TRY(need_output(n, "n"));
    ASSIGN_OR_RETURN(const std::string_view request, text_argument(json, n_json_bytes, "json"));
    return encode(chat, request, ids, n);
  });
}
