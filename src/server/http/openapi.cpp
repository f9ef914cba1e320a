#include "openapi.h"

#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "context.h"
#include "lmtp/base/json.h"
#include "schemas.h"

namespace lmtp::server {
namespace {

bool is_media_type(std::string_view type) { return type.find('/') != std::string_view::npos; }

// The content of a body of that type.
OrderedJson content_of(std::string_view type) {
  if (type.empty()) return OrderedJson::object();
  if (!is_media_type(type)) return {{"application/json", {{"schema", schema_of(type)}}}};
  return {{type, OrderedJson::object()}};
}

OrderedJson reference(std::string_view kind, std::string_view name) {
  return {{"$ref", "#/components/" + std::string(kind) + "/" + std::string(name)}};
}

// What a key is needed for. Keys are optional where the server asks for none.
OrderedJson security_of(Right right, bool needs_key) {
  OrderedJson security = OrderedJson::array();
  if (right == Right::kNone) return security;
  OrderedJson roles = OrderedJson::array();
  if (right == Right::kAdmin) roles.push_back("admin");
  security.push_back({{"key", roles}});
  if (!needs_key) security.push_back(OrderedJson::object());
  return security;
}

// The parameter in the path or in the query.
OrderedJson parameter_of(std::string_view path) {
  const std::size_t begin = path.find('{');
  const bool is_query = path[begin + 1] == '?';
  const std::string_view name = path.substr(begin + (is_query ? 2 : 1));
  return {{"name", name.substr(0, name.size() - 1)},
          {"in", is_query ? "query" : "path"},
          {"required", !is_query},
          {"schema", {{"type", "string"}}}};
}

std::string operation_id(const Route& route) {
  std::string id(route.method);
  for (const char c : route.path) {
    const bool is_kept = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
    if (is_kept || id.back() != '_') id += is_kept ? c : '_';
  }
  return id;
}

OrderedJson operation_of(const Route& route, bool needs_key) {
  OrderedJson operation = {{"operationId", operation_id(route)},
                           {"tags", {route.api->name}},
                           {"description", "docs/" + std::string(route.docs)}};
  if (route.right != Right::kKey) operation["security"] = security_of(route.right, needs_key);
  if (route.path.ends_with('}')) {
    operation["parameters"] = OrderedJson::array({parameter_of(route.path)});
  }
  if (!route.body.empty()) {
    operation["requestBody"] = {{"required", true}, {"content", content_of(route.body)}};
  }
  OrderedJson content = content_of(route.answer);
  if (!route.event.empty()) {  // the data of each
    const std::string_view separator = route.api->error.empty() ? "" : "|";
    const std::string type = std::string(route.event).append(separator).append(route.api->error);
    content["text/event-stream"] = {{"schema", schema_of(type)}};
  }
  operation["responses"] = {{"200", {{"description", "The answer."}, {"content", content}}},
                            {"default", reference("responses", route.api->name)}};
  return operation;
}

OrderedJson errors_of(const Api& api) {
  OrderedJson content = content_of(api.error);
  content["text/plain"] = OrderedJson::object();
  return {{"description", "What is wrong."}, {"content", content}};
}

std::string lower_method(std::string_view method) {
  std::string text(method);
  for (char& c : text) c = static_cast<char>(c - 'A' + 'a');
  return text;
}

}  // namespace

std::string openapi_text(const ServerOptions& options, bool needs_key) {
  OrderedJson paths = OrderedJson::object();
  OrderedJson errors = OrderedJson::object();
  OrderedJson schemas = OrderedJson::object();
  for (const Route& route : route_table()) {
    if (route.method.empty() || !is_served(route, options)) continue;
    const std::string path(route.path.substr(0, route.path.find("{?")));
    paths[path][lower_method(route.method)] = operation_of(route, needs_key);
    const std::string api(route.api->name);
    if (errors.contains(api)) continue;
    errors[api] = errors_of(*route.api);
    add_schemas(route.api->types, schemas);
  }
  const OrderedJson document = {
      {"openapi", "3.1.0"},
      {"info",
       {{"title", "lmtp-serve"},
        {"version", options.version},
        {"description", "LMTP itself is spoken over a WebSocket at /: docs/lmtp.md."}}},
      {"security", security_of(Right::kKey, needs_key)},
      {"paths", paths},
      {"components",
       {{"schemas", schemas},
        {"responses", errors},
        {"securitySchemes", {{"key", {{"type", "http"}, {"scheme", "bearer"}}}}}}}};
  return document.dump();
}

void answer_openapi(ServerContext& context, HttpRequest& /*http*/, const ResponderPtr& responder) {
  responder->send({200, "application/json", context.openapi});
}

}  // namespace lmtp::server
