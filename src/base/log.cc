#include "base/log.h"

#include <cstdio>
#include <string>
#include <utility>

namespace tessera {

std::string_view log_level_name(LogLevel level) {
  switch (level) {
    case LogLevel::kDetail: return "detail";
    case LogLevel::kInfo: return "info";
    case LogLevel::kWarning: return "warning";
  }
  return "unknown";
}

Log::Log(Sink sink, LogLevel least) : shared_(std::make_shared<Shared>()) {
  shared_->sink = std::move(sink);
  shared_->least = least;
}

void Log::write(LogLevel level, std::string_view message) const {
  if (wants(level)) {
    const std::scoped_lock lock(shared_->mutex);
    shared_->sink(level, message);
  }
}

Log stderr_log(LogLevel least) {
  return {[](LogLevel level, std::string_view message) {
            // One call, so that a line stays whole among the lines of other processes.
            std::string line = level == LogLevel::kWarning ? "warning: " : "";
            line.append(message).append("\n");
            std::fwrite(line.data(), 1, line.size(), stderr);
          },
          least};
}

}  // namespace tessera
