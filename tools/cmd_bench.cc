// `tessera bench`: tokens per second of prompts and generations, for every combination of the given settings. Flags,
// fields and columns are those of llama-bench; sampling and tokenising are not part of what is timed.

#include <algorithm>
#include <ctime>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/threads.h"
#include "bench_lists.h"
#include "bench_names.h"
#include "build_commit.h"
#include "commands.h"
#include "common.h"
#include "decode_timer.h"
#include "device/registry.h"
#include "fit_flags.h"
#include "generation.h"
#include "metadata_flags.h"
#include "report.h"
#include "runtime/cache_types.h"
#include "runtime/context.h"

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;

/// What needs its own loaded model.
struct ModelSetting {
  std::string path;
  std::string devices;  // joined by /
  std::string split_mode;
  std::string tensor_split;  // joined by /; empty: even
  int64_t n_cuts = 0;
  int64_t n_threads = 0;
};

/// What needs its own context.
struct ContextSetting {
  DType k_type = DType::kF16;
  DType v_type = DType::kF16;
  int64_t n_batch = 0;
  int64_t n_ubatch = 0;
};

struct Settings {
  std::vector<ModelSetting> models;
  std::vector<ContextSetting> contexts;
  std::vector<DecodeTest> tests;
};

Result<std::vector<DecodeTest>> read_tests(const ParsedFlags& flags) {
  ASSIGN_OR_RETURN(const auto prompts, parse_numbers("--n-prompt", flags.get_string("n-prompt"), 0));
  ASSIGN_OR_RETURN(const auto gens, parse_numbers("--n-gen", flags.get_string("n-gen"), 0));
  ASSIGN_OR_RETURN(const auto depths, parse_numbers("--n-depth", flags.get_string("n-depth"), 0));
  std::vector<DecodeTest> tests;
  for (const int64_t depth : depths) {
    for (const int64_t n : prompts) {
      tests.push_back({n, 0, depth});
    }
    for (const int64_t n : gens) {
      tests.push_back({0, n, depth});
    }
    for (const std::string& pair : flags.get_texts("pg")) {
      ASSIGN_OR_RETURN(const auto both, parse_numbers("-pg", pair, 0));
      if (both.size() != 2) {
        return Status(ErrorCode::kInvalidArgument, fmt::format("-pg {}: give two numbers, such as 512,128", pair));
      }
      tests.push_back({both[0], both[1], depth});
    }
  }
  std::erase_if(tests, [](const DecodeTest& test) { return test.n_prompt + test.n_gen == 0; });
  if (tests.empty()) {
    return Status(ErrorCode::kInvalidArgument, "nothing to time; give --n-prompt, --n-gen or -pg");
  }
  return tests;
}

Result<std::vector<DType>> read_types(const ParsedFlags& flags, const std::string& flag) {
  std::vector<DType> types;
  for (const std::string& name : split_at(flags.get_string(flag), ',')) {
    const Result<DType> type = cache_type_from_name(name);
    TRY(type.status().with_context("--" + flag));
    types.push_back(*type);
  }
  return types;
}

Result<std::vector<ContextSetting>> read_contexts(const ParsedFlags& flags) {
  ASSIGN_OR_RETURN(const auto batches, parse_numbers("--batch-size", flags.get_string("batch-size"), 1));
  ASSIGN_OR_RETURN(const auto ubatches, parse_numbers("--ubatch-size", flags.get_string("ubatch-size"), 1));
  ASSIGN_OR_RETURN(const auto k_types, read_types(flags, "cache-type-k"));
  ASSIGN_OR_RETURN(const auto v_types, read_types(flags, "cache-type-v"));
  std::vector<ContextSetting> contexts;
  for (const DType k : k_types) {
    for (const DType v : v_types) {
      for (const int64_t n_batch : batches) {
        for (const int64_t n_ubatch : ubatches) {
          contexts.push_back({k, v, n_batch, n_ubatch});
        }
      }
    }
  }
  return contexts;
}

Result<Settings> read_settings(const ParsedFlags& flags) {
  Settings settings;
  ASSIGN_OR_RETURN(settings.tests, read_tests(flags));
  ASSIGN_OR_RETURN(settings.contexts, read_contexts(flags));
  ASSIGN_OR_RETURN(const auto cuts, parse_numbers("--cuts", flags.get_string("cuts"), 0));
  ASSIGN_OR_RETURN(const auto threads, parse_numbers("--threads", flags.get_string("threads"), -1, kMaxThreads));
  for (const std::string& path : flags.get_texts("model")) {
    for (const std::string& devices : split_at(flags.get_string("device"), ',')) {
      for (const std::string& mode : flags.get_string_list("split-mode")) {
        for (const std::string& shares : split_at(flags.get_string("tensor-split"), ',')) {
          for (const int64_t n_cuts : cuts) {
            for (const int64_t n_threads : threads) {
              settings.models.push_back({path, devices, mode, shares, n_cuts, n_threads});
            }
          }
        }
      }
    }
  }
  return settings;
}

Result<ModelOptions> options_of(const ParsedFlags& flags, const ModelSetting& setting) {
  ModelOptions options;
  options.path = setting.path;
  options.devices = split_at(setting.devices, '/');
  options.device_memory = flags.get_bytes_list("device-memory");
  set_cpus(flags, options);
  options.kernels = flags.get_string("kernels");
  options.cpu_isa = flags.get_string("cpu-isa");
  options.split_mode = setting.split_mode;
  read_fixed_homes(flags, options);
  options.override_kv = metadata_overrides(flags);
  options.n_cuts = static_cast<int>(setting.n_cuts);
  options.n_threads = static_cast<int>(std::max<int64_t>(setting.n_threads, 0));
  if (!setting.tensor_split.empty()) {
    for (const std::string& share : split_at(setting.tensor_split, '/')) {
      char* end = nullptr;
      options.tensor_split.push_back(std::strtod(share.c_str(), &end));
      if (share.empty() || *end != '\0') {
        return Status(ErrorCode::kInvalidArgument,
                      fmt::format("--tensor-split {}: '{}' is no number; join the shares of one run by /",
                                  setting.tensor_split, share));
      }
    }
  }
  return options;
}

// The model as people call it, and how the file says that its weights are quantised. A file that does
// not say so has its name alone.
std::string model_type(const Model& model) {
  const ModelSummary& summary = model.summary();
  const Result<std::string> number = model.metadata_text("general.file_type");
  const std::string_view quantisation = number.ok() ? file_type_name(*number) : "";
  return fmt::format("{}{}{}{}{}", summary.architecture, summary.name.empty() ? "" : " ", summary.name,
                     quantisation.empty() ? "" : " ", quantisation);
}

// --ctx-size is none of this command's flags: what it follows from is named instead.
std::string in_words_of_bench(std::string_view message) {
  constexpr std::string_view kTheirs = "--ctx-size";
  constexpr std::string_view kOurs = "--n-depth + --n-prompt + --n-gen";
  std::string text(message);
  for (size_t at = 0; (at = text.find(kTheirs, at)) != std::string::npos; at += kOurs.size()) {
    text.replace(at, kTheirs.size(), kOurs);
  }
  return text;
}

std::string utc_now() {
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
}

Json record_of(const Model& model, const ModelSetting& setting, const ContextSetting& context, const DecodeTest& test,
               const std::vector<double>& ns) {
  const ModelSummary& summary = model.summary();
  std::vector<double> speeds;
  for (const double each : ns) {
    speeds.push_back(static_cast<double>(test.n_prompt + test.n_gen) * 1e9 / each);
  }
  const Spread time = spread_of(ns);
  const Spread speed = spread_of(speeds);
  const std::vector<AvailableDevice> available = available_devices();
  return Json{{"build_commit", kBuildCommit},
              {"build_number", kBuildNumber},
              {"cpu_info", available.front().description},
              {"gpu_info", ""},
              {"backends", "CPU"},
              {"model_filename", setting.path},
              {"model_type", model_type(model)},
              {"model_size", summary.file_bytes},
              {"model_n_params", summary.n_params},
              {"n_batch", context.n_batch},
              {"n_ubatch", context.n_ubatch},
              {"n_threads", summary.n_threads},
              {"type_k", dtype_name(context.k_type)},
              {"type_v", dtype_name(context.v_type)},
              {"n_gpu_layers", 0},
              {"split_mode", summary.split_mode},
              {"main_gpu", 0},
              {"flash_attn", true},
              {"devices", setting.devices},
              {"tensor_split", setting.tensor_split.empty() ? "0.00" : setting.tensor_split},
              {"n_cuts", summary.n_cuts},
              {"kernel_class", summary.kernel_class},
              {"cpu_isa", summary.cpu_isa},
              {"n_prompt", test.n_prompt},
              {"n_gen", test.n_gen},
              {"n_depth", test.n_depth},
              {"test_time", utc_now()},
              {"avg_ns", static_cast<int64_t>(time.mean)},
              {"stddev_ns", static_cast<int64_t>(time.deviation)},
              {"avg_ts", speed.mean},
              {"stddev_ts", speed.deviation},
              {"samples_ns", std::vector<int64_t>(ns.begin(), ns.end())},
              {"samples_ts", speeds}};
}

std::string cell(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

std::string quoted_cell(const Json& value, char quote) {
  std::string text(1, quote);
  for (const char c : cell(value)) {
    text += c == quote ? std::string(2, quote) : std::string(1, c);
  }
  return text + quote;
}

std::string_view sql_type(const Json& value) {
  if (value.is_number_float()) {
    return "REAL";
  }
  return value.is_number() || value.is_boolean() ? "INTEGER" : "TEXT";
}

std::string sql_value(const Json& value) {
  if (value.is_boolean()) {
    return value.get<bool>() ? "1" : "0";
  }
  return value.is_string() ? quoted_cell(value, '\'') : cell(value);
}

// Each non-list field of a record as `text` writes it, in one line.
template <typename Text>
std::string joined_fields(const Json& record, std::string_view separator, Text text) {
  std::string line;
  for (const auto& [key, value] : record.items()) {
    if (!value.is_array()) {
      line += fmt::format("{}{}", line.empty() ? "" : separator, text(key, value));
    }
  }
  return line;
}

std::string csv_row(const Json& record, bool with_head) {
  const std::string head = joined_fields(record, ",", [](const std::string& key, const Json&) { return key; });
  const std::string row =
      joined_fields(record, ",", [](const std::string&, const Json& value) { return quoted_cell(value, '"'); });
  return (with_head ? head + "\n" : "") + row + "\n";
}

std::string sql_row(const Json& record, bool with_head) {
  const std::string head = joined_fields(record, ", ", [](const std::string& key, const Json& value) {
    return fmt::format("{} {}", key, sql_type(value));
  });
  const std::string names = joined_fields(record, ", ", [](const std::string& key, const Json&) { return key; });
  const std::string row =
      joined_fields(record, ", ", [](const std::string&, const Json& value) { return sql_value(value); });
  return (with_head ? "CREATE TABLE IF NOT EXISTS llama_bench (" + head + ");\n" : "") + "INSERT INTO llama_bench (" +
         names + ") VALUES (" + row + ");\n";
}

/// A setting that a table for people shows where it is not the default, or where results differ in it.
struct SettingColumn {
  std::string_view flag;  // its JSON name
  const char* field;      // of a record
};

constexpr SettingColumn kSettingColumns[] = {
    {"n_batch", "n_batch"},
    {"n_ubatch", "n_ubatch"},
    {"type_k", "type_k"},
    {"type_v", "type_v"},
    {"split_mode", "split_mode"},
    {"devices", "devices"},
    {"tensor_split", "tensor_split"},
    {"n_cuts", "n_cuts"},
    {"kernels", "kernel_class"},
    {"cpu_isa", "cpu_isa"},
};

/// JSON names of the flags that were given another value than their default.
std::set<std::string> changed_settings(const ParsedFlags& flags) {
  std::set<std::string> names;
  for (const ParsedFlags::Use& use : flags.uses()) {
    if (use.text != use.row->default_text) {
      names.insert(flag_json_name(*use.row));
    }
  }
  return names;
}

/// Writes records in one of the formats as they come.
class Output {
 public:
  Output(std::string format, std::set<std::string> changed)
      : format_(std::move(format)), changed_(std::move(changed)) {}

  Status add(const Json& record, const DecodeTest& test) {
    if (format_ == "json" || format_ == "md") {
      records_.push_back(record);
      names_.push_back(test.name());
      return {};
    }
    if (format_ == "jsonl") {
      return print(record.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
    }
    const bool first = n_written_++ == 0;
    return print(format_ == "csv" ? csv_row(record, first) : sql_row(record, first));
  }

  /// Writes what add() has kept, if anything.
  Status finish() const {
    if (records_.empty()) {
      return {};
    }
    if (format_ == "json") {
      return print(Json(records_).dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
    }
    return format_ == "md" ? print(markdown()) : Status();
  }

 private:
  // Whether the table has a column for it.
  bool shows(const SettingColumn& column) const {
    return changed_.contains(std::string(column.flag)) || std::ranges::any_of(records_, [&](const Json& record) {
             return record.at(column.field) != records_.front().at(column.field);
           });
  }

  std::string markdown() const {
    std::vector<std::string> settings;
    for (const SettingColumn& column : kSettingColumns) {
      if (shows(column)) {
        settings.emplace_back(column.field);
      }
    }
    std::string text = "| model | size | params | backend | threads |";
    std::string line = "| --- | ---: | ---: | --- | ---: |";
    for (const std::string& key : settings) {
      text += " " + key + " |";
      line += " ---: |";
    }
    text += " test | t/s |\n" + line + " ---: | ---: |\n";
    for (size_t i = 0; i < records_.size(); ++i) {
      const Json& r = records_[i];
      text += fmt::format("| {} | {:.2f} MiB | {:.2f} M | {} | {} |", cell(r.at("model_type")),
                          r.at("model_size").get<double>() / (1 << 20), r.at("model_n_params").get<double>() / 1e6,
                          cell(r.at("backends")), cell(r.at("n_threads")));
      for (const std::string& key : settings) {
        text += " " + cell(r.at(key)) + " |";
      }
      text += fmt::format(" {} | {:.2f} ± {:.2f} |\n", names_[i], r.at("avg_ts").get<double>(),
                          r.at("stddev_ts").get<double>());
    }
    return text + fmt::format("\nbuild: {} ({})\n", kBuildCommit, kBuildNumber);
  }

  std::string format_;
  std::set<std::string> changed_;  // settings
  std::vector<Json> records_;
  std::vector<std::string> names_;
  int n_written_ = 0;
};

class Bench {
 public:
  explicit Bench(const ParsedFlags& flags)
      : flags_(flags),
        n_runs_(flags.get_uint("repetitions")),
        output_(flags.get_string("output"), changed_settings(flags)) {}

  /// Results show whatever came after them: an error, or an interruption.
  Status run(const Settings& settings) {
    const Status status = run_all(settings);
    clear_line();
    const Status written = output_.finish();
    return status.ok() ? written : status;
  }

 private:
  Status run_all(const Settings& settings) {
    n_total_ = settings.models.size() * settings.contexts.size() * settings.tests.size();
    for (const ModelSetting& setting : settings.models) {
      TRY(load(setting, settings));
      for (const ContextSetting& each : settings.contexts) {
        TRY(run_tests(setting, each, context_options(each, settings.tests), settings.tests));
      }
    }
    return {};
  }

  Status load(const ModelSetting& setting, const Settings& settings) {
    model_.reset();
    ASSIGN_OR_RETURN(ModelOptions options, options_of(flags_, setting));
    options.context = context_options(largest(settings.contexts), settings.tests);
    const Log inner = command_log(flags_);
    const Log log([inner](LogLevel level, std::string_view message) { inner.write(level, in_words_of_bench(message)); },
                  flags_.get_bool("verbose") ? LogLevel::kDetail : LogLevel::kInfo);
    TRY(apply_fit(flags_, options, false, log));
    auto loaded = Model::load(options, log, [this](double) { return !guard_.interrupted(); });
    if (!loaded.ok()) {
      return {loaded.status().code(), in_words_of_bench(loaded.status().message())};
    }
    model_ = *std::move(loaded);
    return {};
  }

  // The one that needs the most: every value is combined with every other, so it is among them.
  static ContextSetting largest(const std::vector<ContextSetting>& contexts) {
    ContextSetting most = contexts.front();
    for (const ContextSetting& each : contexts) {
      most.n_batch = std::max(most.n_batch, each.n_batch);
      most.n_ubatch = std::max(most.n_ubatch, each.n_ubatch);
      most.k_type = larger_type(most.k_type, each.k_type);
      most.v_type = larger_type(most.v_type, each.v_type);
    }
    return most;
  }

  static DType larger_type(DType a, DType b) {
    constexpr uint64_t kElems = 256;  // whole blocks of every type
    return row_bytes(b, kElems) > row_bytes(a, kElems) ? b : a;
  }

  static void clear_line() {
    if (stderr_is_terminal()) {
      std::fputs("\r\x1b[K", stderr);
    }
  }

  static ContextOptions context_options(const ContextSetting& setting, const std::vector<DecodeTest>& tests) {
    ContextOptions options;
    options.n_ctx = 1;
    for (const DecodeTest& test : tests) {
      options.n_ctx = std::max(options.n_ctx, test.n_depth + test.n_prompt + test.n_gen);
    }
    options.n_batch = setting.n_batch;
    options.n_ubatch = setting.n_ubatch;
    options.k_type = setting.k_type;
    options.v_type = setting.v_type;
    return options;
  }

  Status run_tests(const ModelSetting& setting, const ContextSetting& each, const ContextOptions& options,
                   const std::vector<DecodeTest>& tests) {
    ASSIGN_OR_RETURN(const std::unique_ptr<Context> context, Context::create(model_, options));
    DecodeTimer timer(*context, &guard_.interrupted());
    for (const DecodeTest& test : tests) {
      if (stderr_is_terminal()) {
        fmt::print(stderr, "\rtest {} of {}: {}\x1b[K", ++n_done_, n_total_, test.name());
      }
      if (flags_.get_bool("warmup")) {
        TRY(timer.run({std::min<int64_t>(test.n_prompt, 64), std::min<int64_t>(test.n_gen, 1), test.n_depth}).status());
      }
      std::vector<double> ns;
      for (uint64_t i = 0; i < n_runs_; ++i) {
        ASSIGN_OR_RETURN(const double taken, timer.run(test));
        ns.push_back(taken);
        clear_line();
        command_log(flags_).detail(fmt::format("{}: run {} of {}: {:.2f} tokens/s", test.name(), i + 1, n_runs_,
                                               static_cast<double>(test.n_prompt + test.n_gen) * 1e9 / taken));
      }
      clear_line();
      TRY(output_.add(record_of(*model_, setting, each, test, ns), test));
    }
    return {};
  }

  const ParsedFlags& flags_;
  uint64_t n_runs_;
  Output output_;
  const InterruptGuard guard_;
  std::shared_ptr<Model> model_;
  size_t n_total_ = 0;
  size_t n_done_ = 0;
};

}  // namespace

Status check_bench(const ParsedFlags& flags) {
  ASSIGN_OR_RETURN(const Settings settings, read_settings(flags));
  const std::string shares = flags.get_string("tensor-split");
  if (shares.find(',') != std::string::npos && shares.find('/') == std::string::npos) {
    return {
        ErrorCode::kInvalidArgument,
        fmt::format("--tensor-split {}: a comma begins another run, whose one share splits nothing; join the shares "
                    "of one run by /, such as 3/1, and its devices too, such as cpu:0/cpu:1",
                    shares)};
  }
  for (const ModelSetting& setting : settings.models) {
    TRY(options_of(flags, setting).status());
  }
  return {};
}

Status cmd_bench(const ParsedFlags& flags) {
  ASSIGN_OR_RETURN(const Settings settings, read_settings(flags));
  return Bench(flags).run(settings);
}

}  // namespace tessera
