// The client library on streams with a controller, of a real server whose controllers are scripts.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "lmtp/base/json.h"
#include "lmtp/client/retrying_client.h"
#include "running_server.h"
#include "scripted_runtime.h"

namespace lmtp::client {
namespace {

using protocol::ServerEntry;
using Outcome = RetryingClient::Outcome;

class ControlledClients : public ::testing::Test {
 protected:
  RetryingClient client_of(int attempts = 1) {
    return {{"127.0.0.1", running_.server.port()}, {attempts, 1, 5, 7}};
  }
  // The entries are kept, and those with a token shown to `on_token`.
  Result<Outcome> run(
      RetryingClient& client, const std::string& script,
      const std::function<void(const ServerEntry&)>& on_token = [](const ServerEntry&) {}) {
    protocol::GenerateMessage message;
    message.prompt = {1, 2, 3};
    message.controller = "script";
    message.controller_arg = script;
    if (wants_text_) message.options.text = true;
    return client.run(std::move(message), [&](const ServerEntry& entry) {
      entries_.push_back(entry);
      if (entry.token) on_token(entry);
    });
  }
  // The tokens that came of a sample.
  std::vector<TokenId> tokens_of(int index) const {
    std::vector<TokenId> tokens;
    for (const ServerEntry& entry : entries_) {
      if (entry.token && entry.index == index) tokens.push_back(*entry.token);
    }
    return tokens;
  }

  std::string text_of(int index) const {
    std::string text;
    for (const ServerEntry& entry : entries_) {
      if (entry.index == index) text += entry.text.value_or("");
    }
    return text;
  }

  const std::shared_ptr<testing::ScriptedRuntime> runtime_ =
      std::make_shared<testing::ScriptedRuntime>(
          testing::kFakeVocabSize, [](const std::string& what) { ADD_FAILURE() << what; });
  const testing::Running running_{testing::with_controllers(runtime_), testing::with_aici()};
  bool wants_text_ = false;
  std::vector<ServerEntry> entries_;
};

TEST_F(ControlledClients, AnEndWithoutATokenEndsTheStream) {
  for (const int attempts : {1, 3}) {
    entries_.clear();
    RetryingClient client = client_of(attempts);
    const auto outcome = run(client, "[]");
    ASSERT_TRUE(outcome.ok()) << outcome.error().message;
    EXPECT_EQ(*outcome, Outcome::kFinished);
    ASSERT_EQ(entries_.size(), 2U);
    EXPECT_NE(entries_[0].controller_json.find("made"), std::string::npos);
    EXPECT_EQ(entries_[1].token, std::nullopt);
    EXPECT_EQ(entries_[1].finish_reason, FinishReason::kStop);
  }
}

TEST_F(ControlledClients, TokensThatAreTakenBackAreTold) {
  RetryingClient client = client_of();
  ASSERT_TRUE(
      run(client, R"([{"allow": [5]}, {"allow": [6]}, {"splice": [8, 9], "drop": 1}])").ok());
  EXPECT_EQ(tokens_of(0), (std::vector<TokenId>{5, 6, 8, 9}));
  EXPECT_EQ(entries_[3].num_backtracked, 1) << "of the token behind them";
}

// The half of a character that was taken back before the fork is no part of the fork's text either.
TEST_F(ControlledClients, AForkBehindTokensThatAreTakenBackHasItsText) {
  RetryingClient client = client_of();
  wants_text_ = true;
  ASSERT_TRUE(run(client, R"([{"allow": [97]}, {"allow": [195]}, {"splice": [], "drop": 1},
      {"fork": [[{"allow": [98]}, {"stop": true}], [{"allow": [99]}, {"stop": true}]]}])")
                  .ok());
  EXPECT_EQ(text_of(0), "ab");
  EXPECT_EQ(text_of(1), "c");
}

// The first one ends before the second has a token, and the third when both have ended.
TEST_F(ControlledClients, AStreamEndsWhenAllItsForksHave) {
  RetryingClient client = client_of();
  const auto outcome = run(client, R"([{"allow": [4]}, {"fork": [
      [{"allow": [5], "set": ["one", "00"]}],
      [{"pause": true}, {"wait": "one"}, {"allow": [6]}, {"allow": [7], "set": ["two", "00"]}],
      [{"pause": true}, {"wait": "two"}, {"allow": [8]}]]}])");
  ASSERT_TRUE(outcome.ok()) << outcome.error().message;
  EXPECT_EQ(tokens_of(0), (std::vector<TokenId>{4, 5}));
  EXPECT_EQ(tokens_of(1), (std::vector<TokenId>{6, 7}));
  EXPECT_EQ(tokens_of(2), (std::vector<TokenId>{8}));
  int num_forks = 0;
  for (const ServerEntry& entry : entries_) {
    if (!entry.fork_of_index) continue;
    EXPECT_EQ(entry.index, ++num_forks);
    EXPECT_EQ(entry.fork_of_index, 0);
    EXPECT_EQ(entry.fork_at, 1);
  }
  EXPECT_EQ(num_forks, 2);
  // Nothing of it is left that would end the next one.
  entries_.clear();
  ASSERT_TRUE(run(client, R"([{"allow": [9]}])").ok());
  EXPECT_EQ(tokens_of(0), (std::vector<TokenId>{9}));
}

TEST_F(ControlledClients, TheErrorOfOneForkLeavesTheOthers) {
  RetryingClient client = client_of(3);
  const auto outcome = run(client, R"([{"fork": [
      [{"allow": [5]}, {"allow": [6]}, {"allow": [7]}],
      [{"allow": [8]}, {"error": "no way on"}]]}])");
  ASSERT_FALSE(outcome.ok());
  EXPECT_EQ(outcome.error().message, "no way on");
  EXPECT_EQ(tokens_of(0), (std::vector<TokenId>{5, 6, 7}));
  EXPECT_EQ(tokens_of(1), (std::vector<TokenId>{8}));
  int num_errors = 0;
  for (const ServerEntry& entry : entries_) {
    if (entry.error.empty()) continue;
    EXPECT_EQ(entry.index, 1);
    ++num_errors;
  }
  EXPECT_EQ(num_errors, 1);
}

TEST_F(ControlledClients, AStreamThatWasLostIsNotContinued) {
  RetryingClient client = client_of(3);
  const auto outcome = run(client, R"([{"allow": [5]}, {"allow": [6]}, {"allow": [7]}])",
                           [&](const ServerEntry&) { client.client().close(); });
  ASSERT_FALSE(outcome.ok());
  EXPECT_NE(outcome.error().message.find("a controller's stream cannot be continued"),
            std::string::npos)
      << outcome.error().message;
  EXPECT_EQ(tokens_of(0).front(), 5);
  int num_begun = 0;
  for (const ServerEntry& entry : entries_) num_begun += entry.controller_json.empty() ? 0 : 1;
  EXPECT_EQ(num_begun, 1) << "it was not asked for again";
}

TEST_F(ControlledClients, AreUploadedNamedAndListed) {
  RetryingClient client = client_of();
  using Op = protocol::ControllerMessage::Op;
  protocol::ControllerMessage message;
  message.op = Op::kUpload;
  message.binary = "abc";
  const auto uploaded = client.ask(message);
  ASSERT_TRUE(uploaded.ok()) << uploaded.error().message;
  EXPECT_EQ(Json::parse(*uploaded)["module_id"], "aa3");
  message.op = Op::kTag;
  message.module_id = "aa3";
  message.tags = {"x"};
  EXPECT_EQ(Json::parse(*client.ask(message))["tags"][0]["tag"], "x");
  message.op = Op::kList;
  client.client().close();  // a connection that has ended is made again
  EXPECT_EQ(Json::parse(*client.ask(message))["tags"].size(), 2U);
  message.op = Op::kTag;
  message.module_id.clear();
  const auto refused = client.ask(message);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("module_id"), std::string::npos);
}

}  // namespace
}  // namespace lmtp::client
