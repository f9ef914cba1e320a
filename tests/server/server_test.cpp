// The server from the outside, over real sockets and the null agent.
#include "lmtp/server/server.h"

#include <gtest/gtest.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/write.hpp>
#include <chrono>
#include <future>
#include <string>
#include <thread>

#include "eventually.h"
#include "running_server.h"
#include "ws_client.h"

namespace lmtp::server {
namespace {

using lmtp::testing::endless_model;
using lmtp::testing::FakeAgent;
using lmtp::testing::FakeModelOptions;
using lmtp::testing::generate;
using lmtp::testing::http_exchange;
using lmtp::testing::kEndless;
using lmtp::testing::kFakeVocabSize;
using lmtp::testing::Running;
using lmtp::testing::StepGate;
using lmtp::testing::WsClient;

TEST(Server, StreamsTokensAndScores) {
  Running running;
  WsClient client(running.server.port());
  client.send(generate(1, 5));
  const WsClient::Outcome outcome = client.collect(1);
  EXPECT_EQ(outcome.tokens, FakeAgent::expected_tokens({1, 2, 3}, 5, kFakeVocabSize));
  EXPECT_EQ(outcome.finish, FinishReason::kLength);
  client.send(R"(SCORE {"stream_id": 1, "prompt": [1, 2, 3], "scored": [4, 5]})");
  const WsClient::Outcome score = client.collect(1);
  EXPECT_EQ(score.tokens, (std::vector<TokenId>{4, 5}));
  ASSERT_EQ(score.logprobs.size(), 2U);
  EXPECT_EQ(score.logprobs[1], FakeAgent::logprob_after({1, 2, 3, 4}, 5));
  EXPECT_EQ(score.finish, FinishReason::kStop);
}

TEST(Server, DoesNotOpenWithTimeoutsThatAreNone) {
  using Member = Timeouts::Time Timeouts::*;
  const std::unique_ptr<registry::Registry> models = lmtp::testing::make_fake_models({});
  for (const Member member : {&Timeouts::handshake, &Timeouts::http, &Timeouts::stream_write,
                              &Timeouts::drain, &Timeouts::idle, &Timeouts::close,
                              &Timeouts::slow_reader, &Timeouts::message, &Timeouts::keep_alive}) {
    for (const Timeouts::Time wrong :
         {Timeouts::Time(0), Timeouts::Time(-1), Timeouts::Time::max()}) {
      ServerOptions options;
      options.port = 0;
      options.timeouts.*member = wrong;
      Server server(options, *models);
      const Result<void> opened = server.open();
      ASSERT_FALSE(opened.ok());
      EXPECT_NE(opened.error().message.find("ms; allowed are 1 ms to a year"), std::string::npos);
    }
  }
}

TEST(Server, AllStreamsOfAStepShareOneMessage) {
  std::promise<void> gate;
  FakeModelOptions model;
  model.load_gate = gate.get_future().share();
  Running running(model);
  WsClient client(running.server.port());
  client.send(generate(1, 3));
  client.send(generate(2, 3));
  // Both wait for the model once MODEL_INFO, which follows them, is answered and says so.
  int num_waiting = 0;
  while (num_waiting < 2) {
    client.send(R"(MODEL_INFO {"stream_id": 9})");
    std::optional<protocol::ServerEntry> entry;
    do {
      entry = client.next();
      ASSERT_TRUE(entry.has_value());
    } while (entry->model_info_json.empty());
    num_waiting = running.stats().num_waiting;
  }
  gate.set_value();
  while (true) {
    const std::optional<protocol::ServerEntry> entry = client.next();
    ASSERT_TRUE(entry.has_value());
    if (entry->is_msg) {
      EXPECT_EQ(entry->status, "loading");
      continue;
    }
    EXPECT_NE(client.last_message().find("}, {"), std::string::npos) << client.last_message();
    break;
  }
}

TEST(Server, APromptOfManyMegabytesIsRefusedInTheOrderOfTheStreams) {
  Running running;
  WsClient client(running.server.port());
  std::string ids = "1";
  while (ids.size() < std::size_t{15} << 20) ids += ",1";
  const auto start = std::chrono::steady_clock::now();
  client.send("GENERATE {\"prompt\": [" + ids + "], \"stream_id\": 1}");
  client.send(generate(2, 3));
  EXPECT_NE(client.collect(1).error.find("prompt: has more than 512 tokens"), std::string::npos);
  // 14 MiB of it at 64 MiB/s, so that they do not take the processor from streams.
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(200));
  EXPECT_EQ(client.collect(2).tokens.size(), 3U);
}

TEST(Server, FaultsLeaveTheConnectionAndItsStreamsAlone) {
  const FakeModelOptions model;
  Running running(model);
  StepGate gate(model.agent.steps);
  WsClient client(running.server.port());
  client.send(generate(1, 100));
  gate.let(50);
  for (const char* text : {"", "GENERATE", "X {}", "GENERATE [1]", R"(SCORE {"stream_id": 4})"}) {
    client.send(text);
  }
  client.send_binary("GENERATE {}");
  client.send_binary("");
  client.settle();
  gate.open();
  int num_errors = 0;
  std::vector<TokenId> tokens;
  while (tokens.size() < 100 || num_errors < 7) {
    const std::optional<protocol::ServerEntry> entry = client.next();
    ASSERT_TRUE(entry.has_value());
    if (!entry->error.empty()) {
      ++num_errors;
    } else if (entry->token.has_value()) {  // else a notice that the model is loading
      tokens.push_back(*entry->token);
    }
  }
  EXPECT_EQ(num_errors, 7);
  EXPECT_EQ(tokens, FakeAgent::expected_tokens({1, 2, 3}, 100, kFakeVocabSize));
}

TEST(Server, InvalidUtf8ClosesWith1007) {
  Running running;
  WsClient client(running.server.port());
  WsClient other(running.server.port());
  client.send("GENERATE {\"model\": \"\xff\xfe\"}");
  EXPECT_FALSE(client.read().has_value());
  EXPECT_EQ(client.close_code(), 1007);
  other.send(generate(1, 2));
  EXPECT_EQ(other.collect(1).tokens.size(), 2U);
}

TEST(Server, ATooLargeMessageClosesWith1009AndNamesTheLimit) {
  ServerOptions options;
  options.max_message_bytes = 1000;
  Running running({}, options);
  WsClient client(running.server.port());
  const std::string right = generate(1, 2);
  client.send(right + std::string(1000 - right.size(), ' '));
  EXPECT_EQ(client.collect(1).tokens.size(), 2U) << "as long as the limit is allowed";
  client.send(right + std::string(1001 - right.size(), ' '));
  EXPECT_FALSE(client.read().has_value());
  EXPECT_EQ(client.close_code(), 1009);
  EXPECT_NE(client.close_reason().find("1000 bytes"), std::string::npos) << client.close_reason();
}

TEST(Server, ADroppedConnectionFreesItsStreams) {
  Running running(endless_model());
  for (const bool orderly : {false, true}) {
    WsClient client(running.server.port());
    for (StreamId id = 0; id < 20; ++id) client.send(generate(id, kEndless));
    while (client.next()->is_msg) {  // notices of the loading
    }
    EXPECT_GT(running.stats().num_running, 0);
    orderly ? client.close() : client.drop();
    running.wait_idle();
  }
}

TEST(Server, CancelEndsOneStreamOnly) {
  Running running(endless_model());
  WsClient client(running.server.port());
  client.send(generate(1, kEndless));
  client.send(generate(2, 20));
  client.next();
  client.send(R"(CANCEL {"stream_id": 1})");
  bool cancelled = false;
  int num_finished = 0;
  while (!cancelled || num_finished == 0) {
    const std::optional<protocol::ServerEntry> entry = client.next();
    ASSERT_TRUE(entry.has_value());
    if (entry->stream_id == 1 && !entry->error.empty()) {
      EXPECT_EQ(entry->error, "cancelled");
      cancelled = true;
    }
    if (entry->stream_id == 2 && entry->finish_reason != FinishReason::kNone) ++num_finished;
  }
  client.send(generate(1, 2));
  EXPECT_EQ(client.collect(1).tokens.size(), 2U) << "the id is free again";
}

TEST(Server, AClientThatDoesNotReadIsClosedAndOthersGoOn) {
  ServerOptions options;
  options.max_write_queue_bytes = 64 * 1024;
  Running running({}, options);
  WsClient slow(running.server.port(), 4096);
  // Answers of some 150 bytes, together more than the kernel's buffers hold.
  const std::string frame = "\x81" + std::string(1, '\xA1') + std::string(4, '\0');
  std::string all;  // at once, since it has seconds to read the reason once it is closed
  for (int i = 0; i < 60000; ++i) all += frame + std::string(33, 'X');
  WsClient other(running.server.port());
  const auto others = std::async(std::launch::async, [&] {
    for (int i = 0; i < 10; ++i) {
      other.send(generate(1, 10));
      EXPECT_EQ(other.collect(1).tokens.size(), 10U);
    }
  });
  slow.send_raw(all);
  while (slow.read()) {
  }
  EXPECT_EQ(slow.close_code(), 1008);
  EXPECT_NE(slow.close_reason().find("does not read"), std::string::npos) << slow.close_reason();
}

TEST(Server, StopSaysGoodbye) {
  Running running;
  WsClient client(running.server.port());
  std::thread stopper([&] { running.server.stop(Running::soon()); });
  EXPECT_FALSE(client.read().has_value());
  EXPECT_EQ(client.close_code(), 1001);
  stopper.join();
}

TEST(Server, ATakenPortIsOneClearLine) {
  Running running;
  ServerOptions options;
  options.port = running.server.port();
  Server second(options, *running.models);
  const Result<void> started = second.start();
  ASSERT_FALSE(started.ok());
  EXPECT_NE(started.error().message.find("127.0.0.1:" + std::to_string(options.port)),
            std::string::npos);
  EXPECT_NE(started.error().message.find("--port"), std::string::npos);
}

TEST(Server, AHostThatIsNotOursIsOneClearLine) {
  const auto models = lmtp::testing::make_fake_models();
  for (const char* host : {"192.0.2.1", "no such host"}) {
    ServerOptions options;
    options.host = host;
    options.port = 0;
    Server server(options, *models);
    const Result<void> started = server.start();
    ASSERT_FALSE(started.ok()) << host;
    EXPECT_NE(started.error().message.find("--host"), std::string::npos) << started.error().message;
  }
}

TEST(Server, SpeaksHttpOnTheSamePort) {
  Running running;
  const std::uint16_t port = running.server.port();
  ASSERT_TRUE(lmtp::testing::eventually([&] { return running.models->healthy(); }));
  const std::string close = " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n";
  EXPECT_EQ(http_exchange(port, "GET /health" + close + "\r\n").rfind("HTTP/1.1 200", 0), 0U);
  EXPECT_EQ(http_exchange(port, "GET /" + close + "\r\n").rfind("HTTP/1.1 200", 0), 0U);
  EXPECT_EQ(http_exchange(port, "GET /x" + close + "\r\n").rfind("HTTP/1.1 404", 0), 0U);
  EXPECT_EQ(http_exchange(port, "DELETE /" + close + "\r\n").rfind("HTTP/1.1 405", 0), 0U);
  EXPECT_EQ(http_exchange(port, "POST /health" + close + "Content-Length: 100000\r\n\r\n" +
                                    std::string(100000, 'x'))
                .rfind("HTTP/1.1 405", 0),
            0U);
  EXPECT_EQ(http_exchange(port, "nonsense\r\n\r\n").rfind("HTTP/1.1 400", 0), 0U);
  EXPECT_EQ(http_exchange(port, "GET /" + close + "X: " + std::string(20000, 'x') + "\r\n\r\n")
                .rfind("HTTP/1.1 431", 0),
            0U);
  const std::string upgrade =
      "Host: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: "
      "dGhlIHNhbXBsZSBub25jZQ==\r\n";
  EXPECT_EQ(http_exchange(port, "GET / HTTP/1.1\r\n" + upgrade + "Sec-WebSocket-Version: 9\r\n\r\n")
                .rfind("HTTP/1.1 426", 0),
            0U);
  EXPECT_EQ(http_exchange(port, "GET /chat HTTP/1.1\r\nConnection: close, Upgrade\r\n" +
                                    upgrade.substr(upgrade.find("Upgrade: w")) +
                                    "Sec-WebSocket-Version: 13\r\n\r\n")
                .rfind("HTTP/1.1 404", 0),
            0U);
}

TEST(Server, StopDoesNotWaitForSilentConnections) {
  Running running;
  boost::asio::io_context io;
  boost::asio::ip::tcp::socket silent(io);
  silent.connect({boost::asio::ip::make_address("127.0.0.1"), running.server.port()});
  boost::asio::ip::tcp::socket kept(io);
  kept.connect({boost::asio::ip::make_address("127.0.0.1"), running.server.port()});
  boost::asio::write(
      kept, boost::asio::buffer(std::string("GET /x HTTP/1.1\r\nHost: localhost\r\n\r\n")));
  std::string answer;
  boost::system::error_code error;
  boost::asio::read_until(kept, boost::asio::dynamic_buffer(answer), "404", error);
  ASSERT_FALSE(error);
  running.server.stop(Running::soon());
  char byte = 0;
  boost::asio::read(silent, boost::asio::buffer(&byte, 1), error);
  EXPECT_TRUE(error) << "it is closed";
}

TEST(Server, MoreConnectionsThanAllowedAreToldSo) {
  ServerOptions options;
  options.max_connections = 2;
  Running running({}, options);
  WsClient first(running.server.port());
  WsClient second(running.server.port());
  EXPECT_EQ(http_exchange(running.server.port(), "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
                .rfind("HTTP/1.1 503", 0),
            0U);
  first.send(generate(1, 2));
  EXPECT_EQ(first.collect(1).tokens.size(), 2U);
}

}  // namespace
}  // namespace lmtp::server
