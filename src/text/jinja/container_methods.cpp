// The methods of lists and objects, of `loop`, and the functions that are there without a value.
// Those that change a list or an object are left to templates, although the sandbox of
// transformers refuses them: real templates have them.
#include <algorithm>
#include <ctime>
#include <iomanip>
#include <sstream>

#include "builtins.h"
#include "loop.h"

namespace lmtp::jinja {
namespace {

using Self = Interpreter&;
using Given = const Arguments&;

// As many as the sandbox of Jinja2 allows.
constexpr std::int64_t kRangeMax = 100'000;

Sequence& list_of(Given given) { return *std::get<std::shared_ptr<Sequence>>(given.positional[0]); }
Dict& dict_of(Given given) { return *std::get<std::shared_ptr<Dict>>(given.positional[0]); }

std::ptrdiff_t place(const Sequence& list, const Value* index, bool may_be_end) {
  const auto size = static_cast<std::int64_t>(list.items.size());
  const std::int64_t given = int_or(index, -1);
  const std::int64_t at = given < 0 ? given + size : given;
  if (may_be_end) return std::clamp(at, std::int64_t{0}, size);
  if (at < 0 || at >= size) throw TemplateError("list index out of range");
  return at;
}

Value index_method(Self /*self*/, Given given) {
  const auto bound = bind("index", given, {"self", "value"}, 2);
  const auto& items = list_of(given).items;
  const auto at = std::ranges::find_if(items, [&](const Value& v) { return equal(v, *bound[1]); });
  if (at == items.end()) throw TemplateError("the value is not in the list");
  return Int(at - items.begin());
}

Value count_items_method(Self /*self*/, Given given) {
  const auto bound = bind("count", given, {"self", "value"}, 2);
  return Int(std::ranges::count_if(list_of(given).items,
                                   [&](const Value& v) { return equal(v, *bound[1]); }));
}

const Builtins& list_methods() {
  static const Builtins methods = {
      {"append",
       [](Self, Given given) -> Value {
         list_of(given).items.push_back(*bind("append", given, {"self", "value"}, 2)[1]);
         return None{};
       }},
      {"clear",
       [](Self, Given given) -> Value {
         list_of(given).items.clear();
         return None{};
       }},
      {"copy", [](Self, Given given) { return make_list(list_of(given).items); }},
      {"count", count_items_method},
      {"extend",
       [](Self, Given given) -> Value {
         const auto items = items_of(*bind("extend", given, {"self", "iterable"}, 2)[1]);
         auto& list = list_of(given).items;
         list.insert(list.end(), items.begin(), items.end());
         return None{};
       }},
      {"index", index_method},
      {"insert",
       [](Self, Given given) -> Value {
         const auto bound = bind("insert", given, {"self", "index", "value"}, 3);
         Sequence& list = list_of(given);
         list.items.insert(list.items.begin() + place(list, bound[1], true), *bound[2]);
         return None{};
       }},
      {"pop",
       [](Self, Given given) -> Value {
         Sequence& list = list_of(given);
         const auto at =
             list.items.begin() + place(list, bind("pop", given, {"self", "index"})[1], false);
         Value taken = *at;
         list.items.erase(at);
         return taken;
       }},
      {"reverse",
       [](Self, Given given) -> Value {
         std::ranges::reverse(list_of(given).items);
         return None{};
       }},
  };
  return methods;
}

template <Sequence::Kind kKind>
Value view_method(Self /*self*/, Given given) {
  bind("dict method", given, {"self"});
  std::vector<Value> items;
  for (const auto& [key, value] : dict_of(given).entries) {
    items.push_back(kKind == Sequence::Kind::kKeys ? key
                    : kKind == Sequence::Kind::kValues
                        ? value
                        : make_list({key, value}, Sequence::Kind::kTuple));
  }
  return make_list(std::move(items), kKind);
}

Value get_method(Self /*self*/, Given given) {
  const auto bound = bind("get", given, {"self", "key", "default"}, 2);
  if (const Value* value = dict_of(given).find(*bound[1])) return *value;
  return bound[2] == nullptr ? Value(None{}) : *bound[2];
}

void add_entries(const Arguments& given, std::size_t from, Dict& dict) {
  for (std::size_t i = from; i < given.positional.size(); ++i) {
    if (const Dict* other = as<Dict>(given.positional[i])) {
      for (const auto& [key, value] : other->entries) dict.set(key, value);
      continue;
    }
    for (const Value& item : items_of(given.positional[i])) {
      const std::vector<Value> pair = items_of(item);
      if (pair.size() != 2) throw TemplateError("an object is made of pairs");
      dict.set(pair[0], pair[1]);
    }
  }
  for (const auto& [name, value] : given.named) dict.set(name, value);
}

const Builtins& dict_methods() {
  static const Builtins methods = {
      {"clear",
       [](Self, Given given) -> Value {
         dict_of(given) = Dict();
         return None{};
       }},
      {"copy",
       [](Self, Given given) -> Value {
         auto copy = std::make_shared<Dict>();
         copy->entries = dict_of(given).entries;
         return copy;
       }},
      {"get", get_method},
      {"items", view_method<Sequence::Kind::kItems>},
      {"keys", view_method<Sequence::Kind::kKeys>},
      {"pop",
       [](Self, Given given) -> Value {
         const auto bound = bind("pop", given, {"self", "key", "default"}, 2);
         if (dict_of(given).find(*bound[1]) != nullptr) return dict_of(given).take(*bound[1]);
         if (bound[2] == nullptr) throw TemplateError("the key to pop is not there");
         return *bound[2];
       }},
      {"setdefault",
       [](Self, Given given) -> Value {
         const auto bound = bind("setdefault", given, {"self", "key", "default"}, 2);
         if (const Value* value = dict_of(given).find(*bound[1])) return *value;
         const Value value = bound[2] == nullptr ? Value(None{}) : *bound[2];
         dict_of(given).set(*bound[1], value);
         return value;
       }},
      {"update",
       [](Self, Given given) -> Value {
         add_entries(given, 1, dict_of(given));
         return None{};
       }},
      {"values", view_method<Sequence::Kind::kValues>},
  };
  return methods;
}

Value range_function(Self /*self*/, Given given) {
  const auto bound = bind("range", given, {"start", "stop", "step"}, 1);
  const bool has_stop = bound[1] != nullptr;
  const std::int64_t start = has_stop ? int_or(bound[0], 0) : 0;
  const std::int64_t stop = int_or(bound[has_stop ? 1 : 0], 0);
  const std::int64_t step = int_or(bound[2], 1);
  if (step == 0) throw TemplateError("range() arg 3 must not be zero");
  const std::int64_t length =
      step > 0 ? (stop - start + step - 1) / step : (start - stop - step - 1) / -step;
  if (length > kRangeMax) {
    throw TemplateError("Range too big. The sandbox blocks ranges larger than 100000.");
  }
  std::vector<Value> items;
  for (std::int64_t i = 0; i < length; ++i) items.emplace_back(Int(start + i * step));
  return make_list(std::move(items), Sequence::Kind::kRange);
}

Value dict_function(Self /*self*/, Given given) {
  auto dict = std::make_shared<Dict>();
  add_entries(given, 0, *dict);
  return dict;
}

Value namespace_function(Self /*self*/, Given given) {
  auto dict = std::make_shared<Dict>();
  add_entries(given, 0, *dict);
  dict->is_namespace = true;
  return dict;
}

Value raise_function(Self /*self*/, Given given) {
  throw Raised(utf8_of(to_text(*bind("raise_exception", given, {"message"}, 1)[0])));
}

Value time_function(Self /*self*/, Given given) {
  const std::string format = utf8_of(need_text(*bind("strftime_now", given, {"format"}, 1)[0]));
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  std::ostringstream text;
  text << std::put_time(&local, format.c_str());
  return make_text(std::string_view(text.str()));
}

// What {{ joiner() }} makes writes its separator from the second time on.
Value joiner_function(Self /*self*/, Given given) {
  const auto bound = bind("joiner", given, {"sep"});
  const Value separator = bound[0] == nullptr ? make_text(std::string_view(", ")) : *bound[0];
  const auto used = std::make_shared<bool>(false);
  return std::make_shared<const Function>(
      Function{.name = "joiner", .call = [separator, used](Self, Given) {
                 return std::exchange(*used, true) ? separator : make_text(TextView());
               }});
}

Value cycle(const Loop& loop, Given given) {
  if (given.positional.empty()) throw TemplateError("no items for cycling given");
  return given.positional[loop.index0 % given.positional.size()];
}

bool changed(Loop& loop, Given given) {
  const bool is_same =
      loop.last_changed && std::ranges::equal(*loop.last_changed, given.positional, equal);
  loop.last_changed = given.positional;
  return !is_same;
}

}  // namespace

Builtin find_sequence_method(const Sequence& sequence, std::string_view name) {
  if (!sequence.is_indexed()) return nullptr;
  const bool is_list = sequence.kind == Sequence::Kind::kList;
  if (!is_list && name != "count" && name != "index") return nullptr;
  const auto found = list_methods().find(name);
  return found == list_methods().end() ? nullptr : found->second;
}

Builtin find_dict_method(std::string_view name) {
  const auto found = dict_methods().find(name);
  return found == dict_methods().end() ? nullptr : found->second;
}

const Builtins& functions() {
  static const Builtins all = {
      {"dict", dict_function},           {"joiner", joiner_function},
      {"namespace", namespace_function}, {"raise_exception", raise_function},
      {"range", range_function},         {"strftime_now", time_function},
  };
  return all;
}

std::optional<Value> loop_attribute(const std::shared_ptr<Loop>& loop, std::string_view name) {
  const std::size_t size = loop->items.size();
  const std::size_t at = loop->index0;
  if (name == "index") return Int(at + 1);
  if (name == "index0") return Int(at);
  if (name == "revindex") return Int(size - at);
  if (name == "revindex0") return Int(size - at - 1);
  if (name == "first") return at == 0;
  if (name == "last") return at + 1 == size;
  if (name == "length") return Int(size);
  if (name == "depth") return Int(loop->depth0 + 1);
  if (name == "depth0") return Int(loop->depth0);
  if (name == "previtem") {
    return at == 0 ? make_undefined("there is no previous item") : loop->items[at - 1];
  }
  if (name == "nextitem") {
    return at + 1 == size ? make_undefined("there is no next item") : loop->items[at + 1];
  }
  if (name == "cycle") {
    return std::make_shared<const Function>(Function{
        .name = "cycle", .call = [loop](Self, Given given) { return cycle(*loop, given); }});
  }
  if (name == "changed") {
    return std::make_shared<const Function>(
        Function{.name = "changed",
                 .call = [loop](Self, Given given) -> Value { return changed(*loop, given); }});
  }
  return std::nullopt;
}

}  // namespace lmtp::jinja
