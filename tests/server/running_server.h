// A server over the null agent, on a port of its own.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "eventually.h"
#include "fake_model.h"
#include "lmtp/server/http.h"
#include "lmtp/server/server.h"
#include "transport.h"

namespace lmtp::testing {

inline server::ServerOptions with_aici() {
  server::ServerOptions options;
  options.aici = true;
  return options;
}

// None ends anything in a test: one that is about a timeout makes that one short.
inline server::Timeouts no_timeouts() {
  const server::Timeouts::Time hour = std::chrono::hours(1);
  return {hour, hour, hour, hour, hour, hour, hour, hour, hour};
}

// Without timeouts, where the options have the server's own.
struct Running {
  using AddRoutes = std::function<void(server::HttpRoutes&, registry::Registry&)>;

  explicit Running(FakeModelOptions model = {}, server::ServerOptions options = {},
                   const AddRoutes& add_routes = {})
      : loads_at_once(!model.load_gate.valid() && !model.load_tokenizer),
        models(make_fake_models(std::move(model))),
        server(
            [&] {
              options.port = 0;
              options.version = "test";
              set_transport(options);
              if (options.timeouts == server::Timeouts()) options.timeouts = no_timeouts();
              return options;
            }(),
            *models) {
    if (add_routes) add_routes(server.routes(), *models);
    const Result<void> started = server.start();
    EXPECT_TRUE(started.ok());
    if (loads_at_once) {
      EXPECT_TRUE(eventually([&] { return models->healthy(); }));
    }
  }

  engine::EngineStats stats() const { return (*models->status(""))->stats; }
  // Waits until nothing runs and nothing waits.
  void wait_idle() const {
    EXPECT_TRUE(eventually([&] {
      const engine::EngineStats now = stats();
      return now.num_running == 0 && now.num_waiting == 0 && now.num_blocks_pinned == 0;
    }));
  }

  // For Server::stop: polite clients have said goodbye long before.
  static std::chrono::steady_clock::time_point soon() {
    return std::chrono::steady_clock::now() + std::chrono::seconds(10);
  }

  const bool loads_at_once;  // so it is ready from the start
  std::unique_ptr<registry::Registry> models;
  server::Server server;
};

inline std::string generate(StreamId id, int max_tokens, const std::string& more = {}) {
  return "GENERATE {\"stream_id\": " + std::to_string(id) +
         ", \"prompt\": [1, 2, 3], \"max_tokens\": " + std::to_string(max_tokens) + more + "}";
}

}  // namespace lmtp::testing
