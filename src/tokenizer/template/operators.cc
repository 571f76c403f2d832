#include "tokenizer/template/operators.h"

#include <algorithm>
#include <cmath>

#include "fmt/format.h"

#include "tokenizer/template/format.h"
#include "tokenizer/template/text_operations.h"

namespace tessera::jinja {
namespace {

std::string_view symbol(BinaryOp op) {
  switch (op) {
    case BinaryOp::kAdd: return "+";
    case BinaryOp::kSubtract: return "-";
    case BinaryOp::kMultiply: return "*";
    case BinaryOp::kDivide: return "/";
    case BinaryOp::kFloorDivide: return "//";
    case BinaryOp::kModulo: return "%";
    case BinaryOp::kPower: return "** or pow()";
  }
  return "?";
}

Status unsupported_operands(BinaryOp op, const Value& left, const Value& right) {
  return type_error(
      fmt::format("unsupported operand type(s) for {}: '{}' and '{}'", symbol(op), type_name(left), type_name(right)));
}

Status overflow() {
  return {ErrorCode::kUnsupported, "an integer of the template exceeds the limit of 64 bits"};
}

Result<int64_t> power(int64_t base, int64_t exponent) {
  int64_t result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) {
      return overflow();
    }
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) {
      return overflow();
    }
  }
  return result;
}

Result<Value> integer_binary(BinaryOp op, int64_t a, int64_t b, bool user) {
  int64_t result = 0;
  switch (op) {
    case BinaryOp::kAdd:
      return __builtin_add_overflow(a, b, &result) ? Result<Value>(overflow()) : Value::integer(result, user);
    case BinaryOp::kSubtract:
      return __builtin_sub_overflow(a, b, &result) ? Result<Value>(overflow()) : Value::integer(result, user);
    case BinaryOp::kMultiply:
      return __builtin_mul_overflow(a, b, &result) ? Result<Value>(overflow()) : Value::integer(result, user);
    case BinaryOp::kDivide:
      return b == 0 ? Result<Value>(type_error("division by zero"))
                    : Value::real(static_cast<double>(static_cast<long double>(a) / static_cast<long double>(b)), user);
    case BinaryOp::kFloorDivide:
    case BinaryOp::kModulo: {
      if (b == 0) {
        return type_error("integer division or modulo by zero");
      }
      if (b == -1) {  // INT64_MIN / -1 overflows
        return op == BinaryOp::kModulo                 ? Value::integer(0, user)
               : __builtin_sub_overflow(0, a, &result) ? Result<Value>(overflow())
                                                       : Value::integer(result, user);
      }
      const int64_t remainder = a % b;
      const bool adjust = remainder != 0 && (remainder < 0) != (b < 0);
      return Value::integer(op == BinaryOp::kModulo ? remainder + (adjust ? b : 0) : a / b - (adjust ? 1 : 0), user);
    }
    case BinaryOp::kPower: {
      if (b < 0) {
        return a == 0 ? Result<Value>(type_error("0.0 cannot be raised to a negative power"))
                      : Value::real(std::pow(static_cast<double>(a), static_cast<double>(b)), user);
      }
      ASSIGN_OR_RETURN(result, power(a, b));
      return Value::integer(result, user);
    }
  }
  return overflow();
}

Result<Value> real_binary(BinaryOp op, double a, double b, bool user) {
  switch (op) {
    case BinaryOp::kAdd: return Value::real(a + b, user);
    case BinaryOp::kSubtract: return Value::real(a - b, user);
    case BinaryOp::kMultiply: return Value::real(a * b, user);
    case BinaryOp::kDivide:
      return b == 0 ? Result<Value>(type_error("float division by zero")) : Value::real(a / b, user);
    case BinaryOp::kFloorDivide:
    case BinaryOp::kModulo: {
      if (b == 0) {
        return type_error(op == BinaryOp::kModulo ? "float modulo" : "float floor division by zero");
      }
      double remainder = std::fmod(a, b);
      double quotient = (a - remainder) / b;
      if (remainder != 0 && (remainder < 0) != (b < 0)) {
        remainder += b;
        quotient -= 1;
      }
      if (op == BinaryOp::kModulo) {
        return Value::real(remainder == 0 ? std::copysign(0.0, b) : remainder, user);
      }
      if (quotient == 0) {
        return Value::real(std::copysign(0.0, a / b), user);
      }
      const double floored = std::floor(quotient);
      return Value::real(quotient - floored > 0.5 ? floored + 1 : floored, user);
    }
    case BinaryOp::kPower: {
      if (a == 0 && b < 0) {
        return type_error("0.0 cannot be raised to a negative power");
      }
      const double result = std::pow(a, b);
      if (std::isinf(result) && !std::isinf(a) && !std::isinf(b)) {
        return type_error("(34, 'Numerical result out of range')");
      }
      if (std::isnan(result) && !std::isnan(a) && !std::isnan(b)) {
        return Status(ErrorCode::kUnsupported, "the template makes a complex number");
      }
      return Value::real(result, user);
    }
  }
  return overflow();
}

Result<Value> repeat_value(Runtime& runtime, const Value& sequence, int64_t times) {
  const size_t n = times > 0 ? static_cast<size_t>(times) : 0;
  const size_t length = sequence.is(Kind::kString) ? sequence.text().size() : sequence.items().size() * sizeof(Value);
  const size_t limit = runtime.limits().max_made_bytes;
  if (length != 0 && n > limit / length) {
    return limit_error("bytes of values made", limit);
  }
  TRY(runtime.charge_scan(n * length));
  if (sequence.is(Kind::kString)) {
    return runtime.string(repeat(sequence.text(), n));
  }
  std::vector<Value> items;
  if (length != 0) {
    for (size_t i = 0; i < n; ++i) {
      items.insert(items.end(), sequence.items().begin(), sequence.items().end());
    }
  }
  return sequence.is(Kind::kList) ? runtime.list(std::move(items), sequence.from_user())
                                  : runtime.tuple(std::move(items), sequence.from_user());
}

Result<Value> concatenate(Runtime& runtime, const Value& left, const Value& right) {
  const bool user = left.from_user() || right.from_user();
  if (left.is(Kind::kString)) {
    TRY(runtime.charge_scan(left.text().size() + right.text().size()));
    Text text = left.text();
    text.append(right.text());
    return runtime.string(std::move(text));
  }
  TRY(runtime.charge_scan(left.items().size() + right.items().size()));
  std::vector<Value> items = left.items();
  items.insert(items.end(), right.items().begin(), right.items().end());
  return left.is(Kind::kList) ? runtime.list(std::move(items), user) : runtime.tuple(std::move(items), user);
}

Status undefined_error(const Value& value) {
  return type_error(value.undefined_message());
}

/// -1, 0, 1; 2 when unordered. 80-bit floats hold every int64 and every double exactly.
int order_numbers(const Value& left, const Value& right) {
  if (left.is_integral() && right.is_integral()) {
    return left.as_int() < right.as_int() ? -1 : left.as_int() > right.as_int() ? 1 : 0;
  }
  const auto as_long = [](const Value& v) {
    return v.is_integral() ? static_cast<long double>(v.as_int()) : static_cast<long double>(v.as_real());
  };
  const long double a = as_long(left);
  const long double b = as_long(right);
  return a < b ? -1 : a > b ? 1 : a == b ? 0 : 2;
}

Result<bool> equal_at(Runtime& runtime, const Value& left, const Value& right, size_t depth);

Result<bool> equal_dicts(Runtime& runtime, const DictObject& left, const DictObject& right, size_t depth) {
  if (left.entries.size() != right.entries.size()) {
    return false;
  }
  for (const auto& [key, position] : left.index) {
    const Value* other = right.find(key);
    if (other == nullptr) {
      return false;
    }
    ASSIGN_OR_RETURN(const bool same, equal_at(runtime, left.entries[position].second, *other, depth + 1));
    if (!same) {
      return false;
    }
  }
  return true;
}

Result<bool> equal_ranges(const RangeObject& left, const RangeObject& right) {
  const int64_t n = left.size();
  return n == right.size() && (n == 0 || (left.start == right.start && (n == 1 || left.step == right.step)));
}

Result<bool> equal_at(Runtime& runtime, const Value& left, const Value& right, size_t depth) {
  TRY(runtime.charge_steps(1));
  if (depth > runtime.limits().max_containers) {
    return limit_error("containers within containers", runtime.limits().max_containers);
  }
  if (left.is_number() && right.is_number()) {
    return order_numbers(left, right) == 0;
  }
  if (left.kind() != right.kind()) {
    return false;
  }
  switch (left.kind()) {
    case Kind::kUndefined:
    case Kind::kNone: return true;
    case Kind::kString:
      TRY(runtime.charge_scan(std::min(left.text().size(), right.text().size())));
      return left.text().bytes() == right.text().bytes();
    case Kind::kList:
    case Kind::kTuple: {
      if (left.object() == right.object()) {
        return true;
      }
      if (left.items().size() != right.items().size()) {
        return false;
      }
      for (size_t i = 0; i < left.items().size(); ++i) {
        ASSIGN_OR_RETURN(const bool same, equal_at(runtime, left.items()[i], right.items()[i], depth + 1));
        if (!same) {
          return false;
        }
      }
      return true;
    }
    case Kind::kDict:
      return left.object() == right.object() ? Result<bool>(true)
                                             : equal_dicts(runtime, left.dict(), right.dict(), depth);
    case Kind::kRange: return equal_ranges(left.range(), right.range());
    default: return left.object() == right.object();
  }
}

Result<bool> contains(Runtime& runtime, const Value& container, const Value& value) {
  switch (container.kind()) {
    case Kind::kString:
      if (!value.is(Kind::kString)) {
        return type_error(fmt::format("'in <string>' requires string as left operand, not {}", type_name(value)));
      }
      TRY(runtime.charge_scan(container.text().size() + value.text().size()));
      return find_bytes(container.text().view(), value.text().view()) != std::string_view::npos;
    case Kind::kDict: {
      ASSIGN_OR_RETURN(const std::string id, hash_key(value));
      return container.dict().find(id) != nullptr;
    }
    case Kind::kNone:
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kFloat:
    case Kind::kCallable: return type_error(fmt::format("argument of type '{}' is not iterable", type_name(container)));
    default: {
      ASSIGN_OR_RETURN(const std::vector<Value> items, runtime.elements(container));
      for (const Value& item : items) {
        ASSIGN_OR_RETURN(const bool same, equal(runtime, item, value));
        if (same) {
          return true;
        }
      }
      return false;
    }
  }
}

/// -1, 0, 1, or 2 when no order holds (NaN).
Result<int> order_at(Runtime& runtime, CompareOp op, const Value& left, const Value& right, size_t depth) {
  TRY(runtime.charge_steps(1));
  if (depth > runtime.limits().max_containers) {
    return limit_error("containers within containers", runtime.limits().max_containers);
  }
  if (left.is_number() && right.is_number()) {
    return order_numbers(left, right);
  }
  if (left.is(Kind::kString) && right.is(Kind::kString)) {
    TRY(runtime.charge_scan(std::min(left.text().size(), right.text().size())));
    const int order = left.text().bytes().compare(right.text().bytes());  // UTF-8 sorts as code points do
    return order < 0 ? -1 : order > 0 ? 1 : 0;
  }
  if (left.is_sequence() && left.kind() == right.kind()) {
    const size_t n = std::min(left.items().size(), right.items().size());
    for (size_t i = 0; i < n; ++i) {
      ASSIGN_OR_RETURN(const bool same, equal_at(runtime, left.items()[i], right.items()[i], depth + 1));
      if (!same) {
        return order_at(runtime, op, left.items()[i], right.items()[i], depth + 1);
      }
    }
    return left.items().size() < right.items().size() ? -1 : left.items().size() > right.items().size() ? 1 : 0;
  }
  if (left.is(Kind::kUndefined)) {
    return undefined_error(left);
  }
  if (right.is(Kind::kUndefined)) {
    return undefined_error(right);
  }
  const std::string_view sign = op == CompareOp::kLess        ? "<"
                                : op == CompareOp::kLessEqual ? "<="
                                : op == CompareOp::kGreater   ? ">"
                                                              : ">=";
  return type_error(
      fmt::format("'{}' not supported between instances of '{}' and '{}'", sign, type_name(left), type_name(right)));
}

}  // namespace

Result<Value> binary(Runtime& runtime, BinaryOp op, const Value& left, const Value& right) {
  if (op == BinaryOp::kModulo && left.is(Kind::kString)) {
    return percent_format(runtime, left.text(), right);
  }
  if (left.is(Kind::kUndefined)) {
    return undefined_error(left);
  }
  if (right.is(Kind::kUndefined)) {
    return undefined_error(right);
  }
  const bool user = left.from_user() || right.from_user();
  if (left.is_integral() && right.is_integral()) {
    return integer_binary(op, left.as_int(), right.as_int(), user);
  }
  if (left.is_number() && right.is_number()) {
    return real_binary(op, left.as_real(), right.as_real(), user);
  }
  const bool left_sequence = left.is(Kind::kString) || left.is_sequence();
  const bool right_sequence = right.is(Kind::kString) || right.is_sequence();
  if (op == BinaryOp::kAdd && left_sequence) {
    if (left.kind() == right.kind()) {
      return concatenate(runtime, left, right);
    }
    return type_error(
        fmt::format("can only concatenate {} (not \"{}\") to {}", type_name(left), type_name(right), type_name(left)));
  }
  if (op == BinaryOp::kMultiply && left_sequence && right.is_integral()) {
    return repeat_value(runtime, left, right.as_int());
  }
  if (op == BinaryOp::kMultiply && right_sequence && left.is_integral()) {
    return repeat_value(runtime, right, left.as_int());
  }
  return unsupported_operands(op, left, right);
}

Result<Value> negate(const Value& value) {
  if (value.is(Kind::kFloat)) {
    return Value::real(-value.as_real(), value.from_user());
  }
  if (value.is_integral()) {
    int64_t result = 0;
    if (__builtin_sub_overflow(0, value.as_int(), &result)) {
      return overflow();
    }
    return Value::integer(result, value.from_user());
  }
  if (value.is(Kind::kUndefined)) {
    return undefined_error(value);
  }
  return type_error(fmt::format("bad operand type for unary -: '{}'", type_name(value)));
}

Result<bool> equal(Runtime& runtime, const Value& left, const Value& right) {
  return equal_at(runtime, left, right, 0);
}

Result<bool> less(Runtime& runtime, const Value& left, const Value& right) {
  return compare(runtime, CompareOp::kLess, left, right);
}

Result<bool> compare(Runtime& runtime, CompareOp op, const Value& left, const Value& right) {
  switch (op) {
    case CompareOp::kEqual: return equal(runtime, left, right);
    case CompareOp::kNotEqual: {
      ASSIGN_OR_RETURN(const bool same, equal(runtime, left, right));
      return !same;
    }
    case CompareOp::kIn: return contains(runtime, right, left);
    case CompareOp::kNotIn: {
      ASSIGN_OR_RETURN(const bool found, contains(runtime, right, left));
      return !found;
    }
    default: break;
  }
  ASSIGN_OR_RETURN(const int order, order_at(runtime, op, left, right, 0));
  switch (op) {
    case CompareOp::kLess: return order == -1;
    case CompareOp::kLessEqual: return order == -1 || order == 0;
    case CompareOp::kGreater: return order == 1;
    default: return order == 1 || order == 0;
  }
}

Result<std::vector<size_t>> sort_order(Runtime& runtime, const std::vector<Value>& keys, bool reverse) {
  // Merge sort by hand: a comparison can fail, and a comparator of std::sort cannot.
  std::vector<size_t> order(keys.size());
  for (size_t i = 0; i < keys.size(); ++i) {
    order[i] = i;
  }
  std::vector<size_t> merged(keys.size());
  for (size_t width = 1; width < keys.size(); width *= 2) {
    for (size_t begin = 0; begin < keys.size(); begin += 2 * width) {
      const size_t middle = std::min(begin + width, keys.size());
      const size_t end = std::min(begin + 2 * width, keys.size());
      size_t left = begin;
      size_t right = middle;
      for (size_t out = begin; out < end; ++out) {
        bool take_right = left == middle;
        if (!take_right && right < end) {
          // The right one goes first only when it is strictly before the left one, which keeps the sort stable.
          ASSIGN_OR_RETURN(take_right, reverse ? less(runtime, keys[order[left]], keys[order[right]])
                                               : less(runtime, keys[order[right]], keys[order[left]]));
        }
        merged[out] = take_right ? order[right++] : order[left++];
      }
    }
    order.swap(merged);
  }
  return order;
}

}  // namespace tessera::jinja
