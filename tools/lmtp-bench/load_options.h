// One load: a point of a sweep.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "lmtp/base/ids.h"
#include "lmtp/client/client.h"
#include "workload.h"

namespace lmtp::tools {

inline constexpr int kConnectionsMax = 1024;  // a thread each
inline constexpr int kConcurrencyMax = 65'536;
inline constexpr std::int64_t kRequestsMax = 100'000'000;
inline constexpr int kErrorsMax = 1000;  // of a connection, which is then closed
inline constexpr double kUnlimitedRate = std::numeric_limits<double>::infinity();

struct LoadOptions {
  std::string host = "localhost";
  std::uint16_t port = 8080;
  client::Security security;
  std::string model;
  int num_connections = 1;  // [1, kConnectionsMax]; at most one for each concurrent program is used

  // Programs a second. Unlimited: closed loop, each is followed by the next as soon as it ends.
  double request_rate = kUnlimitedRate;
  double burstiness = 1.0;                // see Arrivals
  std::vector<double> arrivals_s;         // not empty: programs start at these times, ascending
  int max_concurrency = kConcurrencyMax;  // programs at a time; each connection has its share

  std::int64_t num_requests = 0;  // > 0: ends when so many programs have; else by time
  double duration_s = 0.0;
  int timeout_ms = 120'000;  // without a message while requests are in flight: they have failed

  std::shared_ptr<const WorkloadOptions> workload;
  float temperature = 0.0F;
  std::vector<TokenId> banned_tokens;  // in every GENERATE, ascending
  std::vector<TokenId> mask;           // in masked ones as well, ascending
  bool keep_records = false;
};

}  // namespace lmtp::tools
