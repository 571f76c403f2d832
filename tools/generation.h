#pragma once
// What `run` and `chat` share: sampling flags, the conversation as a template request, Ctrl-C, speeds.

#include <atomic>
#include <csignal>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/flags.h"
#include "base/status.h"
#include "runtime/generate.h"

namespace tessera {

/// Generation options of a command with the flags of "Sampling"; what is not given is as the model's file recommends.
/// Errors: kInvalidArgument naming the flag. REQUIRES: the model has a tokenizer.
Result<GenerateOptions> generate_options(const ParsedFlags& flags, const Model& model);

/// Answers of this template's chat also end where they spell its end, unless ends are ignored.
void stop_at_end(const ChatTemplate& chat_template, const Tokenizer& tokenizer, GenerateOptions& options);

/// A conversation so far, oldest message first.
class Conversation {
 public:
  /// role: "system", "user" or "assistant".
  void add(std::string_view role, std::string_view content);
  void drop_last() { messages_.pop_back(); }
  void clear() { messages_.clear(); }

  /// Token ids of the prompt that asks for the next answer. Errors: those of ChatTemplate::render.
  [[nodiscard]] Result<std::vector<int32_t>> encode(const ChatTemplate& chat_template,
                                                    const Tokenizer& tokenizer) const;

 private:
  std::vector<std::pair<std::string, std::string>> messages_;  // role, content
};

/// While one exists, the first Ctrl-C (SIGINT) only sets a flag, and the second ends the process with status 130. At
/// most one at a time.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  [[nodiscard]] const std::atomic<bool>& interrupted() const;

 private:
  struct sigaction before_ = {};
};

/// For GenerateHooks::on_progress: a bar while a prompt of more than n_ubatch tokens is read, on a terminal.
std::function<void(int64_t n_given, int64_t n_prompt)> prompt_progress(int64_t n_ubatch);

/// Why a generation ended, with the flag that decides it.
std::string stop_text(StopReason reason);

/// Tokens and speed of prompt and generation, two lines.
std::string speed_lines(const GenerateTimings& timings);

/// Names as servers of the llama.cpp family report them.
std::string timings_json(const GenerateTimings& timings);

}  // namespace tessera
