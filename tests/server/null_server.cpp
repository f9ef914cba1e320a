// The whole server but for a model: for what counts its instructions (tools/benchmarks/counts.py).
//
// Prints its port. Requests wait until a line comes on stdin, so that all run from the first step
// on; the end of stdin ends the process.
#include <cstdio>
#include <future>
#include <iostream>
#include <string>

#include "fake_model.h"
#include "lmtp/server/server.h"

int main() {
  std::promise<void> go;
  lmtp::testing::FakeModelOptions model;
  model.load_gate = go.get_future().share();
  model.agent.num_blocks = 1 << 15;
  const auto models = lmtp::testing::make_fake_models(model);
  lmtp::server::ServerOptions options;
  options.port = 0;
  lmtp::server::Server server(options, *models);
  if (const auto started = server.start(); !started) {
    std::fprintf(stderr, "null_server: %s\n", started.error().message.c_str());
    return 1;
  }
  std::printf("%d\n", server.port());
  std::fflush(stdout);
  std::string line;
  std::getline(std::cin, line);
  go.set_value();
  std::getline(std::cin, line);
  server.stop_accepting();
  models->stop(0);
  server.stop(std::chrono::steady_clock::now());
  return 0;
}
