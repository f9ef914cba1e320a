// Clients that do not let go, over real sockets: what each may hold ends, and others are served.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <future>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "running_server.h"
#include "ws_client.h"

namespace lmtp::server {
namespace {

using lmtp::testing::eventually;
using lmtp::testing::FakeModelOptions;
using lmtp::testing::generate;
using lmtp::testing::http_exchange;
using lmtp::testing::no_timeouts;
using lmtp::testing::Running;
using lmtp::testing::WsClient;
using Clients = std::vector<std::unique_ptr<WsClient>>;

constexpr int kSmallBuffer = 4096;
constexpr int kNumClients = 3;
constexpr int kNumAnswers = 20;  // five megabytes

// Both ends of a connection are this process's.
std::ptrdiff_t num_sockets() {
  const std::filesystem::directory_iterator open("/proc/self/fd");
  return std::count_if(begin(open), end(open), [](const auto& entry) {
    std::error_code gone;
    return std::filesystem::read_symlink(entry, gone).string().starts_with("socket:");
  });
}

// Few answers are much to send.
FakeModelOptions with_long_answers() {
  FakeModelOptions model;
  model.notes = {std::string(std::size_t{256} << 10, 'a')};
  return model;
}

// Asks for more than the kernel's buffers hold, by long answers, and reads nothing. Linux keeps at
// most four megabytes for a socket.
void ask_without_reading(WsClient& client) {
  for (int i = 0; i < kNumAnswers; ++i) client.send(R"(MODEL_INFO {"stream_id": 1})");
}

Clients connect(const Running& running, int count, int receive_buffer_bytes = kSmallBuffer) {
  Clients clients;
  for (int i = 0; i < count; ++i) {
    clients.push_back(std::make_unique<WsClient>(running.server.port(), receive_buffer_bytes));
  }
  return clients;
}

void expect_service(const Running& running) {
  WsClient client(running.server.port());
  client.send(generate(1, 5));
  EXPECT_EQ(client.collect(1).tokens.size(), 5U);
}

// Stops the server; where that does not end, the clients go, so that the test does.
void expect_stop(Running& running, Clients& clients) {
  auto stopped = std::async(std::launch::async, [&] {
    running.server.stop(std::chrono::steady_clock::now() + std::chrono::milliseconds(200));
  });
  EXPECT_EQ(stopped.wait_for(std::chrono::minutes(2)), std::future_status::ready)
      << "stop() does not return";
  for (const auto& client : clients) client->drop();
}

// All that ask_without_reading() asks for may wait.
ServerOptions with_long_queues() {
  ServerOptions options;
  options.max_write_queue_bytes = std::size_t{64} << 20;
  return options;
}

class Hostile : public testing::OverBoth {};

INSTANTIATE_TEST_SUITE_P(, Hostile, ::testing::Bool(), testing::transport_name);

TEST_P(Hostile, OneThatClosesHalfAndDoesNotReadIsLetGo) {
  Running running(with_long_answers(), with_long_queues());
  const std::ptrdiff_t before = num_sockets();
  Clients clients = connect(running, kNumClients);
  for (const auto& client : clients) {
    ask_without_reading(*client);
    client->half_close();
  }
  EXPECT_TRUE(eventually([&] { return num_sockets() == before + kNumClients; }))
      << num_sockets() - before - kNumClients << " sockets of the server are left";
  expect_service(running);
  expect_stop(running, clients);
}

// What waits for the peer ends without it: a close frame from either side, and a broken protocol.
TEST_P(Hostile, AClosingConnectionEndsThoughThePeerStays) {
  ServerOptions options = with_long_queues();
  options.timeouts = no_timeouts();
  options.timeouts.close = std::chrono::milliseconds(100);
  Running running(with_long_answers(), options);
  const std::ptrdiff_t before = num_sockets();
  Clients clients = connect(running, 4);
  const std::string no_mask("\0\0\0\0", 4);
  const std::string close_frame = "\x88\x80" + no_mask;
  clients[0]->send_raw(close_frame);
  clients[1]->send_raw("\x81\x82" + no_mask + "\xff\xfe");  // no UTF-8
  clients[2]->send_raw(std::string(16, '\xff'));            // no frame
  ask_without_reading(*clients[3]);
  clients[3]->send_raw(close_frame);
  EXPECT_TRUE(eventually([&] { return num_sockets() == before + 4; }))
      << num_sockets() - before - 4 << " sockets of the server are left";
}

// A pong waits behind what the peer does not take, and then nothing is read until it is written.
const std::string kPing("\x89\x80\0\0\0\0", 6);

// The server's own word, to a broken protocol or a ping, waits behind what the peer does not take.
TEST_P(Hostile, OneThatIsNotReadFromEndsWhereItDoesNotRead) {
  ServerOptions options = with_long_queues();
  options.timeouts = no_timeouts();
  options.timeouts.slow_reader = std::chrono::milliseconds(200);
  options.timeouts.close = std::chrono::milliseconds(100);
  Running running(with_long_answers(), options);
  const std::ptrdiff_t before = num_sockets();
  Clients clients = connect(running, 3);
  for (const auto& client : clients) ask_without_reading(*client);
  clients[0]->send_raw(std::string(16, '\xff'));
  clients[2]->send_raw(kPing);
  clients[2]->half_close();
  // More than one: a pong is still taken while the kernel's buffers are not full.
  EXPECT_TRUE(eventually([&] {
    clients[1]->send_raw(kPing);
    return num_sockets() == before + 3;
  })) << num_sockets() - before - 3
      << " sockets of the server are left";
}

// However late that is; when patience is over: patience_test.
TEST_P(Hostile, OneThatIsNotReadFromIsReadFromWhereItReads) {
  Running running(with_long_answers(), with_long_queues());
  WsClient late(running.server.port(), kSmallBuffer);
  ask_without_reading(late);
  late.send_raw(kPing);
  late.send(generate(1, 2));
  for (int i = 0; i < kNumAnswers; ++i) ASSERT_TRUE(late.next());
  EXPECT_EQ(late.collect(1).tokens.size(), 2U);
}

TEST_P(Hostile, StopWaitsForNobody) {
  Running running(with_long_answers(), with_long_queues());
  Clients clients = connect(running, 4);
  ask_without_reading(*clients[0]);
  ask_without_reading(*clients[1]);
  clients[1]->half_close();
  clients[2]->send_part("GENERATE {");
  expect_stop(running, clients);  // the fourth is silent
}

// Beast's close has the lock on writing and waits for the one on reading; its read has that one,
// and waits for the other.
TEST_P(Hostile, OneThatBreaksTheProtocolAsTheServerStopsIsLetGo) {
  ServerOptions options;
  options.num_io_threads = 1;
  Running running({}, options);
  Clients clients = connect(running, kNumClients);
  std::promise<void> gate;
  running.server.post([&] { gate.get_future().wait(); });
  for (const auto& client : clients) client->send_raw(std::string(16, '\xff'));
  std::thread opener([&] {  // once stop() has told the connections
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    gate.set_value();
  });
  expect_stop(running, clients);
  opener.join();
}

TEST_P(Hostile, AMessageMayNotTakeForEver) {
  ServerOptions options;
  options.timeouts = no_timeouts();
  options.timeouts.message = std::chrono::milliseconds(100);
  Running running({}, options);
  WsClient slow(running.server.port());
  slow.send_part("GENERATE {");
  EXPECT_FALSE(slow.read().has_value());
  EXPECT_EQ(slow.close_code(), 1008);
  EXPECT_NE(slow.close_reason().find("fragment"), std::string::npos) << slow.close_reason();
  // Between messages there is all the time. A slow machine may need more than one try.
  EXPECT_TRUE(eventually([&] {
    WsClient patient(running.server.port());
    for (int i = 0; i < 2; ++i) {
      patient.send_part("GENERATE ");
      patient.send(generate(1, 2).substr(9));
      if (patient.collect(1).tokens.size() != 2) return false;
      std::this_thread::sleep_for(2 * options.timeouts.message);
    }
    return true;
  }));
}

TEST_P(Hostile, OneThatSaysNothingIsAskedAndLetGo) {
  const FakeModelOptions model;
  ServerOptions options;
  options.timeouts = no_timeouts();
  options.timeouts.idle = std::chrono::milliseconds(200);
  Running running(model, options);
  const std::ptrdiff_t before = num_sockets();
  const WsClient silent(running.server.port());  // answers no ping, since it does not read
  EXPECT_TRUE(eventually([&] { return num_sockets() == before + 1; }));
  // One that reads answers pings. A slow machine may need more than one try.
  EXPECT_TRUE(eventually([&] {
    StepGate gate(model.agent.steps);
    WsClient reader(running.server.port());
    reader.send(generate(1, 2));
    std::thread opens([&] {
      std::this_thread::sleep_for(3 * options.timeouts.idle);
      gate.open();
    });
    const bool lives = reader.collect(1).tokens.size() == 2;
    opens.join();
    return lives;
  }));
}

// The pace at which long messages are read is the server's, and no fault of who sends them.
TEST_P(Hostile, AMessageHasItsTimeBesideThePace) {
  constexpr std::int64_t kPaced = std::int64_t{256} << 10;
  ServerOptions options;
  options.timeouts = no_timeouts();
  options.timeouts.message = std::chrono::milliseconds(500);
  options.paced_bytes_per_second = kPaced * 2 / 3;  // so the pace alone takes three times as long
  Running running({}, options);
  EXPECT_TRUE(eventually([&] {  // a slow machine may need more than one try
    WsClient client(running.server.port());
    client.send(generate(1, 2) + std::string((std::size_t{1} << 20) + kPaced, ' '));
    return client.collect(1).tokens.size() == 2;
  }));
}

// Who sends much gets through beside many who do not finish what they hold, and so does one who is
// slow with little.
TEST_P(Hostile, TheOldestUnfinishedMessageGivesWay) {
  ServerOptions options;
  options.max_read_buffers_bytes = std::size_t{16} << 20;
  Running running({}, options);
  const std::ptrdiff_t before = num_sockets();
  WsClient patient(running.server.port());
  patient.send_part("GENERATE ");
  constexpr int kNumStalled = 50;
  Clients clients = connect(running, kNumStalled, 0);
  for (const auto& client : clients) client->send_part(std::string(std::size_t{300} << 10, ' '));
  WsClient busy(running.server.port());
  busy.send_part(generate(1, 2));
  for (int i = 0; i < 3; ++i) busy.send_part(std::string(std::size_t{1} << 20, ' '));
  busy.send("");
  EXPECT_EQ(busy.collect(1).tokens.size(), 2U);
  patient.send(generate(1, 2).substr(9));
  EXPECT_EQ(patient.collect(1).tokens.size(), 2U);
  // Each client's own socket stays, and the server's of those two.
  EXPECT_LT(num_sockets(), before + 2 * (1 + kNumStalled + 1)) << "nobody gave way";
}

TEST_P(Hostile, UnfinishedMessagesOfAllTogetherHaveALimit) {
  ServerOptions options;
  options.max_message_bytes = std::size_t{1} << 20;
  options.max_read_buffers_bytes = std::size_t{4} << 20;
  Running running({}, options);
  const std::ptrdiff_t before = num_sockets();
  Clients clients = connect(running, 8, 0);
  const std::string most(std::size_t{900} << 10, ' ');
  const auto begin = std::chrono::steady_clock::now();
  ::testing::internal::CaptureStderr();
  for (const auto& client : clients) client->send_part(most);
  // Four have room at most. Each client's own socket stays.
  EXPECT_TRUE(eventually([&] { return num_sockets() <= before + 8 + 4; }));
  for (int i = 0; i < 20; ++i) {
    WsClient other(running.server.port());
    other.send(generate(1, 2) + std::string(std::size_t{100} << 10, ' '));
    EXPECT_EQ(other.collect(1).tokens.size(), 2U) << "who holds little does not make room";
  }
  running.server.stop(std::chrono::steady_clock::now() + std::chrono::milliseconds(200));
  int num_given_up = 0;
  for (const auto& client : clients) {
    EXPECT_FALSE(client->read().has_value());
    if (client->close_code() == 1013) ++num_given_up;
  }
  EXPECT_GE(num_given_up, 4);
  const std::string log = ::testing::internal::GetCapturedStderr();
  const auto elapsed = std::chrono::steady_clock::now() - begin;
  EXPECT_NE(log.find("closed: unfinished messages"), std::string::npos) << log;
  std::int64_t num_told = 0;
  for (std::size_t at = log.find("closed:"); at != std::string::npos;
       at = log.find("closed:", at + 1)) {
    ++num_told;
  }
  EXPECT_LE(num_told, 1 + elapsed / std::chrono::seconds(1)) << log;
}

TEST_P(Hostile, WriteQueuesOfAllTogetherHaveALimit) {
  ServerOptions options = with_long_queues();
  options.max_write_queues_bytes = std::size_t{2} << 20;
  Running running(with_long_answers(), options);
  const std::ptrdiff_t before = num_sockets();
  Clients clients = connect(running, kNumClients);
  for (const auto& client : clients) {
    ask_without_reading(*client);
    expect_service(running);
  }
  EXPECT_TRUE(eventually([&] { return num_sockets() == before + kNumClients; }))
      << num_sockets() - before - kNumClients << " sockets of the server are left";
}

constexpr const char* kUpgrade =
    "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

TEST_P(Hostile, WhatComesWithTheUpgradeRequestIsAnswered) {
  Running running;
  const std::string text = R"(MODEL_INFO {"stream_id": 5})";
  const std::string no_mask("\0\0\0\0", 4);
  const std::string frame = "\x81" + std::string(1, static_cast<char>(0x80 + text.size())) +
                            no_mask + text + "\x88\x80" + no_mask;
  const std::string answer =
      http_exchange(running.server.port(), kUpgrade + std::string("\r\n") + frame);
  EXPECT_EQ(answer.rfind("HTTP/1.1 101", 0), 0U) << answer;
  EXPECT_NE(answer.find(R"({"stream_id": 5, "model_info")"), std::string::npos) << answer;
}

TEST_P(Hostile, WebPagesOfOthersAreRefusedAtTheDoor) {
  ServerOptions options;
  options.allowed_origins = {"https://friend.example"};
  Running running({}, options);
  const std::uint16_t port = running.server.port();
  const auto status = [&](const std::string& start, const std::string& fields) {
    const std::string answer = http_exchange(port, start + fields + "\r\n");
    return answer.substr(std::min<std::size_t>(9, answer.size()), 3);
  };
  const std::string page = "GET / HTTP/1.1\r\nConnection: close\r\n";
  for (const std::string& start : {std::string(kUpgrade), page + "Host: localhost\r\n"}) {
    EXPECT_EQ(status(start, "Origin: https://attacker.example\r\n"), "403");
    EXPECT_EQ(status(start, "Origin: null\r\n"), "403");
  }
  EXPECT_EQ(status(page, "Host: attacker.example\r\n"), "421");
  // Which of two is meant, a proxy may have seen otherwise (RFC 9112, 3.2).
  for (const char* second : {"Host: localhost\r\n", "host: attacker.example\r\n"}) {
    EXPECT_EQ(status(kUpgrade, second), "400");
    EXPECT_EQ(status(page, std::string("Host: localhost\r\n") + second), "400");
  }
  EXPECT_EQ(status(page, "Host: localhost\r\nOrigin: https://friend.example\r\n"), "200");
  expect_service(running);
}

}  // namespace
}  // namespace lmtp::server
