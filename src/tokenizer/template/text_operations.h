#pragma once
// Operations on texts that str methods and filters share; all keep origins byte by byte.

#include <cstddef>
#include <optional>
#include <vector>

#include "base/status.h"
#include "tokenizer/template/runtime.h"
#include "tokenizer/template/text.h"

namespace tessera::jinja {

/// Position of the first `needle` at or after `from`, npos if none. Linear in both lengths, unlike std::string::find.
size_t find_bytes(std::string_view text, std::string_view needle, size_t from = 0);
/// Charges a search from the right, whose worst case is the product of both lengths.
Status charge_reverse_search(Runtime& runtime, const Text& text, const Text& needle);

enum class Case : uint8_t { kUpper, kLower, kTitle, kCapitalize, kSwap };

/// Python's str.upper, lower, title, capitalize, swapcase.
Text change_case(const Text& text, Case to);
/// Strips characters of `*characters` (white space when null) from the ends.
Text strip(const Text& text, const Text* characters, bool left, bool right);
/// str.split and, from the right, str.rsplit; a null separator splits at white space; max_splits < 0 is no bound.
/// REQUIRES: separator is null or not empty.
std::vector<Text> split(const Text& text, const Text* separator, int64_t max_splits, bool from_right);
std::vector<Text> split_lines(const Text& text, bool keep_ends);
/// str.replace. Errors: kUnsupported when the result would exceed the byte limit.
Result<Text> replace(Runtime& runtime, const Text& text, const Text& old, const Text& with, int64_t max_count);
/// `text` written `n` times. REQUIRES: the caller has charged n * text.size() bytes.
Text repeat(const Text& text, size_t n);
/// `text` padded with `fill` to `width` code points; align is '<', '>' or '^'.
Result<Text> pad(Runtime& runtime, const Text& text, int64_t width, char align, const Text& fill);
/// A list value of texts.
Result<Value> list_of_texts(Runtime& runtime, std::vector<Text> texts, bool from_user);

}  // namespace tessera::jinja
