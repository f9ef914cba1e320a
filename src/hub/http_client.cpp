#include "http_client.h"

#include <curl/curl.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <system_error>
#include <utility>

#include "lmtp/base/check.h"
#include "lmtp/base/version.h"
#include "web_address.h"

namespace lmtp::hub {
namespace {

constexpr std::size_t kHeaderTextMax = 300;  // of a header that becomes part of a message
constexpr long kReceiveBufferBytes = 256 << 10;
constexpr std::size_t kDroppedBytesMax = 64 << 10;  // of the body of an error answer

// Called once, before the first download: it takes milliseconds.
bool init_library() {
  static const bool ok = curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK;
  return ok;
}

std::string header(CURL* easy, const char* name) {
  curl_header* found = nullptr;
  if (curl_easy_header(easy, name, 0, CURLH_HEADER, -1, &found) != CURLHE_OK) return "";
  return found->value;
}

// For a message: printable and bounded.
std::string header_text(CURL* easy, const char* name) {
  std::string text = header(easy, name).substr(0, kHeaderTextMax);
  std::erase_if(text, [](char c) { return c < ' ' || c > '~'; });
  return text;
}

template <typename Int>
std::optional<Int> header_int(CURL* easy, const char* name) {
  const std::string text = header(easy, name);
  Int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

std::string without_quotes(std::string etag) {
  if (etag.starts_with("W/")) etag.erase(0, 2);
  if (etag.starts_with('"')) etag.erase(0, 1);
  if (etag.ends_with('"')) etag.pop_back();
  return etag;
}

Transport transport_of(int code) {
  switch (code) {
    case CURLE_COULDNT_RESOLVE_HOST:
      return Transport::kNoName;
    case CURLE_COULDNT_CONNECT:
      return Transport::kNoHost;
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_PROXY:
      return Transport::kNoProxy;
    case CURLE_SSL_CONNECT_ERROR:
      return Transport::kHandshake;
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_CIPHER:
    case CURLE_SSL_ISSUER_ERROR:
      return Transport::kTls;
    case CURLE_OPERATION_TIMEDOUT:
      return Transport::kTimeout;
    case CURLE_WRITE_ERROR:
      return Transport::kBodyStopped;
    default:
      return Transport::kCut;
  }
}

}  // namespace

bool is_transient(const HttpAnswer& answer) {
  switch (answer.transport) {
    case Transport::kOk:
      return answer.status == 408 || answer.status == 429 || answer.status >= 500;
    case Transport::kNoName:
    case Transport::kNoHost:
    case Transport::kHandshake:
    case Transport::kTimeout:
    case Transport::kCut:
      return true;
    default:
      return false;
  }
}

struct HttpClient::Multi {
  CURLM* handle = curl_multi_init();

  Multi() = default;
  ~Multi() { curl_multi_cleanup(handle); }
  Multi(const Multi&) = delete;
  Multi& operator=(const Multi&) = delete;
};

struct HttpExchange::Easy {
  CURL* handle = curl_easy_init();
  curl_slist* headers = nullptr;
  std::array<char, CURL_ERROR_SIZE> error{};

  Easy() = default;
  ~Easy() {
    curl_easy_cleanup(handle);
    curl_slist_free_all(headers);
  }
  Easy(const Easy&) = delete;
  Easy& operator=(const Easy&) = delete;

  void reset() {
    curl_easy_reset(handle);
    curl_slist_free_all(headers);
    headers = nullptr;
    error.fill('\0');
  }
  void add_header(const std::string& line) {
    curl_slist* longer = curl_slist_append(headers, line.c_str());
    LMTP_CHECK(longer != nullptr);
    headers = longer;
  }
};

Result<std::unique_ptr<HttpClient>> HttpClient::create(HubEnvironment hub) {
  if (!init_library()) {
    return Error{ErrorCode::kUnavailable, "libcurl cannot start: check its installation"};
  }
  auto multi = std::make_unique<Multi>();
  if (multi->handle == nullptr) {
    return Error{ErrorCode::kUnavailable, "libcurl cannot start: no memory"};
  }
  return std::unique_ptr<HttpClient>(new HttpClient(std::move(hub), std::move(multi)));
}

HttpClient::HttpClient(HubEnvironment hub, std::unique_ptr<Multi> multi)
    : hub_(std::move(hub)), multi_(std::move(multi)) {}

HttpClient::~HttpClient() { LMTP_CHECK(active_.empty()); }

void HttpClient::run(std::chrono::milliseconds wait) {
  // Taken before the transfers run, so that data that waited because this thread was delayed do not
  // count as late.
  const auto now = Clock::now();
  int num_running = 0;
  curl_multi_perform(multi_->handle, &num_running);
  if (take_finished() || abort_timed_out(now)) return;
  curl_multi_poll(multi_->handle, nullptr, 0, static_cast<int>(wait.count()), nullptr);
}

bool HttpClient::take_finished() {
  bool any = false;
  int num_left = 0;
  while (const CURLMsg* message = curl_multi_info_read(multi_->handle, &num_left)) {
    if (message->msg != CURLMSG_DONE) continue;
    const CURLcode code = message->data.result;
    const auto found =
        std::find_if(active_.begin(), active_.end(), [message](const HttpExchange* exchange) {
          return exchange->easy_->handle == message->easy_handle;
        });
    LMTP_CHECK(found != active_.end());
    (*found)->end_hop(code);
    any = true;
  }
  return any;
}

bool HttpClient::abort_timed_out(Clock::time_point now) {
  const std::vector<HttpExchange*> all = active_;
  bool any = false;
  for (HttpExchange* exchange : all) {
    if (!exchange->has_timed_out(now)) continue;
    exchange->finish(Transport::kTimeout, "nothing came in time");
    any = true;
  }
  return any;
}

HttpExchange::HttpExchange(HttpClient& client) : client_(client), easy_(std::make_unique<Easy>()) {
  LMTP_CHECK(easy_->handle != nullptr);
}

HttpExchange::~HttpExchange() {
  if (active_) finish(Transport::kBodyStopped, "");
}

void HttpExchange::start(HubRequest request) {
  LMTP_CHECK(!active_);
  request_ = std::move(request);
  answer_ = {};
  num_hops_ = 0;
  body_started_ = false;
  with_token_ = true;
  answer_deadline_ = Clock::now() + request_.answer_timeout;
  active_ = true;
  client_.active_.push_back(this);
  start_hop(request_.url);
}

void HttpExchange::start_hop(const std::string& url) {
  const auto origin = origin_of(url);
  if (!origin) {
    return finish(Transport::kRefused,
                  "a redirect to an address that is " + origin.error().message);
  }
  const HubEnvironment& hub = client_.hub_;
  if (hub.origin.starts_with("https:") && !origin->starts_with("https:")) {
    return finish(Transport::kRefused, "a redirect from https to http");
  }
  // After a redirect to another origin no later hop gets the token.
  with_token_ = with_token_ && *origin == hub.origin;
  answer_.origin = *origin;
  answer_.status = 0;
  num_dropped_bytes_ = 0;
  last_byte_ = Clock::now();
  easy_->reset();
  // Compressed bodies would have other sizes and hashes than the files.
  easy_->add_header("Accept-Encoding: identity");
  if (with_token_ && !hub.token.empty()) easy_->add_header("Authorization: Bearer " + hub.token);
  CURL* easy = easy_->handle;
  curl_easy_setopt(easy, CURLOPT_URL, url.c_str());
  curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(easy, CURLOPT_HTTPHEADER, easy_->headers);
  curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, easy_->error.data());
  curl_easy_setopt(easy, CURLOPT_USERAGENT, ("lmtp/" + std::string(kVersion)).c_str());
  // One connection for each file: on a shared one (HTTP/2) flow control would slow all down.
  curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
  // A name server that does not answer must not delay the end of an exchange.
  curl_easy_setopt(easy, CURLOPT_QUICK_EXIT, 1L);
  curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(hub.answer_timeout.count()));
  curl_easy_setopt(easy, CURLOPT_BUFFERSIZE, kReceiveBufferBytes);
  curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, &HttpExchange::on_curl_body);
  curl_easy_setopt(easy, CURLOPT_WRITEDATA, this);
  curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, &HttpExchange::on_curl_header);
  curl_easy_setopt(easy, CURLOPT_HEADERDATA, this);
  if (request_.head) curl_easy_setopt(easy, CURLOPT_NOBODY, 1L);
  if (request_.range_from > 0 || request_.range_size > 0) {
    std::string range = std::to_string(request_.range_from) + "-";
    if (request_.range_size > 0) {
      range += std::to_string(request_.range_from + request_.range_size - 1);
    }
    curl_easy_setopt(easy, CURLOPT_RANGE, range.c_str());
  }
  if (!hub.ca_bundle.empty()) {
    std::error_code ignored;
    const bool is_folder = std::filesystem::is_directory(hub.ca_bundle, ignored);
    curl_easy_setopt(easy, is_folder ? CURLOPT_CAPATH : CURLOPT_CAINFO, hub.ca_bundle.c_str());
  }
  LMTP_CHECK(curl_multi_add_handle(client_.multi_->handle, easy) == CURLM_OK);
}

void HttpExchange::end_hop(int curl_code) {
  // take_body() aborts long bodies that are not wanted.
  if (curl_code != CURLE_OK && num_dropped_bytes_ <= kDroppedBytesMax) {
    const std::string text = easy_->error.data();
    return finish(transport_of(curl_code),
                  text.empty() ? curl_easy_strerror(static_cast<CURLcode>(curl_code)) : text);
  }
  read_headers();
  if (take_redirect()) return;
  // For an empty body on_start has not been called yet.
  if (answer_.ok() && !request_.head && !take_body({})) return finish(Transport::kBodyStopped, "");
  finish(Transport::kOk, "");
}

// True if the next hop was started, or the exchange ended because the redirect is forbidden.
bool HttpExchange::take_redirect() {
  char* location = nullptr;
  curl_easy_getinfo(easy_->handle, CURLINFO_REDIRECT_URL, &location);
  if (location == nullptr || answer_.status < 300 || answer_.status > 399) return false;
  const std::string url = location;
  if (request_.head) {
    const auto next = origin_of(url);
    const bool tells_all = !header(easy_->handle, "X-Linked-Etag").empty();
    if (tells_all || !next || *next != answer_.origin) return false;
  }
  if (++num_hops_ > kRedirectsMax) {
    finish(Transport::kRefused, "more than " + std::to_string(kRedirectsMax) + " redirects");
    return true;
  }
  curl_multi_remove_handle(client_.multi_->handle, easy_->handle);
  start_hop(url);
  return true;
}

void HttpExchange::finish(Transport transport, const std::string& detail) {
  curl_multi_remove_handle(client_.multi_->handle, easy_->handle);
  std::erase(client_.active_, this);
  active_ = false;
  answer_.transport = transport;
  answer_.detail = detail;
}

void HttpExchange::read_headers() {
  CURL* easy = easy_->handle;
  long status = 0;
  curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
  answer_.status = static_cast<int>(status);
  if (const std::string commit = header(easy, "X-Repo-Commit"); !commit.empty()) {
    answer_.commit = commit;
  }
  const std::string linked = header(easy, "X-Linked-Etag");
  answer_.etag = without_quotes(linked.empty() ? header(easy, "ETag") : linked);
  answer_.size = header_int<std::int64_t>(easy, "X-Linked-Size");
  if (!answer_.size) answer_.size = header_int<std::int64_t>(easy, "Content-Length");
  answer_.content_range = header(easy, "Content-Range");
  answer_.error_code = header_text(easy, "X-Error-Code");
  answer_.error_message = header_text(easy, "X-Error-Message");
  answer_.retry_after_s = header_int<int>(easy, "Retry-After");
}

bool HttpExchange::has_timed_out(Clock::time_point now) const {
  if (answer_.status == 0 && now >= answer_deadline_) return true;
  return now - last_byte_ >= client_.hub_.stall_timeout;
}

bool HttpExchange::take_body(std::string_view piece) {
  if (!body_started_) {
    read_headers();
    if (answer_.status != 200 && answer_.status != 206) {
      num_dropped_bytes_ += piece.size();
      return num_dropped_bytes_ <= kDroppedBytesMax;
    }
    body_started_ = true;
    if (request_.on_start && !request_.on_start(answer_)) return false;
  }
  return piece.empty() || !request_.on_body || request_.on_body(piece);
}

std::size_t HttpExchange::on_curl_body(char* data, std::size_t size, std::size_t count,
                                       void* self) {
  auto* exchange = static_cast<HttpExchange*>(self);
  exchange->last_byte_ = Clock::now();
  const std::size_t num_bytes = size * count;
  return exchange->take_body({data, num_bytes}) ? num_bytes : 0;
}

std::size_t HttpExchange::on_curl_header(char*, std::size_t size, std::size_t count, void* self) {
  static_cast<HttpExchange*>(self)->last_byte_ = Clock::now();
  return size * count;
}

}  // namespace lmtp::hub
