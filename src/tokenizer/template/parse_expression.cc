// Expressions: one function per precedence level, loosest first.

#include <algorithm>
#include <optional>

#include "fmt/format.h"

#include "tokenizer/template/parser_state.h"

namespace tessera::jinja {
namespace {

std::string describe(const Token& token) {
  switch (token.kind) {
    case TokenKind::kData: return "template data";
    case TokenKind::kVariableBegin: return "begin of print statement";
    case TokenKind::kVariableEnd: return "end of print statement";
    case TokenKind::kBlockBegin: return "begin of statement block";
    case TokenKind::kBlockEnd: return "end of statement block";
    case TokenKind::kEnd: return "end of template";
    default: return token.text;
  }
}

std::optional<CompareOp> compare_op(const Token& token) {
  static constexpr std::pair<std::string_view, CompareOp> kOps[] = {
      {"==", CompareOp::kEqual},     {"!=", CompareOp::kNotEqual}, {"<", CompareOp::kLess},
      {"<=", CompareOp::kLessEqual}, {">", CompareOp::kGreater},   {">=", CompareOp::kGreaterEqual}};
  for (const auto& [text, op] : kOps) {
    if (ParserState::is(token, TokenKind::kOperator, text)) {
      return op;
    }
  }
  return std::nullopt;
}

}  // namespace

Status ParserState::Nesting::check() const {
  // One pair of parentheses takes up to three levels of descent.
  return state_.depth_ > 3 * kMaxHeight ? state_.fail(fmt::format("nested deeper than the limit of {}", kMaxHeight))
                                        : Status();
}

Status ParserState::expect_operator(std::string_view op) {
  if (!skip_operator(op)) {
    return fail(fmt::format("expected token '{}', got '{}'", op, describe(current())));
  }
  return {};
}

Status ParserState::expect_name(std::string_view name) {
  if (!skip_name(name)) {
    return fail(fmt::format("expected token '{}', got '{}'", name, describe(current())));
  }
  return {};
}

Status ParserState::expect(TokenKind kind, std::string_view what) {
  if (current().kind != kind) {
    return fail(fmt::format("expected token '{}', got '{}'", what, describe(current())));
  }
  skip();
  return {};
}

Result<std::string> ParserState::expect_any_name() {
  const std::string name = current().text;
  TRY(expect(TokenKind::kName, "name"));
  return name;
}

Symbol ParserState::intern(const std::string& name) {
  const auto [it, added] = symbol_of_.emplace(name, static_cast<Symbol>(symbols_.size()));
  if (added) {
    symbols_.push_back(name);
  }
  return it->second;
}

ExprPtr ParserState::make(ExprKind kind) const {
  auto node = std::make_unique<Expr>();
  node->kind = kind;
  node->line = current().line;
  return node;
}

Result<ExprPtr> ParserState::finish(ExprPtr node) const {
  uint32_t height = 0;
  const auto include = [&](const ExprPtr& child) { height = std::max(height, child ? child->height : 0); };
  for (const ExprPtr& child : node->children) {
    include(child);
  }
  for (const ExprPtr& child : node->arguments.positional) {
    include(child);
  }
  for (const auto& named : node->arguments.named) {
    include(named.second);
  }
  include(node->arguments.more_positional);
  include(node->arguments.more_named);
  node->height = height + 1;
  if (node->height > kMaxHeight) {
    return fail(fmt::format("expression nested deeper than the limit of {}", kMaxHeight));
  }
  return node;
}

bool ParserState::at_tuple_end(std::string_view end_name) const {
  return current().kind == TokenKind::kVariableEnd || current().kind == TokenKind::kBlockEnd || at_operator(")") ||
         (!end_name.empty() && at_name(end_name));
}

Result<ExprPtr> ParserState::parse_expression(bool with_conditional) {
  const Nesting nesting(*this);
  TRY(nesting.check());
  return with_conditional ? parse_conditional() : parse_or();
}

Result<ExprPtr> ParserState::parse_tuple(const TupleRules& rules) {
  const Nesting nesting(*this);
  TRY(nesting.check());
  ExprPtr tuple = make(ExprKind::kTuple);
  bool is_tuple = false;
  while (true) {
    if (!tuple->children.empty()) {
      TRY(expect_operator(","));
    }
    if (at_tuple_end(rules.end_name)) {
      break;
    }
    ASSIGN_OR_RETURN(ExprPtr part, rules.simplified ? parse_primary() : parse_expression(rules.with_conditional));
    tuple->children.push_back(std::move(part));
    if (!at_operator(",")) {
      break;
    }
    is_tuple = true;
  }
  if (!is_tuple) {
    if (!tuple->children.empty()) {
      return std::move(tuple->children[0]);
    }
    if (!rules.explicit_parentheses) {
      return fail(fmt::format("Expected an expression, got '{}'", describe(current())));
    }
  }
  return finish(std::move(tuple));
}

Result<ExprPtr> ParserState::parse_conditional() {
  ASSIGN_OR_RETURN(ExprPtr result, parse_or());
  while (skip_name("if")) {
    ExprPtr node = make(ExprKind::kConditional);
    ASSIGN_OR_RETURN(ExprPtr condition, parse_or());
    ExprPtr otherwise;
    if (skip_name("else")) {
      ASSIGN_OR_RETURN(otherwise, parse_expression());
    }
    node->children.push_back(std::move(condition));
    node->children.push_back(std::move(result));
    node->children.push_back(std::move(otherwise));
    ASSIGN_OR_RETURN(result, finish(std::move(node)));
  }
  return result;
}

Result<ExprPtr> ParserState::parse_or() {
  ExprPtr node = make(ExprKind::kOr);
  do {
    ASSIGN_OR_RETURN(ExprPtr part, parse_and());
    node->children.push_back(std::move(part));
  } while (skip_name("or"));
  return node->children.size() == 1 ? std::move(node->children[0]) : finish(std::move(node));
}

Result<ExprPtr> ParserState::parse_and() {
  ExprPtr node = make(ExprKind::kAnd);
  do {
    ASSIGN_OR_RETURN(ExprPtr part, parse_not());
    node->children.push_back(std::move(part));
  } while (skip_name("and"));
  return node->children.size() == 1 ? std::move(node->children[0]) : finish(std::move(node));
}

Result<ExprPtr> ParserState::parse_not() {
  if (!at_name("not")) {
    return parse_compare();
  }
  const Nesting nesting(*this);
  TRY(nesting.check());
  ExprPtr node = make(ExprKind::kNot);
  skip();
  ASSIGN_OR_RETURN(ExprPtr operand, parse_not());
  node->children.push_back(std::move(operand));
  return finish(std::move(node));
}

Result<ExprPtr> ParserState::parse_compare() {
  ExprPtr node = make(ExprKind::kCompare);
  ASSIGN_OR_RETURN(ExprPtr first, parse_sum());
  node->children.push_back(std::move(first));
  while (true) {
    if (const auto op = compare_op(current()); op.has_value()) {
      node->compare_ops.push_back(*op);
      skip();
    } else if (skip_name("in")) {
      node->compare_ops.push_back(CompareOp::kIn);
    } else if (at_name("not") && is(look(), TokenKind::kName, "in")) {
      node->compare_ops.push_back(CompareOp::kNotIn);
      skip();
      skip();
    } else {
      break;
    }
    ASSIGN_OR_RETURN(ExprPtr next, parse_sum());
    node->children.push_back(std::move(next));
  }
  return node->compare_ops.empty() ? std::move(node->children[0]) : finish(std::move(node));
}

Result<ExprPtr> ParserState::parse_sum() {
  ExprPtr node = make(ExprKind::kArithmetic);
  ASSIGN_OR_RETURN(ExprPtr first, parse_concatenation());
  node->children.push_back(std::move(first));
  while (at_operator("+") || at_operator("-")) {
    node->binary_ops.push_back(at_operator("+") ? BinaryOp::kAdd : BinaryOp::kSubtract);
    skip();
    ASSIGN_OR_RETURN(ExprPtr next, parse_concatenation());
    node->children.push_back(std::move(next));
  }
  return node->binary_ops.empty() ? std::move(node->children[0]) : finish(std::move(node));
}

Result<ExprPtr> ParserState::parse_concatenation() {
  ExprPtr node = make(ExprKind::kConcatenate);
  do {
    ASSIGN_OR_RETURN(ExprPtr part, parse_product());
    node->children.push_back(std::move(part));
  } while (skip_operator("~"));
  return node->children.size() == 1 ? std::move(node->children[0]) : finish(std::move(node));
}

Result<ExprPtr> ParserState::parse_product() {
  static constexpr std::pair<std::string_view, BinaryOp> kOps[] = {
      {"*", BinaryOp::kMultiply}, {"/", BinaryOp::kDivide}, {"//", BinaryOp::kFloorDivide}, {"%", BinaryOp::kModulo}};
  ExprPtr node = make(ExprKind::kArithmetic);
  ASSIGN_OR_RETURN(ExprPtr first, parse_power());
  node->children.push_back(std::move(first));
  while (true) {
    const auto* op =
        std::find_if(std::begin(kOps), std::end(kOps), [this](const auto& entry) { return at_operator(entry.first); });
    if (op == std::end(kOps)) {
      break;
    }
    node->binary_ops.push_back(op->second);
    skip();
    ASSIGN_OR_RETURN(ExprPtr next, parse_power());
    node->children.push_back(std::move(next));
  }
  return node->binary_ops.empty() ? std::move(node->children[0]) : finish(std::move(node));
}

Result<ExprPtr> ParserState::parse_power() {
  // Left to right, unlike Python's own `**`: jinja2 does it so.
  ExprPtr node = make(ExprKind::kArithmetic);
  ASSIGN_OR_RETURN(ExprPtr first, parse_unary(true));
  node->children.push_back(std::move(first));
  while (skip_operator("**")) {
    node->binary_ops.push_back(BinaryOp::kPower);
    ASSIGN_OR_RETURN(ExprPtr next, parse_unary(true));
    node->children.push_back(std::move(next));
  }
  return node->binary_ops.empty() ? std::move(node->children[0]) : finish(std::move(node));
}

Result<ExprPtr> ParserState::parse_unary(bool with_filter) {
  const Nesting nesting(*this);
  TRY(nesting.check());
  ExprPtr node;
  if (at_operator("-") || at_operator("+")) {
    node = make(at_operator("-") ? ExprKind::kNegate : ExprKind::kPlus);
    skip();
    ASSIGN_OR_RETURN(ExprPtr operand, parse_unary(false));
    node->children.push_back(std::move(operand));
    ASSIGN_OR_RETURN(node, finish(std::move(node)));
  } else {
    ASSIGN_OR_RETURN(node, parse_primary());
  }
  ASSIGN_OR_RETURN(node, parse_postfix(std::move(node)));
  return with_filter ? parse_filter_chain(std::move(node)) : Result<ExprPtr>(std::move(node));
}

Result<ExprPtr> ParserState::parse_name() {
  const std::string& name = current().text;
  ExprPtr node = make(ExprKind::kConstant);
  if (name == "true" || name == "True" || name == "false" || name == "False") {
    node->constant = Value::boolean(name == "true" || name == "True");
  } else if (name == "none" || name == "None") {
    node->constant = Value::none();
  } else {
    node->kind = ExprKind::kName;
    node->symbol = intern(name);
    for (MacroSignature* macro : macros) {
      macro->uses_caller = macro->uses_caller || name == "caller";
      macro->uses_varargs = macro->uses_varargs || name == "varargs";
      macro->uses_kwargs = macro->uses_kwargs || name == "kwargs";
    }
  }
  skip();
  return node;
}

Result<ExprPtr> ParserState::parse_primary() {
  const Token& token = current();
  ExprPtr node = make(ExprKind::kConstant);
  switch (token.kind) {
    case TokenKind::kName: return parse_name();
    case TokenKind::kString: {
      std::string text;
      while (current().kind == TokenKind::kString) {
        text += current().text;
        skip();
      }
      node->constant = constant_text(std::move(text));
      return node;
    }
    case TokenKind::kInteger:
      node->constant = Value::integer(token.integer);
      skip();
      return node;
    case TokenKind::kFloat:
      node->constant = Value::real(token.real);
      skip();
      return node;
    default: break;
  }
  if (skip_operator("(")) {
    TupleRules rules;
    rules.explicit_parentheses = true;
    ASSIGN_OR_RETURN(node, parse_tuple(rules));
    TRY(expect_operator(")"));
    return node;
  }
  if (at_operator("[")) {
    return parse_list();
  }
  if (at_operator("{")) {
    return parse_dict();
  }
  return fail(fmt::format("unexpected '{}'", describe(token)));
}

Result<ExprPtr> ParserState::parse_list() {
  ExprPtr node = make(ExprKind::kList);
  TRY(expect_operator("["));
  while (!at_operator("]")) {
    if (!node->children.empty()) {
      TRY(expect_operator(","));
    }
    if (at_operator("]")) {
      break;
    }
    ASSIGN_OR_RETURN(ExprPtr item, parse_expression());
    node->children.push_back(std::move(item));
  }
  TRY(expect_operator("]"));
  return finish(std::move(node));
}

Result<ExprPtr> ParserState::parse_dict() {
  ExprPtr node = make(ExprKind::kDict);
  TRY(expect_operator("{"));
  while (!at_operator("}")) {
    if (!node->children.empty()) {
      TRY(expect_operator(","));
    }
    if (at_operator("}")) {
      break;
    }
    ASSIGN_OR_RETURN(ExprPtr key, parse_expression());
    TRY(expect_operator(":"));
    ASSIGN_OR_RETURN(ExprPtr value, parse_expression());
    node->children.push_back(std::move(key));
    node->children.push_back(std::move(value));
  }
  TRY(expect_operator("}"));
  return finish(std::move(node));
}

Result<Target> ParserState::to_target(const Expr& expr) const {
  Target target;
  if (expr.kind == ExprKind::kName) {
    target.symbol = expr.symbol;
    return target;
  }
  if (expr.kind == ExprKind::kTuple) {
    target.kind = Target::Kind::kUnpack;
    for (const ExprPtr& child : expr.children) {
      ASSIGN_OR_RETURN(Target part, to_target(*child));
      target.parts.push_back(std::move(part));
    }
    return target;
  }
  return fail("can't assign to an expression");
}

Result<Target> ParserState::parse_target(bool with_namespace, std::string_view end_name) {
  if (with_namespace && is(look(), TokenKind::kOperator, ".")) {
    Target target;
    target.kind = Target::Kind::kAttribute;
    ASSIGN_OR_RETURN(const std::string name, expect_any_name());
    target.symbol = intern(name);
    skip();
    ASSIGN_OR_RETURN(target.attribute, expect_any_name());
    return target;
  }
  TupleRules rules;
  rules.simplified = true;
  rules.end_name = end_name;
  ASSIGN_OR_RETURN(const ExprPtr expr, parse_tuple(rules));
  return to_target(*expr);
}

}  // namespace tessera::jinja
