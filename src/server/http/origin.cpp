#include "origin.h"

#include <algorithm>
#include <boost/asio/ip/address.hpp>
#include <cctype>
#include <string>
#include <string_view>
#include <utility>

#include "lmtp/base/text.h"
#include "message.h"

namespace lmtp::server {
namespace {

constexpr std::string_view kAnyPort = ":*";
constexpr std::string_view kNullOrigin = "null";
constexpr std::size_t kShownOriginBytes = 128;

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

// "box:8080" -> "box", "[::1]:8080" -> "::1".
std::string name_of(std::string_view authority) {
  if (!authority.starts_with('[')) return lower(authority.substr(0, authority.find(':')));
  return lower(authority.substr(1, authority.find(']') - 1));
}

bool is_own_name(const std::string& name, const ServerOptions& options) {
  boost::system::error_code error;
  const auto address = boost::asio::ip::make_address(name, error);
  if (!error && address.is_loopback()) return true;
  if (name == "localhost" || name == lower(options.host)) return true;
  return std::ranges::any_of(options.allowed_hosts,
                             [&](const auto& allowed) { return name == name_of(allowed); });
}

// As browsers send it: lower case, without the port that the scheme stands for by itself.
std::string canonical_origin(std::string_view origin) {
  const std::string_view port = origin.starts_with("https:") ? ":443" : ":80";
  if (origin.ends_with(port)) origin.remove_suffix(port.size());
  return lower(origin);
}

// Whether `sent`, canonical, is one that the user has listed: SCHEME://HOST[:PORT], or
// SCHEME://HOST:* for any port of that host.
bool is_listed(std::string_view sent, std::string_view listed) {
  if (!listed.ends_with(kAnyPort)) return sent == canonical_origin(listed);
  const std::string host = lower(listed.substr(0, listed.size() - kAnyPort.size()));
  if (!sent.starts_with(host)) return false;
  sent.remove_prefix(host.size());
  if (sent.empty()) return true;
  return sent.starts_with(':') && sent.size() > 1 &&
         std::ranges::all_of(sent.substr(1), [](char c) { return c >= '0' && c <= '9'; });
}

// Pages of the server itself may connect, and those of a proxy in front of it. "*" is no listing,
// and "null" none either: any page can send it.
bool is_known_origin(const std::string& origin, const std::string& host,
                     const ServerOptions& options) {
  const std::string sent = canonical_origin(origin);
  if (sent == kNullOrigin) return false;
  const std::size_t scheme_end = origin.find("://");
  const bool is_own = scheme_end != std::string::npos &&
                      sent == canonical_origin(origin.substr(0, scheme_end + 3) + host);
  return is_own || std::ranges::any_of(options.allowed_origins,
                                       [&](const auto& listed) { return is_listed(sent, listed); });
}

bool is_let_in_unknown(const std::string& origin, const ServerOptions& options) {
  return std::ranges::any_of(options.allowed_origins, [&](const auto& listed) {
    return listed == "*" || (listed == kNullOrigin && lower(origin) == kNullOrigin);
  });
}

// For an answer and the log: an origin is a few words of ASCII where a browser sends it.
std::string shown(std::string_view origin) {
  std::string text = shortened(origin, kShownOriginBytes);
  std::ranges::replace_if(
      text, [](char c) { return c < 0x20 || c > 0x7E; }, '?');
  return text;
}

}  // namespace

std::optional<HttpResponse> refuse_foreign(const HttpRequest& request, const ServerOptions& options,
                                           bool on_loopback) {
  const std::string* const host_field = request.field("Host");
  const std::string host = lower(host_field != nullptr ? *host_field : "");
  const bool names_matter = on_loopback || !options.allowed_hosts.empty();
  if (names_matter && !host.empty() && !is_own_name(name_of(host), options)) {
    return plain_text(421,
                      "This server goes by localhost and its address; start it with --allow-host "
                      "NAME where it has another name, or a proxy in front.");
  }
  const std::string* const origin = request.field("Origin");
  if (origin == nullptr || is_let_in_unknown(*origin, options)) return std::nullopt;
  if (is_known_origin(lower(*origin), host, options)) return std::nullopt;
  const bool is_null = lower(*origin) == kNullOrigin;
  return plain_text(403, "A page of the origin '" + shown(*origin) + "'" +
                             (is_null ? ", such as one that was opened from a file," : "") +
                             " may not connect here; start the server with --allow-origin " +
                             (is_null ? "null" : "SCHEME://HOST[:PORT]") + " where it should.");
}

bool is_of_any_page(const HttpRequest& request, const ServerOptions& options) {
  const std::string* const origin = request.field("Origin");
  if (origin == nullptr || !is_let_in_unknown(*origin, options)) return false;
  const std::string* const host = request.field("Host");
  return !is_known_origin(lower(*origin), lower(host != nullptr ? *host : ""), options);
}

std::vector<HttpField> cors_fields(const HttpRequest& request, const ServerOptions& options) {
  const std::string* const origin = request.field("Origin");
  if (origin == nullptr && options.allowed_origins.empty()) return {};
  if (origin == nullptr) return {{"Vary", "Origin"}};
  return {{"Vary", "Origin"},
          {"Access-Control-Allow-Origin", *origin},
          {"Access-Control-Expose-Headers", "*"}};
}

bool is_preflight(const HttpRequest& request) {
  return request.method == "OPTIONS" && request.field("Origin") != nullptr &&
         request.field("Access-Control-Request-Method") != nullptr;
}

HttpResponse preflight_answer(const HttpRequest& request, std::string methods) {
  HttpResponse answer = plain_text(200, "This may be asked for.");
  answer.fields = {{"Access-Control-Allow-Methods", std::move(methods)},
                   {"Access-Control-Max-Age", "600"}};
  if (const std::string* const fields = request.field("Access-Control-Request-Headers")) {
    answer.fields.push_back({"Access-Control-Allow-Headers", *fields});
  }
  return answer;
}

}  // namespace lmtp::server
