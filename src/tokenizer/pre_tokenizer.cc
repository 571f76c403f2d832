#include "tokenizer/pre_tokenizer.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <algorithm>
#include <fmt/format.h>
#include <optional>
#include <pcre2.h>
#include <utility>

#include "tokenizer/utf8.h"

namespace tessera {
namespace {

struct FreeCode {
  void operator()(pcre2_code* p) const { pcre2_code_free(p); }
};
struct FreeMatch {
  void operator()(pcre2_match_data* p) const { pcre2_match_data_free(p); }
};
struct FreeContext {
  void operator()(pcre2_match_context* p) const { pcre2_match_context_free(p); }
};
using Code = std::unique_ptr<pcre2_code, FreeCode>;
using MatchData = std::unique_ptr<pcre2_match_data, FreeMatch>;
using MatchContext = std::unique_ptr<pcre2_match_context, FreeContext>;

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

Result<Code> compile(std::string_view expression) {
  const std::string pattern = spell_out_spaces(expression);
  int error = 0;
  PCRE2_SIZE at = 0;
  Code code(
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), PCRE2_UTF, &error, &at, nullptr));
  if (code == nullptr) {
    PCRE2_UCHAR text[256] = {};
    pcre2_get_error_message(error, text, sizeof(text));
    return Status(ErrorCode::kInternal,
                  fmt::format("pre-tokenizer: {} at {} of {}", reinterpret_cast<const char*>(text), at, pattern));
  }
  // Where machine code is not allowed this fails, and PCRE2 interprets: slower, with the same result.
  pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);
  return code;
}

// Runs one expression over pieces of text.
class RegexRun {
 public:
  explicit RegexRun(const pcre2_code* code)
      : code_(code), data_(pcre2_match_data_create(1, nullptr)), context_(pcre2_match_context_create(nullptr)) {
    if (context_ != nullptr) {
      // The expressions backtrack at most once over what they match; the limit only has to allow for long pieces.
      pcre2_set_match_limit(context_.get(), UINT32_MAX);
      pcre2_set_heap_limit(context_.get(), kHeapLimitKib);
    }
  }

  // Appends the ends of the pieces into which the expression cuts text, each plus offset.
  void split(std::string_view text, size_t offset, PreCut cut, std::vector<size_t>& ends) {
    size_t done = 0;
    while (done < text.size()) {
      const auto found = match(text, done);
      if (!found || found->second == found->first) {
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
  static constexpr uint32_t kHeapLimitKib = 256U * 1024;  // for the interpreter's backtracking, not reached by JIT code

  std::optional<std::pair<size_t, size_t>> match(std::string_view text, size_t from) {
    if (data_ == nullptr || context_ == nullptr) {
      return std::nullopt;
    }
    const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
    int rc = pcre2_match(code_, subject, text.size(), from, PCRE2_NO_UTF_CHECK, data_.get(), context_.get());
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) {
      rc = pcre2_match(code_, subject, text.size(), from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, data_.get(),
                       context_.get());
    }
    if (rc < 0) {
      return std::nullopt;
    }
    const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(data_.get());
    return std::pair<size_t, size_t>{bounds[0], bounds[1]};
  }

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

  const pcre2_code* code_;
  MatchData data_;
  MatchContext context_;
};

}  // namespace

struct PreTokenizer::Stage {
  Code code;
  PreCut cut = PreCut::kMatches;
};

Result<PreTokenizer> PreTokenizer::create(const PreFamily& family) {
  PreTokenizer result;
  for (const PreStage& plan : family.stages) {
    auto stage = std::make_shared<Stage>();
    ASSIGN_OR_RETURN(stage->code, compile(plan.expression));
    stage->cut = plan.cut;
    result.stages_.push_back(std::move(stage));
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
    RegexRun run(stage->code.get());
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
