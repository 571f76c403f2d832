#include "base/decimal.h"

#include <charconv>
#include <cmath>

namespace tessera {

double as_written(float value) {
  double result = value;
  if (std::isfinite(value)) {
    char text[32];
    const std::to_chars_result written = std::to_chars(text, text + sizeof text, value);
    std::from_chars(text, written.ptr, result);
  }
  return result;
}

}  // namespace tessera
