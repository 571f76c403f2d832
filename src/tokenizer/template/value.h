#pragma once
// Values of the template language, which are Python's: none, bool, int, float, str, list, tuple, dict and a few
// objects.
//
// Every value has an origin: made by the template, or taken from the request ("from user"). A string has one per byte
// (text.h); for other values it is the origin of the characters they print as. Containers are shared and, but for
// namespaces (and lists where the runtime allows it), immutable. Immutable containers know their nesting depth, which
// is bounded, so that printing, comparing and destroying them never overflows the stack.
// Not thread-safe: the values of one rendering belong to one thread, constants of the parsed template are only read.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/status.h"
#include "tokenizer/template/text.h"

namespace tessera::jinja {

class Runtime;
struct CallArgs;

enum class Kind : uint8_t {
  kUndefined,
  kNone,
  kBool,
  kInt,
  kFloat,
  kString,
  kList,
  kTuple,
  kDict,
  kRange,
  kView,      // what dict.items(), .keys() and .values() give: has a length, no index
  kIterator,  // what filters like select give: can be walked once
  kNamespace,
  kLoop,
  kCallable,
};

class Value;

/// Base of everything that lives behind a shared pointer.
struct Object {
  Object() = default;
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  virtual ~Object() = default;
  /// Moves what a mutable object holds into `out`: ends cycles, and keeps destruction from recursing through them.
  virtual void drop(std::vector<Value>& /*out*/) {}
  uint32_t depth = 1;  // 1 + the deepest immutable container inside
};

struct TextObject;
struct ListObject;
struct DictObject;
struct RangeObject;
struct IteratorObject;
struct LoopObject;
struct CallableObject;

class Value {
 public:
  Value() = default;  // undefined
  static Value undefined(std::string message);
  static Value none(bool from_user = false) { return {Kind::kNone, from_user}; }
  static Value boolean(bool b, bool from_user = false);
  static Value integer(int64_t i, bool from_user = false);
  static Value real(double d, bool from_user = false);
  /// An object of the given kind. REQUIRES: `object` has the type that belongs to `kind`.
  Value(Kind kind, std::shared_ptr<Object> object, bool from_user = false)
      : kind_(kind), from_user_(from_user), object_(std::move(object)) {}

  [[nodiscard]] Kind kind() const { return kind_; }
  [[nodiscard]] bool is(Kind kind) const { return kind_ == kind; }
  [[nodiscard]] bool is_number() const { return is(Kind::kBool) || is(Kind::kInt) || is(Kind::kFloat); }
  /// int or bool, as Python's int type includes bool.
  [[nodiscard]] bool is_integral() const { return is(Kind::kBool) || is(Kind::kInt); }
  [[nodiscard]] bool is_sequence() const { return is(Kind::kList) || is(Kind::kTuple); }
  /// Origin of the characters this prints as; for a string: whether any byte is the request's.
  [[nodiscard]] bool from_user() const;

  /// REQUIRES: is_integral().
  [[nodiscard]] int64_t as_int() const { return kind_ == Kind::kBool ? static_cast<int64_t>(bool_) : int_; }
  /// REQUIRES: is_number().
  [[nodiscard]] double as_real() const { return kind_ == Kind::kFloat ? real_ : static_cast<double>(as_int()); }
  /// REQUIRES: is(Kind::kBool).
  [[nodiscard]] bool as_bool() const { return bool_; }
  /// REQUIRES: is(Kind::kString).
  [[nodiscard]] const Text& text() const;
  /// REQUIRES: kList, kTuple or kView.
  [[nodiscard]] const std::vector<Value>& items() const;
  [[nodiscard]] ListObject& list() const;
  /// REQUIRES: kDict or kNamespace.
  [[nodiscard]] DictObject& dict() const;
  [[nodiscard]] RangeObject& range() const;
  [[nodiscard]] IteratorObject& iterator() const;
  [[nodiscard]] LoopObject& loop() const;
  [[nodiscard]] CallableObject& callable() const;
  /// REQUIRES: is(Kind::kUndefined). Why it is undefined.
  [[nodiscard]] std::string undefined_message() const;

  [[nodiscard]] const std::shared_ptr<Object>& object() const { return object_; }
  [[nodiscard]] uint32_t depth() const;

 private:
  Value(Kind kind, bool from_user) : kind_(kind), from_user_(from_user) {}

  Kind kind_ = Kind::kUndefined;
  bool from_user_ = false;
  union {
    bool bool_;
    int64_t int_ = 0;
    double real_;
  };
  std::shared_ptr<Object> object_;
};

struct TextObject : Object {
  explicit TextObject(Text t) : text(std::move(t)) {}
  Text text;
};

struct ListObject : Object {
  void drop(std::vector<Value>& out) override;
  std::vector<Value> items;
  std::string_view view_name;  // kView: the Python type's name
};

/// An insertion-ordered dict.
struct DictObject : Object {
  void drop(std::vector<Value>& out) override;
  std::vector<std::pair<Value, Value>> entries;
  std::unordered_map<std::string, size_t> index;  // hash_key(key) → position in entries

  [[nodiscard]] const Value* find(const std::string& key_id) const;
  [[nodiscard]] const Value* find_text(std::string_view key) const;
  void set(std::string key_id, Value key, Value value);
};

struct RangeObject : Object {
  int64_t start = 0;
  int64_t stop = 0;
  int64_t step = 1;
  [[nodiscard]] int64_t size() const;
  [[nodiscard]] Value at(int64_t i) const { return Value::integer(start + i * step); }
};

struct IteratorObject : Object {
  std::vector<Value> items;
  size_t next = 0;
};

/// The variable `loop`.
struct LoopObject : Object {
  void drop(std::vector<Value>& out) override;
  std::vector<Value> items;
  size_t index0 = 0;
  size_t depth0 = 0;
  std::vector<Value> last_changed;  // arguments of the last loop.changed()
  bool has_changed = false;
  const void* recursive_for = nullptr;    // the ForStatement, when it is recursive
  std::shared_ptr<Object> closure_scope;  // the scope around a recursive loop
};

/// A function of the library with an optional bound first argument, or (defined by the interpreter) a macro.
using Function = Result<Value> (*)(Runtime& runtime, const Value& self, const CallArgs& args);
struct CallableObject : Object {
  std::string name;
  std::string description;  // what it prints as
  Function function = nullptr;
  Value self;
};

/// Arguments of a call, filter or test.
struct CallArgs {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

/// The Python name of the value's type, for messages: "str", "NoneType", …
std::string_view type_name(const Value& value);
/// Python's truth of a value.
bool is_true(const Value& value);
/// A string that is equal for two keys exactly when Python's dict takes them for one (1, 1.0 and true are one).
/// Errors: kInvalidArgument "unhashable type".
Result<std::string> hash_key(const Value& value);
/// The key_id of a string key.
std::string hash_key_of_text(std::string_view text);

}  // namespace tessera::jinja
