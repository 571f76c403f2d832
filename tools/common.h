#pragma once
// What several commands share: options from flags, loading with progress, reading inputs and writing results.

#include <atomic>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/flags.h"
#include "base/log.h"
#include "base/status.h"
#include "runtime/embedding.h"
#include "runtime/engine.h"

namespace tessera {

/// The log of a command: standard error, details with --verbose.
Log command_log(const ParsedFlags& flags);

/// --override-tensor, --cpu-moe, --n-cpu-moe and --expert-slots.
void read_fixed_homes(const ParsedFlags& flags, ModelOptions& options);

/// Options that decide tiles, homes and memory, but not the split mode. REQUIRES: the command has those flags.
ModelOptions placement_options(const ParsedFlags& flags);

/// What to tell of flags that choose among placements where one device leaves no choice, one sentence each.
std::vector<std::string> placement_notes(const ParsedFlags& flags);

/// Model options of a command that decodes, its ContextOptions included. REQUIRES: the command has the flags of
/// "Devices and placement" and "Batches and memory".
ModelOptions model_options(const ParsedFlags& flags);
/// --pooling, or what the model's file says. Errors: those of model_pooling().
Result<Pooling> chosen_pooling(const ParsedFlags& flags, const Model& model);
/// --threads; 0: as many as can run at once. REQUIRES: the command's --threads takes one number.
int wanted_threads(const ParsedFlags& flags);
/// Copies the flags that say where threads run: --cpu-mask, --cpu-range, --cpu-strict, --numa.
void set_cpus(const ParsedFlags& flags, ModelOptions& options);

/// Loads a model; meanwhile a progress bar on standard error if that is a terminal, and one line there when it is done.
/// Once *cancelled (may be null) is true, it ends with kCancelled.
Result<std::shared_ptr<Model>> load_model(const ModelOptions& options, const Log& log,
                                          const std::atomic<bool>* cancelled = nullptr);

/// Opens the --model of a command that needs its tokenizer and template only.
Result<std::shared_ptr<Model>> load_vocabulary(const ParsedFlags& flags);

/// Whether --chat-template or --chat-template-file is given.
bool chooses_template(const ParsedFlags& flags);

/// Errors: kInvalidArgument: both of these, or a name other than chatml; kInvalidData: no Jinja.
Status check_template_flags(const ParsedFlags& flags);

/// The Jinja text that --chat-template or --chat-template-file chooses, else the model's own; empty where there is
/// neither, which means ChatML. Errors: those of read_input(). REQUIRES: check_template_flags() is OK.
Result<std::string> template_source(const ParsedFlags& flags, const Model& model);

/// template_source(), parsed.
Result<ChatTemplate> load_template(const ParsedFlags& flags, const Model& model);

/// The bytes of a file of at most 1 GiB; "-" is standard input. Errors name the path.
Result<std::string> read_input(const std::string& path);

/// Writes to standard output, at once. Errors: kIo.
Status print(std::string_view text);

/// The same with a newline after it where a person reads: results whose every byte counts.
Status print_exactly(std::string_view text);

bool stdin_is_terminal();
bool stderr_is_terminal();

/// Control characters, quotes and backslashes escaped, so that a file's text does nothing to a terminal; UTF-8 stays.
std::string escape(std::string_view text);

/// escape() in single quotes.
std::string quote(std::string_view text);

/// The text with \n, \r, \t, \', \", \\ and \xHH replaced by what they stand for; other backslashes stay.
std::string unescape(std::string_view text);

/// Lower-case hexadecimal digits of bytes.
std::string hex_bytes(std::string_view bytes);

/// The bytes that hexadecimal digits stand for. Errors: kInvalidArgument.
Result<std::string> bytes_of_hex(std::string_view hex);

}  // namespace tessera
