// The tests of the template language (`x is odd`).

#include <string>

#include "fmt/format.h"

#include "tokenizer/template/format.h"
#include "tokenizer/template/library.h"
#include "tokenizer/template/operators.h"

namespace tessera::jinja {
namespace {

/// A test without arguments that only looks at the value.
template <bool (*holds)(const Value&)>
Result<Value> simple(Runtime& /*runtime*/, const Value& self, const CallArgs& args) {
  TRY(Bound::bind("test", args, {}).status());
  return Value::boolean(holds(self));
}

bool is_defined(const Value& v) {
  return !v.is(Kind::kUndefined);
}
bool is_undefined(const Value& v) {
  return v.is(Kind::kUndefined);
}
bool is_none(const Value& v) {
  return v.is(Kind::kNone);
}
bool is_boolean(const Value& v) {
  return v.is(Kind::kBool);
}
bool is_the_false(const Value& v) {
  return v.is(Kind::kBool) && !v.as_bool();
}
bool is_the_true(const Value& v) {
  return v.is(Kind::kBool) && v.as_bool();
}
bool is_integer(const Value& v) {
  return v.is(Kind::kInt);
}
bool is_float(const Value& v) {
  return v.is(Kind::kFloat);
}
bool is_any_number(const Value& v) {
  return v.is_number();
}
bool is_string(const Value& v) {
  return v.is(Kind::kString);
}
bool is_mapping(const Value& v) {
  return v.is(Kind::kDict);
}
// An undefined value has the methods that raise its error, so jinja2 finds it callable, and a sequence too.
bool is_callable(const Value& v) {
  return v.is(Kind::kCallable) || v.is(Kind::kLoop) || v.is(Kind::kUndefined);
}
bool is_escaped(const Value& /*v*/) {
  return false;
}

bool is_sequence(const Value& v) {
  return v.is(Kind::kString) || v.is_sequence() || v.is(Kind::kDict) || v.is(Kind::kRange) || v.is(Kind::kUndefined);
}

bool is_iterable(const Value& v) {
  return is_sequence(v) || v.is(Kind::kView) || v.is(Kind::kIterator) || v.is(Kind::kLoop);
}

Result<Value> test_divisible(Runtime& runtime, const Value& self, const CallArgs& args) {
  ASSIGN_OR_RETURN(const Bound bound, Bound::bind("divisibleby", args, {"num"}, 1));
  ASSIGN_OR_RETURN(const Value remainder, binary(runtime, BinaryOp::kModulo, self, bound[0]));
  ASSIGN_OR_RETURN(const bool zero, equal(runtime, remainder, Value::integer(0)));
  return Value::boolean(zero);
}

template <int64_t remainder_wanted>
Result<Value> test_parity(Runtime& runtime, const Value& self, const CallArgs& args) {
  TRY(Bound::bind("test", args, {}).status());
  ASSIGN_OR_RETURN(const Value remainder, binary(runtime, BinaryOp::kModulo, self, Value::integer(2)));
  ASSIGN_OR_RETURN(const bool same, equal(runtime, remainder, Value::integer(remainder_wanted)));
  return Value::boolean(same);
}

template <CompareOp op>
Result<Value> test_compare(Runtime& runtime, const Value& self, const CallArgs& args) {
  ASSIGN_OR_RETURN(const Bound bound, Bound::bind("test", args, {"other"}, 1));
  ASSIGN_OR_RETURN(const bool holds, compare(runtime, op, self, bound[0]));
  return Value::boolean(holds);
}

Result<Value> test_same_as(Runtime& runtime, const Value& self, const CallArgs& args) {
  ASSIGN_OR_RETURN(const Bound bound, Bound::bind("sameas", args, {"other"}, 1));
  const Value& other = bound[0];
  if (self.kind() != other.kind()) {
    return Value::boolean(false);
  }
  // Identity of small values is Python's own affair; equal ones count as the same.
  if (self.is(Kind::kNone) || self.is_number() || self.is(Kind::kString)) {
    ASSIGN_OR_RETURN(const bool same, equal(runtime, self, other));
    return Value::boolean(same);
  }
  return Value::boolean(self.object() == other.object());
}

template <const char* method_name>
Result<Value> test_case(Runtime& runtime, const Value& self, const CallArgs& args) {
  ASSIGN_OR_RETURN(Text text, to_text(runtime, self));
  ASSIGN_OR_RETURN(const Value as_string, runtime.string(std::move(text)));
  return find_method(as_string, method_name)(runtime, as_string, args);
}

constexpr char kIsLower[] = "islower";
constexpr char kIsUpper[] = "isupper";

template <Function (*find)(std::string_view)>
Result<Value> test_exists(Runtime& /*runtime*/, const Value& self, const CallArgs& args) {
  TRY(Bound::bind("test", args, {}).status());
  TRY(hash_key(self).status());
  return Value::boolean(self.is(Kind::kString) && find(self.text().view()) != nullptr);
}

}  // namespace

const LibraryEntry kTests[] = {
    {"!=", test_compare<CompareOp::kNotEqual>},
    {"<", test_compare<CompareOp::kLess>},
    {"<=", test_compare<CompareOp::kLessEqual>},
    {"==", test_compare<CompareOp::kEqual>},
    {">", test_compare<CompareOp::kGreater>},
    {">=", test_compare<CompareOp::kGreaterEqual>},
    {"boolean", simple<is_boolean>},
    {"callable", simple<is_callable>},
    {"defined", simple<is_defined>},
    {"divisibleby", test_divisible},
    {"eq", test_compare<CompareOp::kEqual>},
    {"equalto", test_compare<CompareOp::kEqual>},
    {"escaped", simple<is_escaped>},
    {"even", test_parity<0>},
    {"false", simple<is_the_false>},
    {"filter", test_exists<find_filter>},
    {"float", simple<is_float>},
    {"ge", test_compare<CompareOp::kGreaterEqual>},
    {"greaterthan", test_compare<CompareOp::kGreater>},
    {"gt", test_compare<CompareOp::kGreater>},
    {"in", test_compare<CompareOp::kIn>},
    {"integer", simple<is_integer>},
    {"iterable", simple<is_iterable>},
    {"le", test_compare<CompareOp::kLessEqual>},
    {"lessthan", test_compare<CompareOp::kLess>},
    {"lower", test_case<kIsLower>},
    {"lt", test_compare<CompareOp::kLess>},
    {"mapping", simple<is_mapping>},
    {"ne", test_compare<CompareOp::kNotEqual>},
    {"none", simple<is_none>},
    {"number", simple<is_any_number>},
    {"odd", test_parity<1>},
    {"sameas", test_same_as},
    {"sequence", simple<is_sequence>},
    {"string", simple<is_string>},
    {"test", test_exists<find_test>},
    {"true", simple<is_the_true>},
    {"undefined", simple<is_undefined>},
    {"upper", test_case<kIsUpper>},
    {"", nullptr},
};

}  // namespace tessera::jinja
