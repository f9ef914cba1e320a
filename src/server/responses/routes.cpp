#include "routes.h"

#include <algorithm>
#include <charconv>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "answer.h"
#include "context.h"
#include "http/message.h"
#include "lmtp/base/json.h"
#include "lmtp/base/text.h"
#include "lmtp/text/chat_template.h"
#include "openai/error.h"
#include "openai/request.h"
#include "request.h"

namespace lmtp::server {
namespace {

constexpr std::string_view kPath = "/v1/responses/";
constexpr std::string_view kItems = "/input_items";

HttpResponse no_response(const std::string& id) {
  return openai_not_found("Response with id '" + shortened(id, 64) + "' not found.", "response_id",
                          "response_not_found");
}

// The value of a parameter of a query; empty: it has none.
std::string query_parameter(std::string_view query, std::string_view name) {
  while (!query.empty()) {
    const std::string_view part = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(query.size(), part.size() + 1));
    const std::size_t equals = std::min(part.find('='), part.size());
    if (part.substr(0, equals) != name || equals == part.size()) continue;
    return percent_decoded(part.substr(equals + 1));
  }
  return {};
}

// The list's page by `order`, `after` and `limit`, as OpenAI's: the last item first.
std::string items_page(const OrderedJson& all, std::string_view query) {
  constexpr std::size_t kPage = 20;
  constexpr std::size_t kPageMax = 100;
  OrderedJson items = all;
  if (query_parameter(query, "order") != "asc") std::reverse(items.begin(), items.end());
  std::size_t begin = 0;
  if (const std::string after = query_parameter(query, "after"); !after.empty()) {
    const auto found = std::ranges::find_if(
        items, [&](const OrderedJson& item) { return item.value("id", OrderedJson()) == after; });
    begin = static_cast<std::size_t>(found - items.begin()) + (found == items.end() ? 0 : 1);
  }
  std::size_t limit = kPage;
  const std::string text = query_parameter(query, "limit");
  std::from_chars(text.data(), text.data() + text.size(), limit);
  const std::size_t end =
      std::min(items.size(), begin + std::clamp<std::size_t>(limit, 1, kPageMax));
  OrderedJson data = OrderedJson::array();
  for (std::size_t i = begin; i < end; ++i) data.push_back(items[i]);
  const auto id_of = [&](std::size_t at) {
    return begin < end ? items[at].value("id", OrderedJson()) : OrderedJson();
  };
  const OrderedJson list = {{"object", "list"},
                            {"data", std::move(data)},
                            {"first_id", id_of(begin)},
                            {"last_id", id_of(end - 1)},
                            {"has_more", end < items.size()}};
  return list.dump() + "\n";
}

}  // namespace

Then responses_create(ServerContext& context, HttpRequest& http, const ResponderPtr& responder) {
  if (!text::renders_chat_templates()) {
    constexpr int kNotImplemented = 501;
    return [responder] {
      responder->send({kNotImplemented, "application/json",
                       openai_refusal_json(kNotImplemented, kRendersNoTemplates)});
    };
  }
  const ConnectionId owner = responses_owner(*responder);
  auto request = read_response_request(http.body, context.options.api, [&](const std::string& id) {
    return context.responses.find(id, owner);
  });
  return [&context, responder, request = std::move(request)]() mutable {
    if (request) return answer_response(context, std::move(*request), responder);
    const Error& error = request.error();
    context.generation.models.refusals().add(error.code);
    responder->send(
        error.code == ErrorCode::kNotFound
            ? openai_not_found(error.message, "previous_response_id", "previous_response_not_found")
            : openai_error(error));
  };
}

void responses_get(ServerContext& context, HttpRequest& http, const ResponderPtr& responder) {
  std::string id = http.path.substr(kPath.size());
  const bool lists = id.ends_with(kItems);
  if (lists) id.resize(id.size() - kItems.size());
  const auto found = context.responses.find(id, responses_owner(*responder));
  if (found == nullptr) return responder->send(no_response(id));
  if (!lists) return responder->send({200, "application/json", found->body + "\n"});
  const auto items = parse_ordered_json(found->input, "items");
  if (!items) return responder->send(openai_error(items.error()));
  responder->send({200, "application/json", items_page(*items, http.query)});
}

void responses_delete(ServerContext& context, HttpRequest& http, const ResponderPtr& responder) {
  const std::string id = http.path.substr(kPath.size());
  if (!context.responses.erase(id, responses_owner(*responder))) {
    return responder->send(no_response(id));
  }
  responder->send({200, "application/json",
                   json_text({{"id", id}, {"object", "response"}, {"deleted", true}}) + "\n"});
}

}  // namespace lmtp::server
