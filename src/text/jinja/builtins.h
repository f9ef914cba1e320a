// What templates find without defining it.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "interpreter.h"
#include "value.h"

namespace lmtp::jinja {

// The template's own raise_exception.
struct Raised : TemplateError {
  using TemplateError::TemplateError;
};

using Builtin = Value (*)(Interpreter&, const Arguments&);
using Builtins = std::map<std::string_view, Builtin>;

// Functions: range, dict, namespace, ...
const Builtins& functions();
// Filters and tests; the value is the first positional argument.
const Builtins& text_filters();
const Builtins& number_filters();
const Builtins& sequence_filters();
const Builtins& tests();

// A method of the value, with it as the first positional argument. nullptr: it has none.
Builtin find_text_method(std::string_view name);
Builtin find_sequence_method(const Sequence& sequence, std::string_view name);
Builtin find_dict_method(std::string_view name);
Builtin find_number_method(const Value& number, std::string_view name);

// a SIGN b.
Value binary(const std::string& sign, const Value& a, const Value& b);
Value unary(const std::string& sign, const Value& value);
// FORMAT % VALUES.
Text formatted(TextView format, const Value& values);
// FORMAT.format(...).
Text formatted(TextView format, const Arguments& arguments);

// As int() and float() read a text; nullopt: it is no number.
std::optional<Int> read_int(TextView text, int base);
std::optional<double> read_float(TextView text);

// Of a function's parameter that may be left out. Throws where it is of another type.
std::int64_t int_or(const Value* value, std::int64_t otherwise);
bool bool_or(const Value* value, bool otherwise);
Text text_or(const Value* value, TextView otherwise);
// What `path` names in an item: an index, or keys and attributes joined by dots.
Value attribute_path(const Value& item, const Value& path);

// Throws where it is no text.
const Text& need_text(const Value& value);

}  // namespace lmtp::jinja
