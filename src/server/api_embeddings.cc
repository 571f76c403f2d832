// Embeddings: /v1/embeddings in OpenAI's form, /embeddings and /embedding in llama.cpp's own.

#include <algorithm>
#include <bit>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/base64.h"
#include "base/decimal.h"
#include "server/generation.h"
#include "server/generation_request.h"

namespace tessera {
namespace {

constexpr int64_t kInputsMax = 2048;  // of one request, as OpenAI's API has it

struct EmbeddingOptions {
  bool is_openai = false;
  bool is_base64 = false;
  bool is_pooled = true;
  int64_t n_dims = 0;  // that replies have
  int32_t norm = 2;
  std::string model;
};

class EmbeddingWriter final : public ReplyWriter {
 public:
  EmbeddingWriter(const Call& call, EmbeddingOptions options, int64_t n_embd, size_t n_inputs)
      : ReplyWriter(call, false), options_(std::move(options)), n_embd_(n_embd), found_(n_inputs) {}

  void on_text(size_t, std::string_view, std::span<const ServingToken>, const ServingTimings&) override {}

  void on_end(size_t choice, const ServingEnd& end) override {
    usage_.add(end, true);
    const std::span<const float> rows(end.embedding);
    Json list = Json::array();
    for (size_t begin = 0; begin < rows.size(); begin += static_cast<size_t>(n_embd_)) {
      list.push_back(row_json(rows.subspan(begin, static_cast<size_t>(options_.n_dims))));
    }
    found_[choice] = std::move(list);
  }

  void finish() override {
    Json list = Json::array();
    for (size_t i = 0; i < found_.size(); ++i) {
      if (!options_.is_openai) {
        list.push_back({{"index", i}, {"embedding", std::move(found_[i])}});
        continue;
      }
      Json item = {{"object", "embedding"}, {"index", i}, {"embedding", std::move(found_[i][0])}};
      if (options_.is_base64) {
        item["encoding_format"] = "base64";
      }
      list.push_back(std::move(item));
    }
    if (!options_.is_openai) {
      reply(list);
      return;
    }
    reply({{"object", "list"},
           {"model", options_.model},
           {"usage", {{"prompt_tokens", usage_.n_prompt}, {"total_tokens", usage_.n_prompt}}},
           {"data", std::move(list)}});
  }

 private:
  // Pooled vectors alone are normalised: of rows of tokens whoever asks makes something else.
  Json row_json(std::span<const float> found) const {
    std::vector<float> row(found.begin(), found.end());
    if (options_.is_pooled) {
      normalize_embedding(row, options_.norm);
    }
    static_assert(std::endian::native == std::endian::little);
    if (options_.is_base64) {
      return base64(std::as_bytes(std::span(row)));
    }
    Json json = Json::array();
    for (const float value : row) {
      json.push_back(as_written(value));
    }
    return json;
  }

  EmbeddingOptions options_;
  int64_t n_embd_;
  std::vector<Json> found_;  // by input: rows
  Usage usage_;
};

Result<EmbeddingOptions> read_options(const Call& call, const Fields& fields) {
  EmbeddingOptions options;
  options.model = call.model->name;
  options.is_openai = call.request.path.starts_with("/v1/");
  options.is_pooled = *call.model->pooling != Pooling::kNone;
  if (options.is_openai && !options.is_pooled) {
    return Status(ErrorCode::kInvalidArgument,
                  "this API has one vector for a text, and the server runs with --pooling none; ask /embeddings, or "
                  "start it with --pooling mean or last");
  }
  std::string format = "float";
  TRY(fields.read("encoding_format", format));
  if (format != "float" && format != "base64") {
    return Status(ErrorCode::kInvalidArgument, fmt::format(R"({} is "{}"; it must be float or base64)",
                                                           fields.label("encoding_format"), format.substr(0, 40)));
  }
  options.is_base64 = format == "base64";
  options.n_dims = call.model->model->summary().n_embd;
  TRY(fields.read("dimensions", options.n_dims, 1, options.n_dims));
  TRY(fields.read("embd_normalize", options.norm, kEmbeddingNormMin, kEmbeddingNormMax));
  return options;
}

// Without pooling a reply has a row for every token.
Status check_rows(const std::vector<std::vector<int32_t>>& inputs, int64_t n_embd) {
  constexpr int64_t kNumbersMax = 8 << 20;
  int64_t n_tokens = 0;
  for (const std::vector<int32_t>& input : inputs) {
    n_tokens += std::ssize(input);
  }
  if (n_tokens > kNumbersMax / n_embd) {
    return {ErrorCode::kInvalidArgument, fmt::format("the texts have {} tokens; with --pooling none a request may have "
                                                     "{}, each a row of {} numbers",
                                                     n_tokens, kNumbersMax / n_embd, n_embd)};
  }
  return {};
}

bool is_empty(const Json& input) {
  return input.is_string() ? input.get_ref<const std::string&>().empty() : input.is_array() && input.empty();
}

}  // namespace

Status api_embeddings(Call& call) {
  ASSIGN_OR_RETURN(const Json body, call.take_body());
  if (!call.model->pooling) {
    return {ErrorCode::kUnsupported, "this server makes no embeddings; start it with --embeddings"};
  }
  const Fields fields(body);
  ASSIGN_OR_RETURN(EmbeddingOptions options, read_options(call, fields));
  const std::string_view field = fields.has("input") || !fields.has("content") ? "input" : "content";
  const Json* found = fields.find(field);
  if (found != nullptr && is_empty(*found)) {
    return {ErrorCode::kInvalidArgument, fields.label(field) + " is empty; it needs a text"};
  }
  if (found != nullptr && found->is_array() && std::ranges::any_of(*found, is_empty)) {
    return {ErrorCode::kInvalidArgument, fields.label(field) + " has an empty text; every text needs a token"};
  }
  ASSIGN_OR_RETURN(std::vector<std::vector<int32_t>> inputs, read_prompts(call, body, field, kInputsMax));
  if (!options.is_pooled) {
    TRY(check_rows(inputs, call.model->model->summary().n_embd));
  }
  std::vector<ServingRequest> requests;
  for (std::vector<int32_t>& input : inputs) {
    ServingRequest request;
    request.prompt = std::move(input);
    request.pooling = call.model->pooling;
    requests.push_back(std::move(request));
  }
  auto writer =
      std::make_shared<EmbeddingWriter>(call, std::move(options), call.model->model->summary().n_embd, requests.size());
  return start_generation(call, std::move(requests), std::move(writer), /*in_turn=*/true);
}

}  // namespace tessera
