#pragma once
// The token cursor that the statement parser (parser.cc) and the expression parser (parse_expression.cc,
// parse_postfix.cc) share.

#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tokenizer/template/ast.h"
#include "tokenizer/template/lexer.h"

namespace tessera::jinja {

/// A constant text as an expression's value.
inline Value constant_text(std::string text) {
  return {Kind::kString, std::make_shared<TextObject>(Text(std::move(text), false))};
}

class ParserState {
 public:
  explicit ParserState(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  [[nodiscard]] const Token& current() const { return tokens_[next_]; }
  [[nodiscard]] const Token& look() const { return tokens_[std::min(next_ + 1, tokens_.size() - 1)]; }
  void skip() { next_ += next_ + 1 < tokens_.size() ? 1U : 0U; }
  [[nodiscard]] bool at_name(std::string_view name) const { return is(current(), TokenKind::kName, name); }
  [[nodiscard]] bool at_operator(std::string_view op) const { return is(current(), TokenKind::kOperator, op); }
  static bool is(const Token& token, TokenKind kind, std::string_view text) {
    return token.kind == kind && token.text == text;
  }
  bool skip_name(std::string_view name) { return at_name(name) && (skip(), true); }
  bool skip_operator(std::string_view op) { return at_operator(op) && (skip(), true); }
  Status expect_operator(std::string_view op);
  Status expect_name(std::string_view name);
  Status expect(TokenKind kind, std::string_view what);
  Result<std::string> expect_any_name();
  [[nodiscard]] Status fail(std::string_view message) const { return syntax_error(current().line, message); }

  Symbol intern(const std::string& name);
  std::vector<std::string> take_symbols() { return std::move(symbols_); }

  // Expressions.
  Result<ExprPtr> parse_expression(bool with_conditional = true);
  struct TupleRules {
    bool simplified = false;  // names and literals only
    bool with_conditional = true;
    bool explicit_parentheses = false;  // an empty tuple is fine
    std::string_view end_name;          // a name that ends the tuple
  };
  Result<ExprPtr> parse_tuple(const TupleRules& rules);
  /// `name(args)|name…` applied to `input` (may be null). `start_inline`: the first filter has no pipe before it.
  Result<ExprPtr> parse_filters(ExprPtr input, bool start_inline);
  Result<Target> parse_target(bool with_namespace, std::string_view end_name);

  /// Counts nesting of the recursive descent. `TRY(enter())` must be paired with leave() through a Nesting object.
  class Nesting {
   public:
    explicit Nesting(ParserState& state) : state_(state) { ++state_.depth_; }
    ~Nesting() { --state_.depth_; }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;
    [[nodiscard]] Status check() const;

   private:
    ParserState& state_;
  };

  std::vector<MacroSignature*> macros;  // macros and call blocks around the cursor
  size_t loops = 0;                     // loops around the cursor that break may leave

 private:
  Result<ExprPtr> parse_conditional();
  Result<ExprPtr> parse_or();
  Result<ExprPtr> parse_and();
  Result<ExprPtr> parse_not();
  Result<ExprPtr> parse_compare();
  Result<ExprPtr> parse_sum();
  Result<ExprPtr> parse_concatenation();
  Result<ExprPtr> parse_product();
  Result<ExprPtr> parse_power();
  Result<ExprPtr> parse_unary(bool with_filter);
  Result<ExprPtr> parse_primary();
  Result<ExprPtr> parse_name();
  Result<ExprPtr> parse_list();
  Result<ExprPtr> parse_dict();
  Result<ExprPtr> parse_postfix(ExprPtr node);
  Result<ExprPtr> parse_filter_chain(ExprPtr node);
  Result<ExprPtr> parse_subscript(ExprPtr object);
  Result<ExprPtr> parse_subscribed(ExprPtr object);
  Result<ExprPtr> parse_call(ExprPtr callee);
  Result<Arguments> parse_arguments();
  Result<ExprPtr> parse_test(ExprPtr input);
  Result<Target> to_target(const Expr& expr) const;

  [[nodiscard]] ExprPtr make(ExprKind kind) const;
  [[nodiscard]] Result<ExprPtr> finish(ExprPtr node) const;
  [[nodiscard]] bool at_tuple_end(std::string_view end_name) const;

  std::vector<Token> tokens_;
  size_t next_ = 0;
  size_t depth_ = 0;
  std::vector<std::string> symbols_;
  std::unordered_map<std::string, Symbol> symbol_of_;
};

}  // namespace tessera::jinja
