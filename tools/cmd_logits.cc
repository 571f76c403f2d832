// `tessera logits`: decodes given tokens, then a number of steps, and reports the logits as the reference data does
// (tests/data/goldens/FORMAT.md, "Logits"), with a SHA-256 over every bit of them.
//
// Rows are used as they come and never all held. Prompts of several sequences are put one after the other and decoded
// in pieces, whose bounds follow from the inputs, --batch-size and the vocabulary: never from the placement.

#include <algorithm>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/base64.h"
#include "base/files.h"
#include "commands.h"
#include "common.h"
#include "fit_flags.h"
#include "logit_stats.h"
#include "report.h"
#include "runtime/context.h"
#include "runtime/sampler.h"
#include "sha256.h"

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;

// Most bytes of logits that one decode leaves.
constexpr int64_t kPieceLogitBytes = int64_t{256} << 20;
// Up to this vocabulary the last row is written whole.
constexpr size_t kWholeRowMax = 4096;
constexpr size_t kLastTop = 64;

struct Sequence {
  std::string source;  // "tokens" or "text"
  std::string text;    // of a text
  std::vector<int32_t> prompt;
  std::vector<int32_t> forced;
  std::vector<int32_t> fed;     // after each step
  std::vector<int32_t> argmax;  // of each step
  Json positions = Json::array();
  Json last;
  Json steps = Json::array();
  Sha256 digest;
  int64_t n_rows = 0;
};

std::vector<int32_t> ids_of(const std::vector<uint64_t>& numbers) {
  std::vector<int32_t> ids;
  for (const uint64_t number : numbers) {
    ids.push_back(static_cast<int32_t>(std::min<uint64_t>(number, INT32_MAX)));  // beyond any vocabulary: refused later
  }
  return ids;
}

// Ids separated by commas or blanks.
Result<std::vector<int32_t>> read_ids(const std::string& path) {
  ASSIGN_OR_RETURN(std::string text, read_input(path));
  std::vector<int32_t> ids;
  for (size_t i = 0; i < text.size();) {
    if (std::string_view(", \t\r\n").find(text[i]) != std::string_view::npos) {
      ++i;
      continue;
    }
    uint64_t value = 0;
    const size_t begin = i;
    for (; i < text.size() && text[i] >= '0' && text[i] <= '9'; ++i) {
      value = std::min<uint64_t>(value * 10 + static_cast<uint64_t>(text[i] - '0'), uint64_t{INT32_MAX} + 1);
    }
    if (i == begin || value > INT32_MAX) {
      return Status(ErrorCode::kInvalidArgument,
                    fmt::format("{}: {} at byte {} is no token id; give numbers separated by commas or blanks", path,
                                quote(text.substr(begin, 12)), begin));
    }
    ids.push_back(static_cast<int32_t>(value));
  }
  return ids;
}

// Inputs in the order of the command line; texts are not tokenized yet.
Result<std::vector<Sequence>> read_sequences(const ParsedFlags& flags) {
  std::vector<Sequence> sequences;
  std::vector<std::vector<int32_t>> forced;
  for (const ParsedFlags::Use& use : flags.uses()) {
    Sequence sequence;
    if (use.row->name == "tokens") {
      sequence.source = "tokens";
      sequence.prompt = ids_of(parse_uint_list(use.text));
    } else if (use.row->name == "tokens-file") {
      sequence.source = "tokens";
      ASSIGN_OR_RETURN(sequence.prompt, read_ids(use.text));
    } else if (use.row->name == "prompt") {
      sequence.source = "text";
      sequence.text = use.text;
    } else {
      if (use.row->name == "force") {
        forced.push_back(ids_of(parse_uint_list(use.text)));
      }
      continue;
    }
    sequences.push_back(std::move(sequence));
  }
  for (size_t i = 0; i < forced.size(); ++i) {
    sequences[i].forced = std::move(forced[i]);
  }
  return sequences;
}

Json stats_json_of(const LogitStats& stats) {
  return {{"min", nine_digits(static_cast<double>(stats.min))},
          {"max", nine_digits(static_cast<double>(stats.max))},
          {"mean", nine_digits(stats.mean)},
          {"rms", nine_digits(stats.rms)},
          {"lse", nine_digits(stats.lse)}};
}

Json top_json_of(std::span<const float> row, size_t n) {
  Json top = Json::array();
  for (const auto& [id, logit] : top_logits(row, n)) {
    top.push_back({id, nine_digits(static_cast<double>(logit))});
  }
  return top;
}

class LogitsRun {
 public:
  LogitsRun(const ParsedFlags& flags, std::vector<Sequence> sequences)
      : flags_(flags),
        sequences_(std::move(sequences)),
        n_steps_(static_cast<int64_t>(flags.get_uint("predict"))),
        n_top_(static_cast<size_t>(flags.get_uint("top"))) {}

  Status run() {
    TRY(open());
    TRY(decode_prompts());
    for (int64_t i = 0; i < n_steps_; ++i) {
      TRY(choose());
      if (i + 1 < n_steps_) {
        TRY(decode_step(i + 1));
      }
    }
    const std::string text = report().dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
    const std::string path = flags_.get_string("json");
    return path.empty() || path == "-" ? print(text) : write_file(path, text);
  }

 private:
  // Positions that the longest sequence needs. A step's id is decoded unless it is the last.
  int64_t longest() const {
    size_t most = 0;
    for (const Sequence& sequence : sequences_) {
      most = std::max(most, sequence.prompt.size());
    }
    return std::max<int64_t>(static_cast<int64_t>(most) + std::max<int64_t>(n_steps_ - 1, 0), 1);
  }

  Status open() {
    ModelOptions options = model_options(flags_);
    const bool sized = flags_.given("ctx-size");
    options.context.n_seq_max = static_cast<int32_t>(sequences_.size());
    options.context.n_ctx = sized ? options.context.n_ctx : longest();
    options.needs_text = std::ranges::any_of(sequences_, [](const Sequence& s) { return s.source == "text"; });
    const Log log = command_log(flags_);
    TRY(apply_fit(flags_, options, false, log));
    ASSIGN_OR_RETURN(model_, load_model(options, log));
    for (Sequence& sequence : sequences_) {
      if (sequence.source == "text") {
        sequence.prompt = model_->tokenizer().encode(sequence.text, {.parse_special = true, .add_special = true});
      }
      if (sequence.prompt.empty()) {
        return {ErrorCode::kInvalidArgument, "an input has no tokens; give each at least one"};
      }
      for (const int32_t id : sequence.forced) {
        if (id >= model_->summary().n_vocab) {
          return {ErrorCode::kInvalidArgument,
                  fmt::format("--force: id {} is not in the vocabulary of {}", id, model_->summary().n_vocab)};
        }
      }
    }
    options.context.n_ctx = sized ? options.context.n_ctx : longest();
    const auto row_bytes = model_->summary().n_vocab * static_cast<int64_t>(sizeof(float));
    piece_ = std::min(options.context.n_batch, std::max<int64_t>(kPieceLogitBytes / row_bytes, 1));
    options.context.n_batch = std::max(piece_, static_cast<int64_t>(sequences_.size()));
    ASSIGN_OR_RETURN(context_, Context::create(model_, options.context));
    return {};
  }

  Status decode_prompts() {
    std::vector<BatchToken> batch;
    for (size_t s = 0; s < sequences_.size(); ++s) {
      for (const int32_t id : sequences_[s].prompt) {
        batch.push_back({id, static_cast<int32_t>(s), true});
      }
    }
    for (size_t begin = 0; begin < batch.size(); begin += static_cast<size_t>(piece_)) {
      const auto piece = std::span(batch).subspan(begin, std::min(static_cast<size_t>(piece_), batch.size() - begin));
      TRY(context_->decode(piece));
      for (size_t i = 0; i < piece.size(); ++i) {
        take_prompt_row(sequences_[static_cast<size_t>(piece[i].seq)], context_->logits(static_cast<int64_t>(i)));
      }
    }
    return {};
  }

  void take_prompt_row(Sequence& sequence, std::span<const float> row) {
    const size_t p = sequence.positions.size();
    take_row(sequence, row);
    const LogitStats stats = logit_stats(row);
    Json position = {{"p", p}, {"argmax", argmax(row)}};
    position.update(stats_json_of(stats));
    if (p + 1 < sequence.prompt.size()) {
      const auto next = static_cast<double>(row[static_cast<size_t>(sequence.prompt[p + 1])]);
      position["next"] = nine_digits(next - stats.lse);
    }
    position["top"] = top_json_of(row, n_top_);
    sequence.positions.push_back(std::move(position));
    if (p + 1 < sequence.prompt.size()) {
      return;
    }
    if (row.size() <= kWholeRowMax) {
      sequence.last = {{"encoding", "f32le-base64"}, {"data", base64(std::as_bytes(row))}};
    } else {
      sequence.last = {{"encoding", "top64"}};
      sequence.last.update(stats_json_of(stats));
      sequence.last["top"] = top_json_of(row, kLastTop);
    }
    take_step(sequence, row, stats, 0);
  }

  void take_step(Sequence& sequence, std::span<const float> row, const LogitStats& stats, int64_t step) const {
    if (step >= n_steps_) {
      return;
    }
    Json record = {{"i", step}};
    record.update(stats_json_of(stats));
    record["top"] = top_json_of(row, n_top_);
    sequence.steps.push_back(std::move(record));
    sequence.argmax.push_back(argmax(row));
  }

  static void take_row(Sequence& sequence, std::span<const float> row) {
    sequence.digest.update(std::as_bytes(row));  // float32, little-endian as every machine we run on
    ++sequence.n_rows;
  }

  Status choose() {
    for (Sequence& sequence : sequences_) {
      const size_t step = sequence.fed.size();
      const int32_t id = step < sequence.forced.size() ? sequence.forced[step] : sequence.argmax[step];
      if (id == kNoToken) {
        return {ErrorCode::kInvalidData,
                fmt::format("{}: no logit of step {} is a number", flags_.get_string("model"), step)};
      }
      sequence.fed.push_back(id);
    }
    return {};
  }

  Status decode_step(int64_t step) {
    std::vector<BatchToken> batch;
    for (size_t s = 0; s < sequences_.size(); ++s) {
      batch.push_back({sequences_[s].fed.back(), static_cast<int32_t>(s), true});
    }
    TRY(context_->decode(batch));
    for (size_t s = 0; s < sequences_.size(); ++s) {
      const std::span<const float> row = context_->logits(static_cast<int64_t>(s));
      take_row(sequences_[s], row);
      take_step(sequences_[s], row, logit_stats(row), step);
    }
    return {};
  }

  static Json report_of(Sequence& sequence, const Sha256Digest& digest) {
    Json greedy = {{"tokens", sequence.argmax}};
    if (!sequence.forced.empty()) {
      greedy["fed"] = sequence.fed;
    }
    greedy["steps"] = std::move(sequence.steps);
    return {
        {"source", sequence.source},        {"prompt", sequence.prompt},   {"positions", std::move(sequence.positions)},
        {"last", std::move(sequence.last)}, {"greedy", std::move(greedy)}, {"n_rows", sequence.n_rows},
        {"logits_sha256", hex(digest)}};
  }

  Json report() {
    const ModelSummary& s = model_->summary();
    const std::string path = flags_.get_string("model");
    const std::string k_type = flags_.get_string("cache-type-k");
    const std::string v_type = flags_.get_string("cache-type-v");
    Json result = {{"format", "logit-golden-1"},
                   {"model", path.substr(path.rfind('/') + 1)},
                   {"engine", fmt::format("tessera {}", TESSERA_VERSION)},
                   {"arch", s.architecture},
                   {"mode", "decode"},
                   {"n_vocab", s.n_vocab},
                   {"n_layer", s.n_layer},
                   {"n_embd", s.n_embd},
                   {"n_head", s.n_head},
                   {"n_head_kv", s.n_kv_head},
                   {"kv", k_type == v_type ? k_type : k_type + "/" + v_type},
                   {"n_batch", context_->options().n_batch},
                   {"n_ubatch", context_->options().n_ubatch}};
    std::vector<Sha256Digest> digests;
    for (Sequence& sequence : sequences_) {
      digests.push_back(sequence.digest.finish());
    }
    if (sequences_.size() == 1) {
      result.update(report_of(sequences_[0], digests[0]));
    } else {
      Sha256 all;
      for (size_t i = 0; i < sequences_.size(); ++i) {
        result["sequences"].push_back(report_of(sequences_[i], digests[i]));
        all.update(std::as_bytes(std::span(digests[i])));
      }
      result["logits_sha256"] = hex(all.finish());
    }
    result["placement"] = Json::parse(placement_json(*model_));
    result["devices"] = Json::parse(devices_json(*model_));
    result["stats"] = Json::parse(stats_json(*context_));
    return result;
  }

  const ParsedFlags& flags_;
  std::vector<Sequence> sequences_;
  int64_t n_steps_;
  size_t n_top_;
  int64_t piece_ = 1;  // most tokens of one decode of prompts
  std::shared_ptr<Model> model_;
  std::unique_ptr<Context> context_;
};

}  // namespace

Status check_logits(const ParsedFlags& flags) {
  size_t n_inputs = 0;
  size_t n_forced = 0;
  for (const ParsedFlags::Use& use : flags.uses()) {
    n_inputs += use.row->name == "tokens" || use.row->name == "tokens-file" || use.row->name == "prompt" ? 1 : 0;
    n_forced += use.row->name == "force" ? 1 : 0;
  }
  if (n_inputs == 0) {
    return {ErrorCode::kInvalidArgument,
            "nothing to decode; give --tokens, --tokens-file or --prompt, once per sequence"};
  }
  if (n_forced > n_inputs) {
    return {ErrorCode::kInvalidArgument,
            fmt::format("--force is given {} times, but there are only {} sequences", n_forced, n_inputs)};
  }
  return {};
}

Status cmd_logits(const ParsedFlags& flags) {
  ASSIGN_OR_RETURN(std::vector<Sequence> sequences, read_sequences(flags));
  return LogitsRun(flags, std::move(sequences)).run();
}

}  // namespace tessera
