#include "base/status.h"

#include <cstdio>
#include <cstdlib>

namespace tessera {

void check_failed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "tessera: internal error: CHECK(%s) failed at %s:%d\n", condition, file, line);
  std::abort();
}

std::string_view error_code_name(ErrorCode code) {
  switch (code) {
    case ErrorCode::kOk: return "ok";
    case ErrorCode::kInvalidArgument: return "invalid_argument";
    case ErrorCode::kNotFound: return "not_found";
    case ErrorCode::kInvalidData: return "invalid_data";
    case ErrorCode::kUnsupported: return "unsupported";
    case ErrorCode::kDoesNotFit: return "does_not_fit";
    case ErrorCode::kOutOfMemory: return "out_of_memory";
    case ErrorCode::kCacheFull: return "cache_full";
    case ErrorCode::kBusy: return "busy";
    case ErrorCode::kCancelled: return "cancelled";
    case ErrorCode::kDeadlineExceeded: return "deadline_exceeded";
    case ErrorCode::kDeviceLost: return "device_lost";
    case ErrorCode::kIo: return "io";
    case ErrorCode::kInternal: return "internal";
  }
  return "unknown";
}

Status Status::with_context(std::string_view context) const {
  if (ok()) {
    return *this;
  }
  std::string message(context);
  message += ": ";
  message += message_;
  return {code_, std::move(message)};
}

}  // namespace tessera
