#include "value.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "loop.h"

namespace lmtp::jinja {
namespace {

constexpr std::size_t kIndexedFrom = 16;

// Whether UTF-8 spells the text.
bool is_spelled(const Text& text, std::string_view utf8) {
  if (text.size() > utf8.size()) return false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char32_t c = code_point(text[i]);
    if (c >= 0x80) return utf8_of(text) == utf8;
    if (c != static_cast<unsigned char>(utf8[i])) return false;
  }
  return text.size() == utf8.size();
}

bool is_hashable(const Value& key) {
  const Sequence* sequence = as<Sequence>(key);
  if (sequence == nullptr) return !is<Dict>(key);
  return sequence->kind != Sequence::Kind::kList &&
         std::ranges::all_of(sequence->items, is_hashable);
}

std::optional<double> number_of(const Value& value) {
  if (const double* number = as<double>(value)) return *number;
  const auto whole = get_int(value);
  if (!whole) return std::nullopt;
  return whole->number();
}

// Whether a < b, exactly: not every whole number is a double.
bool less_numbers(const Value& a, const Value& b) {
  const auto whole = get_int(a);
  const auto other_whole = get_int(b);
  const double number = whole ? 0 : *as<double>(a);
  const double other = other_whole ? 0 : *as<double>(b);
  if (whole && other_whole) return *whole < *other_whole;
  if (whole && std::isfinite(other)) return *whole < Int(std::ceil(other));
  if (other_whole && std::isfinite(number)) return Int(std::floor(number)) < *other_whole;
  return number < other;
}

}  // namespace

const Value* Dict::find(const Value& key) const {
  const std::size_t at = position(key);
  return at == entries.size() ? nullptr : &entries[at].second;
}

const Value* Dict::find(std::string_view key) const {
  if (entries.size() >= kIndexedFrom) return find(make_text(key));
  for (const auto& [name, value] : entries) {
    const Text* text = get_text(name);
    if (text != nullptr && is_spelled(*text, key)) return &value;
  }
  return nullptr;
}

std::size_t Dict::position(const Value& key) const {
  const Text* text = get_text(key);
  if (entries.size() < kIndexedFrom || text == nullptr) {
    const auto at =
        std::ranges::find_if(entries, [&](const auto& entry) { return equal(entry.first, key); });
    return static_cast<std::size_t>(at - entries.begin());
  }
  for (; num_indexed_ < entries.size(); ++num_indexed_) {
    if (const Text* other = get_text(entries[num_indexed_].first)) {
      texts_.emplace(utf8_of(*other), num_indexed_);
    }
  }
  const auto at = texts_.find(utf8_of(*text));
  return at == texts_.end() ? entries.size() : at->second;
}

void Dict::set(const Value& key, Value value) {
  if (!is_hashable(key)) throw TemplateError("unhashable type: '" + type_name(key) + "'");
  const std::size_t at = position(key);
  if (at == entries.size()) {
    entries.emplace_back(key, std::move(value));
  } else {
    entries[at].second = std::move(value);
  }
}

void Dict::set(std::string_view key, Value value) { set(make_text(key), std::move(value)); }

Value Dict::take(const Value& key) {
  const std::size_t at = position(key);
  Value taken = std::move(entries[at].second);
  entries.erase(entries.begin() + static_cast<std::ptrdiff_t>(at));
  texts_.clear();
  num_indexed_ = 0;
  return taken;
}

std::vector<const Value*> bind(std::string_view function, const Arguments& arguments,
                               std::initializer_list<std::string_view> parameters,
                               std::size_t num_required) {
  const std::string name(function);
  if (arguments.positional.size() > parameters.size()) {
    throw TemplateError(name + "() takes at most " + std::to_string(parameters.size()) +
                        " arguments (" + std::to_string(arguments.positional.size()) + " given)");
  }
  std::vector<const Value*> bound(parameters.size(), nullptr);
  for (std::size_t i = 0; i < arguments.positional.size(); ++i) bound[i] = &arguments.positional[i];
  for (const auto& [key, value] : arguments.named) {
    const auto at =
        static_cast<std::size_t>(std::ranges::find(parameters, key) - parameters.begin());
    if (at == parameters.size() || bound[at] != nullptr) {
      throw TemplateError(name + "() got an unexpected keyword argument '" + key + "'");
    }
    bound[at] = &value;
  }
  for (std::size_t i = 0; i < num_required; ++i) {
    if (bound[i] != nullptr) continue;
    throw TemplateError(name + "() missing required argument '" +
                        std::string(parameters.begin()[i]) + "'");
  }
  return bound;
}

Value make_text(Text text) { return std::make_shared<const Str>(Str{.text = std::move(text)}); }
Value make_text(TextView text) { return make_text(Text(text)); }
Value make_text(std::string_view utf8) { return make_text(text_of(utf8)); }
Value make_list(std::vector<Value> items, Sequence::Kind kind) {
  return std::make_shared<Sequence>(Sequence{.kind = kind, .items = std::move(items)});
}
Value make_undefined(std::string what) {
  return Undefined{std::make_shared<const std::string>(std::move(what))};
}

const Text* get_text(const Value& value) {
  const Str* str = as<Str>(value);
  return str == nullptr ? nullptr : &str->text;
}

std::optional<Int> get_int(const Value& value) {
  if (const bool* flag = as<bool>(value)) return Int(*flag ? 1 : 0);
  if (const Int* whole = as<Int>(value)) return *whole;
  return std::nullopt;
}

std::string type_name(const Value& value) {
  struct Name {
    std::string operator()(const Undefined&) const { return "Undefined"; }
    std::string operator()(const None&) const { return "NoneType"; }
    std::string operator()(bool) const { return "bool"; }
    std::string operator()(const Int&) const { return "int"; }
    std::string operator()(double) const { return "float"; }
    std::string operator()(const std::shared_ptr<const Str>& str) const {
      return str->is_markup ? "Markup" : "str";
    }
    std::string operator()(const std::shared_ptr<Sequence>& sequence) const {
      constexpr std::array<const char*, 7> kNames = {
          "list", "tuple", "range", "dict_keys", "dict_values", "dict_items", "generator"};
      return kNames[static_cast<std::size_t>(sequence->kind)];
    }
    std::string operator()(const std::shared_ptr<Dict>& dict) const {
      return dict->is_namespace ? "Namespace" : "dict";
    }
    std::string operator()(const std::shared_ptr<const Function>&) const { return "function"; }
    std::string operator()(const std::shared_ptr<Loop>&) const { return "LoopContext"; }
  };
  return std::visit(Name{}, value);
}

void throw_undefined(const Undefined& undefined) {
  throw TemplateError(undefined.what == nullptr ? "it is undefined" : *undefined.what);
}

bool is_true(const Value& value) {
  if (const bool* flag = as<bool>(value)) return *flag;
  if (const Int* whole = as<Int>(value)) return *whole != 0;
  if (const double* number = as<double>(value)) return *number != 0;
  if (const Text* text = get_text(value)) return !text->empty();
  if (const Dict* dict = as<Dict>(value)) return dict->is_namespace || !dict->entries.empty();
  if (const Sequence* sequence = as<Sequence>(value)) {
    return sequence->kind == Sequence::Kind::kOnce || !sequence->items.empty();
  }
  return !is<Undefined>(value) && !is<None>(value);
}

namespace {

bool equal_sequences(const Sequence& a, const Sequence& b) {
  if (&a == &b) return true;
  if (a.kind != b.kind || !a.is_indexed()) return false;
  return std::ranges::equal(a.items, b.items, equal);
}

bool equal_dicts(const Dict& a, const Dict& b) {
  if (&a == &b) return true;
  if (a.is_namespace || b.is_namespace || a.entries.size() != b.entries.size()) return false;
  return std::ranges::all_of(a.entries, [&](const auto& entry) {
    const Value* other = b.find(entry.first);
    return other != nullptr && equal(entry.second, *other);
  });
}

}  // namespace

bool equal(const Value& a, const Value& b) {
  if (const Text* text = get_text(a)) {
    const Text* other = get_text(b);
    return other != nullptr && *text == *other;
  }
  const auto number = number_of(a);
  const auto other_number = number_of(b);
  if (number || other_number) {
    return number && other_number && *number == *other_number && !less_numbers(a, b) &&
           !less_numbers(b, a);
  }
  if (a.index() != b.index()) return false;
  if (is<Undefined>(a) || is<None>(a)) return true;
  if (const Sequence* sequence = as<Sequence>(a)) {
    return equal_sequences(*sequence, *as<Sequence>(b));
  }
  if (const Dict* dict = as<Dict>(a)) return equal_dicts(*dict, *as<Dict>(b));
  if (const Function* function = as<Function>(a)) return function == as<Function>(b);
  return as<Loop>(a) == as<Loop>(b);
}

bool less(const Value& a, const Value& b, const char* sign) {
  for (const Value* value : {&a, &b}) {
    if (const Undefined* undefined = as<Undefined>(*value)) throw_undefined(*undefined);
  }
  const Text* text = get_text(a);
  const Text* other_text = get_text(b);
  if (text != nullptr && other_text != nullptr) return *text < *other_text;
  if (number_of(a) && number_of(b)) return less_numbers(a, b);
  const Sequence* sequence = as<Sequence>(a);
  const Sequence* other = as<Sequence>(b);
  if (sequence != nullptr && other != nullptr && sequence->kind == other->kind &&
      sequence->is_indexed() && sequence->kind != Sequence::Kind::kRange) {
    const auto [x, y] = std::ranges::mismatch(sequence->items, other->items, equal);
    if (x == sequence->items.end() || y == other->items.end()) {
      return sequence->items.size() < other->items.size();
    }
    return less(*x, *y, sign);
  }
  throw TemplateError(std::string("'") + sign + "' not supported between instances of '" +
                      type_name(a) + "' and '" + type_name(b) + "'");
}

bool contains(const Value& container, const Value& item) {
  if (const Text* text = get_text(container)) {
    const Text* part = get_text(item);
    if (part == nullptr) {
      throw TemplateError("'in <string>' requires string as left operand, not " + type_name(item));
    }
    return text->find(*part) != Text::npos;
  }
  if (const Dict* dict = as<Dict>(container)) return dict->find(item) != nullptr;
  return std::ranges::any_of(items_of(container),
                             [&](const Value& value) { return equal(value, item); });
}

std::vector<Value> items_of(const Value& value) {
  std::vector<Value> items;
  if (const auto* sequence = std::get_if<std::shared_ptr<Sequence>>(&value)) {
    if ((*sequence)->kind != Sequence::Kind::kOnce) return (*sequence)->items;
    if ((*sequence)->later) (*sequence)->items = std::exchange((*sequence)->later, nullptr)();
    items.swap((*sequence)->items);
  } else if (const Text* text = get_text(value)) {
    for (const char32_t c : *text) items.push_back(make_text(Text(1, c)));
  } else if (const Dict* dict = as<Dict>(value); dict != nullptr && !dict->is_namespace) {
    for (const auto& [key, _] : dict->entries) items.push_back(key);
  } else if (!is<Undefined>(value)) {
    throw TemplateError("'" + type_name(value) + "' object is not iterable");
  }
  return items;
}

std::size_t length_of(const Value& value) {
  if (const Text* text = get_text(value)) return text->size();
  const Sequence* sequence = as<Sequence>(value);
  if (sequence != nullptr && sequence->kind != Sequence::Kind::kOnce) return sequence->items.size();
  if (const Dict* dict = as<Dict>(value); dict != nullptr && !dict->is_namespace) {
    return dict->entries.size();
  }
  if (const Loop* loop = as<Loop>(value)) return loop->items.size();
  if (is<Undefined>(value)) return 0;
  throw TemplateError("object of type '" + type_name(value) + "' has no len()");
}

double to_double(const Int& number) {
  const double value = number.number();
  if (std::isinf(value)) throw TemplateError("int too large to convert to float");
  return value;
}

}  // namespace lmtp::jinja
