#include "load_generator.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <random>
#include <thread>
#include <unordered_map>
#include <utility>

#include "json_text.h"
#include "lmtp/base/check.h"
#include "lmtp/client/client.h"
#include "lmtp/protocol/message.h"

namespace lmtp::tools {
namespace {

using Clock = std::chrono::steady_clock;
using protocol::FinishReason;
using protocol::ServerEntry;

constexpr int kInfoTimeoutMs = 60'000;

double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

// Hands out the numbers of the requests; shared by all connections.
class Budget {
 public:
  explicit Budget(const LoadOptions& options)
      : num_requests_(options.num_requests),
        deadline_(options.num_requests > 0
                      ? Clock::time_point::max()
                      : Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                           std::chrono::duration<double>(options.duration_s))) {}

  // The next request's number; nothing where there is none left.
  std::optional<std::uint64_t> take() {
    if (is_over()) return std::nullopt;
    const std::int64_t index = next_++;
    if (index >= (num_requests_ > 0 ? num_requests_ : kRequestsMax)) return std::nullopt;
    return static_cast<std::uint64_t>(index);
  }

  // By time alone; a budget of requests is never over while some are under way.
  bool is_over() const { return Clock::now() >= deadline_; }
  int ms_left() const {
    if (deadline_ == Clock::time_point::max()) return kStallTimeoutMs;
    const double left_ms = seconds_between(Clock::now(), deadline_) * 1000;
    return std::clamp(static_cast<int>(left_ms) + 1, 0, kStallTimeoutMs);
  }

 private:
  const std::int64_t num_requests_;
  const Clock::time_point deadline_;
  std::atomic<std::int64_t> next_ = 0;
};

// One connection and its share of the streams. Owner: its thread.
class Worker {
 public:
  Worker(const LoadOptions& options, client::Client& client, int num_streams)
      : options_(options), client_(client), num_streams_(num_streams) {}

  LoadStats run(Budget& budget) {
    for (int i = 0; i < num_streams_ && start_next(budget); ++i) {
    }
    while (!live_.empty() && !budget.is_over()) {
      if (stats_.num_errors >= kErrorsMax) return give_up("too many errors");
      ServerEntry entry;
      const auto received = client_.receive(entry, budget.ms_left());
      if (!received) return give_up(received.error().message);
      if (*received) {
        take(entry, budget);
      } else if (!budget.is_over()) {
        return give_up("no token for " + std::to_string(kStallTimeoutMs / 1000) + " s");
      }
    }
    stats_.num_unfinished += static_cast<std::int64_t>(live_.size());
    return std::move(stats_);
  }

 private:
  struct Stream {
    Clock::time_point last;  // the request, or its latest token
    int num_prompt_tokens = 0;
    bool started = false;
  };

  bool start_next(Budget& budget) {
    const auto index = budget.take();
    if (!index) return false;
    const StreamId id = next_id_++;
    std::vector<TokenId> prompt = options_.prompt;
    if (prompt.empty()) prompt = random_ids(options_, *index, options_.prompt_tokens);
    const auto num_prompt_tokens = static_cast<int>(prompt.size());
    live_[id] = {Clock::now(), num_prompt_tokens, false};
    const auto sent = client_.send(message(id, *index, std::move(prompt)));
    if (!sent) note_error(sent.error().message);
    return sent.ok();
  }

  protocol::ClientMessage message(StreamId id, std::uint64_t index,
                                  std::vector<TokenId> prompt) const {
    if (options_.score) {
      // Other ids than the prompt's, which the same number would give.
      return protocol::ScoreMessage{
          id, options_.model, std::move(prompt),
          random_ids(options_, index + static_cast<std::uint64_t>(kRequestsMax),
                     options_.params.max_tokens)};
    }
    protocol::GenerateMessage generate;
    generate.stream_id = id;
    generate.model = options_.model;
    generate.prompt = std::move(prompt);
    generate.params = options_.params;
    return generate;
  }

  void take(const ServerEntry& entry, Budget& budget) {
    if (!entry.stream_id) {
      if (!entry.error.empty()) note_error(entry.error);
      return;
    }
    const auto found = live_.find(*entry.stream_id);
    if (found == live_.end()) return;
    if (!entry.error.empty()) {
      live_.erase(found);
      note_error(entry.error);
      start_next(budget);
      return;
    }
    if (!entry.token) return;
    Stream& stream = found->second;
    const auto now = Clock::now();
    (stream.started ? stats_.next_token : stats_.first_token)
        .add(seconds_between(stream.last, now));
    if (!stream.started) stats_.num_prompt_tokens += stream.num_prompt_tokens;
    stream.started = true;
    stream.last = now;
    ++stats_.num_tokens;
    if (entry.finish_reason == FinishReason::kNone) return;
    ++stats_.num_finished;
    if (!options_.score && entry.finish_reason == FinishReason::kStop) ++stats_.num_stopped;
    live_.erase(found);
    start_next(budget);
  }

  void note_error(const std::string& error) {
    ++stats_.num_errors;
    if (stats_.first_error.empty()) stats_.first_error = error;
  }

  LoadStats give_up(const std::string& reason) {
    note_error(reason);
    stats_.num_unfinished += static_cast<std::int64_t>(live_.size());
    return std::move(stats_);
  }

  const LoadOptions& options_;
  client::Client& client_;
  const int num_streams_;
  StreamId next_id_ = 1;
  std::unordered_map<StreamId, Stream> live_;
  LoadStats stats_;
};

}  // namespace

std::vector<TokenId> random_ids(const LoadOptions& options, std::uint64_t index, int count) {
  LMTP_CHECK(options.vocab_size > 0, options.vocab_size);
  std::uniform_int_distribution<TokenId> any(0, options.vocab_size - 1);
  std::mt19937_64 shared(options.seed);
  std::mt19937_64 own(options.seed ^ (index + 1) * 0x9E3779B97F4A7C15ULL);
  std::vector<TokenId> ids(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) {
    ids[static_cast<std::size_t>(i)] = any(i < options.shared_prefix ? shared : own);
  }
  return ids;
}

Result<LoadStats> run_load(const LoadOptions& options) {
  LMTP_CHECK(options.num_connections >= 1 && options.num_connections <= kConnectionsMax,
             options.num_connections);
  LMTP_CHECK(options.num_streams >= options.num_connections && options.num_streams <= kStreamsMax,
             options.num_streams);
  std::vector<client::Client> clients(static_cast<std::size_t>(options.num_connections));
  for (client::Client& client : clients) {
    if (auto connected = client.connect(options.host, options.port); !connected) {
      return connected.error();
    }
  }
  std::vector<LoadStats> parts(clients.size());
  std::vector<std::thread> threads;
  Budget budget(options);
  const auto began = Clock::now();
  for (std::size_t i = 0; i < clients.size(); ++i) {
    const auto num_connections = static_cast<std::size_t>(options.num_connections);
    const auto num_streams = static_cast<std::size_t>(options.num_streams);
    const std::size_t share = num_streams / num_connections + (i < num_streams % num_connections);
    threads.emplace_back([&, i, share] {
      parts[i] = Worker(options, clients[i], static_cast<int>(share)).run(budget);
    });
  }
  for (std::thread& thread : threads) thread.join();
  LoadStats stats;
  for (const LoadStats& part : parts) stats.add(part);
  stats.wall_s = seconds_between(began, Clock::now());
  return stats;
}

Result<int> ask_vocab_size(const LoadOptions& options) {
  client::Client client;
  if (auto connected = client.connect(options.host, options.port); !connected) {
    return connected.error();
  }
  if (auto sent = client.send(protocol::ModelInfoMessage{1, options.model}); !sent) {
    return sent.error();
  }
  const auto deadline = Clock::now() + std::chrono::milliseconds(kInfoTimeoutMs);
  while (Clock::now() < deadline) {
    ServerEntry entry;
    const auto received = client.receive(entry, kInfoTimeoutMs);
    if (!received) return received.error();
    if (!*received || !entry.is_msg) continue;
    if (!entry.error.empty()) return Error{entry.error};
    const auto field = json_field(entry.model_info_json, "vocab_size");
    const auto size = field ? json_integer(*field) : std::nullopt;
    if (size && *size > 0 && *size <= INT32_MAX) return static_cast<int>(*size);
    break;
  }
  return Error{"the server does not tell its vocabulary's size: give --vocab"};
}

}  // namespace lmtp::tools
