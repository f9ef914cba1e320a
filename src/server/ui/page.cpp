#include "ui/page.h"

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>

#include "context.h"
#include "http/message.h"
#include "lmtp/base/json.h"
#include "lmtp/base/runtime.h"

namespace lmtp::server {
namespace {

constexpr std::string_view kPagePolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'";

// `no-cache`: a browser keeps it, and asks each time whether it is still the same.
HttpResponse page_file(const HttpRequest& http, const PageFile& file, std::string_view type) {
  HttpResponse answer{200, std::string(type), {}, {}};
  answer.fields = {{"Content-Security-Policy", std::string(kPagePolicy)},
                   {"X-Content-Type-Options", "nosniff"},
                   {"Referrer-Policy", "no-referrer"},
                   {"Cache-Control", "no-cache"},
                   {"ETag", std::string(file.etag)}};
  const std::string* const kept = http.field("If-None-Match");
  if (kept != nullptr && kept->find(file.etag) != std::string::npos) {
    answer.status = 304;
  } else {
    answer.body = file.text;
  }
  return answer;
}

}  // namespace

void answer_ui(ServerContext& /*context*/, HttpRequest& http, const ResponderPtr& responder) {
  responder->send(page_file(http, kPage_html, "text/html; charset=utf-8"));
}

void answer_ui_css(ServerContext& /*context*/, HttpRequest& http, const ResponderPtr& responder) {
  responder->send(page_file(http, kPage_css, "text/css; charset=utf-8"));
}

void answer_ui_js(ServerContext& /*context*/, HttpRequest& http, const ResponderPtr& responder) {
  responder->send(page_file(http, kPage_js, "text/javascript; charset=utf-8"));
}

// Without keys there is nothing that a ticket could be for, and none is kept.
void answer_ui_ticket(ServerContext& context, HttpRequest& /*http*/,
                      const ResponderPtr& responder) {
  const auto ticket = context.tickets.issue(responder->caller()->account, runtime::Clock::now());
  if (!ticket) return responder->send(plain_text(503, ticket.error().message + "; try again."));
  const OrderedJson said = {
      {"ticket", *ticket},
      {"expires_in_s", std::chrono::duration_cast<std::chrono::seconds>(kTicketTime).count()}};
  responder->send({200, "application/json", json_text(said) + "\n"});
}

}  // namespace lmtp::server
