#pragma once
// Interpreter: walks the tree of ast.h, with scopes as jinja2 has them.
//
// if and set work in the scope around them; for (each iteration), macro, call, filter, with, set and generation blocks
// open one. Macros and call blocks keep the scope they were made in. One Interpreter renders once, on one thread.

#include <memory>
#include <utility>
#include <vector>

#include "tokenizer/template/ast.h"
#include "tokenizer/template/runtime.h"

namespace tessera::jinja {

struct Scope : Object {
  explicit Scope(std::shared_ptr<Scope> around) : parent(std::move(around)) {}
  void drop(std::vector<Value>& out) override;
  [[nodiscard]] const Value* find(Symbol symbol) const;
  void set(Symbol symbol, Value value);

  std::shared_ptr<Scope> parent;
  std::vector<std::pair<Symbol, Value>> variables;
};

struct MacroObject : CallableObject {
  const Statement* statement = nullptr;
  std::shared_ptr<Scope> closure;
};

class Interpreter {
 public:
  Interpreter(const ParsedTemplate& parsed, const RuntimeOptions& options);

  Runtime& runtime() { return runtime_; }
  /// Defines a variable of the outermost scope; names the template never mentions are ignored.
  void define(std::string_view name, Value value);
  Result<Text> render();

 private:
  enum class Flow : uint8_t { kNormal, kBreak, kContinue };

  // Statements.
  Status run(const Block& block);
  Status run_statement(const Statement& statement);
  Status run_output(const Statement& statement);
  Status run_if(const Statement& statement);
  Status run_for(const Statement& statement);
  Status run_loop(const Statement& statement, std::vector<Value> items, size_t depth0);
  Status run_set_block(const Statement& statement);
  Status run_macro(const Statement& statement);
  Status run_call_block(const Statement& statement);
  Status run_filter_block(const Statement& statement);
  Status run_with(const Statement& statement);
  Status run_in_scope(const Block& block);
  /// Runs a block in a scope of its own with the output going to a text of its own.
  Result<Text> capture(const Block& block);
  Result<std::vector<Value>> keep_matching(const Statement& statement, std::vector<Value> items);
  Status assign(const Target& target, const Value& value);
  Status emit(const Value& value);
  Status emit_string(const Value& value);  // of filter and call blocks, whose result must be a str

  // Expressions.
  Result<Value> evaluate(const Expr& expr);
  Result<Value> evaluate_node(const Expr& expr);
  Result<Value> evaluate_name(const Expr& expr);
  Result<Value> evaluate_literal(const Expr& expr);
  Result<Value> evaluate_slice(const Expr& expr);
  Result<Value> evaluate_arithmetic(const Expr& expr);
  Result<Value> evaluate_concatenation(const Expr& expr);
  Result<Value> evaluate_comparison(const Expr& expr);
  Result<Value> evaluate_logic(const Expr& expr);
  Result<Value> evaluate_conditional(const Expr& expr);
  Result<Value> evaluate_filter(const Expr& expr, const Value* input);
  Result<Value> evaluate_filters(const Expr& expr, const Value& input);
  Result<Value> evaluate_call(const Expr& expr, const Value* caller);
  Result<CallArgs> evaluate_arguments(const Arguments& arguments);
  Result<Value> call(const Value& callee, CallArgs args);
  Result<Value> call_macro(const MacroObject& macro, CallArgs args);
  Status bind_parameters(const Statement& statement, CallArgs args, Scope& scope);
  Result<Value> call_loop(const Value& loop, const CallArgs& args);
  Result<Value> make_macro(const Statement& statement);

  const ParsedTemplate& parsed_;
  Runtime runtime_;
  std::shared_ptr<Scope> scope_;
  Text* output_ = nullptr;
  Flow flow_ = Flow::kNormal;
  size_t depth_ = 0;
  bool located_ = false;  // the failure under way already names its line
  Symbol loop_symbol_;
  Symbol caller_symbol_;
  Symbol varargs_symbol_;
  Symbol kwargs_symbol_;
};

}  // namespace tessera::jinja
