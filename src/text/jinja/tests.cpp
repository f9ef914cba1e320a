// What stands after `is`.
#include <algorithm>

#include "builtins.h"
#include "loop.h"

namespace lmtp::jinja {
namespace {

template <typename... Types>
Value type_test(Interpreter& /*self*/, const Arguments& given) {
  const auto bound = bind("test", given, {"value"}, 1);
  return (is<Types>(*bound[0]) || ...);
}

template <bool (*kHolds)(const Value&)>
Value value_test(Interpreter& /*self*/, const Arguments& given) {
  return kHolds(*bind("test", given, {"value"}, 1)[0]);
}

template <bool (*kHolds)(const Value&, const Value&)>
Value pair_test(Interpreter& /*self*/, const Arguments& given) {
  const auto bound = bind("test", given, {"a", "b"}, 2);
  return kHolds(*bound[0], *bound[1]);
}

bool unequal(const Value& a, const Value& b) { return !equal(a, b); }
bool less_than(const Value& a, const Value& b) { return less(a, b); }
bool greater_than(const Value& a, const Value& b) { return less(b, a, ">"); }
bool at_most(const Value& a, const Value& b) { return less(a, b, "<=") || equal(a, b); }
bool at_least(const Value& a, const Value& b) { return less(b, a, ">=") || equal(a, b); }
bool is_in(const Value& a, const Value& b) { return contains(b, a); }
bool divides(const Value& a, const Value& b) { return equal(binary("%", a, b), Int(0)); }
bool is_odd(const Value& value) { return equal(binary("%", value, Int(2)), Int(1)); }
bool is_even(const Value& value) { return equal(binary("%", value, Int(2)), Int(0)); }
bool is_number(const Value& value) { return is<double>(value) || get_int(value).has_value(); }
bool is_defined(const Value& value) { return !is<Undefined>(value); }
bool is_flag(const Value& value, bool wanted) {
  const bool* flag = as<bool>(value);
  return flag != nullptr && *flag == wanted;
}
bool is_yes(const Value& value) { return is_flag(value, true); }
bool is_no(const Value& value) { return is_flag(value, false); }
bool is_mapping(const Value& value) {
  const Dict* dict = as<Dict>(value);
  return dict != nullptr && !dict->is_namespace;
}

bool is_sequence(const Value& value) {
  const Sequence* sequence = as<Sequence>(value);
  return is<Str>(value) || is<Undefined>(value) || is_mapping(value) ||
         (sequence != nullptr && sequence->is_indexed());
}

bool is_iterable(const Value& value) {
  return is_sequence(value) || is<Sequence>(value) || is<Loop>(value);
}

bool is_escaped(const Value& value) {
  const Str* str = as<Str>(value);
  return str != nullptr && str->is_markup;
}

bool is_lower_text(const Value& value) {
  Interpreter none;
  return is_true(find_text_method("islower")(none, {{make_text(to_text(value))}, {}}));
}

bool is_upper_text(const Value& value) {
  Interpreter none;
  return is_true(find_text_method("isupper")(none, {{make_text(to_text(value))}, {}}));
}

bool is_filter_name(const Value& value) {
  const std::string name = utf8_of(need_text(value));
  return text_filters().contains(name) || number_filters().contains(name) ||
         sequence_filters().contains(name);
}

bool is_test_name(const Value& value) { return tests().contains(utf8_of(need_text(value))); }

// Python keeps whole numbers up to 256 once.
bool is_same(const Value& a, const Value& b) {
  if (a.index() != b.index()) return false;
  if (const Int* whole = as<Int>(a)) return *whole >= -5 && *whole <= 256 && equal(a, b);
  if (is<double>(a)) return false;
  if (const Str* str = as<Str>(a)) return str == as<Str>(b);
  if (const Sequence* sequence = as<Sequence>(a)) return sequence == as<Sequence>(b);
  if (const Dict* dict = as<Dict>(a)) return dict == as<Dict>(b);
  return equal(a, b);
}

}  // namespace

const Builtins& tests() {
  static const Builtins all = {
      {"!=", pair_test<unequal>},
      {"<", pair_test<less_than>},
      {"<=", pair_test<at_most>},
      {"==", pair_test<equal>},
      {">", pair_test<greater_than>},
      {">=", pair_test<at_least>},
      {"boolean", type_test<bool>},
      {"callable", type_test<Function, Loop>},
      {"defined", value_test<is_defined>},
      {"divisibleby", pair_test<divides>},
      {"eq", pair_test<equal>},
      {"equalto", pair_test<equal>},
      {"escaped", value_test<is_escaped>},
      {"even", value_test<is_even>},
      {"false", value_test<is_no>},
      {"filter", value_test<is_filter_name>},
      {"float", type_test<double>},
      {"ge", pair_test<at_least>},
      {"greaterthan", pair_test<greater_than>},
      {"gt", pair_test<greater_than>},
      {"in", pair_test<is_in>},
      {"integer", type_test<Int>},
      {"iterable", value_test<is_iterable>},
      {"le", pair_test<at_most>},
      {"lessthan", pair_test<less_than>},
      {"lower", value_test<is_lower_text>},
      {"lt", pair_test<less_than>},
      {"mapping", value_test<is_mapping>},
      {"ne", pair_test<unequal>},
      {"none", type_test<None>},
      {"number", value_test<is_number>},
      {"odd", value_test<is_odd>},
      {"sameas", pair_test<is_same>},
      {"sequence", value_test<is_sequence>},
      {"string", type_test<Str>},
      {"test", value_test<is_test_name>},
      {"true", value_test<is_yes>},
      {"undefined", type_test<Undefined>},
      {"upper", value_test<is_upper_text>},
  };
  return all;
}

}  // namespace lmtp::jinja
