// A balancer over workers that a test writes the answers of.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "lmtp/balance/remote_models.h"
#include "lmtp/base/json.h"
#include "support/recording_sink.h"
#include "support/script_server.h"

namespace lmtp::balance {

using testing::RecordingSink;
using testing::ScriptServer;
using Socket = ScriptServer::Socket;

inline constexpr int kVocabSize = 100;

inline std::string info_json(const std::string& numerics, int context_length = 64) {
  return Json{{"model", "m"},
              {"state", "ready"},
              {"vocab_size", kVocabSize},
              {"context_length", context_length},
              {"kv_cache_dtype", "fp8_e4m3"},
              {"numerics", numerics}}
      .dump();
}

// A worker's side of one connection.
class Peer {
 public:
  Peer(Socket& socket, std::string info) : socket_(socket), info_(std::move(info)) {}

  // The next message, with its verb as "verb"; one for MODEL_INFO is answered.
  Json message() {
    const std::string message = socket_.read();
    const std::size_t space = message.find(' ');
    Json fields = *parse_json_object(message.substr(space + 1), "message");
    fields["verb"] = message.substr(0, space);
    if (fields["verb"] == "MODEL_INFO") {
      socket_.write("MSG [{\"stream_id\": " + fields["stream_id"].dump() +
                    ", \"model_info\": " + info_ + "}]");
    }
    return fields;
  }
  // The next one that is no MODEL_INFO.
  Json request() {
    for (;;) {
      if (Json fields = message(); fields["verb"] != "MODEL_INFO") return fields;
    }
  }
  void token(const Json& request, int token, const char* reason = "null") {
    socket_.write("TOKEN [{\"stream_id\": " + request["stream_id"].dump() +
                  ", \"token\": " + std::to_string(token) +
                  ", \"logprob\": -1.5, \"finish_reason\": " + reason + "}]");
  }
  void error(const Json& request, const std::string& code) {
    socket_.write("TOKEN [{\"stream_id\": " + request["stream_id"].dump() +
                  ", \"error\": \"no\", \"code\": \"" + code + "\", \"retryable\": true}]");
  }
  void write(const std::string& text) { socket_.write(text); }
  void says(std::string info) { info_ = std::move(info); }
  // Until the other end leaves.
  void idle() {
    for (;;) request();
  }

 private:
  Socket& socket_;
  std::string info_;
};

using Act = std::function<void(Peer&)>;

// One connection after the other, each with its act.
inline std::unique_ptr<ScriptServer> worker(const std::string& info, std::vector<Act> acts) {
  std::vector<ScriptServer::Script> scripts;
  for (Act& act : acts) {
    scripts.emplace_back([info, act = std::move(act)](Socket& socket) {
      Peer peer(socket, info);
      act(peer);
    });
  }
  return std::make_unique<ScriptServer>(std::move(scripts));
}

class PoolTest : public ::testing::Test {
 protected:
  // Workers of that behaviour, in as many connections as there are acts.
  void add(const std::string& numerics, std::vector<Act> acts, int context_length = 64) {
    workers_.push_back(worker(info_json(numerics, context_length), std::move(acts)));
  }

  Result<void> start() {
    BalanceOptions options = options_;
    for (const auto& worker : workers_) options.workers.push_back({"127.0.0.1", worker->port()});
    options.connections = 1;
    options_.workers.clear();
    models_ = std::make_unique<RemoteModels>(std::move(options));
    for (;;) {
      if (auto started = models_->start(1000)) return *started;
    }
  }

  Request request(StreamId id, int max_tokens = 4) {
    Request request;
    request.key = {1, id};
    request.sink = sink_;
    request.prompt = {1, 2, 3};
    request.params.max_tokens = max_tokens;
    request.wants_notices = true;
    return request;
  }

  std::shared_ptr<registry::StreamCanceller> submit(Request request) {
    registry::Submission submission = models_->submit(std::move(request));
    auto* taken = std::get_if<std::shared_ptr<registry::StreamCanceller>>(&submission);
    EXPECT_NE(taken, nullptr);
    return taken != nullptr ? *taken : nullptr;
  }

  std::string name(std::size_t i) const {
    return "127.0.0.1:" + std::to_string(workers_[i]->port());
  }

  // MODEL_INFO is asked for as a connection begins, and then no more: one that is not read as a
  // worker breaks off would take along what it has sent.
  static BalanceOptions patient_options() {
    BalanceOptions options;
    options.health_interval_ms = 3'600'000;
    options.silence_timeout_ms = 3'600'000;
    options.worker_timeout_ms = 120'000;
    return options;
  }

  BalanceOptions options_ = patient_options();
  std::vector<std::unique_ptr<ScriptServer>> workers_;
  const std::shared_ptr<RecordingSink> sink_ = std::make_shared<RecordingSink>();
  std::unique_ptr<RemoteModels> models_;  // ends first
};

}  // namespace lmtp::balance
