#pragma once
// Code points and their properties as Python's str methods see them; facts come from utf8proc.
//
// Bytes that are not UTF-8 (only a template file can hold them) are passed through: each counts as one code point with
// a value in the lone-surrogate range, which encode() turns back into the byte.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tessera::jinja {

/// Decodes the code point at `pos` into `*code_point`; returns its length in bytes. REQUIRES: pos < bytes.size().
size_t decode(std::string_view bytes, size_t pos, uint32_t* code_point);
/// Length in bytes of the code point that ends at `pos`. REQUIRES: 0 < pos <= bytes.size().
size_t length_before(std::string_view bytes, size_t pos);
/// Appends a code point to `out`.
void encode(uint32_t code_point, std::string& out);
/// Number of code points.
size_t count_code_points(std::string_view bytes);
/// Byte offset of code point `n`, or bytes.size() when there are fewer.
size_t offset_of(std::string_view bytes, size_t n);

bool is_space(uint32_t c);
bool is_alpha(uint32_t c);
bool is_decimal(uint32_t c);
bool is_numeric(uint32_t c);
bool is_upper(uint32_t c);
bool is_lower(uint32_t c);
bool is_title(uint32_t c);
bool is_printable(uint32_t c);
uint32_t to_upper(uint32_t c);
uint32_t to_lower(uint32_t c);
uint32_t to_title(uint32_t c);
/// Whether str.splitlines breaks after `c` ("\r\n" counts as one break).
bool is_line_break(uint32_t c);

}  // namespace tessera::jinja
