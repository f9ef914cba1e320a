// Values of expressions.
#include <algorithm>
#include <limits>

#include "builtins.h"
#include "interpreter.h"
#include "loop.h"

namespace lmtp::jinja {
namespace {

Value bound_method(Builtin method, const std::string& name, const Value& of) {
  return std::make_shared<const Function>(Function{
      .name = name, .call = [method, of](Interpreter& interpreter, const Arguments& given) {
        Arguments arguments = given;
        arguments.positional.insert(arguments.positional.begin(), of);
        return method(interpreter, arguments);
      }});
}

Builtin find_method(const Value& of, const std::string& name) {
  if (is<Str>(of)) return find_text_method(name);
  if (const Sequence* sequence = as<Sequence>(of)) return find_sequence_method(*sequence, name);
  if (const Dict* dict = as<Dict>(of)) return dict->is_namespace ? nullptr : find_dict_method(name);
  if (is<Int>(of) || is<double>(of)) return find_number_method(of, name);
  return nullptr;
}

std::string object_name(const Value& of) {
  return is<None>(of) ? "'None'" : "'" + type_name(of) + " object'";
}

// What Python's slices take of a sequence of this length.
std::vector<std::size_t> sliced(std::size_t length, const Value& begin, const Value& end,
                                const Value& step_value) {
  const auto bounded = [](const Value& value, std::int64_t otherwise) {
    if (is<None>(value)) return otherwise;
    const auto whole = get_int(value);
    if (!whole) throw TemplateError("slice indices must be integers or None");
    constexpr std::int64_t kMax = std::int64_t{1} << 60;
    if (*whole > kMax || *whole < -kMax) return *whole > 0 ? kMax : -kMax;
    return static_cast<std::int64_t>(*whole);
  };
  const auto size = static_cast<std::int64_t>(length);
  const std::int64_t step = bounded(step_value, 1);
  if (step == 0) throw TemplateError("slice step cannot be zero");
  const auto clamped = [&](std::int64_t at) {
    if (at < 0) at += size;
    return step > 0 ? std::clamp(at, std::int64_t{0}, size)
                    : std::clamp(at, std::int64_t{-1}, size - 1);
  };
  const std::int64_t from =
      is<None>(begin) ? (step > 0 ? 0 : size - 1) : clamped(bounded(begin, 0));
  const std::int64_t to = is<None>(end) ? (step > 0 ? size : -1) : clamped(bounded(end, 0));
  std::vector<std::size_t> taken;
  for (std::int64_t i = from; step > 0 ? i < to : i > to; i += step) {
    taken.push_back(static_cast<std::size_t>(i));
  }
  return taken;
}

Value slice(const Value& of, const Value& begin, const Value& end, const Value& step) {
  if (const Undefined* undefined = as<Undefined>(of)) throw_undefined(*undefined);
  if (const Text* text = get_text(of)) {
    Text taken;
    for (const std::size_t i : sliced(text->size(), begin, end, step)) taken += (*text)[i];
    return make_text(std::move(taken));
  }
  const Sequence* sequence = as<Sequence>(of);
  if (sequence == nullptr || !sequence->is_indexed()) {
    return make_undefined(object_name(of) + " cannot be sliced");
  }
  std::vector<Value> taken;
  for (const std::size_t i : sliced(sequence->items.size(), begin, end, step)) {
    taken.push_back(sequence->items[i]);
  }
  return make_list(std::move(taken), sequence->kind);
}

// nullopt: there is no such element.
std::optional<Value> element(const Value& of, const Int& index) {
  const Text* text = get_text(of);
  const Sequence* sequence = as<Sequence>(of);
  if (text == nullptr && (sequence == nullptr || !sequence->is_indexed())) return std::nullopt;
  const Int size = text != nullptr ? text->size() : sequence->items.size();
  const Int at = index < 0 ? Int(index + size) : index;
  if (at < 0 || at >= size) return std::nullopt;
  const auto i = static_cast<std::size_t>(at);
  if (text == nullptr) return sequence->items[i];
  return make_text(Text(1, (*text)[i]));
}

}  // namespace

Value Interpreter::attribute(const Value& of, const std::string& name) {
  if (const Undefined* undefined = as<Undefined>(of)) throw_undefined(*undefined);
  if (const Builtin method = find_method(of, name)) return bound_method(method, name, of);
  if (const Dict* dict = as<Dict>(of)) {
    if (const Value* value = dict->find(name)) return *value;
  } else if (const auto* loop = std::get_if<std::shared_ptr<Loop>>(&of)) {
    if (auto value = loop_attribute(*loop, name)) return *std::move(value);
  } else if (const Sequence* sequence = as<Sequence>(of); sequence != nullptr) {
    if (sequence->is_group && name == "grouper") return sequence->items[0];
    if (sequence->is_group && name == "list") return sequence->items[1];
  } else if (const Function* function = as<Function>(of); function != nullptr && name == "name") {
    return make_text(std::string_view(function->name));
  }
  return make_undefined(object_name(of) + " has no attribute '" + name + "'");
}

Value Interpreter::item(const Value& of, const Value& key) {
  if (const Undefined* undefined = as<Undefined>(of)) throw_undefined(*undefined);
  if (const Dict* dict = as<Dict>(of); dict != nullptr && !dict->is_namespace) {
    if (const Value* value = dict->find(key)) return *value;
  } else if (const auto index = get_int(key)) {
    if (auto value = element(of, *index)) return *std::move(value);
  }
  if (const Text* name = get_text(key)) return attribute(of, utf8_of(*name));
  return make_undefined(object_name(of) + " has no element " + utf8_of(repr_of(key)));
}

Value Interpreter::evaluate(const Expression& expression, const ScopePtr& scope) {
  using Kind = Expression::Kind;
  switch (expression.kind) {
    case Kind::kConstant:
      return expression.value;
    case Kind::kName:
      return evaluate_name(expression, scope);
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kDict:
      return evaluate_container(expression, scope);
    case Kind::kAttribute:
      return attribute(evaluate(*expression.parts[0], scope), expression.name);
    case Kind::kItem:
      return evaluate_item(expression, scope);
    case Kind::kSlice:
      throw TemplateError("a slice stands alone in brackets");
    case Kind::kCall:
    case Kind::kFilter:
    case Kind::kTest:
      return evaluate_call(expression, scope);
    case Kind::kUnary:
      return unary(expression.name, evaluate(*expression.parts[0], scope));
    case Kind::kBinary: {
      const Value left = evaluate(*expression.parts[0], scope);
      return binary(expression.name, left, evaluate(*expression.parts[1], scope));
    }
    case Kind::kCompare:
      return evaluate_comparison(expression, scope);
    default:
      return evaluate_logic(expression, scope);
  }
}

Value Interpreter::evaluate_name(const Expression& expression, const ScopePtr& scope) {
  if (const Value* value = scope->find(expression.name)) return *value;
  const auto function = functions().find(expression.name);
  if (function == functions().end()) {
    return make_undefined("'" + expression.name + "' is undefined");
  }
  return std::make_shared<const Function>(
      Function{.name = expression.name, .call = function->second});
}

Value Interpreter::evaluate_container(const Expression& expression, const ScopePtr& scope) {
  std::vector<Value> values;
  values.reserve(expression.parts.size());
  for (const ExpressionPtr& part : expression.parts) values.push_back(evaluate(*part, scope));
  if (expression.kind == Expression::Kind::kList) return make_list(std::move(values));
  if (expression.kind == Expression::Kind::kTuple) {
    return make_list(std::move(values), Sequence::Kind::kTuple);
  }
  auto dict = std::make_shared<Dict>();
  for (std::size_t i = 0; i < values.size(); i += 2) dict->set(values[i], values[i + 1]);
  return dict;
}

Value Interpreter::evaluate_item(const Expression& expression, const ScopePtr& scope) {
  const Value of = evaluate(*expression.parts[0], scope);
  const Expression& which = *expression.parts[1];
  if (which.kind != Expression::Kind::kSlice) return item(of, evaluate(which, scope));
  const auto bound = [&](std::size_t i) {
    return which.parts[i] == nullptr ? Value(None{}) : evaluate(*which.parts[i], scope);
  };
  const Value begin = bound(0);
  const Value end = bound(1);
  return slice(of, begin, end, bound(2));
}

Value Interpreter::evaluate_logic(const Expression& expression, const ScopePtr& scope) {
  using Kind = Expression::Kind;
  const auto& parts = expression.parts;
  if (expression.kind == Kind::kConcat) {
    Text text;
    for (const ExpressionPtr& part : parts) text += to_text(evaluate(*part, scope));
    return make_text(std::move(text));
  }
  Value first = evaluate(*parts[0], scope);
  const bool holds = is_true(first);
  switch (expression.kind) {
    case Kind::kAnd:
      return holds ? evaluate(*parts[1], scope) : std::move(first);
    case Kind::kOr:
      return holds ? std::move(first) : evaluate(*parts[1], scope);
    case Kind::kNot:
      return !holds;
    default:
      if (holds) return evaluate(*parts[1], scope);
      if (parts.size() > 2) return evaluate(*parts[2], scope);
      return make_undefined(
          "the inline if-expression evaluated to false and no else section was defined");
  }
}

Value Interpreter::evaluate_comparison(const Expression& expression, const ScopePtr& scope) {
  const auto holds = [](const std::string& sign, const Value& a, const Value& b) {
    if (sign == "==") return equal(a, b);
    if (sign == "!=") return !equal(a, b);
    if (sign == "in") return contains(b, a);
    if (sign == "not in") return !contains(b, a);
    if (sign == "<") return less(a, b);
    if (sign == ">") return less(b, a, ">");
    return (sign == "<=" ? less(a, b, "<=") : less(b, a, ">=")) || equal(a, b);
  };
  Value left = evaluate(*expression.parts[0], scope);
  for (std::size_t i = 0; i < expression.operators.size(); ++i) {
    Value right = evaluate(*expression.parts[i + 1], scope);
    if (!holds(expression.operators[i], left, right)) return false;
    left = std::move(right);
  }
  return true;
}

Value Interpreter::evaluate_call(const Expression& expression, const ScopePtr& scope) {
  // The text of a filter's block is the variable without a name.
  const Value of =
      expression.parts.empty() ? *scope->find("") : evaluate(*expression.parts[0], scope);
  const bool is_call = expression.kind == Expression::Kind::kCall;
  const Arguments arguments =
      evaluate_arguments(expression.arguments, is_call ? nullptr : &of, scope);
  if (is_call) return call(of, arguments);
  if (expression.kind == Expression::Kind::kTest) return test(expression.name, arguments);
  return filter(expression.name, arguments);
}

Arguments Interpreter::evaluate_arguments(const CallArguments& arguments, const Value* of,
                                          const ScopePtr& scope) {
  Arguments values;
  if (of != nullptr) values.positional.push_back(*of);
  for (const ExpressionPtr& argument : arguments.positional) {
    values.positional.push_back(evaluate(*argument, scope));
  }
  for (const auto& [name, argument] : arguments.named) {
    values.named.emplace_back(name, evaluate(*argument, scope));
  }
  if (arguments.list != nullptr) {
    for (Value& value : items_of(evaluate(*arguments.list, scope))) {
      values.positional.push_back(std::move(value));
    }
  }
  if (arguments.dict != nullptr) {
    const Value dict = evaluate(*arguments.dict, scope);
    if (!is<Dict>(dict)) throw TemplateError("argument after ** must be a mapping");
    for (const auto& [key, value] : as<Dict>(dict)->entries) {
      values.named.emplace_back(utf8_of(need_text(key)), value);
    }
  }
  return values;
}

Value Interpreter::call(const Value& function, const Arguments& arguments) {
  if (const Function* callee = as<Function>(function)) return callee->call(*this, arguments);
  if (const Undefined* undefined = as<Undefined>(function)) throw_undefined(*undefined);
  if (const Loop* loop = as<Loop>(function)) {
    if (is<Undefined>(loop->recurse)) {
      throw TemplateError("the loop must have the 'recursive' marker to be called recursively");
    }
    return call(loop->recurse, arguments);
  }
  throw TemplateError("'" + type_name(function) + "' object is not callable");
}

Value Interpreter::filter(const std::string& name, const Arguments& arguments) {
  for (const Builtins* builtins : {&text_filters(), &number_filters(), &sequence_filters()}) {
    const auto found = builtins->find(name);
    if (found != builtins->end()) return found->second(*this, arguments);
  }
  throw TemplateError("No filter named '" + name + "'");
}

bool Interpreter::test(const std::string& name, const Arguments& arguments) {
  const auto found = tests().find(name);
  if (found == tests().end()) throw TemplateError("No test named '" + name + "'");
  return is_true(found->second(*this, arguments));
}

}  // namespace lmtp::jinja
