// Runs a template that has been read.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ast.h"
#include "value.h"

namespace lmtp::jinja {

// The variables of a block, and those around it.
struct Scope {
  std::shared_ptr<Scope> outer = {};
  std::map<std::string, Value, std::less<>> values = {};

  const Value* find(std::string_view name) const;
};

// One thread. A template that nests too deep ends the process, and so does one without end.
class Interpreter {
 public:
  Interpreter() = default;
  // Ends what its macros keep alive: they know the variables among which they are.
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  // What the template writes with these variables. Throws TemplateError, and Raised of builtins.h.
  Text render(const Body& body, std::shared_ptr<Scope> variables);

  Value call(const Value& function, const Arguments& arguments);
  // VALUE | NAME(...), where VALUE is the first positional argument; VALUE is NAME(...).
  Value filter(const std::string& name, const Arguments& arguments);
  bool test(const std::string& name, const Arguments& arguments);
  // VALUE.NAME and VALUE[KEY], undefined where there is none.
  static Value attribute(const Value& of, const std::string& name);
  static Value item(const Value& of, const Value& key);

 private:
  enum class Flow { kNext, kBreak, kContinue };
  using ScopePtr = std::shared_ptr<Scope>;

  Flow run(const Body& body, const ScopePtr& scope, Text& out);
  Flow run(const Statement& statement, const ScopePtr& scope, Text& out);
  Text text_of(const Body& body, const ScopePtr& outer);
  void run_loop(const Statement& statement, const ScopePtr& scope, const Value& iterated,
                std::size_t depth, Text& out);
  void run_with(const Statement& statement, const ScopePtr& scope, Text& out);
  void run_call(const Statement& statement, const ScopePtr& scope, Text& out);
  void set_block(const Statement& statement, const ScopePtr& scope);
  Value macro(const Statement& statement, std::string name, const ScopePtr& scope);
  void assign(const Expression& target, Value value, const ScopePtr& scope);

  Value evaluate(const Expression& expression, const ScopePtr& scope);
  Value evaluate_name(const Expression& expression, const ScopePtr& scope);
  Value evaluate_container(const Expression& expression, const ScopePtr& scope);
  Value evaluate_item(const Expression& expression, const ScopePtr& scope);
  Value evaluate_logic(const Expression& expression, const ScopePtr& scope);
  Value evaluate_comparison(const Expression& expression, const ScopePtr& scope);
  Value evaluate_call(const Expression& expression, const ScopePtr& scope);
  // `of` is the value of a filter or test, null for functions.
  Arguments evaluate_arguments(const CallArguments& arguments, const Value* of,
                               const ScopePtr& scope);

  std::vector<std::weak_ptr<Scope>> with_macros_;
};

}  // namespace lmtp::jinja
