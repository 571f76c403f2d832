#pragma once
// The rows of the flag table, by subject; flag_table.cc puts them together. Rows of several files may share a name when
// no command has both. Flags of other engines, which are refused, stand beside them.

#include <span>
#include <string_view>

#include "base/flags.h"

namespace tessera {

// Headings.
inline constexpr std::string_view kModel = "Model";
inline constexpr std::string_view kInput = "Input";
inline constexpr std::string_view kSampling = "Sampling";
inline constexpr std::string_view kPlacement = "Devices and placement";
inline constexpr std::string_view kMemory = "Batches and memory";
inline constexpr std::string_view kTests = "What is timed";
inline constexpr std::string_view kServer = "Server";
inline constexpr std::string_view kOutput = "Output";
inline constexpr std::string_view kHabit = "Accepted for habit's sake";

// Commands.
inline constexpr std::string_view kEngine =
    "run chat serve logits embedding perplexity batched-bench bench-switch doctor";  // with one setting each
inline constexpr std::string_view kAllEngine =
    "run chat serve logits embedding perplexity batched-bench bench-switch bench doctor";  // and with lists of them
inline constexpr std::string_view kPlanned =
    "run chat serve logits embedding perplexity batched-bench bench-switch plan doctor";
inline constexpr std::string_view kAllPlanned =
    "run chat serve logits embedding perplexity batched-bench bench-switch bench plan doctor";
inline constexpr std::string_view kGenerate = "run chat serve";  // that sample
inline constexpr std::string_view kTerminal = "run chat";        // that answer in the terminal

/// What to do instead of naming an address.
inline constexpr std::string_view kNoNetwork =
    "no network connection is opened; fetch the file, such as with curl -LO URL, and give it with -m FILE";

std::span<const FlagRow> model_rows();
std::span<const FlagRow> sampling_rows();
std::span<const FlagRow> server_rows();
std::span<const FlagRow> bench_rows();
std::span<const FlagRow> switch_rows();
std::span<const FlagRow> plan_rows();
std::span<const FlagRow> habit_rows();
std::span<const ForeignFlag> foreign_flags();
std::span<const ForeignFlag> foreign_commands();

}  // namespace tessera
