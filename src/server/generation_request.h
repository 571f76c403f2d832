#pragma once
// From a request's JSON to what Serving takes: sampling, stops, lengths, probabilities, and prompts.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/request_fields.h"
#include "server/server.h"
#include "tokenizer/template/chat_template.h"

namespace tessera {

/// How many probable tokens a request may ask for, per token.
inline constexpr int32_t kProbsMax = 100;

/// Reads what all APIs name alike, and llama.cpp's names beside: max_tokens, max_completion_tokens, n_predict, stop,
/// seed, logit_bias, the samplers' settings, ... Result: a request without prompt.
/// Errors: kInvalidArgument naming the field; kUnsupported: what would have to restrict the answer and cannot.
Result<ServingRequest> read_generation(const Call& call, const Json& body);

/// The field `prompt`, or another, in every form: text, tokens, a mixed array, or an array of these. Each with BOS as
/// the model asks. n_max: of prompts; 0: as many as a request may have choices.
Result<std::vector<std::vector<int32_t>>> read_prompts(const Call& call, const Json& body,
                                                       std::string_view field = "prompt", int64_t n_max = 0);

/// Tokens of a text and token ids as the arrays of `prompt` mix them. label: what it is called in errors.
Result<std::vector<int32_t>> read_mixed_tokens(const Model& model, const Json& value, bool add_special,
                                               bool parse_special, std::string_view label);

struct ChatPrompt {
  std::vector<int32_t> tokens;
  std::string text;
  Continued continued = Continued::kNothing;
};
/// What the chat template makes of a request in OpenAI's form. Errors: those of ChatTemplate::render.
Result<ChatPrompt> render_chat(const Call& call, std::string_view request_json);

/// Lengths at which other chats may part from this one: where the first message behind the leading system messages
/// begins, tools included. prompt: what render_chat() made of the body. Empty where there is no such place, and where
/// nobody asks (Serving::wants_branches()).
std::vector<int64_t> chat_branches(const Call& call, Json body, std::span<const int32_t> prompt);

/// n copies of a request, whose seeds follow each other.
std::vector<ServingRequest> with_choices(ServingRequest request, int64_t n);

}  // namespace tessera
