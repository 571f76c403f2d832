#include "tokenizer/template/parser.h"

#include <algorithm>

#include "fmt/format.h"

#include "tokenizer/template/parser_state.h"

namespace tessera::jinja {
namespace {

using StatementPtr = std::unique_ptr<Statement>;
using EndNames = std::initializer_list<std::string_view>;

class StatementParser {
 public:
  explicit StatementParser(std::vector<Token> tokens) : state_(std::move(tokens)) {}

  Result<std::shared_ptr<const ParsedTemplate>> run() {
    auto parsed = std::make_shared<ParsedTemplate>();
    ASSIGN_OR_RETURN(parsed->body, parse_block({}));
    parsed->symbols = state_.take_symbols();
    return std::shared_ptr<const ParsedTemplate>(std::move(parsed));
  }

 private:
  StatementPtr make(StatementKind kind) const {
    auto statement = std::make_unique<Statement>();
    statement->kind = kind;
    statement->line = state_.current().line;
    return statement;
  }

  Result<StatementPtr> finish(StatementPtr statement) const {
    uint32_t height = 0;
    for (const Block& body : statement->bodies) {
      for (const StatementPtr& child : body) {
        height = std::max(height, child->height);
      }
    }
    statement->height = height + 1;
    if (statement->height > kMaxHeight) {
      return state_.fail(fmt::format("blocks nested deeper than the limit of {}", kMaxHeight));
    }
    return statement;
  }

  /// Statements up to a tag named in `ends` (left as the current token) or, when there are none, the template's end.
  Result<Block> parse_block(EndNames ends) {
    const ParserState::Nesting nesting(state_);
    TRY(nesting.check());
    Block block;
    while (state_.current().kind != TokenKind::kEnd) {
      if (state_.current().kind == TokenKind::kData) {
        StatementPtr data = make(StatementKind::kData);
        data->data = state_.current().text;
        state_.skip();
        block.push_back(std::move(data));
      } else if (state_.current().kind == TokenKind::kVariableBegin) {
        StatementPtr output = make(StatementKind::kOutput);
        state_.skip();
        ASSIGN_OR_RETURN(ExprPtr expression, state_.parse_tuple({}));
        output->expressions.push_back(std::move(expression));
        TRY(state_.expect(TokenKind::kVariableEnd, "end of print statement"));
        block.push_back(std::move(output));
      } else {
        TRY(state_.expect(TokenKind::kBlockBegin, "begin of statement block"));
        if (at_end_tag(ends)) {
          return block;
        }
        ASSIGN_OR_RETURN(StatementPtr statement, parse_statement());
        TRY(state_.expect(TokenKind::kBlockEnd, "end of statement block"));
        block.push_back(std::move(statement));
      }
    }
    if (ends.size() > 0) {
      return state_.fail(fmt::format("Unexpected end of template. Jinja was looking for the tag '{}'.", *ends.begin()));
    }
    return block;
  }

  [[nodiscard]] bool at_end_tag(EndNames ends) const {
    return std::any_of(ends.begin(), ends.end(), [this](std::string_view name) { return state_.at_name(name); });
  }

  /// The rest of a tag, then statements up to a tag named in `ends`, whose name becomes the current token.
  Result<Block> parse_body(EndNames ends) {
    state_.skip_operator(":");
    TRY(state_.expect(TokenKind::kBlockEnd, "end of statement block"));
    return parse_block(ends);
  }

  /// parse_body with one possible end, which is consumed.
  Status parse_only_body(Statement& statement, std::string_view end) {
    ASSIGN_OR_RETURN(Block body, parse_body({end}));
    statement.bodies.push_back(std::move(body));
    state_.skip();
    return {};
  }

  Result<StatementPtr> parse_statement() {
    if (state_.current().kind != TokenKind::kName) {
      return state_.fail("tag name expected");
    }
    using Method = Result<StatementPtr> (StatementParser::*)();
    static constexpr std::pair<std::string_view, Method> kTags[] = {
        {"if", &StatementParser::parse_if},
        {"for", &StatementParser::parse_for},
        {"set", &StatementParser::parse_set},
        {"macro", &StatementParser::parse_macro},
        {"call", &StatementParser::parse_call_block},
        {"filter", &StatementParser::parse_filter_block},
        {"with", &StatementParser::parse_with},
        {"print", &StatementParser::parse_print},
        {"generation", &StatementParser::parse_generation},
        {"autoescape", &StatementParser::parse_autoescape},
        {"break", &StatementParser::parse_loop_control},
        {"continue", &StatementParser::parse_loop_control},
    };
    for (const auto& [name, method] : kTags) {
      if (state_.at_name(name)) {
        return (this->*method)();
      }
    }
    return state_.fail(fmt::format("Encountered unknown tag '{}'.", state_.current().text));
  }

  Result<StatementPtr> parse_if() {
    StatementPtr statement = make(StatementKind::kIf);
    do {
      state_.skip();  // `if` or `elif`
      ParserState::TupleRules rules;
      rules.with_conditional = false;
      ASSIGN_OR_RETURN(ExprPtr condition, state_.parse_tuple(rules));
      statement->expressions.push_back(std::move(condition));
      ASSIGN_OR_RETURN(Block body, parse_body({"elif", "else", "endif"}));
      statement->bodies.push_back(std::move(body));
    } while (state_.at_name("elif"));
    if (state_.at_name("else")) {
      state_.skip();
      TRY(parse_only_body(*statement, "endif"));
    } else {
      state_.skip();
    }
    return finish(std::move(statement));
  }

  Result<StatementPtr> parse_for() {
    StatementPtr statement = make(StatementKind::kFor);
    state_.skip();
    ASSIGN_OR_RETURN(statement->target, state_.parse_target(false, "in"));
    TRY(state_.expect_name("in"));
    ParserState::TupleRules rules;
    rules.with_conditional = false;
    rules.end_name = "recursive";
    ASSIGN_OR_RETURN(ExprPtr iterable, state_.parse_tuple(rules));
    statement->expressions.push_back(std::move(iterable));
    ExprPtr condition;
    if (state_.skip_name("if")) {
      ASSIGN_OR_RETURN(condition, state_.parse_expression());
    }
    statement->expressions.push_back(std::move(condition));
    statement->recursive = state_.skip_name("recursive");
    ++state_.loops;
    ASSIGN_OR_RETURN(Block body, parse_body({"endfor", "else"}));
    --state_.loops;
    statement->bodies.push_back(std::move(body));
    const bool has_else = state_.at_name("else");
    state_.skip();
    if (has_else) {
      TRY(parse_only_body(*statement, "endfor"));
    } else {
      statement->bodies.emplace_back();
    }
    return finish(std::move(statement));
  }

  Result<StatementPtr> parse_set() {
    StatementPtr statement = make(StatementKind::kSet);
    state_.skip();
    ASSIGN_OR_RETURN(statement->target, state_.parse_target(true, {}));
    ExprPtr expression;
    if (state_.skip_operator("=")) {
      ASSIGN_OR_RETURN(expression, state_.parse_tuple({}));
      statement->expressions.push_back(std::move(expression));
      return finish(std::move(statement));
    }
    statement->kind = StatementKind::kSetBlock;
    ASSIGN_OR_RETURN(expression, state_.parse_filters(nullptr, false));
    statement->expressions.push_back(std::move(expression));
    TRY(parse_only_body(*statement, "endset"));
    return finish(std::move(statement));
  }

  Status parse_signature(MacroSignature& macro) {
    TRY(state_.expect_operator("("));
    while (!state_.at_operator(")")) {
      if (!macro.parameters.empty()) {
        TRY(state_.expect_operator(","));
      }
      ASSIGN_OR_RETURN(const std::string name, state_.expect_any_name());
      macro.parameters.push_back(state_.intern(name));
      macro.parameter_names.push_back(name);
      if (state_.skip_operator("=")) {
        ASSIGN_OR_RETURN(ExprPtr value, state_.parse_expression());
        macro.defaults.push_back(std::move(value));
      } else if (!macro.defaults.empty()) {
        return state_.fail("non-default argument follows default argument");
      }
    }
    return state_.expect_operator(")");
  }

  /// The body of a macro or call block: break cannot leave it, and it may use caller, varargs and kwargs.
  Status parse_macro_body(Statement& statement, std::string_view end) {
    const size_t loops_outside = std::exchange(state_.loops, 0);
    state_.macros.push_back(&statement.macro);
    TRY(parse_only_body(statement, end));
    state_.macros.pop_back();
    state_.loops = loops_outside;
    return {};
  }

  Result<StatementPtr> parse_macro() {
    StatementPtr statement = make(StatementKind::kMacro);
    state_.skip();
    ASSIGN_OR_RETURN(statement->macro.name, state_.expect_any_name());
    statement->macro.symbol = state_.intern(statement->macro.name);
    TRY(parse_signature(statement->macro));
    TRY(parse_macro_body(*statement, "endmacro"));
    return finish(std::move(statement));
  }

  Result<StatementPtr> parse_call_block() {
    StatementPtr statement = make(StatementKind::kCallBlock);
    state_.skip();
    statement->macro.name = "caller";
    statement->macro.symbol = state_.intern("caller");
    if (state_.at_operator("(")) {
      TRY(parse_signature(statement->macro));
    }
    ASSIGN_OR_RETURN(ExprPtr call, state_.parse_expression());
    if (call->kind != ExprKind::kCall) {
      return state_.fail("expected call");
    }
    statement->expressions.push_back(std::move(call));
    TRY(parse_macro_body(*statement, "endcall"));
    return finish(std::move(statement));
  }

  Result<StatementPtr> parse_filter_block() {
    StatementPtr statement = make(StatementKind::kFilterBlock);
    state_.skip();
    ASSIGN_OR_RETURN(ExprPtr filters, state_.parse_filters(nullptr, true));
    statement->expressions.push_back(std::move(filters));
    TRY(parse_only_body(*statement, "endfilter"));
    return finish(std::move(statement));
  }

  Result<StatementPtr> parse_with() {
    StatementPtr statement = make(StatementKind::kWith);
    state_.skip();
    while (state_.current().kind != TokenKind::kBlockEnd) {
      if (!statement->targets.empty()) {
        TRY(state_.expect_operator(","));
      }
      ASSIGN_OR_RETURN(Target target, state_.parse_target(false, {}));
      statement->targets.push_back(std::move(target));
      TRY(state_.expect_operator("="));
      ASSIGN_OR_RETURN(ExprPtr value, state_.parse_expression());
      statement->expressions.push_back(std::move(value));
    }
    TRY(parse_only_body(*statement, "endwith"));
    return finish(std::move(statement));
  }

  Result<StatementPtr> parse_print() {
    StatementPtr statement = make(StatementKind::kOutput);
    state_.skip();
    while (state_.current().kind != TokenKind::kBlockEnd) {
      if (!statement->expressions.empty()) {
        TRY(state_.expect_operator(","));
      }
      ASSIGN_OR_RETURN(ExprPtr expression, state_.parse_expression());
      statement->expressions.push_back(std::move(expression));
    }
    return finish(std::move(statement));
  }

  Result<StatementPtr> parse_generation() {
    StatementPtr statement = make(StatementKind::kScope);
    state_.skip();
    TRY(parse_only_body(*statement, "endgeneration"));
    return finish(std::move(statement));
  }

  /// Prompts are not HTML: the switch is read and has no effect.
  Result<StatementPtr> parse_autoescape() {
    StatementPtr statement = make(StatementKind::kScope);
    state_.skip();
    ASSIGN_OR_RETURN(const ExprPtr ignored, state_.parse_expression());
    TRY(parse_only_body(*statement, "endautoescape"));
    return finish(std::move(statement));
  }

  Result<StatementPtr> parse_loop_control() {
    StatementPtr statement = make(state_.at_name("break") ? StatementKind::kBreak : StatementKind::kContinue);
    if (state_.loops == 0) {
      return state_.fail(fmt::format("'{}' outside loop", state_.current().text));
    }
    state_.skip();
    return statement;
  }

  ParserState state_;
};

}  // namespace

Result<std::shared_ptr<const ParsedTemplate>> parse_template(std::string_view source) {
  ASSIGN_OR_RETURN(std::vector<Token> tokens, tokenize(source));
  return StatementParser(std::move(tokens)).run();
}

}  // namespace tessera::jinja
