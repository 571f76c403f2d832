#include "runtime/stop.h"

#include "base/check.h"

namespace tessera {

std::string_view stop_reason_name(StopReason reason) {
  switch (reason) {
    case StopReason::kNone: return "none";
    case StopReason::kEos: return "eos";
    case StopReason::kLimit: return "limit";
    case StopReason::kWord: return "word";
    case StopReason::kCancelled: return "cancelled";
    case StopReason::kContextFull: return "context_full";
  }
  CHECK(false);
}

}  // namespace tessera
