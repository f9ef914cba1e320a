#include "routes.h"

#include <algorithm>
#include <charconv>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "answer.h"
#include "context.h"
#include "generation/read_body.h"
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
HttpResponse items_page(const OrderedJson& all, std::string_view query) {
  constexpr std::size_t kPage = 20;
  constexpr std::size_t kPageMax = 100;
  OrderedJson items = all;
  if (query_parameter(query, "order") != "asc") std::reverse(items.begin(), items.end());
  std::size_t begin = 0;
  if (const std::string after = query_parameter(query, "after"); !after.empty()) {
    const auto found = std::ranges::find_if(
        items, [&](const OrderedJson& item) { return item.value("id", OrderedJson()) == after; });
    if (found == items.end()) {
      return openai_error({ErrorCode::kInvalid, "after: no item of the response has the id '" +
                                                    shortened(after, 64) +
                                                    "'; one of them is needed"});
    }
    begin = static_cast<std::size_t>(found - items.begin()) + 1;
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
  return {200, "application/json", list.dump() + "\n"};
}

// What is kept of the response before this one, which is read with it; 0: it names none. No body
// is parsed that does not have the field's name.
std::size_t bytes_before(ServerContext& context, const HttpRequest& http, ConnectionId owner) {
  constexpr std::string_view kField = "previous_response_id";
  const bool may_name_it = http.body.find(kField) != std::string::npos ||
                           http.body.find("\\u") != std::string::npos;  // by an escape
  if (!may_name_it) return 0;
  const auto body = parse_json(http.body, "body");
  const std::string* const id = body ? find_json_text(*body, kField) : nullptr;
  const auto found = id == nullptr ? nullptr : context.responses.find(*id, owner);
  return found == nullptr ? 0 : found->input.size() + found->output.size();
}

Then read_and_answer(ServerContext& context, const std::string& body, ConnectionId owner,
                     const ResponderPtr& responder) {
  auto request = read_response_request(body, context.options.api, [&](const std::string& id) {
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
  const bool is_on_strand = http.body.size() <= kEncodedAtOnceMax;
  const std::size_t num_before = is_on_strand ? bytes_before(context, http, owner) : 0;
  if (num_before <= kEncodedAtOnceMax) return read_and_answer(context, http.body, owner, responder);
  return [&context, num_before, path = http.path, body = std::move(http.body), owner, responder] {
    work_on_bytes(context, num_before + body.size(), path, responder,
                  [=, &context] { return read_and_answer(context, body, owner, responder); });
  };
}

void responses_get(ServerContext& context, HttpRequest& http, const ResponderPtr& responder) {
  std::string id = http.path.substr(kPath.size());
  const bool lists = id.ends_with(kItems);
  if (lists) id.resize(id.size() - kItems.size());
  const auto found = context.responses.find(id, responses_owner(*responder));
  if (found == nullptr) return responder->send(no_response(id));
  if (!lists) return responder->send({200, "application/json", found->body + "\n"});
  work_on_bytes(context, found->input.size(), http.path, responder,
                [found, query = http.query, responder]() -> Then {
                  const auto items = parse_ordered_json(found->input, "items");
                  auto page = items ? items_page(*items, query) : openai_error(items.error());
                  return [responder, page = std::move(page)] { responder->send(page); };
                });
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
