#pragma once
// Log: where messages for the operator go. A room that has something to say is handed a Log; there is no global one.
//
// Not a debugging aid with categories and macros: messages are whole sentences with values and units, at three levels.
// A Log is a value that shares its sink with its copies. Thread-safe: the sink is called by one thread at a time, so
// lines never mix; it must not log itself. Generated text and results are never logged, they belong to stdout.

#include <functional>
#include <memory>
#include <mutex>
#include <string_view>

namespace tessera {

/// How much a message matters, least first.
enum class LogLevel {
  kDetail,   // shown with --verbose
  kInfo,     // what an operator wants to see in a normal run
  kWarning,  // works, but not as the user may think
};

/// "detail", "info" or "warning".
std::string_view log_level_name(LogLevel level);

class Log {
 public:
  using Sink = std::function<void(LogLevel, std::string_view message)>;

  /// Discards everything.
  Log() = default;
  /// Passes messages of at least this level to sink.
  Log(Sink sink, LogLevel least);

  /// Whether a message of this level reaches the sink: ask before composing a costly one.
  [[nodiscard]] bool wants(LogLevel level) const { return shared_ != nullptr && level >= shared_->least; }

  /// One message, without newline.
  void write(LogLevel level, std::string_view message) const;
  void detail(std::string_view message) const { write(LogLevel::kDetail, message); }
  void info(std::string_view message) const { write(LogLevel::kInfo, message); }
  void warning(std::string_view message) const { write(LogLevel::kWarning, message); }

 private:
  struct Shared {
    Sink sink;
    LogLevel least;
    std::mutex mutex;
  };
  std::shared_ptr<Shared> shared_;
};

/// A Log that writes each message as a line to standard error, warnings marked as such.
Log stderr_log(LogLevel least);

}  // namespace tessera
