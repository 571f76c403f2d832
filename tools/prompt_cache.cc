#include "prompt_cache.h"

#include <algorithm>
#include <filesystem>
#include <fmt/format.h>

#include "base/files.h"
#include "runtime/context.h"

namespace tessera {
namespace {

constexpr int32_t kSeq = 0;

}  // namespace

Status check_prompt_cache(const ParsedFlags& flags) {
  const bool all = flags.get_bool("prompt-cache-all");
  const bool read_only = flags.get_bool("prompt-cache-ro");
  if ((all || read_only) && !flags.given("prompt-cache")) {
    return {ErrorCode::kInvalidArgument,
            fmt::format("{} needs --prompt-cache FILE", all ? "--prompt-cache-all" : "--prompt-cache-ro")};
  }
  if (all && read_only) {
    return {ErrorCode::kInvalidArgument, "--prompt-cache-all writes the file and --prompt-cache-ro does not; use one"};
  }
  return {};
}

Status check_prompt_cache_file(const ParsedFlags& flags) {
  if (!flags.given("prompt-cache") || flags.get_bool("prompt-cache-ro")) {
    return {};
  }
  const std::string path(flags.get_string("prompt-cache"));
  std::error_code ignored;
  if (std::filesystem::is_other(path, ignored)) {
    return {};
  }
  return FileWriter::create(path).status().with_context("--prompt-cache");
}

PromptCache::PromptCache(const ParsedFlags& flags, Context& context, const Log& log, std::span<const int32_t> prompt)
    : context_(context),
      log_(log),
      prompt_(prompt),
      path_(flags.given("prompt-cache") ? flags.get_string("prompt-cache") : ""),
      all_(flags.get_bool("prompt-cache-all")),
      read_only_(flags.get_bool("prompt-cache-ro")) {}

Status PromptCache::restore() {
  if (path_.empty()) {
    return {};
  }
  const Status status = context_.load_state(kSeq, path_);
  if (status.code() == ErrorCode::kNotFound) {
    if (read_only_) {
      log_.warning(fmt::format("{}; --prompt-cache-ro makes none", status.message()));
    }
    return {};
  }
  const bool other_content = status.code() == ErrorCode::kInvalidData || status.code() == ErrorCode::kInvalidArgument ||
                             status.code() == ErrorCode::kUnsupported;
  if (other_content) {
    return {status.code(), fmt::format("--prompt-cache: {}; delete the file or name another", status.message())};
  }
  TRY(status.with_context("--prompt-cache"));
  const std::vector<int32_t> held = context_.tokens(kSeq);
  n_common_ = static_cast<size_t>(std::ranges::mismatch(held, prompt_).in2 - prompt_.begin());
  log_.detail(
      fmt::format("the prompt cache {} holds {} tokens, of which {} begin the prompt", path_, held.size(), n_common_));
  return {};
}

Status PromptCache::prompt_read() {
  prompt_read_ = true;
  return !all_ && n_common_ < prompt_.size() ? save("the prompt") : Status();
}

Status PromptCache::finish(const Result<Generation>& generation) {
  if (path_.empty()) {
    return {};
  }
  if (!generation.ok()) {
    return all_ && prompt_read_ ? save("all tokens so far") : Status();
  }
  log_.detail(
      fmt::format("{} of {} prompt tokens came from the prompt cache", generation->timings.cache_n, prompt_.size()));
  const bool cut_short = !prompt_read_ && context_.length(kSeq) > static_cast<int64_t>(n_common_);
  return all_ || cut_short ? save("all tokens so far") : Status();
}

Status PromptCache::save(const char* what) {
  if (path_.empty() || read_only_) {
    return {};
  }
  TRY(context_.save_state(kSeq, path_).with_context("--prompt-cache"));
  log_.detail(fmt::format("the prompt cache {} now holds {}", path_, what));
  return {};
}

}  // namespace tessera
