// The prompt's side of a connection, against servers that do what lmtp-serve seldom shows: ones
// without CANCEL, ones that were started anew, ones that load for a while.
#include "lmtp-client/server_link.h"

#include <gtest/gtest.h>
#include <csignal>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "support/script_server.h"

namespace lmtp::tools {
namespace {

using testing::ScriptServer;
using Socket = ScriptServer::Socket;
using Outcome = ServerLink::Outcome;

constexpr const char* kOurs =
    R"({"model": "tiny", "vocab_size": 7, "extensions": ["LOADING", "CANCEL"]})";

std::string id_of(const std::string& message) {
  const std::string key = "\"stream_id\": ";
  const std::size_t begin = message.find(key) + key.size();
  return message.substr(begin, message.find_first_of(",}", begin) - begin);
}

// Answers MODEL_INFO, which each new connection begins with.
void answer_info(Socket& socket, const std::string& info) {
  const std::string message = socket.read();
  EXPECT_TRUE(message.starts_with("MODEL_INFO {")) << message;
  socket.write("MSG [{\"stream_id\": " + id_of(message) + ", \"model_info\": " + info + "}]");
}

// Reads a request and answers it by one token of the number and reason given; its stream id.
std::string answer_token(Socket& socket, int token, const char* reason) {
  std::string id = id_of(socket.read());
  socket.write("TOKEN [{\"stream_id\": " + id + ", \"token\": " + std::to_string(token) +
               ", \"logprob\": -1.0, " + "\"finish_reason\": " + reason + "}]");
  return id;
}

class ServerLinkTest : public ::testing::Test {
 protected:
  ServerLink link_to(const ScriptServer& server, const std::string& model = "tiny") {
    return {{"127.0.0.1", server.port(), model}, interrupts_};
  }

  // Runs one GENERATE; its tokens go to tokens_, and `on_token` is called for each.
  Result<Outcome> generate(
      ServerLink& link, std::function<void()> on_token = [] {}) {
    protocol::GenerateMessage message;
    message.prompt = {1};
    ServerLink::Handler handler;
    handler.on_token = [this, on_token](const protocol::ServerEntry& entry) {
      tokens_.push_back(*entry.token);
      on_token();
    };
    handler.on_loading = [this](const protocol::ServerEntry& entry) {
      progress_.push_back(entry.progress_percent);
    };
    return link.run(std::move(message), handler);
  }

  client::Interrupts interrupts_;
  std::vector<TokenId> tokens_;
  std::vector<int> progress_;
};

TEST_F(ServerLinkTest, RunsStreamsAndKnowsTheModel) {
  ScriptServer server({[](Socket& socket) {
    answer_info(socket, kOurs);
    answer_token(socket, 5, "\"length\"");
    answer_token(socket, 6, "\"stop\"");
  }});
  ServerLink link = link_to(server);
  for (int i = 0; i < 2; ++i) {
    const auto outcome = generate(link);
    ASSERT_TRUE(outcome.ok()) << outcome.error().message;
    EXPECT_EQ(*outcome, Outcome::kFinished);
  }
  EXPECT_EQ(tokens_, (std::vector<TokenId>{5, 6}));
  ASSERT_TRUE(link.info().has_value());
  EXPECT_EQ(link.info()->model, "tiny");
  EXPECT_EQ(link.info()->vocab_size, 7);
  EXPECT_TRUE(link.info()->can_cancel);
}

TEST_F(ServerLinkTest, CancelsByTheExtensionWhereThereIsOne) {
  std::string cancel;
  ScriptServer server({[&](Socket& socket) {
    answer_info(socket, kOurs);
    const std::string id = answer_token(socket, 5, "null");
    cancel = socket.read();
    socket.write("TOKEN [{\"stream_id\": " + id + ", \"token\": 6}]");
    socket.write("TOKEN [{\"stream_id\": " + id + ", \"error\": \"cancelled\"}]");
    answer_token(socket, 7, "\"stop\"");  // on the same connection
  }});
  ServerLink link = link_to(server);
  const auto cancelled = generate(link, [] { raise(SIGINT); });
  ASSERT_TRUE(cancelled.ok()) << cancelled.error().message;
  EXPECT_EQ(*cancelled, Outcome::kCancelled);
  const auto next = generate(link);
  ASSERT_TRUE(next.ok()) << next.error().message;
  EXPECT_EQ(*next, Outcome::kFinished);
  EXPECT_EQ(tokens_, (std::vector<TokenId>{5, 7}));
  server.join();
  EXPECT_TRUE(cancel.starts_with("CANCEL {")) << cancel;
}

TEST_F(ServerLinkTest, CancelsByANewConnectionWhereThereIsNone) {
  std::string after_interrupt = "a message";
  ScriptServer server({[&](Socket& socket) {
                         // As LMQL's own server answers before its model is there.
                         answer_info(socket, "\"<unavailable>\"");
                         answer_token(socket, 5, "null");
                         after_interrupt.clear();
                         after_interrupt = socket.read();  // throws where the client has left
                       },
                       [](Socket& socket) {
                         answer_info(socket, "{}");
                         answer_token(socket, 7, "\"stop\"");
                       }});
  ServerLink link = link_to(server);
  const auto cancelled = generate(link, [] { raise(SIGINT); });
  ASSERT_TRUE(cancelled.ok()) << cancelled.error().message;
  EXPECT_EQ(*cancelled, Outcome::kCancelled);
  const auto next = generate(link);
  ASSERT_TRUE(next.ok()) << next.error().message;
  EXPECT_EQ(tokens_, (std::vector<TokenId>{5, 7}));
  server.join();
  EXPECT_EQ(after_interrupt, "");  // nothing that this server would choke on
}

TEST_F(ServerLinkTest, FindsAServerThatWasStartedAnew) {
  ScriptServer server({[](Socket& socket) {
                         answer_info(socket, kOurs);
                         answer_token(socket, 5, "\"stop\"");
                       },
                       [](Socket& socket) {
                         answer_info(socket, kOurs);
                         answer_token(socket, 6, "\"stop\"");
                       }});
  ServerLink link = link_to(server);
  ASSERT_TRUE(generate(link).ok());
  const auto again = generate(link);
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(tokens_, (std::vector<TokenId>{5, 6}));
  server.join();
  // Now there is none; that is said, not tried for ever.
  EXPECT_FALSE(generate(link).ok());
}

TEST_F(ServerLinkTest, AStreamThatBrokeOffIsNotRunAgain) {
  ScriptServer server({[](Socket& socket) {
                         answer_info(socket, kOurs);
                         answer_token(socket, 5, "\"stop\"");
                         answer_token(socket, 6, "null");
                       },
                       [](Socket& socket) { answer_info(socket, kOurs); }});
  ServerLink link = link_to(server);
  ASSERT_TRUE(generate(link).ok());
  const auto broken = generate(link);
  ASSERT_FALSE(broken.ok());
  EXPECT_EQ(broken.error().message, "the server went away");
  // Nor one on a connection that was new: the server would fall over it again.
  EXPECT_FALSE(generate(link).ok());
}

TEST_F(ServerLinkTest, AServerThatWantsAModelNamed) {
  const ScriptServer::Script read_and_close = [](Socket& socket) {
    socket.read();
    socket.close(ScriptServer::kNormal, "");
  };
  const std::string hint = "MODEL to be named";
  ScriptServer server({read_and_close, read_and_close, read_and_close, read_and_close});
  ServerLink nameless = link_to(server, "");
  const auto outcome = generate(nameless);
  ASSERT_FALSE(outcome.ok());
  EXPECT_NE(outcome.error().message.find("(code 1000)"), std::string::npos);
  EXPECT_NE(outcome.error().message.find(hint), std::string::npos) << outcome.error().message;
  const auto info = nameless.ask_info();
  ASSERT_FALSE(info.ok());
  EXPECT_NE(info.error().message.find(hint), std::string::npos) << info.error().message;
  ServerLink named = link_to(server);
  const auto other = generate(named);
  ASSERT_FALSE(other.ok());
  EXPECT_EQ(other.error().message.find(hint), std::string::npos) << other.error().message;
  EXPECT_EQ(named.ask_info().error().message.find(hint), std::string::npos);
}

TEST_F(ServerLinkTest, TellsLoadingAndErrors) {
  ScriptServer server({[](Socket& socket) {
    answer_info(socket, kOurs);
    const std::string id = id_of(socket.read());
    socket.write("MSG [{\"stream_id\": " + id + ", \"status\": \"loading\", \"progress\": 42}]");
    socket.write("MSG [{\"stream_id\": 12345, \"error\": \"another's\"}]");
    socket.write("TOKEN [{\"stream_id\": " + id + ", \"error\": \"top_k: no\"}]");
    socket.read();
    socket.write(R"(MSG [{"stream_id": null, "error": "not JSON"}])");
    answer_token(socket, 5, "\"stop\"");
  }});
  ServerLink link = link_to(server);
  const auto refused = generate(link);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message, "top_k: no");
  EXPECT_EQ(progress_, std::vector<int>{42});
  const auto nameless = generate(link);
  ASSERT_FALSE(nameless.ok());
  EXPECT_EQ(nameless.error().message, "not JSON");
  EXPECT_TRUE(generate(link).ok());  // the connection lives
}

TEST_F(ServerLinkTest, AsksForInformationAndWaits) {
  ScriptServer server({[](Socket& socket) {
    answer_info(socket, R"({"model": "first"})");
    answer_info(socket, R"({"model": "second"})");
    const std::string id = id_of(socket.read());
    socket.write("MSG [{\"stream_id\": " + id + ", \"error\": \"no model\"}]");
  }});
  ServerLink link = link_to(server);
  for (const char* name : {"first", "second"}) {
    const auto info = link.ask_info();
    ASSERT_TRUE(info.ok()) << info.error().message;
    EXPECT_EQ(info->model, name);
    EXPECT_FALSE(info->can_cancel);
  }
  const auto refused = link.ask_info();
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message, "no model");
}

}  // namespace
}  // namespace lmtp::tools
