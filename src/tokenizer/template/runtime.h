#pragma once
// Runtime: what one rendering may use, what it has used, and the services that library functions share.
//
// A template is hostile until proven otherwise. Every evaluation charges steps, every string and container charges
// bytes, every nesting charges depth; past a limit the rendering ends with kUnsupported and a message naming the limit.
// Bytes are counted when made and never given back, so they bound memory and copying alike.
// One Runtime serves one rendering on one thread.

#include <cstddef>
#include <ctime>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "tokenizer/template/value.h"

namespace tessera::jinja {

struct Limits {
  size_t max_steps = 50'000'000;               // a few seconds of the slowest steps
  size_t max_made_bytes = size_t{256} << 20U;  // strings and containers made while rendering
  size_t max_output_bytes = size_t{64} << 20U;
  size_t max_depth = 400;       // nested evaluation, as Python's recursion limit does for jinja2
  size_t max_range = 100'000;   // elements of range(), as jinja2's sandbox has it
  size_t max_containers = 100;  // containers within containers
};

struct RuntimeOptions {
  Limits limits;
  /// An attribute or item of an undefined value is undefined too (the reference server), not an error (jinja2).
  bool chain_undefined = false;
  /// list.append() and list.pop() work (the reference server) or are refused (jinja2's immutable sandbox).
  bool mutable_lists = false;
  /// What strftime_now() takes for the present; the clock when empty.
  std::optional<std::time_t> now;
};

class Runtime {
 public:
  explicit Runtime(const RuntimeOptions& options) : options_(options) {}
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  [[nodiscard]] const RuntimeOptions& options() const { return options_; }
  [[nodiscard]] const Limits& limits() const { return options_.limits; }

  Status charge_steps(size_t n);
  /// Charges `n` bytes about to be made, and the steps of writing them.
  Status charge_bytes(size_t n);
  /// Charges looking at `n` bytes or copying `n` small things.
  Status charge_scan(size_t n) { return charge_steps(n / 32 + 1); }

  Result<Value> string(Text text);
  Result<Value> string(std::string bytes, bool from_user = false) { return string(Text(std::move(bytes), from_user)); }
  Result<Value> list(std::vector<Value> items, bool from_user = false);
  Result<Value> tuple(std::vector<Value> items, bool from_user = false);
  Result<Value> view(std::string_view type_name, std::vector<Value> items, bool from_user);
  Result<Value> iterator(std::vector<Value> items, bool from_user = false);
  /// A dict of the given entries; later ones replace earlier ones with an equal key.
  Result<Value> dict(std::vector<std::pair<Value, Value>> entries, bool from_user = false);
  Result<Value> function(std::string_view name, std::string_view description, Function f, Value self);
  /// Keeps a mutable object until the end of the rendering, when what it holds is dropped (it may be part of a cycle).
  void keep(std::shared_ptr<Object> object) { kept_.push_back(std::move(object)); }

  /// All elements of an iterable, in order; an iterator is used up.
  Result<std::vector<Value>> elements(const Value& iterable);
  /// Number of elements as Python's len().
  Result<int64_t> length(const Value& value);

  /// Applies a filter or test by name.
  Result<Value> call_filter(std::string_view name, const Value& self, const CallArgs& args);
  Result<bool> call_test(std::string_view name, const Value& self, const CallArgs& args);

 private:
  Result<Value> sequence(Kind kind, std::vector<Value> items, bool from_user, std::string_view view_name);

  const RuntimeOptions& options_;
  size_t steps_ = 0;
  size_t made_bytes_ = 0;
  std::vector<std::shared_ptr<Object>> kept_;
};

/// kInvalidArgument with a formatted message: the template did something that Python refuses.
Status type_error(std::string message);
/// kUnsupported naming a limit.
Status limit_error(std::string_view what, size_t limit);

/// Arguments bound to parameter names as Python binds them.
class Bound {
 public:
  /// Errors: kInvalidArgument for too many, unknown, repeated or missing arguments.
  static Result<Bound> bind(std::string_view function, const CallArgs& args,
                            std::initializer_list<std::string_view> names, size_t n_required = 0);
  [[nodiscard]] bool has(size_t i) const { return i < values_.size() && values_[i].has_value(); }
  /// REQUIRES: has(i).
  [[nodiscard]] const Value& operator[](size_t i) const { return *values_[i]; }
  [[nodiscard]] bool flag(size_t i, bool missing) const { return has(i) ? is_true(*values_[i]) : missing; }
  /// Errors: kInvalidArgument when argument i is present and not an int.
  [[nodiscard]] Result<int64_t> integer(size_t i, int64_t missing) const;
  /// Errors: kInvalidArgument when argument i is not a str. REQUIRES: has(i).
  [[nodiscard]] Result<const Text*> text(size_t i) const;

 private:
  std::vector<std::optional<Value>> values_;
};

}  // namespace tessera::jinja
