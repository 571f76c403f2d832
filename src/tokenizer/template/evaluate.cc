// Expressions of the interpreter.

#include <algorithm>

#include "fmt/format.h"

#include "tokenizer/template/format.h"
#include "tokenizer/template/interpreter.h"
#include "tokenizer/template/library.h"

namespace tessera::jinja {

Result<Value> Interpreter::evaluate(const Expr& expr) {
  if (expr.kind == ExprKind::kConstant) {
    return expr.constant;
  }
  TRY(runtime_.charge_steps(1));
  if (depth_ >= runtime_.limits().max_depth) {
    return limit_error("levels of nested evaluation", runtime_.limits().max_depth);
  }
  ++depth_;
  Result<Value> value = evaluate_node(expr);
  --depth_;
  if (!value.ok() && !located_) {
    located_ = true;
    return value.status().with_context(fmt::format("template line {}", expr.line));
  }
  return value;
}

Result<Value> Interpreter::evaluate_node(const Expr& expr) {
  switch (expr.kind) {
    case ExprKind::kConstant: return expr.constant;
    case ExprKind::kName: return evaluate_name(expr);
    case ExprKind::kTuple:
    case ExprKind::kList:
    case ExprKind::kDict: return evaluate_literal(expr);
    case ExprKind::kAttribute: {
      ASSIGN_OR_RETURN(const Value object, evaluate(*expr.children[0]));
      return get_attribute(runtime_, object, expr.name);
    }
    case ExprKind::kItem: {
      ASSIGN_OR_RETURN(const Value object, evaluate(*expr.children[0]));
      ASSIGN_OR_RETURN(const Value key, evaluate(*expr.children[1]));
      return get_item(runtime_, object, key);
    }
    case ExprKind::kSlice: return evaluate_slice(expr);
    case ExprKind::kCall: return evaluate_call(expr, nullptr);
    case ExprKind::kFilter: return evaluate_filter(expr, nullptr);
    case ExprKind::kTest: {
      ASSIGN_OR_RETURN(const Value input, evaluate(*expr.children[0]));
      ASSIGN_OR_RETURN(const CallArgs args, evaluate_arguments(expr.arguments));
      ASSIGN_OR_RETURN(const bool result, runtime_.call_test(expr.name, input, args));
      return Value::boolean(result);
    }
    case ExprKind::kNot: {
      ASSIGN_OR_RETURN(const Value operand, evaluate(*expr.children[0]));
      return Value::boolean(!is_true(operand));
    }
    case ExprKind::kNegate: {
      ASSIGN_OR_RETURN(const Value operand, evaluate(*expr.children[0]));
      return negate(operand);
    }
    case ExprKind::kPlus: {
      ASSIGN_OR_RETURN(const Value operand, evaluate(*expr.children[0]));
      if (operand.is(Kind::kBool)) {
        return Value::integer(operand.as_int(), operand.from_user());
      }
      return operand.is_number() ? Result<Value>(operand)
                                 : type_error(fmt::format("bad operand type for unary +: '{}'", type_name(operand)));
    }
    case ExprKind::kArithmetic: return evaluate_arithmetic(expr);
    case ExprKind::kConcatenate: return evaluate_concatenation(expr);
    case ExprKind::kCompare: return evaluate_comparison(expr);
    case ExprKind::kAnd:
    case ExprKind::kOr: return evaluate_logic(expr);
    case ExprKind::kConditional: return evaluate_conditional(expr);
  }
  return Value();
}

Result<Value> Interpreter::evaluate_name(const Expr& expr) {
  const Value* found = scope_->find(expr.symbol);
  if (found != nullptr) {
    return *found;
  }
  const std::string& name = parsed_.symbols[expr.symbol];
  const Function function = find_global(name);
  if (function != nullptr) {
    return runtime_.function(name, fmt::format("<function {}>", name), function, Value());
  }
  TRY(runtime_.charge_bytes(sizeof(TextObject)));
  return Value::undefined(fmt::format("'{}' is undefined", name));
}

Result<Value> Interpreter::evaluate_literal(const Expr& expr) {
  std::vector<Value> values;
  values.reserve(expr.children.size());
  for (const ExprPtr& child : expr.children) {
    ASSIGN_OR_RETURN(Value value, evaluate(*child));
    values.push_back(std::move(value));
  }
  if (expr.kind != ExprKind::kDict) {
    return expr.kind == ExprKind::kList ? runtime_.list(std::move(values)) : runtime_.tuple(std::move(values));
  }
  std::vector<std::pair<Value, Value>> entries;
  for (size_t i = 0; i + 1 < values.size(); i += 2) {
    entries.emplace_back(std::move(values[i]), std::move(values[i + 1]));
  }
  return runtime_.dict(std::move(entries));
}

Result<Value> Interpreter::evaluate_slice(const Expr& expr) {
  ASSIGN_OR_RETURN(const Value object, evaluate(*expr.children[0]));
  Value bounds[3] = {Value::none(), Value::none(), Value::none()};
  for (size_t i = 0; i < 3; ++i) {
    if (expr.children[i + 1]) {
      ASSIGN_OR_RETURN(bounds[i], evaluate(*expr.children[i + 1]));
    }
  }
  return get_slice(runtime_, object, bounds[0], bounds[1], bounds[2]);
}

Result<Value> Interpreter::evaluate_arithmetic(const Expr& expr) {
  ASSIGN_OR_RETURN(Value result, evaluate(*expr.children[0]));
  for (size_t i = 0; i < expr.binary_ops.size(); ++i) {
    ASSIGN_OR_RETURN(const Value right, evaluate(*expr.children[i + 1]));
    ASSIGN_OR_RETURN(result, binary(runtime_, expr.binary_ops[i], result, right));
  }
  return result;
}

Result<Value> Interpreter::evaluate_concatenation(const Expr& expr) {
  Text text;
  for (const ExprPtr& child : expr.children) {
    ASSIGN_OR_RETURN(const Value part, evaluate(*child));
    TRY(append_str(runtime_, part, text));
  }
  return runtime_.string(std::move(text));
}

Result<Value> Interpreter::evaluate_comparison(const Expr& expr) {
  ASSIGN_OR_RETURN(Value left, evaluate(*expr.children[0]));
  for (size_t i = 0; i < expr.compare_ops.size(); ++i) {
    ASSIGN_OR_RETURN(Value right, evaluate(*expr.children[i + 1]));
    ASSIGN_OR_RETURN(const bool holds, compare(runtime_, expr.compare_ops[i], left, right));
    if (!holds) {
      return Value::boolean(false);
    }
    left = std::move(right);
  }
  return Value::boolean(true);
}

Result<Value> Interpreter::evaluate_logic(const Expr& expr) {
  const bool stop_at = expr.kind == ExprKind::kOr;
  Value value;
  for (const ExprPtr& child : expr.children) {
    ASSIGN_OR_RETURN(value, evaluate(*child));
    if (is_true(value) == stop_at) {
      break;
    }
  }
  return value;
}

Result<Value> Interpreter::evaluate_conditional(const Expr& expr) {
  ASSIGN_OR_RETURN(const Value condition, evaluate(*expr.children[0]));
  if (is_true(condition)) {
    return evaluate(*expr.children[1]);
  }
  if (expr.children[2]) {
    return evaluate(*expr.children[2]);
  }
  return Value::undefined(fmt::format(
      "the inline if-expression on line {} evaluated to false and no else section was defined.", expr.line));
}

Result<Value> Interpreter::evaluate_filter(const Expr& expr, const Value* input) {
  Value self;
  if (expr.children[0]) {
    ASSIGN_OR_RETURN(self, input != nullptr ? evaluate_filter(*expr.children[0], input) : evaluate(*expr.children[0]));
  } else if (input != nullptr) {
    self = *input;
  }
  ASSIGN_OR_RETURN(const CallArgs args, evaluate_arguments(expr.arguments));
  return runtime_.call_filter(expr.name, self, args);
}

Result<Value> Interpreter::evaluate_filters(const Expr& expr, const Value& input) {
  return evaluate_filter(expr, &input);
}

Result<CallArgs> Interpreter::evaluate_arguments(const Arguments& arguments) {
  CallArgs args;
  for (const ExprPtr& expr : arguments.positional) {
    ASSIGN_OR_RETURN(Value value, evaluate(*expr));
    args.positional.push_back(std::move(value));
  }
  for (const auto& [name, expr] : arguments.named) {
    ASSIGN_OR_RETURN(Value value, evaluate(*expr));
    args.named.emplace_back(name, std::move(value));
  }
  if (arguments.more_positional) {
    ASSIGN_OR_RETURN(const Value more, evaluate(*arguments.more_positional));
    ASSIGN_OR_RETURN(const std::vector<Value> items, runtime_.elements(more));
    args.positional.insert(args.positional.end(), items.begin(), items.end());
  }
  if (arguments.more_named) {
    ASSIGN_OR_RETURN(const Value more, evaluate(*arguments.more_named));
    if (!more.is(Kind::kDict)) {
      return type_error(fmt::format("argument after ** must be a mapping, not {}", type_name(more)));
    }
    for (const auto& [key, value] : more.dict().entries) {
      if (!key.is(Kind::kString)) {
        return type_error("keywords must be strings");
      }
      args.named.emplace_back(key.text().bytes(), value);
    }
  }
  return args;
}

Result<Value> Interpreter::evaluate_call(const Expr& expr, const Value* caller) {
  const Expr& target = *expr.children[0];
  Value callee;
  Value self;
  Function method = nullptr;
  if (target.kind == ExprKind::kAttribute) {  // a method is called without being made a value first
    ASSIGN_OR_RETURN(self, evaluate(*target.children[0]));
    method = find_method(self, target.name);
    if (method == nullptr) {
      ASSIGN_OR_RETURN(callee, get_attribute(runtime_, self, target.name));
    }
  } else {
    ASSIGN_OR_RETURN(callee, evaluate(target));
  }
  ASSIGN_OR_RETURN(CallArgs args, evaluate_arguments(expr.arguments));
  if (caller != nullptr) {
    args.named.emplace_back("caller", *caller);
  }
  return method != nullptr ? method(runtime_, self, args) : call(callee, std::move(args));
}

Result<Value> Interpreter::call(const Value& callee, CallArgs args) {
  switch (callee.kind()) {
    case Kind::kCallable: {
      const CallableObject& callable = callee.callable();
      return callable.function != nullptr ? callable.function(runtime_, callable.self, args)
                                          : call_macro(static_cast<const MacroObject&>(callable), std::move(args));
    }
    case Kind::kLoop: return call_loop(callee, args);
    case Kind::kUndefined: return type_error(callee.undefined_message());
    default: return type_error(fmt::format("'{}' object is not callable", type_name(callee)));
  }
}

}  // namespace tessera::jinja
