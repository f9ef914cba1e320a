#include "credentials.h"

#include <openssl/evp.h>

#include <utility>

#include "http/message.h"
#include "key_file.h"

namespace lmtp::server {
namespace {

// Of a field that may hold a key.
constexpr std::size_t kValueBytesMax = 4 * kKeyBytesMax;
constexpr std::string_view kSpaces = " \t";
constexpr std::string_view kKeyParameter = "key=";
constexpr std::string_view kTicketParameter = "ticket=";

// What follows the scheme, whose case does not matter; nullopt: it is another one.
std::optional<std::string_view> behind_scheme(std::string_view value, std::string_view scheme) {
  if (!equal_names(value.substr(0, scheme.size()), scheme)) return std::nullopt;
  value.remove_prefix(scheme.size());
  const std::size_t begin = value.find_first_not_of(kSpaces);
  if (begin == 0 || begin == std::string_view::npos) return std::nullopt;
  return value.substr(begin);
}

// Of the credentials of Basic, what is behind the first colon; as a user name without a password
// it is all.
std::optional<std::string> password_of(std::string_view base64) {
  if (base64.empty() || base64.size() > kValueBytesMax || base64.size() % 4 != 0) {
    return std::nullopt;
  }
  std::string text(base64.size() / 4 * 3, '\0');
  const int num_bytes = EVP_DecodeBlock(reinterpret_cast<unsigned char*>(text.data()),
                                        reinterpret_cast<const unsigned char*>(base64.data()),
                                        static_cast<int>(base64.size()));
  if (num_bytes != static_cast<int>(text.size())) return std::nullopt;
  // Each stands for a byte that is not there.
  for (int i = 0; i < 2 && base64.ends_with('='); ++i) {
    base64.remove_suffix(1);
    text.pop_back();
  }
  const std::size_t colon = text.find(':');
  if (colon == std::string::npos) return text;
  return colon + 1 < text.size() ? text.substr(colon + 1) : text.substr(0, colon);
}

// The query without its parameters of that name, which `take` gets.
template <typename Take>
std::string split_query(std::string_view query, std::string_view name, const Take& take) {
  std::string rest;
  bool is_first = true;
  while (true) {
    const std::size_t end = std::min(query.find('&'), query.size());
    const std::string_view parameter = query.substr(0, end);
    if (parameter.starts_with(name)) {
      take(parameter.substr(name.size()));
    } else {
      rest.append(is_first ? "" : "&").append(parameter);
      is_first = false;
    }
    if (end == query.size()) return rest;
    query.remove_prefix(end + 1);
  }
}

// The key of a field that may hold one.
std::optional<std::string> key_of(const HttpField& field) {
  if (field.value.size() > kValueBytesMax) return std::nullopt;
  if (!equal_names(field.name, "Authorization")) return field.value;
  if (const auto key = behind_scheme(field.value, "Bearer")) return std::string(*key);
  const auto credentials = behind_scheme(field.value, "Basic");
  return credentials ? password_of(*credentials) : std::nullopt;
}

HttpResponse unauthorized(const char* sentence) {
  HttpResponse response = plain_text(401, sentence);
  response.fields.push_back(
      {"WWW-Authenticate", R"(Bearer realm="lmtp-serve", Basic realm="lmtp-serve")"});
  return response;
}

}  // namespace

Result<std::vector<std::string>> take_keys(HttpRequest& request, bool begins_websocket) {
  std::vector<std::string> keys;
  std::size_t num_keys = 0;
  const auto take = [&](std::optional<std::string> key) {
    if (!key || !is_sendable(*key)) return;
    if (++num_keys <= kKeysOfRequestMax) keys.push_back(*std::move(key));
  };
  std::erase_if(request.fields, [&](const HttpField& field) {
    const bool may_hold_key = equal_names(field.name, "Authorization") ||
                              equal_names(field.name, "api-key") ||
                              equal_names(field.name, "x-api-key");
    if (may_hold_key) take(key_of(field));
    return may_hold_key;
  });
  request.query = split_query(request.query, kKeyParameter, [&](std::string_view value) {
    if (begins_websocket) take(percent_decoded(value));
  });
  if (num_keys > kKeysOfRequestMax) {
    return Error{ErrorCode::kInvalid, "There are " + std::to_string(num_keys) +
                                          " fields with API keys; allowed are at most " +
                                          std::to_string(kKeysOfRequestMax) + "."};
  }
  return keys;
}

std::string take_ticket(HttpRequest& request) {
  std::string ticket;
  request.query =
      split_query(request.query, kTicketParameter, [&](std::string_view value) { ticket = value; });
  return ticket;
}

std::string without_key(std::string_view query) {
  const auto drop = [](std::string_view /*value*/) {};
  return split_query(split_query(query, kKeyParameter, drop), kTicketParameter, drop);
}

HttpResponse no_access(bool was_sent) {
  return unauthorized(was_sent ? "This API key is not accepted here."
                               : "An API key is needed: Authorization: Bearer KEY, api-key: KEY or "
                                 "x-api-key: KEY; for a WebSocket also ?key=KEY.");
}

HttpResponse no_query_key() {
  return unauthorized(
      "?key=KEY is not taken from a page that --allow-origin * or null alone lets in; list its "
      "origin by --allow-origin SCHEME://HOST[:PORT] where it needs a WebSocket.");
}

HttpResponse no_right() { return plain_text(403, "This is for API keys with the right admin."); }

}  // namespace lmtp::server
