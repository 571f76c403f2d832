#pragma once
// A line on standard error that shows how far something is, where a person sees it.

#include <string>

namespace tessera {

/// Drawn again whenever another percent is done; gone with its object. One thread at a time.
class ProgressBar {
 public:
  /// label: "loading". Nothing is ever drawn where standard error is no terminal.
  explicit ProgressBar(std::string label);
  ~ProgressBar() { clear(); }
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  /// fraction: 0 .. 1.
  void show(double fraction);
  /// Takes the line away, until the next show().
  void clear();

 private:
  std::string label_;
  bool shown_;
  int drawn_ = -1;  // percent
};

}  // namespace tessera
