// A closed-loop load: so many streams at a time, each followed by the next as soon as it ends.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lmtp/base/ids.h"
#include "lmtp/base/result.h"
#include "lmtp/protocol/sampling_params.h"
#include "load_stats.h"

namespace lmtp::tools {

inline constexpr int kConnectionsMax = 1024;  // a thread each
inline constexpr int kStreamsMax = 65'536;
inline constexpr std::int64_t kRequestsMax = 100'000'000;
inline constexpr int kErrorsMax = 1000;          // of a connection, which is then given up
inline constexpr int kStallTimeoutMs = 120'000;  // without a token on a connection: it is given up

struct LoadOptions {
  std::string host = "localhost";
  std::uint16_t port = 8080;
  std::string model;
  int num_streams = 8;          // at a time, over all connections; [num_connections, kStreamsMax]
  int num_connections = 1;      // [1, kConnectionsMax]
  int prompt_tokens = 128;      // random ids, others for each request
  int shared_prefix = 0;        // of them, those at the front that all requests share
  std::vector<TokenId> prompt;  // given: every request's prompt instead
  bool score = false;           // SCORE params.max_tokens random ids instead of generating them
  protocol::SamplingParams params;
  std::uint64_t seed = 1;
  int vocab_size = 0;  // > 0; random ids are below it

  std::int64_t num_requests = 0;  // > 0: ends when all of them have; else by time
  double duration_s = 0.0;
};

// The ids of request number `index`: a function of the seed and it alone.
std::vector<TokenId> random_ids(const LoadOptions& options, std::uint64_t index, int count);

// Runs one phase. An error where a connection cannot be made; what goes wrong later is counted.
Result<LoadStats> run_load(const LoadOptions& options);

// What MODEL_INFO says of the vocabulary. An error where the server does not say.
Result<int> ask_vocab_size(const LoadOptions& options);

}  // namespace lmtp::tools
