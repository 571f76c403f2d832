// Statements; expressions are in evaluate.cc.

#include "tokenizer/template/interpreter.h"

#include <algorithm>

#include "fmt/format.h"

#include "tokenizer/template/format.h"
#include "tokenizer/template/jinja.h"
#include "tokenizer/template/parser.h"

namespace tessera::jinja {
namespace {

constexpr Symbol kNoSymbol = UINT32_MAX;

Symbol find_symbol(const ParsedTemplate& parsed, std::string_view name) {
  const auto it = std::find(parsed.symbols.begin(), parsed.symbols.end(), name);
  return it == parsed.symbols.end() ? kNoSymbol : static_cast<Symbol>(it - parsed.symbols.begin());
}

}  // namespace

void Scope::drop(std::vector<Value>& out) {
  for (auto& variable : variables) {
    out.push_back(std::move(variable.second));
  }
  variables.clear();
}

const Value* Scope::find(Symbol symbol) const {
  for (const Scope* scope = this; scope != nullptr; scope = scope->parent.get()) {
    for (const auto& [name, value] : scope->variables) {
      if (name == symbol) {
        return &value;
      }
    }
  }
  return nullptr;
}

void Scope::set(Symbol symbol, Value value) {
  for (auto& [name, old] : variables) {
    if (name == symbol) {
      old = std::move(value);
      return;
    }
  }
  variables.emplace_back(symbol, std::move(value));
}

Interpreter::Interpreter(const ParsedTemplate& parsed, const RuntimeOptions& options)
    : parsed_(parsed),
      runtime_(options),
      scope_(std::make_shared<Scope>(nullptr)),
      loop_symbol_(find_symbol(parsed, "loop")),
      caller_symbol_(find_symbol(parsed, "caller")),
      varargs_symbol_(find_symbol(parsed, "varargs")),
      kwargs_symbol_(find_symbol(parsed, "kwargs")) {}

void Interpreter::define(std::string_view name, Value value) {
  const Symbol symbol = find_symbol(parsed_, name);
  if (symbol != kNoSymbol) {
    scope_->set(symbol, std::move(value));
  }
}

Result<Text> Interpreter::render() {
  Text output;
  output_ = &output;
  TRY(run(parsed_.body));
  return output;
}

Status Interpreter::run(const Block& block) {
  for (const auto& statement : block) {
    TRY(run_statement(*statement));
    if (flow_ != Flow::kNormal) {
      return {};
    }
  }
  return {};
}

Status Interpreter::run_statement(const Statement& statement) {
  TRY(runtime_.charge_steps(1));
  if (depth_ >= runtime_.limits().max_depth) {
    return limit_error("levels of nested evaluation", runtime_.limits().max_depth);
  }
  ++depth_;
  Status status;
  switch (statement.kind) {
    case StatementKind::kData:
      status = runtime_.charge_scan(statement.data.size());
      output_->append(statement.data, false);
      if (status.ok() && output_->size() > runtime_.limits().max_output_bytes) {
        status = limit_error("bytes of output", runtime_.limits().max_output_bytes);
      }
      break;
    case StatementKind::kOutput: status = run_output(statement); break;
    case StatementKind::kIf: status = run_if(statement); break;
    case StatementKind::kFor: status = run_for(statement); break;
    case StatementKind::kSet: {
      const Result<Value> value = evaluate(*statement.expressions[0]);
      status = value.ok() ? assign(statement.target, *value) : value.status();
      break;
    }
    case StatementKind::kSetBlock: status = run_set_block(statement); break;
    case StatementKind::kMacro: status = run_macro(statement); break;
    case StatementKind::kCallBlock: status = run_call_block(statement); break;
    case StatementKind::kFilterBlock: status = run_filter_block(statement); break;
    case StatementKind::kWith: status = run_with(statement); break;
    case StatementKind::kScope: status = run_in_scope(statement.bodies[0]); break;
    case StatementKind::kBreak: flow_ = Flow::kBreak; break;
    case StatementKind::kContinue: flow_ = Flow::kContinue; break;
  }
  --depth_;
  if (!status.ok() && !located_) {
    located_ = true;
    return status.with_context(fmt::format("template line {}", statement.line));
  }
  return status;
}

Status Interpreter::emit(const Value& value) {
  TRY(append_str(runtime_, value, *output_));
  if (output_->size() > runtime_.limits().max_output_bytes) {
    return limit_error("bytes of output", runtime_.limits().max_output_bytes);
  }
  return {};
}

Status Interpreter::emit_string(const Value& value) {
  if (!value.is(Kind::kString)) {
    return type_error(fmt::format("expected str instance, {} found", type_name(value)));
  }
  return emit(value);
}

Status Interpreter::run_output(const Statement& statement) {
  for (const ExprPtr& expression : statement.expressions) {
    ASSIGN_OR_RETURN(const Value value, evaluate(*expression));
    TRY(emit(value));
  }
  return {};
}

Status Interpreter::run_if(const Statement& statement) {
  for (size_t i = 0; i < statement.expressions.size(); ++i) {
    ASSIGN_OR_RETURN(const Value condition, evaluate(*statement.expressions[i]));
    if (is_true(condition)) {
      return run(statement.bodies[i]);
    }
  }
  return statement.bodies.size() > statement.expressions.size() ? run(statement.bodies.back()) : Status();
}

Result<std::vector<Value>> Interpreter::keep_matching(const Statement& statement, std::vector<Value> items) {
  std::vector<Value> kept;
  const std::shared_ptr<Scope> around = scope_;
  Status status;
  for (Value& item : items) {
    scope_ = std::make_shared<Scope>(around);
    status = runtime_.charge_steps(1);
    if (status.ok()) {
      status = assign(statement.target, item);
    }
    if (!status.ok()) {
      break;
    }
    const Result<Value> condition = evaluate(*statement.expressions[1]);
    if (!condition.ok()) {
      status = condition.status();
      break;
    }
    if (is_true(*condition)) {
      kept.push_back(std::move(item));
    }
  }
  scope_ = around;
  return status.ok() ? Result<std::vector<Value>>(std::move(kept)) : Result<std::vector<Value>>(status);
}

Status Interpreter::run_for(const Statement& statement) {
  ASSIGN_OR_RETURN(const Value iterable, evaluate(*statement.expressions[0]));
  ASSIGN_OR_RETURN(std::vector<Value> items, runtime_.elements(iterable));
  return run_loop(statement, std::move(items), 0);
}

Status Interpreter::run_loop(const Statement& statement, std::vector<Value> items, size_t depth0) {
  if (statement.expressions[1]) {
    ASSIGN_OR_RETURN(items, keep_matching(statement, std::move(items)));
  }
  if (items.empty()) {
    return run_in_scope(statement.bodies[1]);
  }
  auto loop = std::make_shared<LoopObject>();
  for (const Value& item : items) {
    loop->depth = std::max(loop->depth, item.depth() + 1);
  }
  loop->items = std::move(items);
  loop->depth0 = depth0;
  const std::shared_ptr<Scope> around = scope_;
  if (statement.recursive) {
    loop->recursive_for = &statement;
    loop->closure_scope = around;
    runtime_.keep(loop);
    runtime_.keep(around);
  }
  Status status;
  for (; loop->index0 < loop->items.size() && status.ok(); ++loop->index0) {
    scope_ = std::make_shared<Scope>(around);
    if (loop_symbol_ != kNoSymbol) {
      scope_->set(loop_symbol_, Value(Kind::kLoop, loop));
    }
    status = runtime_.charge_steps(1);
    if (status.ok()) {
      status = assign(statement.target, loop->items[loop->index0]);
    }
    if (status.ok()) {
      status = run(statement.bodies[0]);
    }
    if (std::exchange(flow_, Flow::kNormal) == Flow::kBreak) {
      break;
    }
  }
  scope_ = around;
  return status;
}

Status Interpreter::run_in_scope(const Block& block) {
  const std::shared_ptr<Scope> around = scope_;
  scope_ = std::make_shared<Scope>(around);
  Status status = run(block);
  scope_ = around;
  return status;
}

Result<Text> Interpreter::capture(const Block& block) {
  Text captured;
  Text* const around = std::exchange(output_, &captured);
  const Status status = run_in_scope(block);
  output_ = around;
  return status.ok() ? Result<Text>(std::move(captured)) : Result<Text>(status);
}

Status Interpreter::run_set_block(const Statement& statement) {
  ASSIGN_OR_RETURN(Text text, capture(statement.bodies[0]));
  if (flow_ != Flow::kNormal) {
    return {};
  }
  ASSIGN_OR_RETURN(Value value, runtime_.string(std::move(text)));
  if (statement.expressions[0]) {
    ASSIGN_OR_RETURN(value, evaluate_filters(*statement.expressions[0], value));
  }
  return assign(statement.target, value);
}

Status Interpreter::run_filter_block(const Statement& statement) {
  ASSIGN_OR_RETURN(Text text, capture(statement.bodies[0]));
  if (flow_ != Flow::kNormal) {
    return {};
  }
  ASSIGN_OR_RETURN(Value value, runtime_.string(std::move(text)));
  ASSIGN_OR_RETURN(value, evaluate_filters(*statement.expressions[0], value));
  return emit_string(value);
}

Result<Value> Interpreter::make_macro(const Statement& statement) {
  TRY(runtime_.charge_bytes(sizeof(MacroObject) + sizeof(Scope)));
  auto macro = std::make_shared<MacroObject>();
  macro->name = statement.macro.name;
  macro->description = fmt::format("<Macro '{}'>", macro->name);
  macro->statement = &statement;
  macro->closure = scope_;
  runtime_.keep(scope_);  // the macro is about to become one of its variables: a cycle
  return Value(Kind::kCallable, std::move(macro));
}

Status Interpreter::run_macro(const Statement& statement) {
  ASSIGN_OR_RETURN(Value macro, make_macro(statement));
  scope_->set(statement.macro.symbol, std::move(macro));
  return {};
}

Status Interpreter::run_call_block(const Statement& statement) {
  ASSIGN_OR_RETURN(const Value caller, make_macro(statement));
  ASSIGN_OR_RETURN(const Value result, evaluate_call(*statement.expressions[0], &caller));
  return emit_string(result);
}

Status Interpreter::run_with(const Statement& statement) {
  std::vector<Value> values;
  for (const ExprPtr& expression : statement.expressions) {
    ASSIGN_OR_RETURN(Value value, evaluate(*expression));
    values.push_back(std::move(value));
  }
  const std::shared_ptr<Scope> around = scope_;
  scope_ = std::make_shared<Scope>(around);
  Status status;
  for (size_t i = 0; i < values.size() && status.ok(); ++i) {
    status = assign(statement.targets[i], values[i]);
  }
  if (status.ok()) {
    status = run(statement.bodies[0]);
  }
  scope_ = around;
  return status;
}

Status Interpreter::assign(const Target& target, const Value& value) {
  switch (target.kind) {
    case Target::Kind::kName: scope_->set(target.symbol, value); return {};
    case Target::Kind::kAttribute: {
      const Value* object = scope_->find(target.symbol);
      if (object == nullptr || !object->is(Kind::kNamespace)) {
        return type_error("cannot assign attribute on non-namespace object");
      }
      TRY(runtime_.charge_bytes(target.attribute.size() + 2 * sizeof(Value)));
      ASSIGN_OR_RETURN(Value key, runtime_.string(target.attribute));
      object->dict().set(hash_key_of_text(target.attribute), std::move(key), value);
      return {};
    }
    case Target::Kind::kUnpack: break;
  }
  ASSIGN_OR_RETURN(const std::vector<Value> parts, runtime_.elements(value));
  if (parts.size() < target.parts.size()) {
    return type_error(
        fmt::format("not enough values to unpack (expected {}, got {})", target.parts.size(), parts.size()));
  }
  if (parts.size() > target.parts.size()) {
    return type_error(fmt::format("too many values to unpack (expected {})", target.parts.size()));
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    TRY(assign(target.parts[i], parts[i]));
  }
  return {};
}

Result<Value> Interpreter::call_macro(const MacroObject& macro, CallArgs args) {
  const Statement& statement = *macro.statement;
  Text output;
  Text* const output_around = std::exchange(output_, &output);
  const std::shared_ptr<Scope> scope_around = std::exchange(scope_, std::make_shared<Scope>(macro.closure));
  const Flow flow_around = std::exchange(flow_, Flow::kNormal);
  Status status = bind_parameters(statement, std::move(args), *scope_);
  if (status.ok()) {
    status = run(statement.bodies[0]);
  }
  output_ = output_around;
  scope_ = scope_around;
  flow_ = flow_around;
  return status.ok() ? runtime_.string(std::move(output)) : Result<Value>(status);
}

Status Interpreter::bind_parameters(const Statement& statement, CallArgs args, Scope& scope) {
  const MacroSignature& macro = statement.macro;
  const size_t n = macro.parameters.size();
  const size_t n_given = std::min(n, args.positional.size());
  for (size_t i = 0; i < n_given; ++i) {
    scope.set(macro.parameters[i], args.positional[i]);
  }
  const auto take_named = [&args](std::string_view name) -> std::optional<Value> {
    const auto it = std::find_if(args.named.begin(), args.named.end(), [&](const auto& a) { return a.first == name; });
    if (it == args.named.end()) {
      return std::nullopt;
    }
    std::optional<Value> value = std::move(it->second);
    args.named.erase(it);
    return value;
  };
  // Defaults are evaluated in order and see every argument given, but no later default.
  std::vector<size_t> without_value;
  for (size_t i = n_given; i < n; ++i) {
    const std::string& name = macro.parameter_names[i];
    std::optional<Value> value = take_named(name);
    if (!value.has_value()) {
      without_value.push_back(i);
      const bool has_default = i + macro.defaults.size() >= n;
      value = Value::undefined(has_default ? fmt::format("'{}' is undefined", name)
                                           : fmt::format("parameter '{}' was not provided", name));
    }
    scope.set(macro.parameters[i], *std::move(value));
  }
  for (const size_t i : without_value) {
    if (i + macro.defaults.size() >= n) {
      ASSIGN_OR_RETURN(Value value, evaluate(*macro.defaults[i + macro.defaults.size() - n]));
      scope.set(macro.parameters[i], std::move(value));
    }
  }
  if (macro.uses_caller) {
    std::optional<Value> caller = take_named("caller");
    scope.set(caller_symbol_, caller.has_value() ? *std::move(caller) : Value::undefined("No caller defined"));
  }
  if (macro.uses_kwargs) {
    std::vector<std::pair<Value, Value>> entries;
    for (auto& [name, value] : args.named) {
      ASSIGN_OR_RETURN(Value key, runtime_.string(name));
      entries.emplace_back(std::move(key), std::move(value));
    }
    ASSIGN_OR_RETURN(Value kwargs, runtime_.dict(std::move(entries)));
    scope.set(kwargs_symbol_, std::move(kwargs));
  } else if (!args.named.empty()) {
    return type_error(fmt::format("macro '{}' takes no keyword argument '{}'", macro.name, args.named[0].first));
  }
  if (macro.uses_varargs) {
    std::vector<Value> rest(args.positional.begin() + static_cast<std::ptrdiff_t>(n_given), args.positional.end());
    ASSIGN_OR_RETURN(Value varargs, runtime_.tuple(std::move(rest)));
    scope.set(varargs_symbol_, std::move(varargs));
  } else if (args.positional.size() > n) {
    return type_error(fmt::format("macro '{}' takes not more than {} argument(s)", macro.name, n));
  }
  return {};
}

Result<Value> Interpreter::call_loop(const Value& loop, const CallArgs& args) {
  const LoopObject& object = loop.loop();
  if (object.recursive_for == nullptr) {
    return type_error("The loop must have the 'recursive' marker to be called recursively.");
  }
  if (args.positional.size() != 1 || !args.named.empty()) {
    return type_error("a recursive loop takes one iterable");
  }
  ASSIGN_OR_RETURN(std::vector<Value> items, runtime_.elements(args.positional[0]));
  Text output;
  Text* const output_around = std::exchange(output_, &output);
  const std::shared_ptr<Scope> scope_around =
      std::exchange(scope_, std::static_pointer_cast<Scope>(object.closure_scope));
  const Status status =
      run_loop(*static_cast<const Statement*>(object.recursive_for), std::move(items), object.depth0 + 1);
  output_ = output_around;
  scope_ = scope_around;
  return status.ok() ? runtime_.string(std::move(output)) : Result<Value>(status);
}

Result<Template> Template::parse(std::string_view source) {
  ASSIGN_OR_RETURN(std::shared_ptr<const ParsedTemplate> parsed, parse_template(source));
  return Template(std::move(parsed));
}

Result<Text> Template::render(const std::function<Result<Variables>(Runtime&)>& bind,
                              const RuntimeOptions& options) const {
  Interpreter interpreter(*parsed_, options);
  ASSIGN_OR_RETURN(Variables variables, bind(interpreter.runtime()));
  for (auto& [name, value] : variables) {
    interpreter.define(name, std::move(value));
  }
  variables.clear();
  return interpreter.render();
}

}  // namespace tessera::jinja
