// Questions about the model: what its file says, and what of it fits.

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <limits>

#include "base/checked.h"
#include "base/units.h"
#include "common.h"
#include "doctor.h"
#include "fit_flags.h"
#include "flag_rows.h"
#include "gguf/gguf.h"
#include "metadata_flags.h"
#include "models/architecture.h"
#include "runtime/model_file.h"

namespace tessera {
namespace {

constexpr int64_t kShortestContext = 256;              // less is of no use to anybody
constexpr uint64_t kNoLimitBytes = uint64_t{1} << 50;  // a budget that every model fits into

Check bad(std::string_view name, std::string found, std::string to_do) {
  return {.name = name, .verdict = Verdict::kBad, .found = std::move(found), .to_do = std::move(to_do)};
}

// What to do where GgufFile::open(path) fails so.
std::string fix_for_file(std::string_view path, const Status& status) {
  if (path.find("://") != std::string_view::npos) {
    return std::string(kNoNetwork);
  }
  if (status.message().find("not a GGUF file") != std::string::npos) {
    return "give a GGUF file";
  }
  switch (status.code()) {
    case ErrorCode::kNotFound:
      return "give --model the path of a GGUF file; of a split file the first part, beside the others";
    case ErrorCode::kInvalidArgument: return "give --model a file, and of a split file the first part";
    case ErrorCode::kUnsupported: return "convert the model anew with current tools";
    case ErrorCode::kIo: return "check permissions and the disk (dmesg)";
    case ErrorCode::kOutOfMemory: return "more free memory";
    default: return "download or convert it again: compare its size and checksum with the source's";
  }
}

Check check_file(std::string_view path, const Result<GgufFile>& file) {
  if (!file.ok()) {
    return bad("file", file.status().message(), fix_for_file(path, file.status()));
  }
  return {.name = "file",
          .found = fmt::format("{}: complete, {:.1f} MiB, {} tensors{}", file->path(), mib(file->file_bytes()),
                               file->tensors().size(),
                               file->n_shards() > 1 ? fmt::format(" in {} files", file->n_shards()) : "")};
}

Check check_architecture(const Result<ModelDefinition>& definition) {
  if (!definition.ok()) {
    return bad("architecture", definition.status().message(),
               definition.status().code() == ErrorCode::kUnsupported
                   ? "a model of a known architecture, or a newer tessera"
                   : "convert the model anew with current tools");
  }
  const ModelInfo& info = definition->info;
  return {.name = "architecture",
          .found = fmt::format("{}, {} layers, trained on contexts of {} tokens", info.architecture, info.n_layer,
                               info.n_ctx_train)};
}

Check check_tokenizer(const Result<std::shared_ptr<Model>>& vocabulary, const Metadata& meta) {
  if (!vocabulary.ok()) {
    return bad("tokenizer", vocabulary.status().message(), "convert the model anew, with its tokenizer");
  }
  const auto text = [&](std::string_view key) {
    const Result<std::string_view> value = meta.get_string(key, "");
    return value.ok() ? std::string(*value) : std::string();
  };
  const std::string pre = text("tokenizer.ggml.pre");
  return {.name = "tokenizer",
          .found = fmt::format("{}{}, {} tokens", text("tokenizer.ggml.model"), pre.empty() ? "" : " (" + pre + ")",
                               (*vocabulary)->tokenizer().n_vocab())};
}

Check check_template(const ParsedFlags& flags, const Model& model) {
  const Result<ChatTemplate> parsed = load_template(flags, model);
  if (!parsed.ok()) {
    return bad("chat template", parsed.status().message(), "--chat-template-file with a template that is whole");
  }
  if (chooses_template(flags)) {
    return {.name = "chat template",
            .found = flags.given("chat-template") ? "of --chat-template" : flags.get_string("chat-template-file")};
  }
  if (model.chat_template_source().empty()) {
    return {.name = "chat template",
            .verdict = Verdict::kWarn,
            .found = "the file has none; ChatML is used",
            .to_do = "--chat-template-file with the one the model was trained on, if it is to chat"};
  }
  return {.name = "chat template", .found = "the model's own"};
}

// What is counted of a model, and the context that is wanted: of the length asked for, or all it was trained on.
struct Question {
  FitRequest request;  // for the longest context that fits
  int64_t n_ctx_train = 0;
  int64_t asked = 0;
  bool is_asked = false;    // by --ctx-size
  bool has_budget = false;  // --device-memory is given
};

Question question(const ParsedFlags& flags, int64_t n_ctx_train) {
  Question q;
  const auto given =
      static_cast<int64_t>(std::min<uint64_t>(flags.get_uint("ctx-size"), std::numeric_limits<int64_t>::max()));
  q.n_ctx_train = n_ctx_train;
  q.asked = given == 0 ? n_ctx_train : given;
  q.is_asked = flags.given("ctx-size");
  q.has_budget = flags.given("device-memory");
  q.request.model = model_options(flags);
  q.request.model.context.n_ctx = std::min(std::max(q.asked, n_ctx_train), kMaxContext);
  q.request.model.context.n_seq_max = static_cast<int32_t>(flags.get_uint("parallel"));
  q.request.model.context.n_kv_tokens = ContextOptions::kAsOne;
  q.request.modes = {{q.request.model.split_mode, q.request.model.tensor_split}};
  q.request.finds_context = true;
  q.request.n_ctx_min = kShortestContext;
  q.request.margin_bytes = fit_margins(flags);
  q.request.to_lower = "--ubatch-size";
  return q;
}

// MiB that each device must have for a context of n_ctx tokens, its margin included; empty where nobody can say.
std::vector<uint64_t> needed_mib(const Question& q, int64_t n_ctx) {
  FitRequest request = q.request;
  request.model.device_memory = {kNoLimitBytes};
  request.model.context.n_ctx = n_ctx;
  request.finds_context = false;
  std::vector<uint64_t> needed;
  const Result<Fit> fit = fit_model(request);
  for (size_t d = 0; fit.ok() && d < fit->devices.size(); ++d) {
    const std::vector<uint64_t>& margins = request.margin_bytes;
    const uint64_t margin = margins.empty() ? 0 : margins[margins.size() == 1 ? 0 : d];
    needed.push_back(div_up(fit->devices[d].needs[0].total() + margin, uint64_t{1} << 20));
  }
  return needed;
}

// "--device-memory 137M"; empty where the budgets are the machine's, which no flag raises, or the needs not known.
std::string budget_flag(const Question& q, int64_t n_ctx) {
  const std::vector<uint64_t> needed = q.has_budget ? needed_mib(q, n_ctx) : std::vector<uint64_t>();
  return needed.empty() ? "" : fmt::format("--device-memory {}M", fmt::join(needed, "M,"));
}

// Why not even the shortest context fits, and what would help.
Check check_lack(const Question& q, const Status& status) {
  if (status.code() != ErrorCode::kDoesNotFit) {
    return bad("devices", status.message(), "see the message; tessera devices lists what --device can name");
  }
  const int64_t n_ctx = std::min(q.asked, q.n_ctx_train > 0 ? q.n_ctx_train : kMaxContext);
  const int64_t least = std::min(n_ctx, kShortestContext);
  const std::string budget = budget_flag(q, least);
  if (budget.empty()) {
    return bad("devices", status.message(),
               "a smaller model or format, smaller --ubatch-size, more free memory, or --fit-target with less than "
               "1024");
  }
  return bad("devices", status.message(),
             fmt::format("{} for a context of {} tokens{}; or a smaller model or format, or smaller --ubatch-size",
                         budget, least, n_ctx > least ? fmt::format(", {} for {}", budget_flag(q, n_ctx), n_ctx) : ""));
}

// ", which would need 218 MiB; 150 are there", device by device; of more tokens than there can be: what the most would
// need.
std::string need_text(const Question& q, const Fit& longest) {
  const int64_t n_ctx = std::min(q.asked, kMaxContext);
  const std::vector<uint64_t> needed = needed_mib(q, n_ctx);
  if (needed.empty()) {
    return "";
  }
  std::vector<uint64_t> there;
  for (const FitDevice& device : longest.devices) {
    there.push_back(device.budget_bytes >> 20);
  }
  return fmt::format("{} would need {} MiB; {} are there",
                     n_ctx < q.asked ? fmt::format("; {}, the most there can be,", n_ctx) : ", which",
                     fmt::join(needed, " and "), fmt::join(there, " and "));
}

// A context of the asked length fits, or the longest that does. Advised is at most what the model was trained on.
Check check_context(const Question& q, const Fit& longest) {
  const int64_t most = longest.model.context.n_ctx;
  const bool is_beyond = q.n_ctx_train > 0 && q.asked > q.n_ctx_train;
  const std::string advice = fmt::format("--ctx-size {}", is_beyond ? std::min(most, q.n_ctx_train) : most);
  Check check{.name = "context", .found = fmt::format("up to {} tokens fit; {} are asked for", most, q.asked)};
  if (q.asked > most) {
    check.verdict = Verdict::kBad;
    check.found += need_text(q, longest);
    check.to_do = advice;
    if (!is_beyond || most < q.n_ctx_train) {
      const std::string budget = budget_flag(q, is_beyond ? q.n_ctx_train : q.asked);
      check.to_do += fmt::format("{}{}, or smaller caches: --cache-type-k q8_0 --cache-type-v q8_0",
                                 budget.empty() ? "" : ", or ", budget);
    }
  } else if (is_beyond && q.is_asked) {
    check.verdict = Verdict::kWarn;
    check.to_do = advice;
  }
  if (is_beyond) {
    check.found += fmt::format("; the model was trained on {}", q.n_ctx_train);
  }
  return check;
}

Check check_devices(const Fit& fit) {
  Check check{.name = "devices"};
  for (const FitDevice& device : fit.devices) {
    check.found += fmt::format("{}{}: {}, {:.1f} of {:.1f} MiB", check.found.empty() ? "" : "; ", device.name,
                               device.parts[0], mib(device.needs[0].total()), mib(device.budget_bytes));
  }
  std::string placing = fit.flags;
  if (placing.starts_with("--ctx-size ")) {  // the next check's
    placing.erase(0, std::min(placing.find(" --"), placing.size() - 1) + 1);
  }
  if (!placing.empty()) {
    check.verdict = Verdict::kWarn;
    check.to_do = fmt::format("{}, or --fit on", placing);
  }
  return check;
}

}  // namespace

std::string file_advice(const ParsedFlags& flags, const Status& failure) {
  if (failure.code() == ErrorCode::kCancelled) {
    return {};
  }
  for (const ParsedFlags::Use& use : flags.uses()) {
    if (use.row->name != "model") {
      continue;
    }
    const Status found = GgufFile::open(use.text).status();
    const bool is_why = !found.ok() && failure.message().find(found.message()) != std::string::npos;
    if (is_why && found.message().find("; ") == std::string::npos) {
      return (found.message().ends_with('?') ? " " : "; ") + fix_for_file(use.text, found);
    }
  }
  return {};
}

ModelChecks check_model(const ParsedFlags& flags) {
  ModelChecks result;
  const auto add = [&](Check check) {
    result.checks.push_back(std::move(check));
    return result.checks.back().verdict != Verdict::kBad;
  };
  const std::string path = flags.get_string("model");
  Result<GgufFile> file = GgufFile::open(path);
  if (!add(check_file(path, file))) {
    return result;
  }
  if (const Status status = override_metadata(*file, metadata_overrides(flags)); !status.ok()) {
    add(bad("metadata", status.message(), "leave out what overrides it"));
    return result;
  }
  const Result<ModelDefinition> definition = build_model(*file);
  const bool is_known = add(check_architecture(definition));
  const Result<std::shared_ptr<Model>> vocabulary = load_vocabulary(flags);
  if (add(check_tokenizer(vocabulary, file->metadata()))) {
    add(check_template(flags, **vocabulary));
  }
  if (!is_known) {
    return result;
  }
  Question q = question(flags, definition->info.n_ctx_train);
  const Result<Fit> longest = fit_model(q.request);
  if (!longest.ok()) {
    add(check_lack(q, longest.status()));
    return result;
  }
  result.n_ctx_max = longest->model.context.n_ctx;
  for (const FitDevice& device : longest->devices) {
    result.needed_bytes += device.needs[0].total();
  }
  Check devices = check_devices(*longest);
  if (!devices.to_do.empty() && flags.get_uint("ctx-size") > 0 && flags.get_string("fit") == "off") {
    q.request.model.context.n_ctx = q.asked;
    if (const Status as_asked = count_model(q.request.model).status(); as_asked.code() == ErrorCode::kDoesNotFit) {
      devices.verdict = Verdict::kBad;
      devices.found = as_asked.message();
    }
  }
  add(std::move(devices));
  add(check_context(q, *longest));
  return result;
}

}  // namespace tessera
