// Who is answered where the server has keys: over real sockets.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "keys_fixture.h"
#include "lmtp/base/log.h"
#include "lmtp/request/request.h"
#include "lmtp/scheduler/step_plan.h"

namespace lmtp::server {
namespace {

using lmtp::testing::eventually;
using lmtp::testing::FakeModelOptions;
using lmtp::testing::generate;
using lmtp::testing::WsClient;
using Fields = KeyFields;

TEST_F(Keys, AllButHealthNeedsOne) {
  start();
  for (const char* line : {"GET /", "GET /metrics", "GET /v1/who", "POST /who", "GET /none",
                           "DELETE /v1/who", "OPTIONS /v1/who"}) {
    for (const Fields& fields : {Fields{}, bearer("wrong"), bearer(""), bearer("sk-user")}) {
      const auto answer = ask(line, fields);
      EXPECT_EQ(answer.status, 401) << line;
      EXPECT_NE(answer.head.find("WWW-Authenticate: Bearer"), std::string::npos) << answer.head;
    }
    EXPECT_NE(ask(line, bearer(kAdmin)).status, 401) << line;
  }
  EXPECT_EQ(ask("GET /health").body, "{\"status\": \"ready\"}\n") << "but names no model";
  EXPECT_EQ(ask("GET /health", bearer("wrong")).status, 200);
  EXPECT_NE(ask("GET /health", bearer(kUser)).body.find("fake"), std::string::npos);
  EXPECT_EQ(ask("GET /v1/who?key=" + std::string(kUser)).status, 401) << "of a WebSocket alone";
}

TEST_F(Keys, RefusalsAreInTheFormOfTheirDoor) {
  start();
  EXPECT_EQ(ask("GET /v1/who", bearer("wrong")).body,
            R"({"error": {"message": "This API key is not accepted here.", )"
            R"("type": "invalid_request_error", "param": null, "code": "invalid_api_key"}})");
  for (const char* line : {"POST /generate", "POST /generate_stream", "POST /tokenize",
                           "POST /chat_tokenize", "GET /info", "POST /invocations"}) {
    EXPECT_EQ(ask(line, bearer("wrong")).body,
              R"({"error": "This API key is not accepted here.", "error_type": "invalid_api_key"})")
        << line;
  }
  EXPECT_EQ(ask("GET /metrics", bearer("wrong")).body, "This API key is not accepted here.\n");
}

TEST_F(Keys, EachWayToSendOneLeadsToItsName) {
  start();
  for (const Fields& fields :
       {bearer(kUser), Fields{{"api-key", kUser}}, Fields{{"X-Api-Key", kUser}},
        Fields{{"Authorization", "Basic eDpzay11c2VyLWRvLW5vdC1zaG93"}},  // x:KEY
        Fields{{"Authorization", "Bearer other"}, {"x-api-key", kUser}}}) {
    EXPECT_EQ(ask("GET /v1/who?a=1", fields).body, "alice?a=1") << fields[0].second;
    EXPECT_EQ(ask("POST /who", fields, "{}").body, "alice?");
  }
  EXPECT_EQ(ask("POST /who", bearer(kAdmin), "{}").body, "root?");
}

TEST_F(Keys, MoreThanTwoEndTheHeader) {
  start();
  const Fields three = {{"api-key", "a"}, {"api-key", "b"}, {"api-key", kUser}};
  EXPECT_EQ(ask("GET /health", three).status, 200) << "it needs none";
  const auto refused = ask("GET /v1/who", three);
  EXPECT_EQ(refused.status, 400);
  EXPECT_NE(refused.body.find("3 fields with API keys; allowed are at most 2"), std::string::npos)
      << refused.body;
  EXPECT_NE(refused.head.find("Connection: close"), std::string::npos) << refused.head;
}

TEST_F(Keys, SomeRoutesAreForAdmins) {
  start();
  const auto refused = ask("GET /metrics", bearer(kUser));
  EXPECT_EQ(refused.status, 403);
  EXPECT_NE(refused.body.find("the right admin"), std::string::npos) << refused.body;
  EXPECT_EQ(ask("GET /metrics", bearer(kAdmin)).status, 200);
}

TEST_F(Keys, AWebSocketBeginsWithOne) {
  start();
  WsClient by_query(port(), 0, std::string("/?key=") + kUser);
  by_query.send(generate(1, 2));
  EXPECT_EQ(by_query.collect(1).tokens.size(), 2U);
  WsClient by_basic(port(), 0, "/", "Basic eDpzay11c2VyLWRvLW5vdC1zaG93");
  by_basic.send(generate(1, 2));
  EXPECT_EQ(by_basic.collect(1).tokens.size(), 2U);
  for (const char* target : {"/", "/?key=wrong", "/?key=", "/?other=1"}) {
    const auto answer =
        ask(std::string("GET ") + target, {{"Connection", "Upgrade"},
                                           {"Upgrade", "websocket"},
                                           {"Sec-WebSocket-Version", "13"},
                                           {"Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="}});
    EXPECT_EQ(answer.status, 401) << target;
  }
}

TEST_F(Keys, StreamsAtATime) {
  std::promise<void> go;
  FakeModelOptions model;
  model.agent.before_step = [released = go.get_future().share()](const auto&) {
    released.wait();
    return Result<void>();
  };
  start(R"(, "max_streams": 3)", std::move(model));
  const auto one = connect(kUser);
  const auto other = connect(kUser);
  const auto root = connect(kAdmin);
  one->send(generate(1, 5));
  one->send(generate(2, 5));
  one->send("MODEL_INFO {\"stream_id\": 9}");
  EXPECT_TRUE(one->next()->is_msg) << "the two are taken";
  other->send(generate(1, 5));
  other->send(generate(2, 5));
  EXPECT_NE(other->collect(2).error.find("3 streams of the key 'alice'"), std::string::npos);
  root->send(generate(1, 5));
  go.set_value();
  EXPECT_EQ(root->collect(1).error, "");
  EXPECT_EQ(one->collect(1).error, "");
  other->send(generate(3, 5));
  EXPECT_EQ(other->collect(3).error, "") << "one has ended";
}

TEST_F(Keys, TokensAMinuteAndWhenToRetry) {
  start(R"(, "tokens_per_minute": 6)");
  const auto client = connect(kUser);
  client->send(generate(1, 3));  // with its prompt, 6
  EXPECT_EQ(client->collect(1).error, "");
  client->send(generate(2, 1));
  const auto refused = client->next();
  ASSERT_TRUE(refused);
  EXPECT_NE(refused->error.find("'alice' has used up its 6 tokens a minute"), std::string::npos)
      << refused->error;
  EXPECT_EQ(refused->error_code, "overloaded");
  EXPECT_GT(refused->retry_after_ms, 0);
  EXPECT_LE(refused->retry_after_ms, 10'000);
  write_keys("");
  ASSERT_TRUE(running_->server.reload().ok());
  client->send(generate(3, 1));
  EXPECT_EQ(client->collect(3).error, "") << "no limit any more, on the same connection";
}

// The prompt counts once, and the stream goes on with what it has begun with.
TEST_F(Keys, CandidatesAreOneStreamOfTheMinute) {
  start(R"(, "tokens_per_minute": 30, "max_streams": 2)");
  const auto client = connect(kUser);
  const auto score = [&](const std::string& prompt) {
    client->send("SCORE {\"stream_id\": 1, \"prompt\": [" + prompt +
                 "], \"candidates\": [[1, 2], [2, 3], [3, 4], [4, 5], [5, 6]]}");
    const auto answer = client->next();
    return answer ? answer->candidates.size() : 0;
  };
  EXPECT_EQ(score("1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6"), 5U);
  client->send(generate(2, 1));
  EXPECT_EQ(client->collect(2).error, "") << "15 of the 30 tokens and those of the rows are gone";
  EXPECT_EQ(score("9, 9, 9, 9, 9, 9, 9, 9, 9, 9"), 5U) << "a debt";
  EXPECT_EQ(score("9"), 0U);
}

TEST_F(Keys, AQueryCountsOnceWithItsItems) {
  start(R"(, "tokens_per_minute": 50)");
  const auto status = [&](const std::string& query) {
    Fields fields = bearer(kUser);
    fields.emplace_back("Content-Type", "application/json");
    const std::string items = "[[1, 2], [3, 4], [5, 6], [7, 8]]";
    return ask("POST /generative_scoring", fields,
               R"({"label_token_ids": [1], "items": )" + items + R"(, "query": [)" + query + "]}")
        .status;
  };
  EXPECT_EQ(status("1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6"), 200);
  EXPECT_EQ(status("9, 9, 9, 9, 9, 9, 9, 9, 9, 9"), 200) << "24 + 8 + 4 are gone; leaves a debt";
  EXPECT_EQ(status("9"), 429);
}

// Of two that have as much to do, a key with many connections gets as many rows as one with one.
TEST_F(Keys, SharesAreByKey) {
  constexpr int kNumMany = 10;
  std::promise<void> go;
  std::mutex mutex;
  std::map<ConnectionId, int> rows;
  int num_steps = 0;
  FakeModelOptions model;
  model.engine.batch.max_sequences = 8;
  model.agent.on_step = [&, released = go.get_future().share()](const scheduler::StepPlan& plan,
                                                                const scheduler::SlotTable& slots) {
    released.wait();
    const std::lock_guard lock(mutex);
    ++num_steps;
    if (num_steps > 1 && num_steps <= 200) {  // the first may have begun before all were there
      for (const scheduler::PlanRow& row : plan.rows) ++rows[slots.at(row.slot).key.connection];
    }
  };
  start("", std::move(model));
  std::vector<std::unique_ptr<WsClient>> many;
  for (int i = 0; i < kNumMany; ++i) {
    many.push_back(connect(kUser));
    for (StreamId id = 1; id <= 8; ++id) many.back()->send(generate(id, 20));
    many.back()->send("MODEL_INFO {\"stream_id\": 99}");
    many.back()->next();  // all are taken
  }
  const auto one = connect(kAdmin);
  for (StreamId id = 1; id <= 8 * kNumMany; ++id) one->send(generate(id, 20));
  one->send("MODEL_INFO {\"stream_id\": 999}");
  one->next();
  go.set_value();
  for (StreamId id = 1; id <= 8; ++id) one->collect(id);
  EXPECT_TRUE(eventually([&] {
    const std::lock_guard lock(mutex);
    return num_steps > 200;
  }));
  running_.reset();                              // its steps look at what is declared here
  const int num_of_one = rows.rbegin()->second;  // it connected last
  int num_all = 0;
  for (const auto& [connection, count] : rows) num_all += count;
  EXPECT_NEAR(num_of_one, num_all - num_of_one, 0.1 * num_of_one);
}

TEST_F(Keys, OneThatIsTakenAwayEndsItsConnections) {
  start();
  const auto stays = connect(kAdmin);
  const auto goes = connect(kUser);
  goes->send(generate(1, 1));
  EXPECT_EQ(goes->collect(1).error, "");
  std::ofstream(path_, std::ios::trunc) << "{\"keys\": [";
  EXPECT_FALSE(running_->server.reload().ok());
  goes->send(generate(2, 1));
  EXPECT_EQ(goes->collect(2).error, "") << "what was read before stays";
  std::ofstream(path_, std::ios::trunc)
      << R"({"keys": [{"name": "root", "key": ")" << kAdmin << "\"}]}";
  ASSERT_TRUE(running_->server.reload().ok());
  EXPECT_FALSE(goes->next());
  EXPECT_EQ(goes->close_code(), 1008);
  EXPECT_EQ(ask("GET /v1/who", bearer(kUser)).status, 401);
  stays->send(generate(1, 1));
  EXPECT_EQ(stays->collect(1).error, "");
}

TEST_F(Keys, NoneIsEverInTheLog) {
  log::set_level(log::Level::kTrace);
  ::testing::internal::CaptureStderr();
  options_.log_prompts = true;
  start();
  {
    const auto client = connect(kUser);
    client->send(generate(7, 2));
    EXPECT_EQ(client->collect(7).error, "");
    client->send("GENERATE {\"stream_id\": 8, \"prompt\": 1}");
    EXPECT_NE(client->collect(8).error, "");
    client->send(R"(GENERATE {"stream_id": 9, "prompt": [1], "key": "sk-user-do-not-show"})");
    EXPECT_EQ(client->collect(9).error, "");
  }
  EXPECT_EQ(ask("GET /metrics", bearer(kUser)).status, 403);
  for (const Fields& fields : {bearer(kUser), bearer(std::string("wrong-") + kUser),
                               Fields{{"api-key", kUser}}, Fields{{"Authorization", kUser}},
                               Fields{{"Authorization", "Basic " + std::string(kUser)}}}) {
    for (const std::string target : {"/none?key=", "/?key=", "/metrics?x&key=", "/v1/who?key="}) {
      const auto answer = ask("GET " + target + kUser, fields);
      EXPECT_EQ(answer.head.find("do-not-show"), std::string::npos) << answer.head;
      EXPECT_EQ(answer.body.find("do-not-show"), std::string::npos) << answer.body;
    }
  }
  ask("GET http://user:" + std::string(kUser) + "@localhost/");
  const std::string metrics = ask("GET /metrics", bearer(kAdmin)).body;
  EXPECT_EQ(metrics.find("do-not-show"), std::string::npos);
  write_keys("}}");
  EXPECT_FALSE(running_->server.reload().ok());
  running_.reset();
  const std::string lines = ::testing::internal::GetCapturedStderr();
  log::set_level(log::Level::kInfo);
  EXPECT_EQ(lines.find("do-not-show"), std::string::npos) << lines;
  EXPECT_NE(lines.find("/7 of alice at 127.0.0.1: generate, prompt 3 (cached 0), generated 2, "),
            std::string::npos)
      << lines;
  EXPECT_NE(lines.find("/8 of alice at 127.0.0.1: GENERATE, "), std::string::npos) << lines;
  EXPECT_THAT(lines, ::testing::ContainsRegex(
                         "request of alice at 127.0.0.1: GET /metrics, id req-[0-9a-f]+: 403"));
}

TEST_F(Keys, BeyondLoopbackThereMustBeSome) {
  options_.host = "0.0.0.0";
  const auto models = lmtp::testing::make_fake_models();
  const auto started = [&](const ServerOptions& options) {
    ServerOptions any_port = options;
    any_port.port = 0;
    return Server(any_port, *models).start();
  };
  const Result<void> refused = started(options_);
  ASSERT_FALSE(refused.ok());
  for (const char* way_out : {"--api-key-file", "--api-key", "--insecure", "TLS", "0.0.0.0"}) {
    EXPECT_NE(refused.error().message.find(way_out), std::string::npos) << refused.error().message;
  }
  ServerOptions insecure = options_;
  insecure.insecure = true;
  EXPECT_TRUE(started(insecure).ok());
  options_.api_keys = {kUser};
  ::testing::internal::CaptureStderr();
  EXPECT_TRUE(started(options_).ok());
  const std::string lines = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(lines.find("keys are sent unencrypted"), std::string::npos) << lines;
  EXPECT_EQ(lines.find("do-not-show"), std::string::npos) << lines;
}

}  // namespace
}  // namespace lmtp::server
