// `tessera tokenize`: text to token ids and back.

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "common.h"

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;

// {"tokens": [ids], "pieces": ["hex of each token's bytes"]}
std::string tokens_json(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  Json pieces = Json::array();
  for (const int32_t id : ids) {
    pieces.push_back(hex_bytes(tokenizer.piece(id)));
  }
  return Json{{"tokens", ids}, {"pieces", pieces}}.dump() + "\n";
}

Status print_hex_lines(const Tokenizer& tokenizer, const std::string& path, EncodeOptions options) {
  ASSIGN_OR_RETURN(const std::string input, read_input(path));
  std::string_view rest = input;
  std::string result;
  for (int64_t n_lines = 1; !rest.empty(); ++n_lines) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    line = line.substr(0, line.size() - (line.ends_with('\r') ? 1 : 0));
    Result<std::string> bytes = bytes_of_hex(line);
    if (!bytes.ok()) {
      return bytes.status().with_context(fmt::format("{}, line {}", path == "-" ? "standard input" : path, n_lines));
    }
    result += tokens_json(tokenizer, tokenizer.encode(*bytes, options));
  }
  return print(result);
}

Status print_text_of(const Tokenizer& tokenizer, const ParsedFlags& flags) {
  std::vector<int32_t> ids;
  for (const uint64_t number : flags.get_uint_list("detokenize")) {
    if (std::cmp_greater_equal(number, tokenizer.n_vocab())) {
      return {ErrorCode::kInvalidArgument,
              fmt::format("--detokenize: id {} is not in the vocabulary of {}", number, tokenizer.n_vocab())};
    }
    ids.push_back(static_cast<int32_t>(number));
  }
  const std::string text = tokenizer.decode(ids);
  return flags.get_bool("json")
             ? print(Json{{"text", text}}.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n")
             : print_exactly(text);
}

}  // namespace

Status check_tokenize(const ParsedFlags& flags) {
  const int n_inputs = static_cast<int>(!flags.positional().empty()) + static_cast<int>(flags.given("file")) +
                       static_cast<int>(flags.given("detokenize")) + static_cast<int>(flags.given("hex-lines"));
  if (n_inputs > 1) {
    return {ErrorCode::kInvalidArgument, "more than one input; give one of TEXT, --file, --detokenize, --hex-lines"};
  }
  if (n_inputs == 0 && stdin_is_terminal()) {
    return {ErrorCode::kInvalidArgument, "nothing to tokenize; give TEXT, --file, --detokenize or --hex-lines"};
  }
  return {};
}

Status cmd_tokenize(const ParsedFlags& flags) {
  ASSIGN_OR_RETURN(const std::shared_ptr<Model> model, load_vocabulary(flags));
  const Tokenizer& tokenizer = model->tokenizer();
  const EncodeOptions options{.parse_special = flags.get_bool("parse-special"),
                              .add_special = flags.get_bool("add-bos")};
  if (flags.given("detokenize")) {
    return print_text_of(tokenizer, flags);
  }
  if (flags.given("hex-lines")) {
    return print_hex_lines(tokenizer, flags.get_string("hex-lines"), options);
  }
  std::string text;
  if (!flags.positional().empty()) {
    text = flags.positional().front();
  } else {
    ASSIGN_OR_RETURN(text, read_input(flags.given("file") ? flags.get_string("file") : "-"));
  }
  const std::vector<int32_t> ids = tokenizer.encode(text, options);
  if (flags.get_bool("json")) {
    return print(tokens_json(tokenizer, ids));
  }
  std::string lines;
  for (const int32_t id : ids) {
    lines += fmt::format("{:>8}  {}\n", id, quote(tokenizer.piece(id)));
  }
  return print(lines);
}

}  // namespace tessera
