// Streams that survive their server, against servers that break off where a test wants it.
#include "lmtp/client/retrying_client.h"

#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lmtp/base/json.h"
#include "support/script_server.h"

namespace lmtp::client {
namespace {

using protocol::ServerEntry;
using testing::ScriptServer;
using Socket = ScriptServer::Socket;
using Outcome = RetryingClient::Outcome;

const std::string kSame = R"({"numerics": "00000000000000aa"})";

// The fields of a message, and its verb as "verb".
Json fields_of(const std::string& message) {
  const std::size_t space = message.find(' ');
  Json fields = *parse_json_object(message.substr(space + 1), "message");
  fields["verb"] = message.substr(0, space);
  return fields;
}

// The server's side of one connection.
struct Peer {
  explicit Peer(Socket& to) : socket(to) {}

  // The next message that is no MODEL_INFO.
  Json request() {
    for (;;) {
      Json fields = fields_of(socket.read());
      if (fields["verb"] == "MODEL_INFO") {
        last_info = fields["stream_id"];
        continue;
      }
      return fields;
    }
  }
  // Answers the MODEL_INFO that follows a first token.
  void say(const std::string& info) {
    const Json ask = fields_of(socket.read());
    EXPECT_EQ(ask["verb"], "MODEL_INFO");
    socket.write("MSG [{\"stream_id\": " + ask["stream_id"].dump() + ", \"model_info\": " + info +
                 "}]");
  }
  void token(const Json& id, int token, const char* reason = "null", const char* more = "") {
    socket.write("TOKEN [{\"stream_id\": " + id.dump() + ", \"token\": " + std::to_string(token) +
                 ", \"logprob\": -1.5, \"finish_reason\": " + reason + more + "}]");
  }
  void error(const Json& id, const std::string& more) {
    socket.write("TOKEN [{\"stream_id\": " + id.dump() + ", \"error\": \"no\"" + more + "}]");
  }

  Socket& socket;
  Json last_info;
};

class RetryingClientTest : public ::testing::Test {
 protected:
  RetryingClient client_of(const ScriptServer& server, int attempts = 3) {
    return {{"127.0.0.1", server.port()}, {attempts, 1, 5, 7}};
  }
  RetryingClient::OnEntry collect() {
    return [this](const ServerEntry& entry) {
      if (!entry.token) return;
      tokens_.push_back(*entry.token);
      indices_.push_back(entry.index);
    };
  }
  static protocol::GenerateMessage generate() {
    protocol::GenerateMessage message;
    message.prompt = {1, 2, 3};
    message.params.min_tokens = 4;
    return message;
  }

  std::vector<TokenId> tokens_;
  std::vector<int> indices_;
};

TEST_F(RetryingClientTest, ContinuesAStreamThatBrokeOff) {
  Json first;
  Json second;
  ScriptServer server({[&](Socket& socket) {
                         Peer peer(socket);
                         first = peer.request();
                         peer.token(first["stream_id"], 5);
                         peer.say(kSame);
                         peer.token(first["stream_id"], 6);
                       },
                       [&](Socket& socket) {
                         Peer peer(socket);
                         second = peer.request();
                         peer.token(second["stream_id"], 7, "\"length\"");
                         peer.say(kSame);
                       }});
  RetryingClient client = client_of(server);
  const auto outcome = client.run(generate(), collect());
  ASSERT_TRUE(outcome.ok()) << outcome.error().message;
  EXPECT_EQ(*outcome, Outcome::kFinished);
  EXPECT_EQ(tokens_, (std::vector<TokenId>{5, 6, 7}));
  EXPECT_TRUE(first["seed"].is_number()) << "a seed of its own, so that draws can go on";
  EXPECT_EQ(second["seed"], first["seed"]);
  EXPECT_EQ(second["prompt"], Json({1, 2, 3, 5, 6}));
  EXPECT_EQ(second["resumed"], 2);
  EXPECT_EQ(second["max_tokens"], 30);
  EXPECT_EQ(second["min_tokens"], 4);
}

TEST_F(RetryingClientTest, WhatCameBeforeTheNumericsIsAskedForAgain) {
  Json second;
  ScriptServer server({[](Socket& socket) {
                         Peer peer(socket);
                         const Json request = peer.request();
                         peer.token(request["stream_id"], 5);
                       },
                       [&](Socket& socket) {
                         Peer peer(socket);
                         second = peer.request();
                         peer.token(second["stream_id"], 5);
                         peer.say(kSame);
                         peer.token(second["stream_id"], 6, "\"stop\"");
                       }});
  RetryingClient client = client_of(server);
  ASSERT_TRUE(client.run(generate(), collect()).ok());
  EXPECT_EQ(tokens_, (std::vector<TokenId>{5, 6})) << "once";
  EXPECT_EQ(second["prompt"], Json({1, 2, 3}));
}

TEST_F(RetryingClientTest, ARetryHasWhatIsLeftOfTheTimeouts) {
  std::vector<Json> asked;
  const auto break_off = [&](Peer& peer) {
    asked.push_back(peer.request());
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  };
  ScriptServer server({[&](Socket& socket) {
                         Peer peer(socket);
                         break_off(peer);
                       },
                       [&](Socket& socket) {
                         Peer peer(socket);
                         break_off(peer);
                         peer.token(asked.back()["stream_id"], 5);
                         peer.say(kSame);
                       },
                       [&](Socket& socket) {
                         Peer peer(socket);
                         break_off(peer);
                         peer.token(asked.back()["stream_id"], 6, "\"stop\"");
                         peer.say(kSame);
                       }});
  RetryingClient client = client_of(server);
  protocol::GenerateMessage message = generate();
  message.options.first_token_timeout_ms = 80'000;
  message.options.timeout_ms = 90'000;
  ASSERT_TRUE(client.run(message, collect()).ok());
  ASSERT_EQ(asked.size(), 3U);
  const int spent_ms = 90'000 - asked[1]["timeout_ms"].get<int>();
  EXPECT_GE(spent_ms, 10);
  EXPECT_EQ(asked[1]["first_token_timeout_ms"], 80'000 - spent_ms);
  EXPECT_LE(asked[2]["timeout_ms"], asked[1]["timeout_ms"].get<int>() - 10);
  EXPECT_FALSE(asked[2].contains("first_token_timeout_ms")) << "a token came";
}

TEST_F(RetryingClientTest, OtherNumericsEndTheStream) {
  for (const char* other : {R"({"numerics": "00000000000000bb"})", "{}"}) {
    tokens_.clear();
    ScriptServer server({[](Socket& socket) {
                           Peer peer(socket);
                           const Json request = peer.request();
                           peer.token(request["stream_id"], 5);
                           peer.say(kSame);
                         },
                         [&](Socket& socket) {
                           Peer peer(socket);
                           const Json request = peer.request();
                           peer.token(request["stream_id"], 6);
                           peer.say(other);
                         }});
    RetryingClient client = client_of(server);
    const auto outcome = client.run(generate(), collect());
    ASSERT_FALSE(outcome.ok());
    EXPECT_NE(outcome.error().message.find("those of what came 00000000000000aa"),
              std::string::npos)
        << outcome.error().message;
    EXPECT_EQ(tokens_, std::vector<TokenId>{5});
  }
}

TEST_F(RetryingClientTest, WaitsAsLongAsTheServerSays) {
  ScriptServer server({[](Socket& socket) {
    Peer peer(socket);
    const Json first = peer.request();
    peer.error(first["stream_id"],
               R"(, "code": "overloaded", "retryable": true, "retry_after_ms": 60)");
    const Json second = peer.request();  // on the same connection
    peer.token(second["stream_id"], 5, "\"stop\"");
    peer.say(kSame);
  }});
  RetryingClient client = client_of(server);
  const auto begin = std::chrono::steady_clock::now();
  ASSERT_TRUE(client.run(generate(), collect()).ok());
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(60));
  EXPECT_EQ(tokens_, std::vector<TokenId>{5});
}

TEST_F(RetryingClientTest, OnlyWhatMayPassIsTriedAgainAndNotForEver) {
  int num_requests = 0;
  std::string more;
  const ScriptServer::Script refuse = [&](Socket& socket) {
    Peer peer(socket);
    for (;;) {
      const Json request = peer.request();
      ++num_requests;
      peer.error(request["stream_id"], more);
    }
  };
  for (const auto& [attempts, code, wanted] :
       {std::tuple{3, R"(, "code": "invalid_request", "retryable": false)", 1},
        std::tuple{3, "", 1}, std::tuple{1, R"(, "code": "overloaded", "retryable": true)", 1},
        std::tuple{4, R"(, "code": "overloaded", "retryable": true)", 4}}) {
    num_requests = 0;
    more = code;
    ScriptServer server({refuse});
    {
      RetryingClient client = client_of(server, attempts);
      const auto outcome = client.run(generate(), collect());
      ASSERT_FALSE(outcome.ok());
      EXPECT_EQ(outcome.error().message, "no");
    }
    server.join();
    EXPECT_EQ(num_requests, wanted) << code;
  }
}

TEST_F(RetryingClientTest, EachSampleGoesOnByItself) {
  std::vector<Json> rest;
  ScriptServer server({[](Socket& socket) {
                         Peer peer(socket);
                         const Json request = peer.request();
                         EXPECT_EQ(request["n"], 3);
                         const Json& id = request["stream_id"];
                         peer.token(id, 5, "null", ", \"index\": 0");
                         peer.say(kSame);
                         peer.token(id, 6, "\"stop\"", ", \"index\": 1");
                       },
                       [&](Socket& socket) {
                         Peer peer(socket);
                         rest = {peer.request(), peer.request()};
                         peer.token(rest[1]["stream_id"], 8, "\"length\"");
                         peer.say(kSame);
                         peer.token(rest[0]["stream_id"], 7, "\"length\"");
                       }});
  RetryingClient client = client_of(server);
  protocol::GenerateMessage message = generate();
  message.num_samples = 3;
  message.params.seed = 100;
  message.params.has_seed = true;
  ASSERT_TRUE(client.run(message, collect()).ok());
  EXPECT_EQ(tokens_, (std::vector<TokenId>{5, 6, 8, 7}));
  EXPECT_EQ(indices_, (std::vector<int>{0, 1, 2, 0}));
  EXPECT_EQ(rest[0]["seed"], 100);
  EXPECT_EQ(rest[0]["prompt"], Json({1, 2, 3, 5}));
  EXPECT_EQ(rest[1]["seed"], 102);
  EXPECT_EQ(rest[1]["prompt"], Json({1, 2, 3}));
  EXPECT_FALSE(rest[0].contains("n") || rest[1].contains("n"));
}

TEST_F(RetryingClientTest, WhatCameFollowsTextAsAPart) {
  Json second;
  ScriptServer server({[](Socket& socket) {
                         Peer peer(socket);
                         const Json request = peer.request();
                         EXPECT_EQ(request["prompt"], "Once");
                         peer.token(request["stream_id"], 5);
                         peer.say(kSame);
                       },
                       [&](Socket& socket) {
                         Peer peer(socket);
                         second = peer.request();
                         peer.token(second["stream_id"], 6, "\"stop\"");
                         peer.say(kSame);
                       }});
  RetryingClient client = client_of(server);
  protocol::GenerateMessage message = generate();
  message.prompt.clear();
  message.options.prompt_parts = {"Once"};
  ASSERT_TRUE(client.run(message, collect()).ok());
  EXPECT_EQ(second["prompt"], Json::array({"Once", Json::array({5})}));
  EXPECT_EQ(second["resumed"], 1);
}

TEST_F(RetryingClientTest, AScoreIsAskedForWhatIsMissing) {
  for (const bool wants_text : {false, true}) {
    tokens_.clear();
    Json second;
    ScriptServer server({[](Socket& socket) {
                           Peer peer(socket);
                           const Json request = peer.request();
                           peer.token(request["stream_id"], 4);
                           peer.say(kSame);
                         },
                         [&](Socket& socket) {
                           Peer peer(socket);
                           second = peer.request();
                           if (wants_text) peer.token(second["stream_id"], 4);
                           if (!wants_text) peer.token(second["stream_id"], 5);
                           peer.say(kSame);
                           if (wants_text) peer.token(second["stream_id"], 5);
                           peer.token(second["stream_id"], 6, "\"stop\"");
                         }});
    RetryingClient client = client_of(server);
    protocol::ScoreMessage message;
    message.prompt = {1};
    message.scored = {4, 5, 6};
    if (wants_text) message.options.text = true;
    ASSERT_TRUE(client.run(message, collect()).ok());
    EXPECT_EQ(tokens_, (std::vector<TokenId>{4, 5, 6}));
    // The pieces of text depend on where the scored text began.
    EXPECT_EQ(second["prompt"], wants_text ? Json({1}) : Json({1, 4}));
    EXPECT_EQ(second["scored"], wants_text ? Json({4, 5, 6}) : Json({5, 6}));
  }
}

// As long as nothing of it has come.
TEST_F(RetryingClientTest, AControllersStreamIsAskedForAgainAsAWhole) {
  Json second;
  ScriptServer server({[](Socket& socket) { Peer(socket).request(); },
                       [&](Socket& socket) {
                         Peer peer(socket);
                         second = peer.request();
                         peer.socket.write("TOKEN [{\"stream_id\": " + second["stream_id"].dump() +
                                           ", \"token\": null, \"finish_reason\": \"stop\"}]");
                       }});
  RetryingClient client = client_of(server);
  protocol::GenerateMessage message = generate();
  message.controller = "a";
  const auto outcome = client.run(message, collect());
  ASSERT_TRUE(outcome.ok()) << outcome.error().message;
  EXPECT_TRUE(tokens_.empty());
  EXPECT_EQ(second["controller"], "a");
  EXPECT_FALSE(second.contains("resumed"));
}

TEST_F(RetryingClientTest, AnInterruptEndsTheWaiting) {
  std::optional<RetryingClient> client;
  ScriptServer server({[&](Socket& socket) {
    Peer peer(socket);
    const Json request = peer.request();
    peer.error(request["stream_id"], R"(, "retryable": true, "retry_after_ms": 3600000)");
    client->client().interrupt();
    socket.read();
  }});
  client.emplace(RetryingClient::Address{"127.0.0.1", server.port()}, RetryOptions{3, 1, 5, 7});
  const auto outcome = client->run(generate(), collect());
  EXPECT_TRUE(outcome.ok() && *outcome == Outcome::kInterrupted);
  client.reset();  // which ends the script
}

}  // namespace
}  // namespace lmtp::client
