#include "progress_bar.h"

#include <cstdio>
#include <fmt/format.h>
#include <utility>

#include "common.h"

namespace tessera {
namespace {

constexpr int kBarWidth = 30;

}  // namespace

ProgressBar::ProgressBar(std::string label) : label_(std::move(label)), shown_(stderr_is_terminal()) {}

void ProgressBar::show(double fraction) {
  const int percent = static_cast<int>(fraction * 100);
  if (!shown_ || percent == drawn_) {
    return;
  }
  drawn_ = percent;
  const int filled = percent * kBarWidth / 100;
  const std::string line = fmt::format("\r{} [{}{}] {:3} %", label_, std::string(static_cast<size_t>(filled), '#'),
                                       std::string(static_cast<size_t>(kBarWidth - filled), '.'), percent);
  std::fwrite(line.data(), 1, line.size(), stderr);
}

void ProgressBar::clear() {
  if (drawn_ >= 0) {
    std::fputs("\r\033[K", stderr);
  }
  drawn_ = -1;
}

}  // namespace tessera
