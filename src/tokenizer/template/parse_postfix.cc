// What follows an operand: subscripts, calls, filters and tests.

#include "tokenizer/template/parser_state.h"

namespace tessera::jinja {

Result<ExprPtr> ParserState::parse_postfix(ExprPtr node) {
  while (true) {
    if (at_operator(".") || at_operator("[")) {
      ASSIGN_OR_RETURN(node, parse_subscript(std::move(node)));
    } else if (at_operator("(")) {
      ASSIGN_OR_RETURN(node, parse_call(std::move(node)));
    } else {
      return node;
    }
  }
}

Result<ExprPtr> ParserState::parse_filter_chain(ExprPtr node) {
  while (true) {
    if (at_operator("|")) {
      ASSIGN_OR_RETURN(node, parse_filters(std::move(node), false));
    } else if (at_name("is")) {
      ASSIGN_OR_RETURN(node, parse_test(std::move(node)));
    } else if (at_operator("(")) {
      ASSIGN_OR_RETURN(node, parse_call(std::move(node)));
    } else {
      return node;
    }
  }
}

Result<ExprPtr> ParserState::parse_subscript(ExprPtr object) {
  if (skip_operator(".")) {
    ExprPtr node = make(current().kind == TokenKind::kName ? ExprKind::kAttribute : ExprKind::kItem);
    node->children.push_back(std::move(object));
    if (current().kind == TokenKind::kName) {
      node->name = current().text;
      node->constant = constant_text(node->name);
    } else if (current().kind == TokenKind::kInteger) {
      ExprPtr key = make(ExprKind::kConstant);
      key->constant = Value::integer(current().integer);
      node->children.push_back(std::move(key));
    } else {
      return fail("expected name or number");
    }
    skip();
    return finish(std::move(node));
  }
  TRY(expect_operator("["));
  ASSIGN_OR_RETURN(ExprPtr node, parse_subscribed(std::move(object)));
  TRY(expect_operator("]"));
  return node;
}

Result<ExprPtr> ParserState::parse_subscribed(ExprPtr object) {
  ExprPtr node = make(ExprKind::kItem);
  node->children.push_back(std::move(object));
  ExprPtr first;
  if (!at_operator(":")) {
    TupleRules rules;
    rules.explicit_parentheses = true;
    ASSIGN_OR_RETURN(first, parse_expression());
    if (at_operator(",")) {  // x[1, 2]: a tuple as the key
      ExprPtr tuple = make(ExprKind::kTuple);
      tuple->children.push_back(std::move(first));
      while (skip_operator(",")) {
        ASSIGN_OR_RETURN(ExprPtr part, parse_expression());
        tuple->children.push_back(std::move(part));
      }
      ASSIGN_OR_RETURN(first, finish(std::move(tuple)));
    }
    if (!at_operator(":")) {
      node->children.push_back(std::move(first));
      return finish(std::move(node));
    }
  }
  skip();
  node->kind = ExprKind::kSlice;
  node->children.push_back(std::move(first));
  ExprPtr stop;
  if (!at_operator(":") && !at_operator("]")) {
    ASSIGN_OR_RETURN(stop, parse_expression());
  }
  node->children.push_back(std::move(stop));
  ExprPtr step;
  if (skip_operator(":") && !at_operator("]")) {
    ASSIGN_OR_RETURN(step, parse_expression());
  }
  node->children.push_back(std::move(step));
  return finish(std::move(node));
}

Result<Arguments> ParserState::parse_arguments() {
  const Status invalid = fail("invalid syntax for function call expression");
  Arguments arguments;
  TRY(expect_operator("("));
  bool first = true;
  while (!at_operator(")")) {
    if (!first) {
      TRY(expect_operator(","));
      if (at_operator(")")) {
        break;
      }
    }
    first = false;
    const bool after_more = arguments.more_positional || arguments.more_named;
    if (skip_operator("*")) {
      if (after_more) {
        return invalid;
      }
      ASSIGN_OR_RETURN(arguments.more_positional, parse_expression());
    } else if (skip_operator("**")) {
      if (arguments.more_named) {
        return invalid;
      }
      ASSIGN_OR_RETURN(arguments.more_named, parse_expression());
    } else if (current().kind == TokenKind::kName && is(look(), TokenKind::kOperator, "=")) {
      if (arguments.more_named) {
        return invalid;
      }
      std::string name = current().text;
      skip();
      skip();
      ASSIGN_OR_RETURN(ExprPtr value, parse_expression());
      arguments.named.emplace_back(std::move(name), std::move(value));
    } else {
      if (after_more || !arguments.named.empty()) {
        return invalid;
      }
      ASSIGN_OR_RETURN(ExprPtr value, parse_expression());
      arguments.positional.push_back(std::move(value));
    }
  }
  TRY(expect_operator(")"));
  return arguments;
}

Result<ExprPtr> ParserState::parse_call(ExprPtr callee) {
  ExprPtr node = make(ExprKind::kCall);
  node->children.push_back(std::move(callee));
  ASSIGN_OR_RETURN(node->arguments, parse_arguments());
  return finish(std::move(node));
}

Result<ExprPtr> ParserState::parse_filters(ExprPtr input, bool start_inline) {
  while (start_inline || skip_operator("|")) {
    start_inline = false;
    ExprPtr node = make(ExprKind::kFilter);
    ASSIGN_OR_RETURN(node->name, expect_any_name());
    while (skip_operator(".")) {
      ASSIGN_OR_RETURN(const std::string part, expect_any_name());
      node->name += "." + part;
    }
    if (at_operator("(")) {
      ASSIGN_OR_RETURN(node->arguments, parse_arguments());
    }
    node->children.push_back(std::move(input));
    ASSIGN_OR_RETURN(input, finish(std::move(node)));
  }
  return input;
}

Result<ExprPtr> ParserState::parse_test(ExprPtr input) {
  ExprPtr node = make(ExprKind::kTest);
  TRY(expect_name("is"));
  const bool negated = skip_name("not");
  ASSIGN_OR_RETURN(node->name, expect_any_name());
  while (skip_operator(".")) {
    ASSIGN_OR_RETURN(const std::string part, expect_any_name());
    node->name += "." + part;
  }
  const TokenKind kind = current().kind;
  const bool starts_value = kind == TokenKind::kName || kind == TokenKind::kString || kind == TokenKind::kInteger ||
                            kind == TokenKind::kFloat || at_operator("[") || at_operator("{");
  if (at_operator("(")) {
    ASSIGN_OR_RETURN(node->arguments, parse_arguments());
  } else if (starts_value && !at_name("else") && !at_name("or") && !at_name("and")) {
    if (at_name("is")) {
      return fail("You cannot chain multiple tests with is");
    }
    ASSIGN_OR_RETURN(ExprPtr argument, parse_primary());
    ASSIGN_OR_RETURN(argument, parse_postfix(std::move(argument)));
    node->arguments.positional.push_back(std::move(argument));
  }
  node->children.push_back(std::move(input));
  ASSIGN_OR_RETURN(node, finish(std::move(node)));
  if (!negated) {
    return node;
  }
  ExprPtr negation = make(ExprKind::kNot);
  negation->children.push_back(std::move(node));
  return finish(std::move(negation));
}

}  // namespace tessera::jinja
