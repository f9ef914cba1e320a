#include "interpreter.h"

#include <algorithm>

#include "builtins.h"
#include "loop.h"

namespace lmtp::jinja {

const Value* Scope::find(std::string_view name) const {
  for (const Scope* scope = this; scope != nullptr; scope = scope->outer.get()) {
    const auto at = scope->values.find(name);
    if (at != scope->values.end()) return &at->second;
  }
  return nullptr;
}

Interpreter::~Interpreter() {
  for (const auto& known : with_macros_) {
    if (const auto scope = known.lock()) scope->values.clear();
  }
}

Text Interpreter::render(const Body& body, std::shared_ptr<Scope> variables) {
  Text out;
  const auto scope = std::make_shared<Scope>(Scope{.outer = std::move(variables)});
  run(body, scope, out);
  return out;
}

Interpreter::Flow Interpreter::run(const Body& body, const ScopePtr& scope, Text& out) {
  for (const Statement& statement : body) {
    if (const Flow flow = run(statement, scope, out); flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::run(const Statement& statement, const ScopePtr& scope, Text& out) {
  using Kind = Statement::Kind;
  switch (statement.kind) {
    case Kind::kData:
      out += *get_text(statement.data);
      break;
    case Kind::kPrint:
      for (const ExpressionPtr& expression : statement.expressions) {
        out += to_text(evaluate(*expression, scope));
      }
      break;
    case Kind::kFor:
      run_loop(statement, scope, evaluate(*statement.expression, scope), 0, out);
      break;
    case Kind::kIf:
      return run(
          is_true(evaluate(*statement.expression, scope)) ? statement.body : statement.otherwise,
          scope, out);
    case Kind::kSet:
      assign(*statement.target, evaluate(*statement.expression, scope), scope);
      break;
    case Kind::kSetBlock:
      set_block(statement, scope);
      break;
    case Kind::kMacro:
      scope->values[statement.name] = macro(statement, statement.name, scope);
      with_macros_.push_back(scope);
      break;
    case Kind::kCall:
      run_call(statement, scope, out);
      break;
    case Kind::kFilter: {
      const auto inner = std::make_shared<Scope>(Scope{.outer = scope});
      inner->values.emplace("", make_text(text_of(statement.body, inner)));
      out += to_text(evaluate(*statement.expression, inner));
      break;
    }
    case Kind::kWith:
      run_with(statement, scope, out);
      break;
    case Kind::kScope:
      out += text_of(statement.body, scope);
      break;
    case Kind::kBreak:
      return Flow::kBreak;
    case Kind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNext;
}

Text Interpreter::text_of(const Body& body, const ScopePtr& outer) {
  Text text;
  run(body, std::make_shared<Scope>(Scope{.outer = outer}), text);
  return text;
}

void Interpreter::run_loop(const Statement& statement, const ScopePtr& scope, const Value& iterated,
                           std::size_t depth, Text& out) {
  const auto loop = std::make_shared<Loop>();
  loop->depth0 = depth;
  loop->items = items_of(iterated);
  if (statement.condition != nullptr) {
    std::erase_if(loop->items, [&](const Value& item) {
      const auto inner = std::make_shared<Scope>(Scope{.outer = scope});
      assign(*statement.target, item, inner);
      return !is_true(evaluate(*statement.condition, inner));
    });
  }
  if (statement.is_recursive) {
    loop->recurse = std::make_shared<const Function>(
        Function{.name = "loop",
                 .call = [&statement, scope, depth](Interpreter& self, const Arguments& given) {
                   const auto items = bind("loop", given, {"iterable"}, 1);
                   Text text;
                   self.run_loop(statement, scope, *items[0], depth + 1, text);
                   return make_text(std::move(text));
                 }});
  }
  if (loop->items.empty()) {
    run(statement.otherwise, std::make_shared<Scope>(Scope{.outer = scope}), out);
    return;
  }
  for (; loop->index0 < loop->items.size(); ++loop->index0) {
    const auto inner = std::make_shared<Scope>(Scope{.outer = scope});
    inner->values["loop"] = loop;
    assign(*statement.target, loop->items[loop->index0], inner);
    if (run(statement.body, inner, out) == Flow::kBreak) break;
  }
}

void Interpreter::run_with(const Statement& statement, const ScopePtr& scope, Text& out) {
  const auto inner = std::make_shared<Scope>(Scope{.outer = scope});
  for (std::size_t i = 0; i < statement.expressions.size(); i += 2) {
    assign(*statement.expressions[i], evaluate(*statement.expressions[i + 1], scope), inner);
  }
  run(statement.body, inner, out);
}

void Interpreter::run_call(const Statement& statement, const ScopePtr& scope, Text& out) {
  const Expression& call_of = *statement.expression;
  Arguments arguments = evaluate_arguments(call_of.arguments, nullptr, scope);
  arguments.named.emplace_back("caller", macro(statement, "caller", scope));
  out += to_text(call(evaluate(*call_of.parts[0], scope), arguments));
}

void Interpreter::set_block(const Statement& statement, const ScopePtr& scope) {
  Value value = make_text(text_of(statement.body, scope));
  if (statement.expression != nullptr) {
    const auto inner = std::make_shared<Scope>(Scope{.outer = scope});
    inner->values.emplace("", value);
    value = evaluate(*statement.expression, inner);
  }
  assign(*statement.target, std::move(value), scope);
}

// Its variables are those of where it is defined, as they are when it is called.
Value Interpreter::macro(const Statement& statement, std::string name, const ScopePtr& scope) {
  const auto call_macro = [&statement, scope, name](Interpreter& self, const Arguments& given) {
    const auto inner = std::make_shared<Scope>(Scope{.outer = scope});
    const auto& parameters = statement.parameters;
    std::vector<Value> more;
    for (std::size_t i = 0; i < given.positional.size(); ++i) {
      if (i < parameters.size()) {
        inner->values[parameters[i].name] = given.positional[i];
      } else {
        more.push_back(given.positional[i]);
      }
    }
    const auto others = std::make_shared<Dict>();
    for (const auto& [key, value] : given.named) {
      const bool is_parameter =
          std::ranges::find(parameters, key, &Parameter::name) != parameters.end();
      if (is_parameter && inner->values.contains(key)) {
        throw TemplateError("macro '" + name + "' got multiple values for argument '" + key + "'");
      }
      if (is_parameter || key == "caller") {
        inner->values[key] = value;
      } else {
        others->set(key, value);
      }
    }
    for (const Parameter& parameter : parameters) {
      if (inner->values.contains(parameter.name)) continue;
      inner->values[parameter.name] =
          parameter.otherwise != nullptr
              ? self.evaluate(*parameter.otherwise, inner)
              : make_undefined("parameter '" + parameter.name + "' was not provided");
    }
    if ((!more.empty() && !statement.takes_varargs) ||
        (!others->entries.empty() && !statement.takes_kwargs)) {
      throw TemplateError("macro '" + name + "' takes not more than " +
                          std::to_string(parameters.size()) + " argument(s)");
    }
    inner->values["varargs"] = make_list(std::move(more), Sequence::Kind::kTuple);
    inner->values["kwargs"] = others;
    Text text;
    self.run(statement.body, inner, text);
    return make_text(std::move(text));
  };
  return std::make_shared<const Function>(Function{.name = std::move(name), .call = call_macro});
}

void Interpreter::assign(const Expression& target, Value value, const ScopePtr& scope) {
  if (target.kind == Expression::Kind::kName) {
    scope->values[target.name] = std::move(value);
  } else if (target.kind == Expression::Kind::kAttribute) {
    const Value object = evaluate(*target.parts[0], scope);
    const auto* dict = std::get_if<std::shared_ptr<Dict>>(&object);
    if (dict == nullptr || !(*dict)->is_namespace) {
      throw TemplateError("cannot assign attribute on non-namespace object");
    }
    (*dict)->set(target.name, std::move(value));
  } else {
    const std::vector<Value> values = items_of(value);
    if (values.size() != target.parts.size()) {
      throw TemplateError("cannot unpack " + std::to_string(values.size()) + " values into " +
                          std::to_string(target.parts.size()));
    }
    for (std::size_t i = 0; i < values.size(); ++i) assign(*target.parts[i], values[i], scope);
  }
}

}  // namespace lmtp::jinja
