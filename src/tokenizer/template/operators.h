#pragma once
// Operators of the template language with Python's meaning and Python's messages.
//
// Numbers: ints have 64 bits (Python's have no bound); a result that does not fit is kUnsupported. Results of numbers
// and containers come from the user when an operand does.

#include <string_view>

#include "tokenizer/template/runtime.h"
#include "tokenizer/template/value.h"

namespace tessera::jinja {

enum class BinaryOp : uint8_t { kAdd, kSubtract, kMultiply, kDivide, kFloorDivide, kModulo, kPower };
enum class CompareOp : uint8_t { kEqual, kNotEqual, kLess, kLessEqual, kGreater, kGreaterEqual, kIn, kNotIn };

Result<Value> binary(Runtime& runtime, BinaryOp op, const Value& left, const Value& right);
Result<Value> negate(const Value& value);
Result<bool> compare(Runtime& runtime, CompareOp op, const Value& left, const Value& right);
Result<bool> equal(Runtime& runtime, const Value& left, const Value& right);
/// Python's `left < right`.
Result<bool> less(Runtime& runtime, const Value& left, const Value& right);
/// Stable sort by `keys`; returns the order of positions.
Result<std::vector<size_t>> sort_order(Runtime& runtime, const std::vector<Value>& keys, bool reverse);

/// `object[key]`, then attributes: what jinja2's getitem gives.
Result<Value> get_item(Runtime& runtime, const Value& object, const Value& key);
/// `object.name`: attributes (methods) first, then `object[name]`.
Result<Value> get_attribute(Runtime& runtime, const Value& object, std::string_view name);
/// `object[start:stop:step]`; a missing part is none.
Result<Value> get_slice(Runtime& runtime, const Value& object, const Value& start, const Value& stop,
                        const Value& step);

}  // namespace tessera::jinja
