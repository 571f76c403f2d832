#include "tokenizer/pre_tokenizer.h"

#include <algorithm>
#include <fmt/format.h>
#include <utility>

#include "base/regex.h"
#include "tokenizer/utf8.h"

namespace tessera {
namespace {

// Unicode's White_Space. PCRE2's own \s would add U+180E, which left that class in Unicode 6.3.
constexpr std::string_view kSpaceClass = R"(\t-\r\x{85}\p{Z})";

// Writes \s and \S out as explicit classes.
std::string spell_out_spaces(std::string_view expression) {
  std::string out;
  bool in_class = false;
  for (size_t i = 0; i < expression.size(); ++i) {
    const char c = expression[i];
    if (c == '\\' && i + 1 < expression.size()) {
      const char escaped = expression[++i];
      if (escaped == 's') {
        out += in_class ? std::string(kSpaceClass) : fmt::format("[{}]", kSpaceClass);
      } else if (escaped == 'S') {
        out += fmt::format("[^{}]", kSpaceClass);
      } else {
        out.push_back(c);
        out.push_back(escaped);
      }
      continue;
    }
    in_class = c == '[' || (in_class && c != ']');
    out.push_back(c);
  }
  return out;
}

// Runs one expression over pieces of text.
class RegexRun {
 public:
  // The expressions backtrack at most once over what they match: the limit only has to allow for long pieces.
  explicit RegexRun(const Regex& regex) : matcher_(regex, UINT32_MAX) {}

  // Appends the ends of the pieces into which the expression cuts text, each plus offset.
  void split(std::string_view text, size_t offset, PreCut cut, std::vector<size_t>& ends) {
    size_t done = 0;
    while (done < text.size()) {
      const auto found = matcher_.find(text, done);
      if (!found || found->end == found->begin) {
        break;
      }
      const auto [begin, end] = *found;
      if (begin > done && (cut == PreCut::kMatches || cut == PreCut::kThousands)) {
        ends.push_back(offset + begin);
      }
      if (cut != PreCut::kMatches) {
        push_groups(text.substr(begin, end - begin), offset + begin, cut, ends);
      }
      if (cut != PreCut::kThousandStarts) {
        ends.push_back(offset + end);
      }
      done = end;
    }
    if (ends.empty() || ends.back() < offset + text.size()) {
      ends.push_back(offset + text.size());
    }
  }

 private:
  // Borders between groups of three characters, counted from the right of digits.
  static void push_groups(std::string_view digits, size_t offset, PreCut cut, std::vector<size_t>& ends) {
    std::vector<size_t> starts;
    for (size_t i = 0; i < digits.size(); i += std::max<size_t>(1, utf8_valid_bytes(digits.substr(i)))) {
      starts.push_back(offset + i);
    }
    const size_t n_first = starts.size() % 3;
    const bool from_start = n_first == 0 && cut == PreCut::kThousandStarts && offset > (ends.empty() ? 0 : ends.back());
    for (size_t i = n_first == 0 && !from_start ? 3 : n_first; i < starts.size(); i += 3) {
      ends.push_back(starts[i]);
    }
  }

  RegexMatcher matcher_;
};

}  // namespace

struct PreTokenizer::Stage {
  Regex regex;
  PreCut cut = PreCut::kMatches;
};

Result<PreTokenizer> PreTokenizer::create(const PreFamily& family) {
  PreTokenizer result;
  for (const PreStage& plan : family.stages) {
    Result<Regex> regex = Regex::compile(spell_out_spaces(plan.expression), true);
    if (!regex.ok()) {
      return Status(ErrorCode::kInternal, "pre-tokenizer: " + regex.status().message());
    }
    result.stages_.push_back(std::make_shared<Stage>(Stage{std::move(regex).value(), plan.cut}));
  }
  return result;
}

void PreTokenizer::split(std::string_view text, std::vector<size_t>& ends) const {
  if (text.empty()) {
    return;
  }
  if (utf8_is_valid(text)) {
    split_valid(text, ends);
    return;
  }
  std::vector<size_t> repairs;
  const std::string repaired = with_replacements(text, &repairs);
  std::vector<size_t> repaired_ends;
  split_valid(repaired, repaired_ends);
  size_t n_repairs = 0;  // each made the text two bytes longer
  for (const size_t end : repaired_ends) {
    while (n_repairs < repairs.size() && repairs[n_repairs] < end) {
      ++n_repairs;
    }
    ends.push_back(end - 2 * n_repairs);
  }
}

void PreTokenizer::split_valid(std::string_view text, std::vector<size_t>& ends) const {
  std::vector<size_t> pieces = {text.size()};
  std::vector<size_t> next;
  for (const auto& stage : stages_) {
    next.clear();
    RegexRun run(stage->regex);
    size_t begin = 0;
    for (const size_t end : pieces) {
      run.split(text.substr(begin, end - begin), begin, stage->cut, next);
      begin = end;
    }
    pieces.swap(next);
  }
  ends.insert(ends.end(), pieces.begin(), pieces.end());
}

}  // namespace tessera
