// The page at /ui: its files, which are embedded as they are (cmake/embed_page.cmake), and tickets,
// by which its WebSocket gets the rights of a key.
#pragma once

#include <string_view>

#include "lmtp/server/http.h"
#include "route_table.h"

namespace lmtp::server {

struct PageFile {
  std::string_view text;
  std::string_view etag;
};
extern const PageFile kPage_html;  // NOLINT(readability-identifier-naming): named as its file ends
extern const PageFile kPage_css;   // NOLINT(readability-identifier-naming)
extern const PageFile kPage_js;    // NOLINT(readability-identifier-naming)

// Types of these answers (schemas.h).
inline constexpr std::string_view kPageTypes = R"(
Ticket
  ticket! string
  expires_in_s! 1..
)";

// They hold nothing of this server or its models, and need no key.
Handle answer_ui;
Handle answer_ui_css;
Handle answer_ui_js;
Handle answer_ui_ticket;

}  // namespace lmtp::server
