// Questions about the model: what its file says, and what of it fits.

#include <algorithm>
#include <fmt/format.h>

#include "base/units.h"
#include "common.h"
#include "doctor.h"
#include "fit_flags.h"
#include "gguf/gguf.h"
#include "metadata_flags.h"
#include "models/architecture.h"
#include "runtime/model_file.h"

namespace tessera {
namespace {

constexpr int64_t kShortestContext = 256;  // less is of no use to anybody

Check bad(std::string_view name, std::string found, std::string to_do) {
  return {.name = name, .verdict = Verdict::kBad, .found = std::move(found), .to_do = std::move(to_do)};
}

std::string fix_for_file(ErrorCode code) {
  switch (code) {
    case ErrorCode::kNotFound:
      return "--model with the path of a GGUF file; of a split file the first part, beside the others";
    case ErrorCode::kInvalidArgument: return "--model with a file, and of a split file the first part";
    case ErrorCode::kUnsupported: return "convert the model anew with current tools";
    case ErrorCode::kIo: return "check permissions and the disk (dmesg)";
    case ErrorCode::kOutOfMemory: return "more free memory";
    default: return "download or convert it again: compare its size and checksum with the source's";
  }
}

Check check_file(const Result<GgufFile>& file) {
  if (!file.ok()) {
    return bad("file", file.status().message(), fix_for_file(file.status().code()));
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

// A context of the asked length fits, or the longest that does.
Check check_context(const ParsedFlags& flags, const Fit& longest, int64_t n_ctx_train, int64_t asked) {
  const auto most = longest.model.context.n_ctx;
  Check check{.name = "context", .found = fmt::format("up to {} tokens fit; {} are asked for", most, asked)};
  if (asked > most) {
    check.verdict = Verdict::kBad;
    check.to_do = fmt::format("--ctx-size {}, or smaller caches: --cache-type-k q8_0 --cache-type-v q8_0", most);
  } else if (asked > n_ctx_train) {
    check.verdict = flags.given("ctx-size") ? Verdict::kWarn : Verdict::kOk;
    check.to_do = flags.given("ctx-size") ? fmt::format("--ctx-size {}", n_ctx_train) : "";
  }
  if (asked > n_ctx_train) {
    check.found += fmt::format("; the model was trained on {}", n_ctx_train);
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

ModelChecks check_model(const ParsedFlags& flags) {
  ModelChecks result;
  const auto add = [&](Check check) {
    result.checks.push_back(std::move(check));
    return result.checks.back().verdict != Verdict::kBad;
  };
  Result<GgufFile> file = GgufFile::open(flags.get_string("model"));
  if (!add(check_file(file))) {
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
  FitRequest request;
  request.model = model_options(flags);
  const int64_t n_ctx_train = definition->info.n_ctx_train;
  const auto given = static_cast<int64_t>(flags.get_uint("ctx-size"));
  const int64_t asked = given == 0 ? n_ctx_train : given;
  request.model.context.n_ctx = std::max(asked, n_ctx_train);
  request.model.context.n_seq_max = static_cast<int32_t>(flags.get_uint("parallel"));
  request.model.context.n_kv_tokens = ContextOptions::kAsOne;
  request.modes = {{request.model.split_mode, request.model.tensor_split}};
  request.finds_context = true;
  request.n_ctx_min = kShortestContext;
  request.margin_bytes = fit_margins(flags);
  const Result<Fit> longest = fit_model(request);
  if (!longest.ok()) {
    add(bad(
        "devices", longest.status().message(),
        longest.status().code() == ErrorCode::kDoesNotFit
            ? "a smaller model or format, smaller --ubatch-size, more free memory, or --fit-target with less than 1024"
            : "see the message; tessera devices lists what --device can name"));
    return result;
  }
  result.n_ctx_max = longest->model.context.n_ctx;
  for (const FitDevice& device : longest->devices) {
    result.needed_bytes += device.needs[0].total();
  }
  Check devices = check_devices(*longest);
  if (!devices.to_do.empty() && given > 0 && flags.get_string("fit") == "off") {
    request.model.context.n_ctx = given;
    if (const Status as_asked = count_model(request.model).status(); as_asked.code() == ErrorCode::kDoesNotFit) {
      devices.verdict = Verdict::kBad;
      devices.found = as_asked.message();
    }
  }
  add(std::move(devices));
  add(check_context(flags, *longest, n_ctx_train, asked));
  return result;
}

}  // namespace tessera
