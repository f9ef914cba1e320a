#include "lmtp/client/client.h"

#include <gtest/gtest.h>
#include <csignal>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/eventually.h"
#include "support/script_server.h"

namespace lmtp::client {
namespace {

using protocol::ServerEntry;
using testing::ScriptServer;
using Socket = ScriptServer::Socket;

constexpr const char* kHost = "127.0.0.1";
constexpr int kLongMs = 60'000;  // only met where something is wrong

std::string token(int stream_id, int id, const char* reason = "null") {
  return R"({"token": )" + std::to_string(id) + R"(, "stream_id": )" + std::to_string(stream_id) +
         R"(, "logprob": -0.5, "finish_reason": )" + reason + "}";
}

// The next entry; an empty one, and a failure of the test, where there is none.
ServerEntry next(Client& client) {
  ServerEntry entry;
  const auto received = client.receive(entry, kLongMs);
  if (!received) {
    ADD_FAILURE() << received.error().message;
  } else {
    EXPECT_TRUE(*received) << "nothing within a minute";
  }
  return entry;
}

// The error of a receive.
std::string end_of(Client& client) {
  ServerEntry entry;
  const auto received = client.receive(entry, kLongMs);
  EXPECT_FALSE(received.ok()) << "still open";
  return received.ok() ? "" : received.error().message;
}

TEST(Client, SendsAndReceivesEntriesOfSeveralStreams) {
  std::string request;
  ScriptServer server({[&](Socket& socket) {
    request = socket.read();
    socket.write("TOKEN [" + token(1, 7) + ", " + token(2, 8) + "]");
    socket.write("NEWS [{}]");  // a verb of the future
    socket.write("MSG [{\"stream_id\": 3, \"error\": \"no\"}]");
    socket.write("TOKEN [" + token(1, 9, "\"length\"") + "]");
    socket.read();
  }});
  Client client;
  ASSERT_TRUE(client.connect(kHost, server.port()).ok());
  EXPECT_TRUE(client.connected());
  protocol::GenerateMessage message;
  message.stream_id = 1;
  message.prompt = {1, 2, 3};
  ASSERT_TRUE(client.send(message).ok());
  EXPECT_EQ(*next(client).token, 7);
  EXPECT_EQ(*next(client).stream_id, 2);
  const ServerEntry error = next(client);
  EXPECT_TRUE(error.is_msg);
  EXPECT_EQ(error.error, "no");
  const ServerEntry last = next(client);
  EXPECT_EQ(*last.token, 9);
  EXPECT_EQ(last.finish_reason, FinishReason::kLength);
  client.close();
  EXPECT_FALSE(client.connected());
  server.join();
  EXPECT_EQ(request.substr(0, 10), "GENERATE {");
  EXPECT_NE(request.find("[1, 2, 3]"), std::string::npos) << request;
}

TEST(Client, ReceivesWholeMessagesAsTheyStand) {
  const std::string two = "TOKEN [" + token(1, 7) + ", " + token(2, 8) + "]";
  ScriptServer server({[&](Socket& socket) {
    socket.write("NEWS [{}]");
    socket.write(two);
    socket.write(two);
    socket.write("TOKEN [{");
    socket.read();
  }});
  Client client;
  ASSERT_TRUE(client.connect(kHost, server.port()).ok());
  ReceivedMessage message;
  for (const std::string& wanted : {std::string("NEWS [{}]"), two}) {
    ASSERT_TRUE(client.receive_message(message, kLongMs).value());
    EXPECT_EQ(message.text, wanted);
  }
  EXPECT_EQ(*next(client).token, 7);
  EXPECT_EQ(*next(client).token, 8);
  ASSERT_TRUE(client.receive_message(message, kLongMs).value());
  EXPECT_EQ(message.text, "TOKEN [{");  // it was not parsed
  EXPECT_FALSE(*client.receive_message(message, 0));
}

TEST(Client, AMessageThatComesDuringASendHasTheTimeAtWhichItCame) {
  using Clock = std::chrono::steady_clock;
  ScriptServer server({[](Socket& socket) {
    socket.fix_receive_buffer();
    socket.write("TOKEN [" + token(1, 7) + "]");
    socket.read();  // the send cannot end before this has begun
    socket.write("TOKEN [" + token(1, 8) + "]");
    socket.read();
  }});
  Client client;
  ASSERT_TRUE(client.connect(kHost, server.port()).ok());
  const auto before = Clock::now();
  ASSERT_TRUE(client.send_text(std::string(24 << 20, 'x')).ok());
  const auto sent = Clock::now();
  ReceivedMessage first;
  ReceivedMessage second;
  ASSERT_TRUE(client.receive_message(first, kLongMs).value());
  ASSERT_TRUE(client.receive_message(second, kLongMs).value());
  EXPECT_GE(first.arrived, before);
  EXPECT_LE(first.arrived, sent);
  EXPECT_GE(second.arrived, first.arrived);
  EXPECT_LE(second.arrived, Clock::now());
}

TEST(Client, AReceiveEndsByItsTimeout) {
  ScriptServer server({[](Socket& socket) {
    socket.read();
    socket.write("TOKEN [" + token(1, 7) + "]");
    socket.read();
  }});
  Client client;
  ASSERT_TRUE(client.connect(kHost, server.port()).ok());
  ServerEntry entry;
  for (const int timeout_ms : {0, 20}) {
    const auto received = client.receive(entry, timeout_ms);
    ASSERT_TRUE(received.ok());
    EXPECT_FALSE(*received);
  }
  ASSERT_TRUE(client.send_text("GENERATE {}").ok());
  EXPECT_EQ(*next(client).token, 7);
  EXPECT_TRUE(client.connected());
}

TEST(Client, APollTakesWhatIsThere) {
  ScriptServer server({[](Socket& socket) {
    socket.write("TOKEN [" + token(1, 7) + "]");
    socket.read();
  }});
  Client client;
  ASSERT_TRUE(client.connect(kHost, server.port()).ok());
  ServerEntry entry;
  EXPECT_TRUE(testing::eventually([&] {
    const auto received = client.receive(entry, 0);
    EXPECT_TRUE(received.ok());
    return !received.ok() || *received;
  }));
}

TEST(Client, AnInterruptWakesAReceiveInAnotherThread) {
  ScriptServer server({[](Socket& socket) { socket.read(); }});
  Client client;
  ASSERT_TRUE(client.connect(kHost, server.port()).ok());
  std::thread waker([&client] { client.interrupt(); });
  ServerEntry entry;
  const auto received = client.receive(entry, -1);
  waker.join();
  ASSERT_TRUE(received.ok()) << received.error().message;
  EXPECT_FALSE(*received);
  // One interrupt ends one receive.
  EXPECT_FALSE(*client.receive(entry, 20));
  EXPECT_TRUE(client.connected());
}

Client* interrupted_by_signal = nullptr;

TEST(Client, AnInterruptComesFromASignalHandler) {
  ScriptServer server({[](Socket& socket) { socket.read(); }});
  Client client;
  ASSERT_TRUE(client.connect(kHost, server.port()).ok());
  interrupted_by_signal = &client;
  struct sigaction action = {};
  struct sigaction old = {};
  action.sa_handler = [](int) { interrupted_by_signal->interrupt(); };
  ASSERT_EQ(sigaction(SIGUSR1, &action, &old), 0);
  const pthread_t self = pthread_self();
  std::thread sender([self] { pthread_kill(self, SIGUSR1); });
  ServerEntry entry;
  const auto received = client.receive(entry, -1);
  sender.join();
  sigaction(SIGUSR1, &old, nullptr);
  ASSERT_TRUE(received.ok());
  EXPECT_FALSE(*received);
}

TEST(Client, TellsWhyTheServerClosed) {
  ScriptServer server({[](Socket& socket) {
    socket.write("TOKEN [" + token(1, 7) + "]");
    socket.close(ScriptServer::kTooBig, "messages of 16 MiB are allowed");
  }});
  Client client;
  ASSERT_TRUE(client.connect(kHost, server.port()).ok());
  EXPECT_EQ(*next(client).token, 7);  // what came before is not lost
  EXPECT_EQ(end_of(client),
            "the server closed the connection (code 1009: messages of 16 MiB are allowed)");
  EXPECT_FALSE(client.connected());
  EXPECT_EQ(end_of(client).substr(0, 28), "the server closed the connec");
  EXPECT_FALSE(client.send_text("GENERATE {}").ok());
}

TEST(Client, TellsThatTheServerWentAway) {
  ScriptServer server({[](Socket& socket) { socket.read(); }});
  Client client;
  ASSERT_TRUE(client.connect(kHost, server.port()).ok());
  ASSERT_TRUE(client.send_text("GENERATE {}").ok());
  EXPECT_EQ(end_of(client), "the server went away");
}

TEST(Client, ConnectsAgain) {
  const auto hello = [](Socket& socket) {
    socket.write("TOKEN [" + token(1, 7) + ", " + token(1, 8) + "]");
    socket.read();
  };
  ScriptServer server({hello, hello});
  Client client;
  for (int round = 0; round < 2; ++round) {
    ASSERT_TRUE(client.connect(kHost, server.port()).ok());
    EXPECT_EQ(*next(client).token, 7);  // the other one is not met again in the next round
  }
}

TEST(Client, NamesWhatIsNotAServer) {
  Client client;
  std::uint16_t port = 0;
  {
    ScriptServer gone({});
    port = gone.port();
  }
  const auto refused = client.connect(kHost, port);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("127.0.0.1:" + std::to_string(port)), std::string::npos);
  EXPECT_NE(refused.error().message.find("refused"), std::string::npos);
  EXPECT_NE(refused.error().message.find("lmtp-serve"), std::string::npos);
  EXPECT_FALSE(client.connected());
  EXPECT_FALSE(client.send_text("x").ok());
  ServerEntry entry;
  EXPECT_FALSE(client.receive(entry, 0).ok());

  auto http = ScriptServer::raw([](ScriptServer::RawSocket& socket) {
    socket.read_some();
    socket.write("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
  });
  const auto not_found = client.connect(kHost, http.port());
  ASSERT_FALSE(not_found.ok());
  EXPECT_NE(not_found.error().message.find("HTTP 404"), std::string::npos)
      << not_found.error().message;
}

TEST(Client, AConnectEndsByItsTimeoutAndByAnInterrupt) {
  std::atomic<bool> stop = false;
  const auto silent = [&stop](ScriptServer::RawSocket&) {
    EXPECT_TRUE(testing::eventually([&] { return stop.load(); }));
  };
  Client client;
  {
    auto server = ScriptServer::raw(silent);
    const auto timed_out = client.connect(kHost, server.port(), 30);
    stop = true;
    ASSERT_FALSE(timed_out.ok());
    EXPECT_NE(timed_out.error().message.find("no answer within"), std::string::npos);
  }
  stop = false;
  auto server = ScriptServer::raw([&](ScriptServer::RawSocket& socket) {
    client.interrupt();
    silent(socket);
  });
  const auto interrupted = client.connect(kHost, server.port(), kLongMs);
  stop = true;
  ASSERT_FALSE(interrupted.ok());
  EXPECT_NE(interrupted.error().message.find("interrupted"), std::string::npos)
      << interrupted.error().message;
}

TEST(Client, AnswersPingsWhileItWaits) {
  std::string pong;
  ScriptServer server({[&pong](Socket& socket) { pong = socket.ping("are you there"); }});
  Client client;
  ASSERT_TRUE(client.connect(kHost, server.port()).ok());
  // Only a receive reads; the server leaves when it has its answer.
  EXPECT_EQ(end_of(client), "the server went away");
  server.join();
  EXPECT_EQ(pong, "are you there");
}

// A large message each way at once, through small buffers: neither side may wait for the other.
TEST(Client, LargeMessagesBothWays) {
  constexpr std::size_t kNumEntries = 200'000;
  const std::string large(24 << 20, 'x');
  std::size_t received_bytes = 0;
  ScriptServer server({[&](Socket& socket) {
    std::string tokens = "TOKEN [" + token(1, 0);
    for (std::size_t i = 1; i < kNumEntries; ++i) tokens += ", " + token(1, static_cast<int>(i));
    socket.write(tokens + "]");  // before it reads a byte
    received_bytes = socket.read().size();
    socket.write("TOKEN [" + token(2, 1) + "]");
    socket.read();
  }});
  Client client;
  ASSERT_TRUE(client.connect(kHost, server.port()).ok());
  ASSERT_TRUE(client.send_text(large).ok());
  for (std::size_t i = 0; i < kNumEntries; ++i) {
    ASSERT_EQ(*next(client).token, static_cast<TokenId>(i));
  }
  EXPECT_EQ(*next(client).stream_id, 2);
  client.close();
  server.join();
  EXPECT_EQ(received_bytes, large.size());
}

TEST(Client, AMessageThatIsNoJsonEndsTheConnection) {
  ScriptServer server({[](Socket& socket) {
    socket.write("TOKEN [{");
    socket.read();
  }});
  Client client;
  ASSERT_TRUE(client.connect(kHost, server.port()).ok());
  EXPECT_NE(end_of(client).find("not JSON"), std::string::npos);
}

TEST(Client, MovesWithItsConnection) {
  ScriptServer server({[](Socket& socket) {
    socket.read();
    socket.write("TOKEN [" + token(1, 7) + "]");
    socket.read();
  }});
  Client first;
  ASSERT_TRUE(first.connect(kHost, server.port()).ok());
  Client second = std::move(first);
  ASSERT_TRUE(second.send_text("GENERATE {}").ok());
  EXPECT_EQ(*next(second).token, 7);
}

}  // namespace
}  // namespace lmtp::client
