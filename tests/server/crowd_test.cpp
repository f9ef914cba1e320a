// Many connections that send, cancel, vanish and dawdle at once: nothing is lost, nothing leaks,
// and (under ThreadSanitizer) nothing races.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "eventually.h"
#include "fake_model.h"
#include "lmtp/server/server.h"
#include "ws_client.h"

namespace lmtp::server {
namespace {

using lmtp::testing::FakeAgent;
using lmtp::testing::FakeModelOptions;
using lmtp::testing::kEndless;
using lmtp::testing::kFakeVocabSize;
using lmtp::testing::WsClient;

constexpr int kNumThreads = 8;
constexpr int kNumRounds = 12;
constexpr int kNumStreams = 4;

std::string generate(StreamId id, TokenId first, int max_tokens) {
  return "GENERATE {\"stream_id\": " + std::to_string(id) + ", \"prompt\": [" +
         std::to_string(first) + ", 7], \"max_tokens\": " + std::to_string(max_tokens) + "}";
}

// All streams of one connection to their ends; each must be what it would be alone.
void run_to_the_end(std::uint16_t port, std::mt19937& random) {
  WsClient client(port);
  std::vector<TokenId> firsts;
  std::vector<std::vector<TokenId>> tokens(kNumStreams);
  for (int i = 0; i < kNumStreams; ++i) {
    firsts.push_back(static_cast<TokenId>(random() % kFakeVocabSize));
    client.send(generate(i, firsts.back(), 5 + i));
  }
  for (int num_open = kNumStreams; num_open > 0;) {
    const auto entry = client.next();
    ASSERT_TRUE(entry.has_value());
    ASSERT_EQ(entry->error, "");
    if (entry->status == "loading") continue;
    tokens.at(static_cast<std::size_t>(*entry->stream_id)).push_back(*entry->token);
    if (entry->finish_reason != FinishReason::kNone) --num_open;
  }
  for (int i = 0; i < kNumStreams; ++i) {
    const auto at = static_cast<std::size_t>(i);
    EXPECT_EQ(tokens[at], FakeAgent::expected_tokens({firsts[at], 7}, 5 + i, kFakeVocabSize));
  }
  client.close();
}

void run_and_vanish(std::uint16_t port, std::mt19937& random) {
  WsClient client(port);
  for (int i = 0; i < kNumStreams; ++i) client.send(generate(i, 3, 400));
  for (auto i = random() % 5; i > 0; --i) client.next();
  client.drop();
}

void run_and_cancel(std::uint16_t port) {
  WsClient client(port);
  for (int i = 0; i < kNumStreams; ++i) client.send(generate(i, 5, 400));
  for (int i = 0; i < kNumStreams; ++i) {
    client.send("CANCEL {\"stream_id\": " + std::to_string(i) + "}");
  }
  for (int num_open = kNumStreams; num_open > 0;) {
    const auto entry = client.next();
    ASSERT_TRUE(entry.has_value());
    if (!entry->error.empty() || entry->finish_reason != FinishReason::kNone) --num_open;
  }
}

void run_thread(std::uint16_t port, unsigned seed) {
  std::mt19937 random(seed);
  for (int round = 0; round < kNumRounds; ++round) {
    switch (random() % 3) {
      case 0:
        run_to_the_end(port, random);
        break;
      case 1:
        run_and_vanish(port, random);
        break;
      default:
        run_and_cancel(port);
        break;
    }
  }
}

TEST(Crowd, NothingIsLostAndAllIsFreed) {
  FakeModelOptions model;
  model.agent.num_blocks = 256;
  const auto models = lmtp::testing::make_fake_models(model);
  ServerOptions options;
  options.port = 0;
  options.num_io_threads = 3;
  Server server(options, *models);
  ASSERT_TRUE(server.start().ok());
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < kNumThreads; ++i) {
    threads.emplace_back([&server, i] { run_thread(server.port(), i + 1); });
  }
  for (std::thread& thread : threads) thread.join();
  // What vanished clients had sent may still begin.
  const auto stats = [&] { return (*models->status(""))->stats; };
  EXPECT_TRUE(lmtp::testing::eventually([&] {
    const engine::EngineStats now = stats();
    return now.num_running + now.num_waiting + now.num_blocks_pinned == 0;
  }));
  EXPECT_EQ(stats().num_failed_steps, 0);
}

std::string generate_by(const std::string& model, StreamId id, TokenId first, int max_tokens) {
  return generate(id, first, max_tokens).insert(10, "\"model\": \"" + model + "\", ");
}

// More models than fit, some unknown: streams end rightly or with the reason, and connections that
// vanish while their models are sought, loaded or unloaded leave nothing.
void ask_many_models(std::uint16_t port, unsigned seed) {
  std::mt19937 random(seed);
  for (int round = 0; round < kNumRounds; ++round) {
    WsClient client(port);
    const bool vanishes = random() % 3 == 0;
    for (int i = 0; i < kNumStreams; ++i) {
      const std::string name = "m" + std::to_string(random() % 6);  // m5 is unknown
      client.send(generate_by(name, i, static_cast<TokenId>(i), vanishes ? 400 : 5));
    }
    if (vanishes) {
      for (auto i = random() % 4; i > 0; --i) client.next();
      client.drop();
      continue;
    }
    std::vector<std::vector<TokenId>> tokens(kNumStreams);
    for (int num_open = kNumStreams; num_open > 0;) {
      const auto entry = client.next();
      ASSERT_TRUE(entry.has_value());
      if (entry->is_msg) continue;
      const auto at = static_cast<std::size_t>(*entry->stream_id);
      if (!entry->error.empty()) {
        EXPECT_NE(entry->error.find("'m5' is unknown"), std::string::npos) << entry->error;
        --num_open;
        continue;
      }
      tokens.at(at).push_back(*entry->token);
      if (entry->finish_reason == FinishReason::kNone) continue;
      EXPECT_EQ(tokens[at],
                FakeAgent::expected_tokens({static_cast<TokenId>(at), 7}, 5, kFakeVocabSize));
      --num_open;
    }
    client.close();
  }
}

TEST(Crowd, OverMoreModelsThanFitNothingIsLost) {
  const auto census = std::make_shared<lmtp::testing::AgentCensus>();
  auto factory = std::make_unique<lmtp::testing::FakeFactory>(
      [census](const std::string& name) -> Result<registry::ServedModel> {
        if (name == "m5") return Error{ErrorCode::kInternal, "'m5' is unknown"};
        registry::ServedModel model = lmtp::testing::fake_served_model(name);
        model.load = [census, key = model.key](std::int64_t, const scheduler::LoadProgress&)
            -> Result<std::unique_ptr<scheduler::ModelAgent>> {
          return std::unique_ptr<scheduler::ModelAgent>(
              std::make_unique<lmtp::testing::CountedAgent>(lmtp::testing::FakeAgentOptions(),
                                                            census, key));
        };
        return model;
      });
  registry::AutoOptions automatic;
  automatic.max_models = 2;
  automatic.unload_after_ms = 2;
  registry::Registry models(std::move(factory), automatic);
  ServerOptions options;
  options.port = 0;
  options.num_io_threads = 3;
  Server server(options, models);
  ASSERT_TRUE(server.start().ok());
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < kNumThreads; ++i) {
    threads.emplace_back([&server, i] { ask_many_models(server.port(), i + 1); });
  }
  for (std::thread& thread : threads) thread.join();
  // No client is left, so all models are unloaded soon.
  EXPECT_TRUE(lmtp::testing::eventually([&] { return census->num_alive() == 0; }));
  EXPECT_LE(census->num_alive_max(), 2);
}

TEST(Crowd, StoppingAmidTrafficEndsEverything) {
  for (int round = 0; round < 5; ++round) {
    const FakeModelOptions model = lmtp::testing::endless_model();
    const auto models = lmtp::testing::make_fake_models(model);
    ServerOptions options;
    options.port = 0;
    Server server(options, *models);
    ASSERT_TRUE(server.start().ok());
    lmtp::testing::StepGate gate(model.agent.steps);
    std::vector<std::unique_ptr<WsClient>> clients;
    for (int i = 0; i < 6; ++i) {
      clients.push_back(std::make_unique<WsClient>(server.port()));
      for (int s = 0; s < kNumStreams; ++s) clients.back()->send(generate(s, i, kEndless));
      if (i > 0) continue;
      gate.let(1);  // there is nobody else's
      clients[0]->next();
    }
    gate.let(50);  // little enough that nobody has much to read before the goodbye
    std::vector<std::thread> readers;
    std::atomic<int> num_closed = 0;
    for (auto& client : clients) {
      readers.emplace_back([&client, &num_closed] {
        while (client->next()) {
        }
        if (client->close_code() == 1001) ++num_closed;
      });
    }
    server.stop_accepting();
    if (round % 2 == 0) {
      gate.open();
      models->stop(0);
    }
    server.stop(std::chrono::steady_clock::now() + std::chrono::seconds(30));
    for (std::thread& reader : readers) reader.join();
    EXPECT_EQ(num_closed, 6);
  }
}

}  // namespace
}  // namespace lmtp::server
