#include "common.h"

#include <algorithm>
#include <cstdio>
#include <fmt/format.h>
#include <unistd.h>
#include <utility>

#include "base/files.h"
#include "base/hex.h"
#include "base/units.h"
#include "metadata_flags.h"
#include "progress_bar.h"
#include "runtime/cache_types.h"

namespace tessera {
namespace {

constexpr uint64_t kInputBytesMax = uint64_t{1} << 30;

}  // namespace

Log command_log(const ParsedFlags& flags) {
  return stderr_log(flags.get_bool("verbose") ? LogLevel::kDetail : LogLevel::kInfo);
}

void read_fixed_homes(const ParsedFlags& flags, ModelOptions& options) {
  constexpr auto kAllLayers = int64_t{1} << 32;
  options.override_tensor = flags.get_string_list("override-tensor");
  options.n_cpu_moe = flags.get_bool("cpu-moe") ? kAllLayers : static_cast<int64_t>(flags.get_uint("n-cpu-moe"));
  options.n_expert_slots = static_cast<int64_t>(flags.get_uint("expert-slots"));
}

ModelOptions placement_options(const ParsedFlags& flags) {
  ModelOptions options;
  options.path = flags.get_string("model");
  options.devices = flags.get_string_list("device");
  options.device_memory = flags.get_bytes_list("device-memory");
  options.kernels = flags.get_string("kernels");
  options.cpu_isa = flags.get_string("cpu-isa");
  options.tensor_split = flags.get_float_list("tensor-split");
  read_fixed_homes(flags, options);
  options.override_kv = metadata_overrides(flags);
  options.n_cuts = static_cast<int>(flags.get_uint("cuts"));
  options.context.n_ctx = static_cast<int64_t>(flags.get_uint("ctx-size"));
  options.context.n_batch = static_cast<int64_t>(flags.get_uint("batch-size"));
  options.context.n_ubatch = static_cast<int64_t>(flags.get_uint("ubatch-size"));
  // The flag table lists the types; each is one that the engine knows.
  options.context.k_type = cache_type_from_name(flags.get_string("cache-type-k")).value();
  options.context.v_type = cache_type_from_name(flags.get_string("cache-type-v")).value();
  return options;
}

std::vector<std::string> placement_notes(const ParsedFlags& flags) {
  // bench tests each of a list of devices.
  if (flags.command().name == "bench" || (flags.given("device") && flags.get_string_list("device").size() > 1)) {
    return {};
  }
  std::vector<std::string> notes;
  const auto note = [&](std::string_view name, std::string_view value) {
    if (flags.given(name) && (value.empty() || flags.get_string(name) == value)) {
      notes.push_back(fmt::format("flag --{} has no effect with one device; --device cpu:0,cpu:1 names two", name));
    }
  };
  note("prefill-split-mode", "");
  note("split-mode", "tensor");
  note("split-policy", "auto");
  return notes;
}

ModelOptions model_options(const ParsedFlags& flags) {
  ModelOptions options = placement_options(flags);
  options.split_mode = flags.get_string("split-mode");
  options.n_threads = wanted_threads(flags);
  set_cpus(flags, options);
  options.context.n_snapshots = static_cast<int32_t>(flags.get_uint("ctx-checkpoints"));
  options.context.snapshot_bytes = flags.get_bytes("ctx-checkpoint-memory");
  return options;
}

Result<Pooling> chosen_pooling(const ParsedFlags& flags, const Model& model) {
  return flags.given("pooling") ? parse_pooling(flags.get_string("pooling")) : model_pooling(model);
}

int wanted_threads(const ParsedFlags& flags) {
  return static_cast<int>(std::max<int64_t>(flags.get_int("threads"), 0));
}

void set_cpus(const ParsedFlags& flags, ModelOptions& options) {
  options.cpu_mask = flags.get_string("cpu-mask");
  options.cpu_range = flags.get_string("cpu-range");
  options.cpu_strict = flags.get_uint("cpu-strict") != 0;
  options.numa = flags.get_string("numa");
}

Result<std::shared_ptr<Model>> load_model(const ModelOptions& options, const Log& log,
                                          const std::atomic<bool>* cancelled) {
  std::shared_ptr<Model> model;
  {
    ProgressBar bar("loading");
    ASSIGN_OR_RETURN(model, Model::load(options, log, [&](double fraction) {
                       bar.show(fraction);
                       return cancelled == nullptr || !*cancelled;
                     }));
  }
  const ModelSummary& summary = model->summary();
  log.info(fmt::format("loaded {} ({}, {:.1f} MiB) in {:.0f} ms", options.path, summary.architecture,
                       mib(summary.file_bytes), summary.load_ms));
  return model;
}

Result<std::shared_ptr<Model>> load_vocabulary(const ParsedFlags& flags) {
  ModelOptions options;
  options.path = flags.get_string("model");
  options.override_kv = metadata_overrides(flags);
  options.vocab_only = true;
  return Model::load(options, command_log(flags));
}

bool chooses_template(const ParsedFlags& flags) {
  return flags.given("chat-template") || flags.given("chat-template-file");
}

Status check_template_flags(const ParsedFlags& flags) {
  if (!flags.given("chat-template")) {
    return {};
  }
  if (flags.given("chat-template-file")) {
    return {ErrorCode::kInvalidArgument, "--chat-template and --chat-template-file both choose; give one"};
  }
  const std::string text = flags.get_string("chat-template");
  // A template without any braces would print the same for every conversation: it is a name.
  if (text != "chatml" && text.find('{') == std::string::npos) {
    return {ErrorCode::kInvalidArgument,
            fmt::format("--chat-template {}: tessera knows the name chatml alone; give the template itself, as Jinja, "
                        "or a file of it with --chat-template-file",
                        text)};
  }
  return ChatTemplate::parse(text, "", "").status().with_context("--chat-template");
}

Result<std::string> template_source(const ParsedFlags& flags, const Model& model) {
  if (flags.given("chat-template-file")) {
    Result<std::string> text = read_input(flags.get_string("chat-template-file"));
    return text.ok() ? std::move(text) : text.status().with_context("--chat-template-file");
  }
  const std::string text = flags.get_string("chat-template");
  return text == "chatml" ? std::string(kChatMl) : flags.given("chat-template") ? text : model.chat_template_source();
}

Result<ChatTemplate> load_template(const ParsedFlags& flags, const Model& model) {
  ASSIGN_OR_RETURN(const std::string source, template_source(flags, model));
  return model.chat_template(source);
}

Result<std::string> read_input(const std::string& path) {
  return path == "-" ? read_stream(stdin, "standard input", kInputBytesMax) : read_file(path, kInputBytesMax);
}

Status print(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0) {
    return {ErrorCode::kIo, "cannot write to standard output"};
  }
  return {};
}

Status print_exactly(std::string_view text) {
  TRY(print(text));
  return isatty(STDOUT_FILENO) != 0 ? print("\n") : Status();
}

bool stdin_is_terminal() {
  return isatty(STDIN_FILENO) != 0;
}
bool stderr_is_terminal() {
  return isatty(STDERR_FILENO) != 0;
}

std::string escape(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '\n') {
      result += "\\n";
    } else if (c == '\t') {
      result += "\\t";
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      result += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    } else {
      if (c == '\'' || c == '\\') {
        result += '\\';
      }
      result += c;
    }
  }
  return result;
}

std::string quote(std::string_view text) {
  return "'" + escape(text) + "'";
}

std::string unescape(std::string_view text) {
  constexpr std::string_view kLetters = "nrt'\"\\";
  constexpr std::string_view kMeanings = "\n\r\t'\"\\";
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    const std::string_view rest = text.substr(i + 1);
    if (text[i] != '\\' || rest.empty()) {
      result += text[i];
    } else if (const size_t known = kLetters.find(rest[0]); known != std::string_view::npos) {
      result += kMeanings[known];
      ++i;
    } else if (const auto byte = rest[0] == 'x' ? bytes_of_hex(rest.substr(1, 2)) : Result<std::string>(std::string());
               byte.ok() && byte->size() == 1) {
      result += *byte;
      i += 3;
    } else {
      result += '\\';
    }
  }
  return result;
}

std::string hex_bytes(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size() * 2);
  for (const char byte : bytes) {
    fmt::format_to(std::back_inserter(text), "{:02x}", static_cast<unsigned char>(byte));
  }
  return text;
}

Result<std::string> bytes_of_hex(std::string_view hex) {
  if (hex.size() % 2 != 0) {
    return Status(ErrorCode::kInvalidArgument, fmt::format("{} hexadecimal digits; bytes have two each", hex.size()));
  }
  std::string bytes;
  bytes.reserve(hex.size() / 2);
  for (size_t i = 0; i < hex.size(); i += 2) {
    const int high = hex_value(hex[i]);
    const int low = hex_value(hex[i + 1]);
    if (high < 0 || low < 0) {
      return Status(ErrorCode::kInvalidArgument, fmt::format("{} is no byte in hexadecimal", quote(hex.substr(i, 2))));
    }
    bytes += static_cast<char>(high * 16 + low);
  }
  return bytes;
}

}  // namespace tessera
