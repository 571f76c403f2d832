#pragma once
// Status and Result: how every room reports failure.
//
// A Status is either ok or one of a closed list of codes with a message for people: what was asked, what was found,
// and what to do, with values and units. A Result<T> is a value or such a failure. Neither throws; a failure that came
// from a file, a request, another process or memory pressure is always one of these, never an abort.
// Both are values: copyable when T is, safe to move between threads.

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/check.h"

namespace tessera {

/// Why something failed. Closed list: callers may switch over it without a default.
enum class ErrorCode {
  kOk = 0,
  kInvalidArgument,   // the caller asked for something that makes no sense; the message names the flag or field
  kNotFound,          // a file, tensor, key or device does not exist
  kInvalidData,       // a file or message is damaged or hostile
  kUnsupported,       // valid, but not something this build can do
  kDoesNotFit,        // a budget is too small; the message says needed and free
  kOutOfMemory,       // the operating system or driver had no memory
  kCacheFull,         // no free KV pages or sequence slots; nothing was changed
  kBusy,              // in use by another call; try again
  kCancelled,         // the caller or operator asked to stop
  kDeadlineExceeded,  // waited as long as was allowed
  kDeviceLost,        // a device failed; what lived only there is gone
  kIo,                // the operating system could not read or write
  kInternal,          // our own bug, found before it did harm
};

/// Stable lower_snake_case name of a code, for JSON and logs.
std::string_view error_code_name(ErrorCode code);

/// Success, or an error code with a message.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(ErrorCode code, std::string message) : code_(code), message_(std::move(message)) {}

  [[nodiscard]] bool ok() const { return code_ == ErrorCode::kOk; }
  [[nodiscard]] ErrorCode code() const { return code_; }
  [[nodiscard]] const std::string& message() const { return message_; }

  /// The same failure with `context: ` before its message; ok stays ok.
  [[nodiscard]] Status with_context(std::string_view context) const;

 private:
  ErrorCode code_ = ErrorCode::kOk;
  std::string message_;
};

/// A T, or the Status that says why there is none.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}         // NOLINT(google-explicit-constructor)
  Result(Status status) : status_(std::move(status)) {  // NOLINT(google-explicit-constructor)
    CHECK(!status_.ok());
  }

  [[nodiscard]] bool ok() const { return value_.has_value(); }
  [[nodiscard]] const Status& status() const { return status_; }

  /// The value. REQUIRES: ok().
  [[nodiscard]] T& value() & {
    CHECK(ok());
    return *value_;
  }
  [[nodiscard]] const T& value() const& {
    CHECK(ok());
    return *value_;
  }
  [[nodiscard]] T&& value() && {
    CHECK(ok());
    return std::move(*value_);
  }

  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  std::optional<T> value_;
  Status status_;
};

}  // namespace tessera

#define TESSERA_CONCAT_INNER(a, b) a##b
#define TESSERA_CONCAT(a, b) TESSERA_CONCAT_INNER(a, b)

/// Returns from the enclosing function when `expr` (a Status) is not ok.
#define TRY(expr)                                   \
  do {                                              \
    ::tessera::Status tessera_try_status_ = (expr); \
    if (!tessera_try_status_.ok()) {                \
      return tessera_try_status_;                   \
    }                                               \
  } while (false)

/// `ASSIGN_OR_RETURN(auto x, f())`: x is f()'s value, or the enclosing function returns f()'s Status.
#define ASSIGN_OR_RETURN(lhs, expr) ASSIGN_OR_RETURN_INNER(TESSERA_CONCAT(tessera_result_, __LINE__), lhs, expr)
#define ASSIGN_OR_RETURN_INNER(result, lhs, expr) \
  auto result = (expr);                           \
  if (!result.ok()) {                             \
    return result.status();                       \
  }                                               \
  lhs = std::move(result).value()
