#include "web_address.h"

#include <curl/curl.h>

#include <algorithm>
#include <cctype>
#include <memory>

namespace lmtp::hub {
namespace {

struct UrlCleanup {
  void operator()(CURLU* url) const { curl_url_cleanup(url); }
};
struct Free {
  void operator()(char* text) const { curl_free(text); }
};

std::string part_of(CURLU* url, CURLUPart part, unsigned flags = 0) {
  char* raw = nullptr;
  if (curl_url_get(url, part, &raw, flags) != CURLUE_OK) return "";
  const std::unique_ptr<char, Free> text(raw);
  return text.get();
}

}  // namespace

Result<std::string> origin_of(const std::string& url) {
  const std::unique_ptr<CURLU, UrlCleanup> parsed(curl_url());
  if (parsed == nullptr || curl_url_set(parsed.get(), CURLUPART_URL, url.c_str(), 0) != CURLUE_OK) {
    return Error{ErrorCode::kInvalid, "not a web address"};
  }
  const std::string scheme = part_of(parsed.get(), CURLUPART_SCHEME);
  if (scheme != "http" && scheme != "https") {
    return Error{ErrorCode::kInvalid, "neither http nor https"};
  }
  if (!part_of(parsed.get(), CURLUPART_USER).empty()) {
    return Error{ErrorCode::kInvalid, "there is a user name in it"};
  }
  std::string host = part_of(parsed.get(), CURLUPART_HOST);
  std::transform(host.begin(), host.end(), host.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return scheme + "://" + host + ":" + part_of(parsed.get(), CURLUPART_PORT, CURLU_DEFAULT_PORT);
}

std::string quote(std::string_view text, bool keep_slashes) {
  constexpr std::string_view kHex = "0123456789ABCDEF";
  std::string quoted;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       std::string_view("-_.~").find(c) != std::string_view::npos;
    if (plain || (c == '/' && keep_slashes)) {
      quoted += c;
    } else {
      quoted += '%';
      quoted += kHex[byte >> 4];
      quoted += kHex[byte & 15];
    }
  }
  return quoted;
}

}  // namespace lmtp::hub
