#include "origin.h"

#include <algorithm>
#include <boost/asio/ip/address.hpp>
#include <cctype>
#include <string>
#include <string_view>
#include <utility>

#include "message.h"

namespace lmtp::server {
namespace {

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

// Pages of the server itself may connect, and those of a proxy in front of it.
bool is_allowed_origin(const std::string& origin, const std::string& host,
                       const ServerOptions& options) {
  const std::size_t scheme_end = origin.find("://");
  if (scheme_end == std::string::npos) return false;  // "null" among others
  const std::string sent = canonical_origin(origin);
  if (sent == canonical_origin(origin.substr(0, scheme_end + 3) + host)) return true;
  return std::ranges::any_of(options.allowed_origins, [&](const auto& allowed) {
    return sent == canonical_origin(allowed);
  });
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
  if (origin == nullptr || is_allowed_origin(lower(*origin), host, options)) return std::nullopt;
  return plain_text(403,
                    "Web pages of other origins may not connect; --allow-origin "
                    "SCHEME://HOST[:PORT] lists one that may.");
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
