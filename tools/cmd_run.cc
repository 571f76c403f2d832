// `tessera run`: answers one prompt. The text goes to standard output as it is generated; speeds and memory to standard
// error at the end. With --json one object at the end instead.

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <optional>

#include "commands.h"
#include "common.h"
#include "generation.h"
#include "phase_split.h"
#include "prompt_cache.h"
#include "report.h"
#include "runtime/context.h"
#include "sampling_flags.h"

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;

Result<std::string> read_prompt(const ParsedFlags& flags) {
  if (flags.given("prompt")) {
    const std::string text = flags.get_string("prompt");
    return flags.get_bool("escape") ? unescape(text) : text;
  }
  ASSIGN_OR_RETURN(std::string text, read_input(flags.given("file") ? flags.get_string("file") : "-"));
  if (text.ends_with('\n')) {
    text.pop_back();
  }
  return text;
}

// Nothing where the prompt is continued as plain text.
Result<std::optional<ChatTemplate>> conversation_template(const ParsedFlags& flags, const Model& model,
                                                          const Log& log) {
  const bool has_template = !model.chat_template_source().empty() || chooses_template(flags);
  const bool conversation = flags.given("conversation") ? flags.get_bool("conversation") : has_template;
  if (!has_template) {
    log.info(conversation ? "note: the model has no chat template; ChatML is used"
                          : "note: the model has no chat template; the prompt is continued as plain text");
  }
  if (conversation) {
    ASSIGN_OR_RETURN(ChatTemplate chat_template, load_template(flags, model));
    return std::optional(std::move(chat_template));
  }
  if (flags.given("system-prompt")) {
    return Status(ErrorCode::kInvalidArgument,
                  "--system-prompt needs a conversation; add --conversation, or put its text into the prompt");
  }
  return std::optional<ChatTemplate>();
}

Result<std::vector<int32_t>> prompt_tokens(const ParsedFlags& flags, const Tokenizer& tokenizer,
                                           const std::optional<ChatTemplate>& chat_template, const std::string& text) {
  if (!chat_template) {
    return tokenizer.encode(text, {.parse_special = true, .add_special = true});
  }
  Conversation messages;
  if (flags.given("system-prompt")) {
    messages.add("system", flags.get_string("system-prompt"));
  }
  messages.add("user", text);
  return messages.encode(*chat_template, tokenizer);
}

std::string report_json(const Model& model, const std::vector<int32_t>& prompt, const GenerateOptions& options,
                        const Generation& generation, const PhaseSplit& phases) {
  Json report = {{"text", generation.text},
                 {"tokens", generation.tokens},
                 {"prompt_tokens", prompt},
                 {"stop", stop_reason_name(generation.stop)},
                 {"stop_word", generation.stop_word},
                 {"seed", generation.seed},
                 {"n_shifts", generation.n_shifts},
                 {"generation_settings", Json::parse(sampler_options_json(options.sampler))},
                 {"timings", Json::parse(timings_json(generation.timings))},
                 {"wall_ms", generation.timings.total_ms},
                 {"switches", Json::parse(phases.switches_json())},
                 {"load_ms", model.summary().load_ms},
                 {"placement", Json::parse(placement_json(model))},
                 {"devices", Json::parse(devices_json(model))}};
  return report.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace

Status check_run(const ParsedFlags& flags) {
  if (flags.given("prompt") && flags.given("file")) {
    return {ErrorCode::kInvalidArgument, "--prompt and --file both give a prompt; use one of them"};
  }
  if (!flags.given("prompt") && !flags.given("file") && stdin_is_terminal()) {
    return {ErrorCode::kInvalidArgument, "no prompt; give --prompt TEXT or --file FILE, or use tessera chat"};
  }
  TRY(check_phase_split(flags));
  TRY(check_sampling_flags(flags));
  return check_prompt_cache(flags);
}

Status cmd_run(const ParsedFlags& flags) {
  const bool json = flags.get_bool("json");
  ASSIGN_OR_RETURN(const std::string text, read_prompt(flags));
  if (text.empty()) {
    return {ErrorCode::kInvalidArgument,
            "the prompt is empty; give --prompt TEXT, --file FILE, or text on standard input"};
  }
  TRY(check_prompt_cache_file(flags));
  const Log log = command_log(flags);
  ModelOptions options = model_options(flags);
  options.needs_text = true;
  PhaseSplit phases(flags, log);
  ASSIGN_OR_RETURN(const std::shared_ptr<Model> model, phases.load(options));
  ASSIGN_OR_RETURN(const std::optional<ChatTemplate> chat_template, conversation_template(flags, *model, log));
  ASSIGN_OR_RETURN(const std::vector<int32_t> prompt, prompt_tokens(flags, model->tokenizer(), chat_template, text));
  ASSIGN_OR_RETURN(GenerateOptions generation_options, generate_options(flags, *model));
  if (chat_template) {
    stop_at_end(*chat_template, model->tokenizer(), generation_options);
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<Context> context, Context::create(model, options.context));
  TRY(phases.prepare(*model, *context));

  const InterruptGuard guard;
  log.detail(fmt::format("the prompt has {} tokens", prompt.size()));
  GenerateHooks hooks;
  hooks.cancelled = &guard.interrupted();
  if (!json) {
    hooks.on_text = print;
  }
  PromptCache cache(flags, *context, log, prompt);
  TRY(cache.restore());
  hooks.on_prompt = [&] { return cache.prompt_read(); };
  hooks.on_progress = prompt_progress(options.context.n_ubatch);
  phases.add_hooks(hooks);
  Session session(*context);
  Result<Generation> ended = session.generate(prompt, generation_options, hooks);
  const Status cached = cache.finish(ended);
  ASSIGN_OR_RETURN(const Generation generation, std::move(ended));
  TRY(cached);
  if (json) {
    TRY(print(report_json(*model, prompt, generation_options, generation, phases)));
  } else {
    TRY(print("\n"));
    const std::string summary =
        fmt::format("\n{}{}ended by: {}; seed {}\n\n{}{}", speed_lines(generation.timings), phases.switch_line(),
                    stop_text(generation.stop), generation.seed, device_table(*model), placement_line(*model));
    std::fwrite(summary.data(), 1, summary.size(), stderr);
  }
  if (generation.stop == StopReason::kCancelled) {
    return {ErrorCode::kCancelled, "interrupted"};
  }
  return {};
}

}  // namespace tessera
