#include "lmtp/constraint/schema_forms.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "excluding_schemas.h"
#include "lmtp/base/json.h"
#include "lmtp/base/log.h"
#include "lmtp/base/text.h"
#include "lmtp/request/grammar.h"
#include "negated_schema.h"

namespace lmtp::constraint {
namespace {

// Those that llguidance 1.9.1 knows.
constexpr std::array<std::string_view, 11> kFormats = {
    "date-time", "time", "date", "duration", "email",  "hostname",
    "ipv4",      "ipv6", "uri",  "uuid",     "unknown"};

bool is_one_of(std::string_view key, std::initializer_list<std::string_view> keys) {
  return std::ranges::find(keys, key) != keys.end();
}

// One more condition, after those that `allOf` has: places in it stay what they were. It comes
// last, so that the members which `properties` names keep their order.
void add_condition(OrderedJson& schema, OrderedJson condition) {
  OrderedJson all = OrderedJson::array();
  if (const auto found = schema.find("allOf"); found != schema.end()) all = std::move(*found);
  all.push_back(std::move(condition));
  schema.erase("allOf");
  schema["allOf"] = std::move(all);
}

// Once for each name, so that nobody fills the log.
void log_format(const std::string& name) {
  constexpr std::size_t kNamesMax = 256;
  static std::mutex mutex;
  static std::set<std::string> logged;
  const std::string quoted = quoted_name(name);
  const std::lock_guard lock(mutex);
  if (logged.size() == kNamesMax || !logged.insert(quoted).second) return;
  log::info("grammar: a schema's format " + quoted +
            " is not known here, and values need not have it");
}

OrderedJson without(const std::string& name) {
  OrderedJson schema = OrderedJson::object();
  schema["properties"][name] = false;
  return schema;
}

// Rewrites what is at the places of schemas.
class Rewriting {
 public:
  // root: what `text` says, as written.
  Rewriting(const OrderedJson& root, std::string_view text) : excluding_(root, text) {
    for (const char* keyword : kMoved) {
      // A reference's pointer leads through it.
      const std::string part = "/" + std::string(keyword);
      for (std::size_t at = text.find(part); at != std::string_view::npos;
           at = text.find(part, at + 1)) {
        constexpr std::string_view kEnds = "/\\\"";
        const std::size_t end = at + part.size();
        if (end < text.size() && kEnds.find(text[end]) != std::string_view::npos) {
          named_.insert(keyword);
          break;
        }
      }
    }
  }

  void rewrite(OrderedJson& schema) {
    if (!schema.is_object()) return;
    if (const auto all = schema.find("allOf"); all != schema.end() && !all->is_array()) return;
    while (replace_not(schema)) {  // by what may have one in its place
    }
    for (auto& [key, value] : schema.items()) {
      if (is_one_of(key, {"properties", "patternProperties", "$defs", "definitions",
                          "dependentSchemas", "dependencies"})) {
        if (value.is_object()) rewrite_each(value);
      } else if (is_one_of(key, {"allOf", "anyOf", "oneOf", "prefixItems", "items"}) &&
                 value.is_array()) {
        rewrite_each(value);
      } else if (is_one_of(key, {"items", "additionalItems", "additionalProperties", "contains",
                                 "not", "if", "then", "else", "propertyNames"})) {
        rewrite(value);
      }
    }
    drop_format(schema);
    replace_one_of(schema);
    for (const char* key : {"dependentRequired", "dependentSchemas", "dependencies"}) {
      replace_dependencies(schema, key);
    }
  }

  bool has_changed = false;

 private:
  static constexpr const char* kMoved[] = {"oneOf", "not", "dependentRequired", "dependentSchemas",
                                           "dependencies"};

  void rewrite_each(OrderedJson& values) {
    for (OrderedJson& each : values) rewrite(each);
  }

  // Whether a reference may lead to what is below this keyword.
  bool is_named(const std::string& keyword) const { return named_.contains(keyword); }

  void drop_format(OrderedJson& schema) {
    const auto found = schema.find("format");
    if (found == schema.end() || !found->is_string()) return;
    const std::string name = found->get<std::string>();
    if (std::ranges::find(kFormats, name) != kFormats.end()) return;
    log_format(name);
    schema.erase("format");
    has_changed = true;
  }

  void replace_one_of(OrderedJson& schema) {
    const auto found = schema.find("oneOf");
    if (found == schema.end() || is_named("oneOf") || !excluding_.are_exclusive(schema)) return;
    if (schema.contains("anyOf")) {
      OrderedJson branches = std::move(*found);
      schema.erase("oneOf");
      add_condition(schema, schema_with("anyOf", std::move(branches)));
    } else {
      OrderedJson same = OrderedJson::object();  // in the same place
      for (auto& [key, value] : schema.items()) {
        same[key == "oneOf" ? "anyOf" : key] = std::move(value);
      }
      schema = std::move(same);
    }
    has_changed = true;
  }

  void replace_dependencies(OrderedJson& schema, const char* key) {
    const auto found = schema.find(key);
    if (found == schema.end() || !found->is_object() || is_named(key)) return;
    OrderedJson conditions = OrderedJson::array();
    for (auto& [name, needed] : found->items()) {
      OrderedJson then = needed.is_array() ? schema_with("required", needed) : needed;
      if (!then.is_object() && !then.is_boolean()) return;
      OrderedJson either = OrderedJson::array();
      either.push_back(without(name));
      either.push_back(std::move(then));
      conditions.push_back(schema_with("anyOf", std::move(either)));
    }
    schema.erase(key);
    for (OrderedJson& condition : conditions) add_condition(schema, std::move(condition));
    has_changed = true;
  }

  bool replace_not(OrderedJson& schema) {
    const auto found = schema.find("not");
    if (found == schema.end() || is_named("not")) return false;
    std::optional<OrderedJson> rest = negated(*found);
    if (!rest) return false;
    schema.erase("not");
    has_changed = true;
    if (schema.empty() && rest->is_object()) {
      schema = *std::move(rest);
    } else if (*rest != true) {
      add_condition(schema, *std::move(rest));
    }
    return true;
  }

  ExcludingSchemas excluding_;
  std::set<std::string> named_;
};

}  // namespace

std::string to_known_form(const std::string& schema) {
  if (schema.size() > kMaxGrammarBytes) return schema;
  auto parsed = parse_ordered_json(schema, "the schema");
  if (!parsed || !parsed->is_object()) return schema;
  const OrderedJson as_written = *parsed;
  Rewriting rewriting(as_written, schema);
  rewriting.rewrite(*parsed);
  if (!rewriting.has_changed) return schema;
  return parsed->dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

}  // namespace lmtp::constraint
