// A template as the parser reads it.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "value.h"

namespace lmtp::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<const Expression>;

struct CallArguments {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  ExpressionPtr list;  // *list
  ExpressionPtr dict;  // **dict
};

struct Expression {
  enum class Kind {
    kConstant,
    kName,
    kList,
    kTuple,
    kDict,  // parts: key, value, key, value, ...
    kAttribute,
    kItem,   // parts: of what, which
    kSlice,  // parts: begin, end, step; null: not given. Within kItem
    kCall,
    kFilter,  // without a part: of a block's text
    kTest,
    kUnary,
    kBinary,
    kCompare,  // parts: as many as operators, and one
    kConcat,
    kAnd,
    kOr,
    kNot,
    kCondition,  // parts: condition, then, else (may be missing)
  };
  Kind kind = Kind::kConstant;
  Value value = None{};
  std::string name;  // of a variable, attribute, filter or test; an operator
  std::vector<std::string> operators;
  std::vector<ExpressionPtr> parts;
  CallArguments arguments;
};

struct Parameter {
  std::string name;
  ExpressionPtr otherwise;  // may be null
};

struct Statement;
using Body = std::vector<Statement>;

struct Statement {
  enum class Kind {
    kData,
    kPrint,
    kFor,  // target in expression; condition
    kIf,   // expression, body, otherwise
    kSet,
    kSetBlock,  // expression: filters, may be null
    kMacro,
    kCall,    // expression: the call
    kFilter,  // expression
    kWith,
    kScope,  // {% generation %}, {% block %}
    kBreak,
    kContinue,
  };
  Kind kind = Kind::kData;
  Value data = None{};
  std::string name = {};
  ExpressionPtr target = {};
  ExpressionPtr expression = {};
  ExpressionPtr condition = {};
  std::vector<ExpressionPtr> expressions = {};  // of kPrint and kWith
  std::vector<Parameter> parameters = {};
  bool is_recursive = false;   // of kFor
  bool takes_varargs = false;  // of kMacro
  bool takes_kwargs = false;
  Body body = {};
  Body otherwise = {};
};

// Throws TemplateError.
Body parse(std::string_view source);

}  // namespace lmtp::jinja
