#include "runtime/grammar/number_grammar.h"

#include <algorithm>
#include <fmt/format.h>
#include <string_view>
#include <vector>

namespace tessera {
namespace {

// A number that is not negative: digits before the point without leading zeros ("0" alone), behind it without trailing.
struct Magnitude {
  std::string whole = "0";
  std::string fraction;
  bool exclusive = false;
  bool unlimited = false;  // an upper end without a number
};

int compare(const Magnitude& a, const Magnitude& b) {
  if (a.whole.size() != b.whole.size()) {
    return a.whole.size() < b.whole.size() ? -1 : 1;
  }
  const int whole = a.whole.compare(b.whole);
  return whole != 0 ? whole : a.fraction.compare(b.fraction);
}

Magnitude magnitude_of(std::string_view decimal) {
  decimal.remove_prefix(decimal.starts_with('-') ? 1 : 0);
  Magnitude m;
  const size_t point = std::min(decimal.find('.'), decimal.size());
  const size_t first = std::min(decimal.substr(0, point).find_first_not_of('0'), point);
  m.whole = first == point ? "0" : std::string(decimal.substr(first, point - first));
  if (point < decimal.size()) {
    m.fraction = std::string(decimal.substr(point + 1));
    m.fraction.erase(m.fraction.find_last_not_of('0') + 1);
  }
  return m;
}

bool is_zero(const Magnitude& m) {
  return m.whole == "0" && m.fraction.empty();
}

std::string any_digits(size_t n) {
  return n == 0 ? "" : n == 1 ? " [0-9]" : fmt::format(" [0-9]{{{}}}", n);
}

std::string digit_range(char first, char last) {
  return first == last ? fmt::format("\"{}\"", first) : fmt::format("[{}-{}]", first, last);
}

std::string joined(const std::vector<std::string>& ways) {
  std::string result = "(";
  for (const std::string& way : ways) {
    result += (result.size() > 1 ? " | " : "") + way;
  }
  return result + ")";
}

// Whole numbers from a to b of equal length, leading zeros included.
std::string same_length(std::string_view a, std::string_view b) {
  const size_t n = a.size();
  if (n == 0) {
    return "";
  }
  if (a.find_first_not_of('0') == std::string_view::npos && b.find_first_not_of('9') == std::string_view::npos) {
    return any_digits(n);
  }
  if (a[0] == b[0]) {
    return fmt::format(" \"{}\"{}", a[0], same_length(a.substr(1), b.substr(1)));
  }
  const bool whole_first = a.find_first_not_of('0', 1) == std::string_view::npos;  // all digits may follow a[0]
  const bool whole_last = b.find_first_not_of('9', 1) == std::string_view::npos;
  std::vector<std::string> ways;
  if (!whole_first) {
    ways.push_back(fmt::format("\"{}\"{}", a[0], same_length(a.substr(1), std::string(n - 1, '9'))));
  }
  const auto first = static_cast<char>(a[0] + (whole_first ? 0 : 1));
  const auto last = static_cast<char>(b[0] - (whole_last ? 0 : 1));
  if (first <= last) {
    ways.push_back(digit_range(first, last) + any_digits(n - 1));
  }
  if (!whole_last) {
    ways.push_back(fmt::format("\"{}\"{}", b[0], same_length(std::string(n - 1, '0'), b.substr(1))));
  }
  return " " + joined(ways);
}

// Whole numbers from a to b. Empty: there are none.
std::vector<std::string> whole_between(const std::string& a, const std::string& b) {
  std::vector<std::string> ways;
  if (a.size() > b.size() || (a.size() == b.size() && a > b)) {
    return ways;
  }
  size_t begin = a.size();
  while (begin <= b.size()) {
    // As many lengths at once as are taken whole.
    const std::string low = begin == a.size() ? a : "1" + std::string(begin - 1, '0');
    size_t end = begin;
    if (low == "1" + std::string(begin - 1, '0')) {
      while (end + 1 < b.size()) {
        ++end;
      }
    }
    const std::string high = end < b.size() ? std::string(end, '9') : b;
    if (end > begin) {
      ways.push_back(fmt::format("[1-9] [0-9]{{{},{}}}", begin - 1, end - 1));
    } else {
      ways.push_back(same_length(low, high));
    }
    begin = end + 1;
  }
  return ways;
}

// One more, or one less for a number above 0.
std::string neighbour(std::string digits, int step) {
  const char full = step > 0 ? '9' : '0';
  const char emptied = step > 0 ? '0' : '9';
  size_t i = digits.size();
  while (i > 0 && digits[i - 1] == full) {
    digits[--i] = emptied;
  }
  if (i == 0) {
    return "1" + digits;  // only of nines
  }
  digits[i - 1] = static_cast<char>(digits[i - 1] + step);
  return digits.size() > 1 && digits[0] == '0' ? digits.substr(1) : digits;
}

constexpr std::string_view kMoreDigits = " [0-9]{0,15}";

// Digits behind the point that make at least `low`, or more where exclusive; "" cannot be reached before the end of
// low, since what is left out counts as 0.
std::string fraction_from(std::string_view low, bool exclusive) {
  if (low.empty()) {
    return exclusive ? " \"0\"{0,8} [1-9] [0-9]{0,6}" : std::string(kMoreDigits);
  }
  std::vector<std::string> ways;
  if (low[0] < '9') {
    ways.push_back(digit_range(static_cast<char>(low[0] + 1), '9') + std::string(kMoreDigits));
  }
  ways.push_back(fmt::format("\"{}\"{}", low[0], fraction_from(low.substr(1), exclusive)));
  return " " + joined(ways);
}

// Digits that make at most `high`, or less where exclusive (then high is not 0). They may end anywhere but at high.
std::string fraction_to(std::string_view high, bool exclusive) {
  if (high.empty()) {
    return " \"0\"{0,3}";  // not reached where exclusive
  }
  std::vector<std::string> ways;
  if (high[0] > '0') {
    ways.push_back(digit_range('0', static_cast<char>(high[0] - 1)) + std::string(kMoreDigits));
  }
  if (high.size() > 1) {
    ways.push_back(fmt::format("\"{}\" ({})?", high[0], fraction_to(high.substr(1), exclusive)));
  } else if (!exclusive) {
    ways.push_back(fmt::format("\"{}\"{}", high[0], fraction_to({}, false)));
  }
  return " " + joined(ways);
}

// Digits between both, low < high, within one whole number.
std::string fraction_between(std::string_view low, bool low_exclusive, std::string_view high, bool high_exclusive) {
  if (low.empty()) {
    low = "0";
    if (high[0] == '0') {
      return fmt::format(" \"0\" ({}){}", fraction_between("", low_exclusive, high.substr(1), high_exclusive),
                         low_exclusive ? "" : "?");
    }
    std::vector<std::string> ways = {"\"0\"" + fraction_from("", low_exclusive)};
    if (high[0] > '1') {
      ways.push_back(digit_range('1', static_cast<char>(high[0] - 1)) + std::string(kMoreDigits));
    }
    if (high.size() > 1) {
      ways.push_back(fmt::format("\"{}\" ({})?", high[0], fraction_to(high.substr(1), high_exclusive)));
    } else if (!high_exclusive) {
      ways.push_back(fmt::format("\"{}\"{}", high[0], fraction_to({}, false)));
    }
    return " " + joined(ways);
  }
  if (low[0] == high[0]) {
    return fmt::format(" \"{}\" ({}){}", low[0],
                       fraction_between(low.substr(1), low_exclusive, high.substr(1), high_exclusive),
                       low.size() == 1 && !low_exclusive ? "?" : "");
  }
  std::vector<std::string> ways = {fmt::format("\"{}\"{}", low[0], fraction_from(low.substr(1), low_exclusive))};
  if (high[0] - low[0] > 1) {
    ways.push_back(digit_range(static_cast<char>(low[0] + 1), static_cast<char>(high[0] - 1)) +
                   std::string(kMoreDigits));
  }
  if (high.size() > 1) {
    ways.push_back(fmt::format("\"{}\" ({})?", high[0], fraction_to(high.substr(1), high_exclusive)));
  } else if (!high_exclusive) {
    ways.push_back(fmt::format("\"{}\"{}", high[0], fraction_to({}, false)));
  }
  return " " + joined(ways);
}

std::string exactly(const std::string& whole) {
  return fmt::format("\"{}\"", whole);
}

// Numbers with a fraction between low and high; whole numbers may show one of zeros.
std::vector<std::string> decimals_between(const Magnitude& low, const Magnitude& high) {
  std::vector<std::string> ways;
  if (low.whole == high.whole) {
    if (compare(low, high) == 0) {
      ways.push_back(exactly(low.whole) + (low.fraction.empty() ? "" : fmt::format(" \".{}\"", low.fraction)));
      return ways;
    }
    const bool with_whole = low.fraction.empty() && !low.exclusive;
    const std::string fraction = fraction_between(low.fraction, low.exclusive, high.fraction, high.exclusive);
    ways.push_back(fmt::format("{} ( \".\"{} ){}", exactly(low.whole), fraction, with_whole ? "?" : ""));
    return ways;
  }
  const std::string from = fraction_from(low.fraction, low.exclusive);
  if (low.fraction.empty() && !low.exclusive) {
    ways.push_back(exactly(low.whole) + " ( \".\" [0-9]{1,16} )?");
  } else {
    ways.push_back(fmt::format("{} \".\"{}", exactly(low.whole), from));
  }
  for (const std::string& between : whole_between(neighbour(low.whole, 1), neighbour(high.whole, -1))) {
    ways.push_back(between + " ( \".\" [0-9]{1,16} )?");
  }
  if (high.fraction.empty()) {
    if (!high.exclusive) {
      ways.push_back(exactly(high.whole) + " ( \".\" \"0\"{1,3} )?");
    }
  } else {
    ways.push_back(fmt::format("{} ( \".\"{} )?", exactly(high.whole), fraction_to(high.fraction, high.exclusive)));
  }
  return ways;
}

// Numbers between two magnitudes.
std::vector<std::string> between(Magnitude low, Magnitude high, bool whole) {
  if (high.unlimited || high.whole.size() > kMaxNumberDigits) {
    high = {.whole = std::string(kMaxNumberDigits, '9'), .fraction = "", .exclusive = false, .unlimited = false};
  }
  if (whole) {
    const bool is_between = !low.fraction.empty();
    const std::string first = is_between || low.exclusive ? neighbour(low.whole, 1) : low.whole;
    const bool drops_last = high.fraction.empty() && high.exclusive;
    if (drops_last && high.whole == "0") {
      return {};
    }
    return whole_between(first, drops_last ? neighbour(high.whole, -1) : high.whole);
  }
  const int order = compare(low, high);
  if (order > 0 || (order == 0 && (low.exclusive || high.exclusive))) {
    return {};
  }
  return decimals_between(low, high);
}

}  // namespace

Result<std::string> number_grammar(const std::optional<NumberBound>& min, const std::optional<NumberBound>& max,
                                   bool whole) {
  const auto is_negative = [](const std::optional<NumberBound>& b) {
    return b && b->decimal.starts_with('-') && !is_zero(magnitude_of(b->decimal));
  };
  const auto bound = [](const NumberBound& b) {
    Magnitude m = magnitude_of(b.decimal);
    m.exclusive = b.exclusive;
    return m;
  };
  const Magnitude unlimited = {.whole = "0", .fraction = "", .exclusive = false, .unlimited = true};
  std::vector<std::string> ways;
  if (!is_negative(max)) {  // 0 and above
    const Magnitude low = min && !is_negative(min) ? bound(*min) : Magnitude();
    const Magnitude high = max ? bound(*max) : unlimited;
    ways = between(low, high, whole);
  }
  if (!min || is_negative(min)) {  // below 0: the same mirrored
    Magnitude low = is_negative(max) ? bound(*max) : Magnitude();
    low.exclusive = is_negative(max) ? low.exclusive : true;
    const Magnitude high = min ? bound(*min) : unlimited;
    for (const std::string& way : between(low, high, whole)) {
      ways.push_back("\"-\" " + way);
    }
  }
  if (ways.empty()) {
    return Status(ErrorCode::kInvalidArgument,
                  fmt::format("no number of at most {} digits lies between its bounds", kMaxNumberDigits));
  }
  return joined(ways);
}

}  // namespace tessera
