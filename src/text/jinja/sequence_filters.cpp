// Filters of lists and objects.
#include <algorithm>

#include "builtins.h"

namespace lmtp::jinja {
namespace {

using Self = Interpreter&;
using Given = const Arguments&;

// What Python computes only where somebody goes through it.
template <std::vector<Value> (*kItems)(Self, Given)>
Value lazily(Self self, Given given) {
  return std::make_shared<Sequence>(Sequence{
      .kind = Sequence::Kind::kOnce, .later = [&self, given] { return kItems(self, given); }});
}

Value ignoring_case(const Value& value) {
  const Text* text = get_text(value);
  return text == nullptr ? value : make_text(lower(*text));
}

// By what a filter compares items: `attribute` of each where it is given.
class Key {
 public:
  Key(const Value* attribute, const Value* case_sensitive)
      : attribute_(attribute == nullptr || is<None>(*attribute) ? nullptr : attribute),
        case_sensitive_(bool_or(case_sensitive, false)) {}

  Value of(const Value& item) const {
    const Value value = attribute_ == nullptr ? item : attribute_path(item, *attribute_);
    return case_sensitive_ ? value : ignoring_case(value);
  }
  // Of several attributes with commas between.
  Value all_of(const Value& item) const {
    const Text* names = attribute_ == nullptr ? nullptr : get_text(*attribute_);
    if (names == nullptr) return of(item);
    std::vector<Value> values;
    for (const TextView name : split(*names, U",", Text::npos, false)) {
      const Value value = attribute_path(item, make_text(name));
      values.push_back(case_sensitive_ ? value : ignoring_case(value));
    }
    return make_list(std::move(values));
  }

 private:
  const Value* attribute_;
  bool case_sensitive_;
};

struct Keyed {
  Value key, item;
};

std::vector<Value> sorted(std::vector<Keyed> keyed, bool reverse) {
  std::ranges::stable_sort(keyed, [&](const Keyed& a, const Keyed& b) {
    return reverse ? less(b.key, a.key) : less(a.key, b.key);
  });
  std::vector<Value> items;
  for (Keyed& one : keyed) items.push_back(std::move(one.item));
  return items;
}

Value sort_filter(Self /*self*/, Given given) {
  const auto bound = bind("sort", given, {"value", "reverse", "case_sensitive", "attribute"}, 1);
  const Key key(bound[3], bound[2]);
  std::vector<Keyed> keyed;
  for (const Value& item : items_of(*bound[0])) keyed.push_back({key.all_of(item), item});
  return make_list(sorted(std::move(keyed), bool_or(bound[1], false)));
}

Value dict_sort_filter(Self /*self*/, Given given) {
  const auto bound = bind("dictsort", given, {"value", "case_sensitive", "by", "reverse"}, 1);
  const Dict* dict = as<Dict>(*bound[0]);
  if (const Undefined* undefined = as<Undefined>(*bound[0])) throw_undefined(*undefined);
  if (dict == nullptr) throw TemplateError("dictsort takes a mapping");
  const Text by = text_or(bound[2], U"key");
  if (by != U"key" && by != U"value") {
    throw TemplateError("You can only sort by either \"key\" or \"value\"");
  }
  const Key key(nullptr, bound[1]);
  std::vector<Keyed> keyed;
  for (const auto& [name, value] : dict->entries) {
    keyed.push_back(
        {key.of(by == U"key" ? name : value), make_list({name, value}, Sequence::Kind::kTuple)});
  }
  return make_list(sorted(std::move(keyed), bool_or(bound[3], false)));
}

std::vector<Value> unique_items(Self /*self*/, Given given) {
  const auto bound = bind("unique", given, {"value", "case_sensitive", "attribute"}, 1);
  const Key key(bound[2], bound[1]);
  Dict seen;
  std::vector<Value> items;
  for (const Value& item : items_of(*bound[0])) {
    const Value its_key = key.of(item);
    if (seen.find(its_key) != nullptr) continue;
    seen.set(its_key, None{});
    items.push_back(item);
  }
  return items;
}

template <bool kMax>
Value extreme_filter(Self /*self*/, Given given) {
  const auto bound = bind("max", given, {"value", "case_sensitive", "attribute"}, 1);
  const Key key(bound[2], bound[1]);
  const std::vector<Value> items = items_of(*bound[0]);
  if (items.empty()) return make_undefined("No aggregated item, sequence was empty.");
  Value best = items[0];
  for (const Value& item : items) {
    if (kMax ? less(key.of(best), key.of(item)) : less(key.of(item), key.of(best))) best = item;
  }
  return best;
}

Value group_by_filter(Self /*self*/, Given given) {
  const auto bound = bind("groupby", given, {"value", "attribute", "default", "case_sensitive"}, 2);
  const auto group_of = [&](const Value& item) {
    Value value = attribute_path(item, *bound[1]);
    return is<Undefined>(value) && bound[2] != nullptr && !is<None>(*bound[2]) ? *bound[2] : value;
  };
  const bool sensitive = bool_or(bound[3], false);
  const auto key_of = [&](const Value& item) {
    return sensitive ? group_of(item) : ignoring_case(group_of(item));
  };
  std::vector<Keyed> keyed;
  for (const Value& item : items_of(*bound[0])) keyed.push_back({key_of(item), item});
  std::vector<Value> groups;
  std::vector<Value> members;
  const auto close = [&] {
    if (members.empty()) return;
    const Value group = group_of(members[0]);
    groups.emplace_back(std::make_shared<Sequence>(Sequence{
        .kind = Sequence::Kind::kTuple, .items = {group, make_list(members)}, .is_group = true}));
    members.clear();
  };
  for (const Value& item : sorted(std::move(keyed), false)) {
    if (!members.empty() && !equal(key_of(members[0]), key_of(item))) close();
    members.push_back(item);
  }
  close();
  return make_list(std::move(groups));
}

Value sum_filter(Self /*self*/, Given given) {
  const auto bound = bind("sum", given, {"iterable", "attribute", "start"}, 1);
  Value sum = bound[2] == nullptr ? Value(Int(0)) : *bound[2];
  if (is<Str>(sum)) throw TemplateError("sum() can't sum strings");
  for (const Value& item : items_of(*bound[0])) {
    const bool is_whole = bound[1] == nullptr || is<None>(*bound[1]);
    sum = binary("+", sum, is_whole ? item : attribute_path(item, *bound[1]));
  }
  return sum;
}

std::vector<Value> batches(Self /*self*/, Given given) {
  const auto bound = bind("batch", given, {"value", "linecount", "fill_with"}, 2);
  const std::int64_t size = int_or(bound[1], 0);
  std::vector<Value> rows;
  std::vector<Value> row;
  for (const Value& item : items_of(*bound[0])) {
    if (static_cast<std::int64_t>(row.size()) == size) {
      rows.push_back(make_list(std::move(row)));
      row.clear();
    }
    row.push_back(item);
  }
  if (!row.empty()) {
    const bool fills = bound[2] != nullptr && !is<None>(*bound[2]);
    if (size > 1 << 20) throw TemplateError("a batch is too large");
    while (fills && static_cast<std::int64_t>(row.size()) < size) row.push_back(*bound[2]);
    rows.push_back(make_list(std::move(row)));
  }
  return rows;
}

std::vector<Value> slices_of(Self /*self*/, Given given) {
  const auto bound = bind("slice", given, {"value", "slices", "fill_with"}, 2);
  const std::vector<Value> items = items_of(*bound[0]);
  const std::int64_t num = int_or(bound[1], 0);
  if (num == 0) throw TemplateError("integer division or modulo by zero");
  if (num > 1 << 20) throw TemplateError("too many slices");
  std::vector<Value> slices;
  std::size_t begin = 0;
  for (std::int64_t i = 0; i < num; ++i) {
    const auto slice = static_cast<std::size_t>(num);
    const bool has_extra = static_cast<std::size_t>(i) < items.size() % slice;
    const std::size_t end = begin + items.size() / slice + (has_extra ? 1 : 0);
    std::vector<Value> part(items.begin() + static_cast<std::ptrdiff_t>(begin),
                            items.begin() + static_cast<std::ptrdiff_t>(end));
    if (!has_extra && bound[2] != nullptr && !is<None>(*bound[2])) part.push_back(*bound[2]);
    slices.push_back(make_list(std::move(part)));
    begin = end;
  }
  return slices;
}

// Nothing, as of an empty list, gives nothing.
std::vector<Value> mapped_items(Self self, Given given) {
  std::vector<Value> items;
  if (!is_true(given.positional.at(0))) return items;
  if (given.positional.size() == 1 && !given.named.empty()) {
    const auto bound = bind("map", given, {"value", "attribute", "default"}, 2);
    for (const Value& item : items_of(*bound[0])) {
      const Value value = attribute_path(item, *bound[1]);
      const bool is_missing = is<Undefined>(value) && bound[2] != nullptr;
      items.push_back(is_missing ? *bound[2] : value);
    }
    return items;
  }
  if (given.positional.size() < 2) throw TemplateError("map requires a filter argument");
  Arguments each = given;
  each.positional.erase(each.positional.begin());
  const std::string name = utf8_of(need_text(each.positional[0]));
  for (const Value& item : items_of(given.positional[0])) {
    each.positional[0] = item;
    items.push_back(self.filter(name, each));
  }
  return items;
}

// select, reject, and of an attribute selectattr, rejectattr.
template <bool kWanted, bool kOfAttribute>
std::vector<Value> selected_items(Self self, Given given) {
  if (!is_true(given.positional.at(0))) return {};
  const std::size_t num_fixed = kOfAttribute ? 2 : 1;
  if (given.positional.size() < num_fixed) throw TemplateError("select lacks an attribute's name");
  Arguments each = given;
  each.positional.erase(each.positional.begin(),
                        each.positional.begin() + static_cast<std::ptrdiff_t>(num_fixed));
  const bool has_test = !each.positional.empty();
  const std::string test = has_test ? utf8_of(need_text(each.positional[0])) : "";
  std::vector<Value> items;
  for (const Value& item : items_of(given.positional[0])) {
    const Value value = kOfAttribute ? attribute_path(item, given.positional[1]) : item;
    if (has_test) each.positional[0] = value;
    if ((has_test ? self.test(test, each) : is_true(value)) == kWanted) items.push_back(item);
  }
  return items;
}

Value first_filter(Self /*self*/, Given given) {
  const auto bound = bind("first", given, {"seq"}, 1);
  const auto* sequence = std::get_if<std::shared_ptr<Sequence>>(bound[0]);
  std::vector<Value> items = items_of(*bound[0]);
  if (items.empty()) return make_undefined("No first item, sequence was empty.");
  Value first = items.front();
  if (sequence != nullptr && (*sequence)->kind == Sequence::Kind::kOnce) {
    (*sequence)->items.assign(items.begin() + 1, items.end());
  }
  return first;
}

std::vector<Value> reversible(const Value& value) {
  const Sequence* sequence = as<Sequence>(value);
  if (sequence != nullptr && sequence->kind == Sequence::Kind::kOnce) {
    throw TemplateError("'generator' object is not reversible");
  }
  return items_of(value);
}

Value last_filter(Self /*self*/, Given given) {
  const auto bound = bind("last", given, {"seq"}, 1);
  const std::vector<Value> items = reversible(*bound[0]);
  if (items.empty()) return make_undefined("No last item, sequence was empty.");
  return items.back();
}

Value reverse_filter(Self /*self*/, Given given) {
  const auto bound = bind("reverse", given, {"value"}, 1);
  if (const Text* text = get_text(*bound[0])) return make_text(Text(text->rbegin(), text->rend()));
  std::vector<Value> items = items_of(*bound[0]);
  std::ranges::reverse(items);
  return make_list(std::move(items), Sequence::Kind::kOnce);
}

Value length_filter(Self /*self*/, Given given) {
  return Int(length_of(*bind("length", given, {"obj"}, 1)[0]));
}

Value list_filter(Self /*self*/, Given given) {
  return make_list(items_of(*bind("list", given, {"value"}, 1)[0]));
}

std::vector<Value> pairs_of(Self /*self*/, Given given) {
  const Value& value = *bind("items", given, {"value"}, 1)[0];
  if (is<Undefined>(value)) return {};
  const Dict* dict = as<Dict>(value);
  if (dict == nullptr) throw TemplateError("Can only get item pairs from a mapping.");
  std::vector<Value> items;
  for (const auto& [key, entry] : dict->entries) {
    items.push_back(make_list({key, entry}, Sequence::Kind::kTuple));
  }
  return items;
}

Value default_filter(Self /*self*/, Given given) {
  const auto bound = bind("default", given, {"value", "default_value", "boolean"}, 1);
  const bool is_missing =
      is<Undefined>(*bound[0]) || (bool_or(bound[2], false) && !is_true(*bound[0]));
  if (!is_missing) return *bound[0];
  return bound[1] == nullptr ? make_text(TextView()) : *bound[1];
}

Value attr_filter(Self /*self*/, Given given) {
  const auto bound = bind("attr", given, {"obj", "name"}, 2);
  const Dict* dict = as<Dict>(*bound[0]);
  const std::string name = utf8_of(to_text(*bound[1]));
  if (dict != nullptr && !dict->is_namespace && find_dict_method(name) == nullptr) {
    return make_undefined("'dict object' has no attribute '" + name + "'");
  }
  return Interpreter::attribute(*bound[0], name);
}

}  // namespace

Value attribute_path(const Value& item, const Value& path) {
  const Text* names = get_text(path);
  if (names == nullptr) return Interpreter::item(item, path);
  Value value = item;
  for (const TextView name : split(*names, U".", Text::npos, false)) {
    const bool is_index = !name.empty() && std::ranges::all_of(name, [](char32_t c) {
      return is_digit(code_point(c));
    });
    const auto index = is_index ? read_int(name, 10) : std::nullopt;
    value = Interpreter::item(value, index ? Value(*index) : make_text(name));
  }
  return value;
}

const Builtins& sequence_filters() {
  static const Builtins filters = {
      {"attr", attr_filter},
      {"batch", lazily<batches>},
      {"count", length_filter},
      {"d", default_filter},
      {"default", default_filter},
      {"dictsort", dict_sort_filter},
      {"first", first_filter},
      {"groupby", group_by_filter},
      {"items", lazily<pairs_of>},
      {"last", last_filter},
      {"length", length_filter},
      {"list", list_filter},
      {"map", lazily<mapped_items>},
      {"max", extreme_filter<true>},
      {"min", extreme_filter<false>},
      {"reject", lazily<selected_items<false, false>>},
      {"rejectattr", lazily<selected_items<false, true>>},
      {"reverse", reverse_filter},
      {"select", lazily<selected_items<true, false>>},
      {"selectattr", lazily<selected_items<true, true>>},
      {"slice", lazily<slices_of>},
      {"sort", sort_filter},
      {"sum", sum_filter},
      {"unique", lazily<unique_items>},
  };
  return filters;
}

}  // namespace lmtp::jinja
