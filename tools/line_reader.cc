#include "line_reader.h"

#include <cstdio>
#include <cstdlib>
#include <editline/readline.h>
#include <iostream>
#include <memory>

#include "common.h"

namespace tessera {

LineReader::LineReader(const char* prompt) : prompt_(prompt), terminal_(stdin_is_terminal() && stderr_is_terminal()) {
  if (terminal_) {
    rl_outstream = stderr;  // standard output is for answers
    using_history();
  }
}

bool LineReader::next(std::string& text) {
  if (terminal_) {
    std::fputs("\n", stderr);
  }
  if (!read_line(prompt_, text)) {
    return false;
  }
  std::string more;
  while (text.ends_with('\\') && read_line(". ", more)) {
    text.back() = '\n';
    text += more;
  }
  if (terminal_ && !text.empty()) {
    add_history(text.c_str());
  }
  return true;
}

bool LineReader::read_line(const char* prompt, std::string& line) const {
  if (!terminal_) {
    return static_cast<bool>(std::getline(std::cin, line));
  }
  const std::unique_ptr<char, decltype(&std::free)> typed(readline(prompt), &std::free);
  if (typed == nullptr) {
    return false;
  }
  line = typed.get();
  return true;
}

}  // namespace tessera
