// `tessera embedding`: one vector for each text, in the forms that the reference's program has.

#include <cmath>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "common.h"
#include "fit_flags.h"
#include "runtime/context.h"
#include "runtime/embedding.h"
#include "runtime/generate.h"

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;
using Row = std::vector<float>;  // [n_embd] f32

Result<std::vector<std::string>> read_texts(const ParsedFlags& flags) {
  std::string all = flags.get_string("prompt");
  if (flags.given("file")) {
    ASSIGN_OR_RETURN(all, read_input(flags.get_string("file")));
  }
  const std::string separator = unescape(flags.get_string("embd-separator"));
  std::vector<std::string> texts;
  for (size_t begin = 0; begin <= all.size();) {
    const size_t end = separator.empty() ? all.size() : std::min(all.find(separator, begin), all.size());
    if (end > begin) {  // a newline at a file's end begins no text
      texts.push_back(all.substr(begin, end - begin));
    }
    begin = end + std::max<size_t>(separator.size(), 1);
  }
  if (texts.empty()) {
    return Status(ErrorCode::kInvalidArgument, "there is no text; give one with --prompt or --file");
  }
  return texts;
}

struct Embedded {
  size_t text = 0;  // whose
  Row row;
};

// Rows of one text: one, or without pooling each token's.
Result<std::vector<Row>> embed(Context& context, std::span<const int32_t> tokens, Pooling pooling) {
  TRY(check_prompt(tokens.size(), context.options().n_ctx, /*has_answer=*/false));
  TRY(context.clear());
  EmbeddingPool pool(pooling, std::ssize(tokens));
  const auto n_batch = static_cast<size_t>(context.options().n_batch);
  for (size_t begin = 0; begin < tokens.size(); begin += n_batch) {
    std::vector<BatchToken> batch;
    std::vector<int64_t> positions;  // of rows
    for (size_t i = begin; i < std::min(begin + n_batch, tokens.size()); ++i) {
      const auto position = static_cast<int64_t>(i);
      batch.push_back({.token = tokens[i], .wants_embedding = pool.wants(position)});
      if (pool.wants(position)) {
        positions.push_back(position);
      }
    }
    TRY(context.decode(batch));
    for (size_t i = 0; i < positions.size(); ++i) {
      pool.add(positions[i], context.embedding(static_cast<int64_t>(i)));
    }
  }
  const Row all = pool.result();
  const auto n_embd = static_cast<std::ptrdiff_t>(context.model().summary().n_embd);
  std::vector<Row> rows;
  for (auto at = all.begin(); at != all.end(); at += n_embd) {
    rows.emplace_back(at, at + n_embd);
  }
  return rows;
}

double cosine(const Row& a, const Row& b) {
  double product = 0;
  double of_a = 0;
  double of_b = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    product += static_cast<double>(a[i]) * static_cast<double>(b[i]);
    of_a += static_cast<double>(a[i]) * static_cast<double>(a[i]);
    of_b += static_cast<double>(b[i]) * static_cast<double>(b[i]);
  }
  return of_a > 0 && of_b > 0 ? product / std::sqrt(of_a * of_b) : of_a == of_b ? 1 : 0;
}

std::string json_text(const std::vector<Embedded>& found, bool with_cosines) {
  Json list = Json::array();
  Json cosines = Json::array();
  for (size_t i = 0; i < found.size(); ++i) {
    list.push_back({{"object", "embedding"}, {"index", i}, {"embedding", found[i].row}});
    Json line = Json::array();
    for (size_t j = 0; with_cosines && j < found.size(); ++j) {
      line.push_back(cosine(found[i].row, found[j].row));
    }
    cosines.push_back(std::move(line));
  }
  Json json = {{"object", "list"}, {"data", std::move(list)}};
  if (with_cosines) {
    json["cosineSimilarity"] = std::move(cosines);
  }
  return json.dump() + "\n";
}

std::string written(const std::vector<Embedded>& found, std::string_view format) {
  if (format == "json" || format == "json+") {
    return json_text(found, format == "json+");
  }
  if (format == "array") {
    Json list = Json::array();
    for (const Embedded& embedded : found) {
      list.push_back(embedded.row);
    }
    return list.dump() + "\n";
  }
  std::string text;
  for (const auto& [index, row] : found) {
    text += format == "text" ? fmt::format("embedding {}:", index) : "";
    for (size_t i = 0; i < row.size(); ++i) {
      text += fmt::format("{}{:.9g}", i == 0 && format == "raw" ? "" : " ", row[i]);
    }
    text += "\n";
  }
  return text;
}

}  // namespace

Status cmd_embedding(const ParsedFlags& flags) {
  ASSIGN_OR_RETURN(const std::vector<std::string> texts, read_texts(flags));
  ModelOptions options = model_options(flags);
  options.needs_text = true;
  options.context.embeddings = true;
  const Log log = command_log(flags);
  TRY(apply_fit(flags, options, false, log));
  ASSIGN_OR_RETURN(const std::shared_ptr<Model> model, load_model(options, log));
  ASSIGN_OR_RETURN(const Pooling pooling, chosen_pooling(flags, *model));
  ASSIGN_OR_RETURN(const std::unique_ptr<Context> context, Context::create(model, options.context));
  const auto norm = static_cast<int32_t>(flags.get_int("embd-normalize"));
  std::vector<Embedded> found;
  for (size_t i = 0; i < texts.size(); ++i) {
    const auto tokens = model->tokenizer().encode(texts[i], {.parse_special = true, .add_special = true});
    ASSIGN_OR_RETURN(std::vector<Row> rows, embed(*context, tokens, pooling));
    for (Row& row : rows) {
      if (pooling != Pooling::kNone) {
        normalize_embedding(row, norm);
      }
      found.push_back({i, std::move(row)});
    }
  }
  return print(written(found, flags.get_string("embd-output-format")));
}

}  // namespace tessera
