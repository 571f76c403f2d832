#pragma once
// Why a generation ended.

#include <cstdint>
#include <string_view>

namespace tessera {

enum class StopReason : uint8_t {
  kNone,         // still running
  kEos,          // the model chose an end-of-generation token
  kLimit,        // as many tokens as were asked for
  kWord,         // a stop word appeared in the text
  kCancelled,    // the user or client stopped it
  kContextFull,  // no position is left in the context
};

/// Stable lower_snake_case name for JSON: none, eos, limit, word, cancelled, context_full.
std::string_view stop_reason_name(StopReason reason);

}  // namespace tessera
