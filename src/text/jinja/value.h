// The values of a template: those of Python that JSON and templates make.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "integer.h"
#include "text.h"

namespace lmtp::jinja {

// What a template does is wrong; in Python an exception.
struct TemplateError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A name that is none, or what an object has not. It is an empty text, and an error in most other
// places, which says `what`.
struct Undefined {
  std::shared_ptr<const std::string> what;
};
struct None {};

struct Str {
  Text text;
  bool is_markup = false;  // what the filters safe and escape return
};
struct Sequence;
struct Dict;
struct Function;
struct Loop;
class Interpreter;

using Value = std::variant<Undefined, None, bool, Int, double, std::shared_ptr<const Str>,
                           std::shared_ptr<Sequence>, std::shared_ptr<Dict>,
                           std::shared_ptr<const Function>, std::shared_ptr<Loop>>;

struct Sequence {
  // kOnce is what Python gives step by step: it has no length, and its items can be had once.
  enum class Kind { kList, kTuple, kRange, kKeys, kValues, kItems, kOnce };
  Kind kind = Kind::kList;
  std::vector<Value> items = {};
  std::function<std::vector<Value>()> later = {};  // of kOnce: where they are not there yet
  bool is_group = false;  // of groupby: a tuple with the attributes grouper and list
  bool is_indexed() const {
    return kind == Kind::kList || kind == Kind::kTuple || kind == Kind::kRange;
  }
};

// Keeps the order in which keys came.
struct Dict {
  std::vector<std::pair<Value, Value>> entries;
  bool is_namespace = false;

  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
  // Throws where the key is of a type that can be none.
  void set(const Value& key, Value value);
  void set(std::string_view key, Value value);
  // REQUIRES: it is there.
  Value take(const Value& key);

 private:
  std::size_t position(const Value& key) const;

  // Of the keys that are texts, where there are many.
  mutable std::unordered_map<std::string, std::size_t> texts_;
  mutable std::size_t num_indexed_ = 0;
};

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

struct Function {
  std::string name;
  std::function<Value(Interpreter&, const Arguments&)> call;
};

// The arguments of a function that has these parameters, in their order; nullptr: not given. Throws
// where there are too many, or the first `num_required` are not all there.
std::vector<const Value*> bind(std::string_view function, const Arguments& arguments,
                               std::initializer_list<std::string_view> parameters,
                               std::size_t num_required = 0);

Value make_text(Text text);
Value make_text(TextView text);
Value make_text(std::string_view utf8);
Value make_list(std::vector<Value> items, Sequence::Kind kind = Sequence::Kind::kList);
Value make_undefined(std::string what);

template <typename T>
const T* as(const Value& value) {
  if constexpr (std::is_same_v<T, Str> || std::is_same_v<T, Function>) {
    const auto* pointer = std::get_if<std::shared_ptr<const T>>(&value);
    return pointer == nullptr ? nullptr : pointer->get();
  } else if constexpr (std::is_same_v<T, Sequence> || std::is_same_v<T, Dict> ||
                       std::is_same_v<T, Loop>) {
    const auto* pointer = std::get_if<std::shared_ptr<T>>(&value);
    return pointer == nullptr ? nullptr : pointer->get();
  } else {
    return std::get_if<T>(&value);
  }
}
template <typename T>
bool is(const Value& value) {
  return as<T>(value) != nullptr;
}
// nullptr: it is no text.
const Text* get_text(const Value& value);
// Whole numbers and booleans, which are 0 and 1. nullopt: it is neither.
std::optional<Int> get_int(const Value& value);

// "str", "int", ... as errors name it.
std::string type_name(const Value& value);
// Throws UndefinedError of Python: what an undefined value is not for.
[[noreturn]] void throw_undefined(const Undefined& undefined);

bool is_true(const Value& value);
bool equal(const Value& a, const Value& b);
// Throws where the types have no order.
bool less(const Value& a, const Value& b, const char* sign = "<");
bool contains(const Value& container, const Value& item);

// As str() and repr() write it.
Text to_text(const Value& value);
Text repr_of(const Value& value);
// The shortest text that is this number.
std::string repr_of(double number);
// Throws where no double is so large.
double to_double(const Int& number);

// What a loop over it goes through; a kOnce is empty afterwards. Throws where it has no items.
std::vector<Value> items_of(const Value& value);
// Throws where it has no length.
std::size_t length_of(const Value& value);

// As json.dumps.
struct JsonStyle {
  bool ascii = false;
  bool sort_keys = false;
  std::optional<Text> indent = {};
  Text item_separator = U", ";
  Text key_separator = U": ";
};
Text to_json(const Value& value, const JsonStyle& style);

// Of JSON, in which whole numbers stay whole whatever their size. Its texts and keys are a client's
// where `mark` is kInput. Throws TemplateError.
Value parse_json(std::string_view json, char32_t mark = 0);

}  // namespace lmtp::jinja
