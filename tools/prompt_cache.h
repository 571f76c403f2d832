#pragma once
// --prompt-cache: the state of sequence 0 in a file, from one run to the next.

#include <span>
#include <string>

#include "base/flags.h"
#include "base/log.h"
#include "base/status.h"
#include "runtime/generate.h"

namespace tessera {

/// What --prompt-cache, --prompt-cache-all and --prompt-cache-ro say. Errors: kInvalidArgument for those that need the
/// first, or contradict each other.
Status check_prompt_cache(const ParsedFlags& flags);

/// Whether --prompt-cache could be written, found before a model is loaded for it; leaves nothing behind. A device or
/// pipe is not tried. Errors: those of FileWriter::create.
Status check_prompt_cache_file(const ParsedFlags& flags);

/// Use: restore() before the session is made, prompt_read() as GenerateHooks::on_prompt, finish() after the generation.
/// Without --prompt-cache none of them does anything. Holds references: flags, context, log and prompt outlive it.
class PromptCache {
 public:
  PromptCache(const ParsedFlags& flags, Context& context, const Log& log, std::span<const int32_t> prompt);

  /// Puts the file's tokens into sequence 0. A file that does not exist will be made. Errors: those of
  /// Context::load_state; the file stays as it is.
  Status restore();
  /// Writes the file, unless it held the prompt already.
  Status prompt_read();
  /// Writes what the sequence holds now: with --prompt-cache-all, and where the prompt was not read to its end. Says
  /// how much of it came from the file. Of a generation that failed, only --prompt-cache-all writes, and only what came
  /// after the whole prompt.
  Status finish(const Result<Generation>& generation);

 private:
  Status save(const char* what);

  Context& context_;
  const Log& log_;
  std::span<const int32_t> prompt_;
  std::string path_;  // empty: none
  bool all_;
  bool read_only_;
  bool prompt_read_ = false;
  size_t n_common_ = 0;  // tokens that the file and the prompt begin with
};

}  // namespace tessera
