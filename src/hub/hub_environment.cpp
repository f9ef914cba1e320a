#include "hub_environment.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string_view>

#include "web_address.h"

namespace lmtp::hub {
namespace {

constexpr const char* kPublicHub = "https://huggingface.co";
// Less than five seconds, in which fetch_model promises an answer.
constexpr std::chrono::milliseconds kAnswerTimeout{4500};
constexpr std::chrono::milliseconds kStallTimeout{10'000};
constexpr int kTimeoutMaxS = 3600;
constexpr std::size_t kTokenBytesMax = 4096;
constexpr std::size_t kLoginsBytesMax = 64 << 10;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

bool is_true(std::string value) {
  std::transform(value.begin(), value.end(), value.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return value == "1" || value == "ON" || value == "YES" || value == "TRUE";
}

// Expands "~/x": no shell does so for a service's environment file.
std::string with_home(const std::string& path) {
  if (path != "~" && !path.starts_with("~/")) return path;
  const std::string home = variable("HOME");
  return home.empty() ? path : home + path.substr(1);
}

// $HF_HOME, the folder of the token and the cache.
std::string hf_home() {
  if (const std::string home = variable("HF_HOME"); !home.empty()) return with_home(home);
  if (const std::string cache = variable("XDG_CACHE_HOME"); !cache.empty()) {
    return with_home(cache) + "/huggingface";
  }
  const std::string home = variable("HOME");
  return home.empty() ? "" : home + "/.cache/huggingface";
}

std::string clean_token(std::string token) {
  std::erase_if(token, [](char c) { return c == '\r' || c == '\n'; });
  const auto first = token.find_first_not_of(" \t");
  if (first == std::string::npos) return "";
  return token.substr(first, token.find_last_not_of(" \t") - first + 1);
}

std::string first_bytes_of(const std::string& path, std::size_t num_bytes_max) {
  std::ifstream file(path, std::ios::binary);
  std::string text(num_bytes_max, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(std::max<std::streamsize>(file.gcount(), 0)));
  return text;
}

// Whether the list of logins beside a token's file says that the token has expired: it has sections
// of "hf_token = ..." and "expires_at = SECONDS since 1970".
bool has_expired(const std::string& token, const std::string& token_path) {
  std::istringstream lines(first_bytes_of(
      token_path.substr(0, token_path.rfind('/') + 1) + "stored_tokens", kLoginsBytesMax));
  std::string section_token;
  std::string expires_at;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with('[')) section_token = expires_at = "";
    const std::size_t equals = line.find('=');
    if (equals == std::string::npos) continue;
    const std::string key = clean_token(line.substr(0, equals));
    if (key == "hf_token") section_token = clean_token(line.substr(equals + 1));
    if (key == "expires_at") expires_at = clean_token(line.substr(equals + 1));
    std::int64_t end_s = 0;
    if (section_token != token ||
        std::from_chars(expires_at.data(), expires_at.data() + expires_at.size(), end_s).ec !=
            std::errc()) {
      continue;
    }
    return end_s <= std::chrono::duration_cast<std::chrono::seconds>(
                        std::chrono::system_clock::now().time_since_epoch())
                        .count();
  }
  return false;
}

Result<void> find_token(HubEnvironment& hub) {
  if (is_true(variable("HF_HUB_DISABLE_IMPLICIT_TOKEN"))) return {};
  for (const char* name : {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"}) {
    hub.token = clean_token(variable(name));
    hub.token_from = name;
    if (!hub.token.empty()) break;
  }
  if (hub.token.empty()) {
    const std::string given = with_home(variable("HF_TOKEN_PATH"));
    hub.token_from = !given.empty() ? given : hf_home() + "/token";
    hub.token = clean_token(first_bytes_of(hub.token_from, kTokenBytesMax));
    hub.token_expired = !hub.token.empty() && has_expired(hub.token, hub.token_from);
  }
  // A control character would end the header that carries the token. The token is not shown.
  const auto printable = [](char c) { return c > ' ' && c <= '~'; };
  if (!std::all_of(hub.token.begin(), hub.token.end(), printable)) {
    return Error{ErrorCode::kInvalid, "the hub's token in " + hub.token_from +
                                          " holds characters that no token has: write it again"};
  }
  return {};
}

Result<void> read_timeout(const char* name, std::chrono::milliseconds& timeout) {
  const std::string text = variable(name);
  if (text.empty()) return {};
  int seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (error != std::errc() || end != text.data() + text.size() || seconds < 1 ||
      seconds > kTimeoutMaxS) {
    return Error{ErrorCode::kInvalid, std::string(name) + "='" + text +
                                          "' is not a number of seconds from 1 to " +
                                          std::to_string(kTimeoutMaxS)};
  }
  timeout = std::chrono::seconds(seconds);
  return {};
}

}  // namespace

std::string cache_folder() {
  for (const char* name : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"}) {
    if (const std::string folder = variable(name); !folder.empty()) return with_home(folder);
  }
  const std::string home = hf_home();
  return home.empty() ? "" : home + "/hub";
}

std::string offline_variable() {
  const std::string own = variable("HF_HUB_OFFLINE");
  if (!own.empty()) return is_true(own) ? "HF_HUB_OFFLINE" : "";
  return is_true(variable("TRANSFORMERS_OFFLINE")) ? "TRANSFORMERS_OFFLINE" : "";
}

Result<HubEnvironment> read_hub_environment() {
  HubEnvironment hub;
  hub.endpoint = variable("HF_ENDPOINT");
  while (!hub.endpoint.empty() && hub.endpoint.back() == '/') hub.endpoint.pop_back();
  if (hub.endpoint.empty()) hub.endpoint = kPublicHub;
  auto origin = origin_of(hub.endpoint);
  if (!origin) {
    return Error{origin.error().code, "HF_ENDPOINT='" + hub.endpoint +
                                          "': " + origin.error().message + "; an address like " +
                                          kPublicHub + " is wanted"};
  }
  hub.origin = *std::move(origin);
  hub.cache = cache_folder();
  for (const char* name : {"REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE"}) {
    if (hub.ca_bundle.empty()) hub.ca_bundle = variable(name);
  }
  hub.answer_timeout = kAnswerTimeout;
  hub.stall_timeout = kStallTimeout;
  if (auto read = read_timeout("HF_HUB_ETAG_TIMEOUT", hub.answer_timeout); !read) {
    return read.error();
  }
  if (auto read = read_timeout("HF_HUB_DOWNLOAD_TIMEOUT", hub.stall_timeout); !read) {
    return read.error();
  }
  if (auto found = find_token(hub); !found) return found.error();
  return hub;
}

}  // namespace lmtp::hub
