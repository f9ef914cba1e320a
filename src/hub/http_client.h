// HTTP for the hub: concurrent exchanges on the thread that calls HttpClient::run.
//
// Redirects are followed here and not by libcurl, so that one place decides where the token is
// sent: to the endpoint's own origin only.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "http_answer.h"
#include "hub_environment.h"
#include "lmtp/base/result.h"

namespace lmtp::hub {

using Clock = std::chrono::steady_clock;

inline constexpr int kRedirectsMax = 8;

struct HubRequest {
  std::string url;
  // HEAD. Ends at the first redirect to another origin: that answer has the wanted headers.
  bool head = false;
  std::int64_t range_from = 0;  // above 0: "Range: bytes=N-"
  std::int64_t range_size = 0;  // above 0: only so many bytes
  std::chrono::milliseconds answer_timeout{};
  // Called before the first byte of a body of status 200 or 206; false stops the exchange.
  std::function<bool(const HttpAnswer&)> on_start;
  // Each piece of that body; false stops the exchange. Bodies of other answers are dropped.
  std::function<bool(std::string_view)> on_body;
};

class HttpExchange;

// Owner: one thread. Outlives its exchanges.
class HttpClient {
 public:
  static Result<std::unique_ptr<HttpClient>> create(HubEnvironment hub);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  const HubEnvironment& hub() const { return hub_; }

  // Progresses all exchanges; returns after `wait` at the latest, or when one has ended.
  void run(std::chrono::milliseconds wait);

 private:
  friend class HttpExchange;
  struct Multi;

  HttpClient(HubEnvironment hub, std::unique_ptr<Multi> multi);

  bool take_finished();
  bool abort_timed_out(Clock::time_point now);

  const HubEnvironment hub_;
  std::unique_ptr<Multi> multi_;
  std::vector<HttpExchange*> active_;
};

// One request and its answer, over all redirects. Its destructor ends it. Owner: the client's
// thread.
class HttpExchange {
 public:
  explicit HttpExchange(HttpClient& client);
  ~HttpExchange();
  HttpExchange(const HttpExchange&) = delete;
  HttpExchange& operator=(const HttpExchange&) = delete;

  // REQUIRES: not active.
  void start(HubRequest request);
  bool active() const { return active_; }
  // REQUIRES: started, and no longer active.
  const HttpAnswer& answer() const { return answer_; }

 private:
  friend class HttpClient;
  struct Easy;

  void start_hop(const std::string& url);
  void end_hop(int curl_code);
  void finish(Transport transport, const std::string& detail);
  bool take_redirect();
  void read_headers();
  bool has_timed_out(Clock::time_point now) const;
  bool take_body(std::string_view piece);
  static std::size_t on_curl_body(char* data, std::size_t size, std::size_t count, void* self);
  static std::size_t on_curl_header(char* data, std::size_t size, std::size_t count, void* self);

  HttpClient& client_;
  std::unique_ptr<Easy> easy_;
  HubRequest request_;
  HttpAnswer answer_;
  bool active_ = false;
  bool with_token_ = false;
  bool body_started_ = false;
  int num_hops_ = 0;
  std::size_t num_dropped_bytes_ = 0;
  Clock::time_point answer_deadline_;
  Clock::time_point last_byte_;
};

}  // namespace lmtp::hub
