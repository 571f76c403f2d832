#include "base/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/core.h>
#include <pcre2.h>
#include <utility>

namespace tessera {
namespace {

constexpr uint32_t kHeapLimitKib = 256U * 1024;  // for the interpreter's backtracking, not reached by machine code

struct Free {
  void operator()(pcre2_code* p) const { pcre2_code_free(p); }
  void operator()(pcre2_match_data* p) const { pcre2_match_data_free(p); }
  void operator()(pcre2_match_context* p) const { pcre2_match_context_free(p); }
};

std::string reason(int error) {
  PCRE2_UCHAR text[256] = {};
  pcre2_get_error_message(error, text, sizeof(text));
  return reinterpret_cast<const char*>(text);
}

}  // namespace

struct Regex::Code {
  std::unique_ptr<pcre2_code, Free> compiled;
};

struct RegexMatcher::State {
  std::unique_ptr<pcre2_match_data, Free> data;
  std::unique_ptr<pcre2_match_context, Free> context;
};

Result<Regex> Regex::compile(std::string_view pattern, bool utf8) {
  int error = 0;
  PCRE2_SIZE at = 0;
  auto code = std::make_shared<Code>();
  code->compiled.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), utf8 ? PCRE2_UTF : 0,
                                     &error, &at, nullptr));
  if (code->compiled == nullptr) {
    return Status(error == PCRE2_ERROR_HEAP_FAILED ? ErrorCode::kOutOfMemory : ErrorCode::kInvalidArgument,
                  fmt::format("{} at byte {} of {}", reason(error), at, pattern));
  }
  pcre2_jit_compile(code->compiled.get(), PCRE2_JIT_COMPLETE);
  return Regex(std::move(code));
}

RegexMatcher::RegexMatcher(const Regex& regex, uint32_t max_steps)
    : code_(regex.code_), state_(std::make_unique<State>()) {
  state_->data.reset(pcre2_match_data_create(1, nullptr));
  state_->context.reset(pcre2_match_context_create(nullptr));
  if (state_->context != nullptr) {
    pcre2_set_match_limit(state_->context.get(), max_steps);
    pcre2_set_heap_limit(state_->context.get(), kHeapLimitKib);
  }
}

RegexMatcher::~RegexMatcher() = default;
RegexMatcher::RegexMatcher(RegexMatcher&& other) noexcept = default;
RegexMatcher& RegexMatcher::operator=(RegexMatcher&& other) noexcept = default;

std::optional<RegexMatcher::Match> RegexMatcher::find(std::string_view text, size_t from) {
  if (state_->data == nullptr || state_->context == nullptr) {
    error_ = PCRE2_ERROR_NOMEMORY;
    return std::nullopt;
  }
  const auto run = [&](uint32_t options) {
    return pcre2_match(code_->compiled.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from,
                       PCRE2_NO_UTF_CHECK | options, state_->data.get(), state_->context.get());
  };
  int rc = run(0);
  if (rc == PCRE2_ERROR_JIT_STACKLIMIT) {
    rc = run(PCRE2_NO_JIT);
  }
  error_ = rc == PCRE2_ERROR_NOMATCH || rc >= 0 ? 0 : rc;
  if (rc < 0) {
    return std::nullopt;
  }
  const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(state_->data.get());
  return Match{bounds[0], bounds[1]};
}

std::string RegexMatcher::failure() const {
  return error_ == 0 ? std::string() : reason(error_);
}

}  // namespace tessera
