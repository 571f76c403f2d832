#pragma once
// Lines from a person or a pipe. On a terminal with editing keys, history and lines of any length; elsewhere as they
// come.

#include <string>

namespace tessera {

class LineReader {
 public:
  /// prompt: shown on standard error where a person types. Must outlive the reader.
  explicit LineReader(const char* prompt);

  enum class Got {
    kText,
    kEnd,      // of the input
    kCleared,  // by Ctrl-C, which is a key of the line and no signal where a person types
    kGivenUp,  // the same with nothing typed
  };

  /// The next message without its newline. A backslash at a line's end joins the next line to it with a newline. Text
  /// is undefined unless kText.
  Got next(std::string& text);

 private:
  Got read_line(const char* prompt, std::string& line) const;

  const char* prompt_;
  const bool terminal_;
};

}  // namespace tessera
