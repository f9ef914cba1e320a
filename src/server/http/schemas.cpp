#include "schemas.h"

#include <algorithm>
#include <charconv>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "lmtp/base/check.h"
#include "lmtp/request/sampling_table.h"

namespace lmtp::server {
namespace {

constexpr std::string_view kPlainTypes[] = {"string",  "integer", "number",
                                            "boolean", "object",  "null"};

// Takes what is before the next `separator` from `rest`, and the separator. Spaces around it are
// cut.
std::string_view take_part(std::string_view& rest, char separator) {
  const std::size_t end = rest.find(separator);
  std::string_view part = rest.substr(0, end);
  rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
  part.remove_prefix(std::min(part.find_first_not_of(' '), part.size()));
  return part.substr(0, part.find_last_not_of(' ') + 1);
}

std::vector<std::string_view> parts_of(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (!text.empty()) parts.push_back(take_part(text, separator));
  return parts;
}

double number_of(std::string_view text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  LMTP_CHECK(error == std::errc() && end == text.data() + text.size(), text);
  return number;
}

OrderedJson number_schema(const ParamRange& range, bool high_allowed = true) {
  return {{"type", "number"},
          {range.low_allowed ? "minimum" : "exclusiveMinimum", range.low},
          {high_allowed ? "maximum" : "exclusiveMaximum", range.high}};
}

// The schema of an interval, as "(0,1]".
OrderedJson interval_schema(std::string_view text) {
  const std::size_t comma = text.find(',');
  const ParamRange range{number_of(text.substr(1, comma - 1)),
                         number_of(text.substr(comma + 1, text.size() - comma - 2)),
                         text.front() == '['};
  return number_schema(range, text.back() == ']');
}

// The schema of whole numbers, as "0..128".
OrderedJson whole_schema(std::string_view text) {
  const std::size_t dots = text.find("..");
  OrderedJson schema = {{"type", "integer"},
                        {"minimum", static_cast<std::int64_t>(number_of(text.substr(0, dots)))}};
  const std::string_view high = text.substr(dots + 2);
  if (!high.empty()) schema["maximum"] = static_cast<std::int64_t>(number_of(high));
  return schema;
}

OrderedJson parameter_schema(const SamplingParam& param) {
  const auto of_member = [&]<typename T>(T SamplingParams::* /*member*/) -> OrderedJson {
    if constexpr (std::is_same_v<T, float>) return number_schema(param.range);
    if constexpr (std::is_same_v<T, bool>) return {{"type", "boolean"}};
    if constexpr (std::is_same_v<T, std::uint64_t>) return {{"type", "integer"}};
    if constexpr (std::is_same_v<T, int>) {  // beyond range.high it is range.high
      return {{"type", "integer"}, {"minimum", static_cast<std::int64_t>(param.range.low)}};
    }
    return {{"type", "object"}, {"additionalProperties", number_schema(param.range)}};
  };
  OrderedJson schema = std::visit(of_member, param.member);
  schema["description"] = param.help;
  return schema;
}

OrderedJson one_schema(std::string_view type) {
  LMTP_CHECK(!type.empty(), "no type");
  if (type.ends_with("[]")) {
    return {{"type", "array"}, {"items", one_schema(type.substr(0, type.size() - 2))}};
  }
  if (type == "any") return OrderedJson::object();
  if (type == "nothing") {
    return {{"enum", {nullptr, false, 0, "", OrderedJson::array(), OrderedJson::object()}}};
  }
  if (type.front() == '\'') return {{"const", type.substr(1, type.size() - 2)}};
  if (type.front() == '(' || type.front() == '[') return interval_schema(type);
  if (type.find("..") != std::string_view::npos) return whole_schema(type);
  if (std::ranges::find(kPlainTypes, type) != std::end(kPlainTypes)) return {{"type", type}};
  LMTP_CHECK(type.front() >= 'A' && type.front() <= 'Z', type);
  return {{"$ref", "#/components/schemas/" + std::string(type)}};
}

void add_fields(std::string_view line, OrderedJson& object) {
  std::vector<std::string_view> names;
  do {
    names.push_back(take_part(line, ' '));
  } while (names.back().ends_with(','));
  for (std::string_view name : names) {
    if (name.ends_with(',')) name.remove_suffix(1);
    if (name.ends_with('!')) {
      name.remove_suffix(1);
      object["required"].push_back(name);
    }
    object["properties"][std::string(name)] = schema_of(line);
  }
}

void add_parameters(std::string_view line, OrderedJson& object) {
  const std::vector<std::string_view> others = parts_of(line.substr(1), ' ');
  for (const SamplingParam& param : kSamplingTable) {
    if (std::ranges::find(others, "-" + std::string(param.name)) != others.end()) continue;
    object["properties"][std::string(param.name)] = parameter_schema(param);
  }
}

// Adds the object that the line begins.
OrderedJson& add_object(std::string_view line, OrderedJson& schemas) {
  const std::string name(take_part(line, ':'));
  OrderedJson object = {{"type", "object"}, {"properties", OrderedJson::object()}};
  for (const std::string_view base : parts_of(line, ',')) {
    object["allOf"].push_back(one_schema(base));
  }
  return schemas[name] = std::move(object);
}

}  // namespace

OrderedJson schema_of(std::string_view type) {
  const std::vector<std::string_view> types = parts_of(type, '|');
  LMTP_CHECK(!types.empty(), "no type");
  if (types.size() == 1) return one_schema(types.front());
  OrderedJson any = OrderedJson::array();
  OrderedJson names = OrderedJson::array();  // of plain types
  OrderedJson values = OrderedJson::array();
  for (const std::string_view each : types) {
    OrderedJson schema = one_schema(each);
    if (schema.contains("const")) {
      values.push_back(schema["const"]);
    } else if (schema.contains("type") && schema.size() == 1) {
      names.push_back(schema["type"]);
    } else {
      any.push_back(std::move(schema));
    }
  }
  if (!values.empty()) any.push_back({{"enum", values}});
  if (any.empty() && names.size() > 1) return {{"type", names}};
  // Each by itself: there are readers of specifications that take no list of types in an anyOf.
  for (const OrderedJson& name : names) any.push_back({{"type", name}});
  return any.size() == 1 ? any.front() : OrderedJson{{"anyOf", any}};
}

void add_schemas(std::string_view table, OrderedJson& schemas) {
  OrderedJson* object = nullptr;
  while (!table.empty()) {
    const std::size_t end = std::min(table.find('\n'), table.size());
    std::string_view line = table.substr(0, end);
    table.remove_prefix(std::min(end + 1, table.size()));
    if (line.empty()) continue;
    if (line.front() != ' ') {
      const bool is_object = line.find('=') == std::string_view::npos;
      if (is_object) {
        object = &add_object(line, schemas);
      } else {
        const std::string name(take_part(line, '='));
        schemas[name] = schema_of(line);
      }
      continue;
    }
    LMTP_CHECK(object != nullptr, line);
    line.remove_prefix(line.find_first_not_of(' '));
    line.front() == '*' ? add_parameters(line, *object) : add_fields(line, *object);
  }
}

}  // namespace lmtp::server
