// CONTROLLER over real sockets: what the runtime is asked, who may ask, and answers that come late.
#include <gtest/gtest.h>

#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "lmtp/aici/runtime.h"
#include "lmtp/dispatcher.h"
#include "running_server.h"
#include "wire.h"

namespace lmtp::server {
namespace {

using lmtp::testing::FakeModelOptions;
using lmtp::testing::Running;
using lmtp::testing::Wire;
using lmtp::testing::with_aici;
using nlohmann::json;

// Keeps what it is asked for, and answers when it is told to, on that thread.
class LateRuntime : public aici::Runtime {
 public:
  void upload(std::string wasm, aici::Auth auth, Done<Result<aici::ModuleInfo>> done) override {
    add(auth.user + " uploads " + wasm, [wasm, done = std::move(done)] {
      if (wasm == "bad") return done(Error{ErrorCode::kInvalid, "controller: is no WebAssembly"});
      done(aici::ModuleInfo{"aa01", 3, 4, 5});
    });
  }
  void set_tags(std::string module_id, std::vector<std::string> tags, aici::Auth auth,
                Done<Result<std::vector<aici::TagInfo>>> done) override {
    std::string asked = auth.user + " tags " + module_id;
    for (const std::string& tag : tags) asked += " " + tag;
    add(asked, [module_id, tag = tags.front(), done = std::move(done)] {
      if (module_id == "none") return done(Error{ErrorCode::kNotFound, "module none not found"});
      done(std::vector<aici::TagInfo>{{tag, module_id, 7, "me", 8, 9}});
    });
  }
  void get_tags(aici::Auth /*auth*/, Done<Result<std::vector<aici::TagInfo>>> done) override {
    add("list", [done = std::move(done)] { done(std::vector<aici::TagInfo>()); });
  }
  void instantiate(aici::InstantiateRequest, Done<Result<aici::Instantiated>> done) override {
    done(Error{ErrorCode::kInternal, "not here"});
  }
  void bind(const std::string&, aici::Sequence) override {}
  void discard(const std::string&) override {}
  void advance(aici::Sequence, aici::Report, Done<aici::Advance> done) override { done({}); }
  void choose(aici::Sequence, std::vector<aici::Sequence>, Done<aici::Choice> done) override {
    done({});
  }
  void fork(aici::Sequence, std::vector<aici::Sequence>) override {}
  void free(aici::Sequence) override {}

  // Of all that it has been asked; the answers are then due.
  std::vector<std::string> wait_asked(std::size_t count) {
    EXPECT_TRUE(lmtp::testing::eventually([&] {
      const std::lock_guard lock(mutex_);
      return asked_.size() >= count;
    }));
    const std::lock_guard lock(mutex_);
    return asked_;
  }
  void answer_all() {
    std::vector<std::function<void()>> due;
    {
      const std::lock_guard lock(mutex_);
      due.swap(due_);
    }
    for (const auto& answer : due) answer();
  }

 private:
  void add(std::string asked, std::function<void()> answer) {
    const std::lock_guard lock(mutex_);
    asked_.push_back(std::move(asked));
    due_.push_back(std::move(answer));
  }

  std::mutex mutex_;
  std::vector<std::string> asked_;
  std::vector<std::function<void()>> due_;
};

class Controllers : public ::testing::Test {
 protected:
  FakeModelOptions model() { return lmtp::testing::with_controllers(runtime_); }
  json ask_late(Wire& wire, const std::string& fields, std::size_t num_asked) {
    wire.send("CONTROLLER {\"stream_id\": 5, " + fields + "}");
    runtime_->wait_asked(num_asked);
    runtime_->answer_all();
    return wire.next_of(5);
  }

  const std::shared_ptr<LateRuntime> runtime_ = std::make_shared<LateRuntime>();
};

TEST_F(Controllers, AreUploadedNamedAndListed) {
  const Running running(model(), with_aici());
  Wire wire(running.server.port());
  json answer = ask_late(wire, R"("op": "upload", "binary": "YWJj", "model": "fake")", 1);
  EXPECT_EQ(answer, json::parse(R"({"is_msg": true, "stream_id": 5, "controller":
      {"module_id": "aa01", "wasm_size": 3, "compiled_size": 4, "time": 5}})"));
  answer = ask_late(wire, R"("op": "tag", "module_id": "aa01", "tags": ["x", "y"])", 2);
  EXPECT_EQ(answer["controller"], json::parse(R"({"tags": [{"tag": "x", "module_id": "aa01",
      "updated_at": 7, "updated_by": "me", "wasm_size": 8, "compiled_size": 9}]})"));
  answer = ask_late(wire, R"("op": "list")", 3);
  EXPECT_EQ(answer["controller"], json::parse(R"({"tags": []})"));
  EXPECT_EQ(runtime_->wait_asked(3),
            (std::vector<std::string>{"localhost uploads abc", "localhost tags aa01 x y", "list"}));
}

TEST_F(Controllers, ErrorsOfTheRuntimeAreAnswered) {
  const Running running(model(), with_aici());
  Wire wire(running.server.port());
  json answer = ask_late(wire, R"("op": "upload", "binary": "YmFk")", 1);
  EXPECT_EQ(answer, json::parse(R"({"is_msg": true, "stream_id": 5, "retryable": false,
      "error": "controller: is no WebAssembly", "code": "invalid_request"})"));
  answer = ask_late(wire, R"("op": "tag", "module_id": "none", "tags": "x")", 2);
  EXPECT_EQ(answer["error"], "controller: module none not found");
  EXPECT_EQ(answer["code"], "invalid_request") << "no model is unknown";
}

TEST_F(Controllers, WhatCannotBeDoneIsToldAtOnce) {
  const Running running(model(), with_aici());
  Wire wire(running.server.port());
  const auto error = [&](const std::string& fields) {
    const json answer = wire.ask(5, "CONTROLLER {\"stream_id\": 5, " + fields + "}");
    EXPECT_TRUE(answer["is_msg"]);
    return answer.value("error", "none") + ", " + answer.value("code", "");
  };
  EXPECT_NE(error(R"("op": "list", "model": "other")").find("unknown_model"), std::string::npos);
  EXPECT_EQ(error(R"("op": "drop")"),
            "op: 'drop' is unknown; allowed are upload, tag, untag and list, invalid_request");
}

TEST_F(Controllers, AModelThatIsNotLoadedHasNone) {
  std::promise<void> gate;
  FakeModelOptions held = model();
  held.load_gate = gate.get_future().share();
  const Running running(held, with_aici());
  Wire wire(running.server.port());
  wire.send(lmtp::testing::generate(5, 3));
  json answer = wire.ask(5, R"(CONTROLLER {"stream_id": 5, "op": "list"})");
  EXPECT_NE(answer.value("error", "").find("stream_id: 5 is a live stream"), std::string::npos);
  answer = wire.ask(6, R"(CONTROLLER {"stream_id": 6, "op": "list"})");
  EXPECT_EQ(answer.value("error", ""), "model: is not loaded now; retry once it is");
  EXPECT_EQ(answer["code"], "unavailable");
  gate.set_value();
  EXPECT_EQ(wire.collect(5).finish, "length") << "the live stream goes on";
}

TEST_F(Controllers, AConnectionHasEightUnderWay) {
  const Running running(model(), with_aici());
  Wire wire(running.server.port());
  for (int i = 1; i <= 9; ++i) {
    wire.send("CONTROLLER {\"op\": \"list\", \"stream_id\": " + std::to_string(i) + "}");
  }
  const json refused = wire.next();
  EXPECT_EQ(refused["stream_id"], 9);
  EXPECT_EQ(refused["code"], "overloaded");
  Wire other(running.server.port());
  other.send(R"(CONTROLLER {"op": "list", "stream_id": 1})");
  EXPECT_EQ(runtime_->wait_asked(9).size(), 9U) << "another connection has its own";
  runtime_->answer_all();
  for (int i = 1; i <= 8; ++i) EXPECT_TRUE(wire.next().contains("controller"));
  EXPECT_TRUE(ask_late(wire, R"("op": "list")", 10).contains("controller")) << "they have ended";
}

TEST_F(Controllers, AnAnswerToAConnectionThatIsGoneIsDropped) {
  const Running running(model(), with_aici());
  {
    Wire wire(running.server.port());
    wire.send(R"(CONTROLLER {"stream_id": 1, "op": "upload", "binary": "YWJj"})");
    runtime_->wait_asked(1);
    wire.client().drop();
  }
  runtime_->answer_all();
  Wire wire(running.server.port());
  EXPECT_TRUE(ask_late(wire, R"("op": "list")", 2).contains("controller"));
}

TEST_F(Controllers, TheExtensionIsThereWhereTheyAreRun) {
  for (const bool are_run : {false, true}) {
    ServerOptions options;
    options.aici = are_run;
    const Running running(are_run ? model() : FakeModelOptions(), options);
    Wire wire(running.server.port());
    const json info = wire.ask(1, R"(MODEL_INFO {"stream_id": 1})")["model_info"];
    const auto extensions = info["extensions"].get<std::vector<std::string>>();
    EXPECT_EQ(extensions.back() == "CONTROLLER", are_run);
    if (are_run) continue;
    const json answer = wire.ask(2, R"(CONTROLLER {"stream_id": 2, "op": "list"})");
    EXPECT_NE(answer.value("error", "").find("--aici"), std::string::npos) << answer;
  }
}

// Dispatchers are asked without a socket: whose key it is, and where the server listens.
TEST_F(Controllers, UploadsAreForThoseWhoMay) {
  const Running running(model());
  const ConnectionRegistry connections;
  OperationLimits limits{ServerOptions()};
  const auto user = std::make_shared<Account>("ann", 1, AccountLimits{});
  const auto error = [&](const ControllerRules& rules, bool has_keys, const std::string& fields) {
    Dispatcher dispatcher(*running.models, "1.2.3", connections, rules);
    Peer peer(1, limits);
    const auto caller = std::make_shared<Caller>();
    if (has_keys) caller->account = user;
    peer.caller = caller;
    peer.send_later = [](const std::string&) {};
    Answers answers;
    dispatcher.handle("CONTROLLER {\"stream_id\": 1, " + fields + "}", peer, answers);
    if (answers.empty()) return std::string();
    return json::parse(answers[0].substr(4))[0].value("error", "");
  };
  const std::string upload = R"("op": "upload", "binary": "YWJj")";
  const std::string tag = R"("op": "tag", "module_id": "aa01", "tags": ["ann.x"])";
  const std::string list = R"("op": "list")";
  EXPECT_EQ(error({}, false, upload), "");
  EXPECT_NE(error({}, true, upload).find("the right admin"), std::string::npos);
  EXPECT_EQ(error({}, true, tag), "");
  const ControllerRules closed{.are_run = true, .takes_uploads = false};
  EXPECT_NE(error(closed, false, upload).find("--aici-upload"), std::string::npos);
  EXPECT_NE(error(closed, false, tag).find("--aici-upload"), std::string::npos);
  EXPECT_EQ(error(closed, false, list), "");
  EXPECT_EQ(runtime_->wait_asked(3),
            (std::vector<std::string>{"localhost uploads abc", "ann tags aa01 ann.x", "list"}));
  runtime_->answer_all();
}

}  // namespace
}  // namespace lmtp::server
