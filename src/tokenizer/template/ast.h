#pragma once
// The parsed template: expressions and statements, immutable once parsed.
//
// Height is bounded by the parser (kMaxHeight), so evaluating or destroying a tree never overflows the stack: chains of
// operators, elifs and statements are lists, only real nesting makes height.

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tokenizer/template/operators.h"
#include "tokenizer/template/value.h"

namespace tessera::jinja {

constexpr uint32_t kMaxHeight =
    100;  // real templates stay below 30; Python refuses 20 nested loops and 100 parentheses

using Symbol = uint32_t;  // index into ParsedTemplate::symbols

enum class ExprKind : uint8_t {
  kConstant,
  kName,
  kTuple,
  kList,
  kDict,       // children: key, value, key, value, …
  kAttribute,  // children: object; name
  kItem,       // children: object, key
  kSlice,      // children: object, start, stop, step (null when missing)
  kCall,       // children: callee, then arguments as in `arguments`
  kFilter,     // children: input (null inside a filter block); name
  kTest,       // children: input; name
  kNot,
  kNegate,
  kPlus,
  kArithmetic,   // children: first, then one per entry of binary_ops
  kConcatenate,  // children: all parts of a ~ b ~ c
  kCompare,      // children: first, then one per entry of compare_ops
  kAnd,          // children: all parts of a and b and c
  kOr,
  kConditional,  // children: condition, then, else (null when missing)
};

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

struct Arguments {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> named;
  ExprPtr more_positional;  // *args
  ExprPtr more_named;       // **kwargs
};

struct Expr {
  ExprKind kind = ExprKind::kConstant;
  uint32_t line = 0;
  uint32_t height = 1;
  Symbol symbol = 0;  // kName
  Value constant;     // kConstant; the key of kAttribute
  std::string name;   // kAttribute, kFilter, kTest
  std::vector<ExprPtr> children;
  std::vector<BinaryOp> binary_ops;
  std::vector<CompareOp> compare_ops;
  Arguments arguments;
};

/// Where a value is stored: a name, `namespace.attribute`, or a list of targets to unpack into.
struct Target {
  enum class Kind : uint8_t { kName, kAttribute, kUnpack } kind = Kind::kName;
  Symbol symbol = 0;
  std::string attribute;
  std::vector<Target> parts;
};

struct Statement;
using Block = std::vector<std::unique_ptr<Statement>>;

enum class StatementKind : uint8_t {
  kData,         // data
  kOutput,       // expressions: all printed in order
  kIf,           // expressions[i] guards bodies[i]; one more body is the else
  kFor,          // target in expressions[0] if expressions[1] (may be null); bodies: loop, else
  kSet,          // target = expressions[0]
  kSetBlock,     // target = bodies[0] rendered, through the filters of expressions[0] (may be null)
  kMacro,        // macro; bodies[0]
  kCallBlock,    // expressions[0] is the call; macro describes caller(); bodies[0]
  kFilterBlock,  // bodies[0] rendered through the filters of expressions[0]
  kWith,         // targets[i] = expressions[i]; bodies[0]
  kScope,        // bodies[0] with variables of its own
  kBreak,
  kContinue,
};

struct MacroSignature {
  std::string name;
  Symbol symbol = 0;
  std::vector<Symbol> parameters;
  std::vector<std::string> parameter_names;
  std::vector<ExprPtr> defaults;  // of the last parameters
  bool uses_varargs = false;
  bool uses_kwargs = false;
  bool uses_caller = false;
};

struct Statement {
  StatementKind kind = StatementKind::kData;
  uint32_t line = 0;
  uint32_t height = 1;
  std::string data;
  std::vector<ExprPtr> expressions;
  std::vector<Block> bodies;
  Target target;
  std::vector<Target> targets;
  bool recursive = false;
  MacroSignature macro;
};

/// A whole template.
struct ParsedTemplate {
  std::vector<std::string> symbols;
  Block body;
};

}  // namespace tessera::jinja
