#include "line_reader.h"

#include <cstdio>
#include <cstdlib>
#include <editline/readline.h>
#include <iostream>
#include <memory>
#include <optional>
#include <termios.h>
#include <unistd.h>

#include "common.h"

namespace tessera {
namespace {

// Set by give_up(); libedit's functions are given nothing of ours.
std::optional<LineReader::Got> g_given_up;

int give_up(int /*count*/, int /*key*/) {
  g_given_up = *rl_line_buffer == '\0' ? LineReader::Got::kGivenUp : LineReader::Got::kCleared;
  rl_done = 1;
  return 0;
}

// While one exists, the terminal sends its interrupt character as a key. libedit takes the settings that it finds.
class InterruptKey {
 public:
  InterruptKey() {
    if (tcgetattr(STDIN_FILENO, &before_) != 0) {
      return;
    }
    struct termios without = before_;
    without.c_cc[VINTR] = _POSIX_VDISABLE;
    is_set_ = tcsetattr(STDIN_FILENO, TCSADRAIN, &without) == 0;
  }
  ~InterruptKey() {
    if (is_set_) {
      tcsetattr(STDIN_FILENO, TCSADRAIN, &before_);
    }
  }
  InterruptKey(const InterruptKey&) = delete;
  InterruptKey& operator=(const InterruptKey&) = delete;

 private:
  struct termios before_ = {};
  bool is_set_ = false;
};

constexpr int kCtrlC = 3;

}  // namespace

LineReader::LineReader(const char* prompt) : prompt_(prompt), terminal_(stdin_is_terminal() && stderr_is_terminal()) {
  if (terminal_) {
    rl_outstream = stderr;  // standard output is for answers
    const InterruptKey key;
    using_history();  // begins libedit, which must find the terminal as the key leaves it; twice would leak
    rl_add_defun("tessera-give-up", give_up, kCtrlC);
  }
}

LineReader::Got LineReader::next(std::string& text) {
  if (terminal_) {
    std::fputs("\n", stderr);
  }
  const Got got = read_line(prompt_, text);
  std::string more;
  while (got == Got::kText && text.ends_with('\\')) {
    const Got joined = read_line(". ", more);
    if (joined == Got::kCleared || joined == Got::kGivenUp) {
      return Got::kCleared;
    }
    if (joined == Got::kEnd) {
      break;
    }
    text.back() = '\n';
    text += more;
  }
  if (terminal_ && got == Got::kText && !text.empty()) {
    add_history(text.c_str());
  }
  return got;
}

LineReader::Got LineReader::read_line(const char* prompt, std::string& line) const {
  if (!terminal_) {
    return std::getline(std::cin, line) ? Got::kText : Got::kEnd;
  }
  const InterruptKey key;
  g_given_up.reset();
  const std::unique_ptr<char, decltype(&std::free)> typed(readline(prompt), &std::free);
  if (g_given_up) {
    return *g_given_up;
  }
  if (typed == nullptr) {
    return Got::kEnd;
  }
  line = typed.get();
  return Got::kText;
}

}  // namespace tessera
