// A balancer over workers that behave as no lmtp-serve does; over real ones: e2e/test_balance.py.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "pool_fixture.h"
#include "support/three_tries.h"

namespace lmtp::balance {
namespace {

// The first GENERATE, whichever worker has it, meets `first`; the next ones meet `then`.
struct Acts {
  using On = std::function<void(Peer&, const Json& request)>;

  Act act(On first, On then) const {
    return [first, then, count = num_requests](Peer& peer) {
      for (;;) {
        const Json request = peer.request();
        if (request["verb"] != "GENERATE") continue;
        (count->fetch_add(1) == 0 ? first : then)(peer, request);
      }
    };
  }

  std::shared_ptr<std::atomic<int>> num_requests = std::make_shared<std::atomic<int>>(0);
};

void break_off(Peer& /*peer*/, const Json& /*request*/) { throw std::runtime_error("killed"); }

TEST_F(PoolTest, ALostStreamGoesOnElsewhereWithWhatHasCome) {
  auto first_request = std::make_shared<Json>();
  auto second_request = std::make_shared<Json>();
  const Acts acts;
  const Act act = acts.act(
      [first_request](Peer& peer, const Json& request) {
        *first_request = request;
        peer.token(request, 10);
        peer.token(request, 11);
        break_off(peer, request);
      },
      [second_request](Peer& peer, const Json& request) {
        *second_request = request;
        peer.token(request, 12);
        peer.token(request, 13, "\"length\"");
      });
  add("aa", {act});
  add("aa", {act});
  ASSERT_TRUE(start());
  submit(request(7));
  const RecordingSink::Stream stream = sink_->wait_done(7);
  EXPECT_EQ(stream.tokens, (std::vector<TokenId>{10, 11, 12, 13}));
  EXPECT_EQ(stream.finish, FinishReason::kLength);
  EXPECT_EQ(stream.num_ends, 1);
  ASSERT_EQ(stream.notices.size(), 1U);
  EXPECT_EQ(stream.notices[0].kind, StreamNotice::Kind::kMoved);
  EXPECT_EQ((*second_request)["prompt"], Json({1, 2, 3, 10, 11}));
  EXPECT_EQ((*second_request)["resumed"], 2);
  EXPECT_EQ((*second_request)["max_tokens"], 2);
  EXPECT_EQ((*second_request)["seed"], (*first_request)["seed"]);
}

// "tgi" and "dummy" are whichever model is served, unless a worker has an adapter of that name.
TEST_F(PoolTest, WhatTgisClientsSendNamesTheModel) {
  std::promise<std::vector<std::string>> names;
  Json info = Json::parse(info_json("aa"));
  info["adapters"] = {"dummy"};
  workers_.push_back(worker(info.dump(), {[&names](Peer& peer) {
                              std::vector<std::string> asked;
                              while (asked.size() < 3) {
                                const Json request = peer.request();
                                asked.push_back(request.value("model", ""));
                                peer.token(request, 1, "\"stop\"");
                              }
                              names.set_value(asked);
                              peer.idle();
                            }}));
  ASSERT_TRUE(start());
  StreamId id = 0;
  for (const char* name : {"tgi", "dummy", "other"}) {
    Request request = this->request(++id);
    request.model = name;
    submit(std::move(request));
    EXPECT_EQ(sink_->wait_done(id).error, "");
  }
  EXPECT_EQ(names.get_future().get(), (std::vector<std::string>{"m", "dummy", "other"}));
  EXPECT_EQ(models_->ready_model("tgi")->name, "m");
  EXPECT_EQ(models_->ready_model("dummy")->name, "dummy");
}

TEST_F(PoolTest, AStreamThatHasBegunDoesNotGoToAWorkerWithOtherNumerics) {
  options_.worker_timeout_ms = 100;
  const Acts acts;
  const auto lose = [](Peer& peer, const Json& request) {
    peer.token(request, 10);
    break_off(peer, request);
  };
  const auto must_not = [](Peer& peer, const Json& request) {
    peer.token(request, 99, "\"stop\"");
  };
  add("aa", {acts.act(lose, must_not)});
  add("bb", {acts.act(lose, must_not)});
  ASSERT_TRUE(start());
  submit(request(7));
  const RecordingSink::Stream stream = sink_->wait_done(7);
  EXPECT_EQ(stream.tokens, std::vector<TokenId>{10});
  EXPECT_NE(stream.error.find("none with the same numerics"), std::string::npos) << stream.error;
}

TEST_F(PoolTest, NonsenseOfAWorkerIsNotTakenAndItsStreamsGoOn) {
  const std::vector<Acts::On> lies = {
      [](Peer& peer, const Json& request) { peer.token(request, kVocabSize); },
      [](Peer& peer, const Json& request) { peer.token(request, -5); },
      [](Peer& peer, const Json& /*request*/) { peer.write("TOKEN [{\"token\": "); },
      [](Peer& peer, const Json& /*request*/) { peer.write("MSG 17"); },
      [](Peer& peer, const Json& request) {
        peer.write("TOKEN [{\"stream_id\": " + request["stream_id"].dump() +
                   ", \"token\": 5, \"backtrack\": 1, \"finish_reason\": null}]");
      },
      [](Peer& peer, const Json& request) {
        peer.write("TOKEN [{\"stream_id\": " + request["stream_id"].dump() +
                   ", \"token\": 5, \"top_logprobs\": {\"100\": -1}}]");
      },
      [](Peer& peer, const Json& request) {
        peer.write("TOKEN [{\"stream_id\": " + request["stream_id"].dump() +
                   ", \"token\": 5, \"logprob\": 1e30}]");
      },
      [](Peer& peer, const Json& /*request*/) {
        peer.says(info_json("aa", 32));
        peer.request();
      },
      [](Peer& peer, const Json& /*request*/) {
        peer.says("{\"state\": \"ready\"}");
        peer.request();
      },
      [](Peer& peer, const Json& request) {
        peer.write("TOKEN [{\"stream_id\": " + request["stream_id"].dump() + "}]");
      }};
  options_.health_interval_ms = 20;
  StreamId id = 0;
  for (const Acts::On& lie : lies) {
    const Acts acts;
    const Act act = acts.act(lie, [](Peer& peer, const Json& request) {
      peer.write("TOKEN [{\"stream_id\": 4711, \"token\": 1, \"finish_reason\": \"stop\"}]");
      peer.token(request, 42, "\"stop\"");
    });
    workers_.clear();
    add("aa", {act});
    add("aa", {act});
    ASSERT_TRUE(start());
    submit(request(++id));
    const RecordingSink::Stream stream = sink_->wait_done(id);
    EXPECT_EQ(stream.tokens, std::vector<TokenId>{42}) << id;
    EXPECT_EQ(stream.error, "") << id;
    models_.reset();
  }
}

TEST_F(PoolTest, AWorkerThatAnswersAndComputesNothingLosesItsStreams) {
  const Acts acts;
  const Act act =
      acts.act([](Peer& /*peer*/, const Json& /*request*/) {},
               [](Peer& peer, const Json& request) { peer.token(request, 42, "\"stop\""); });
  // Where the machine is slow, the second may seem to stand still too, and is tried again.
  add("aa", {act, act, act, act, act});
  add("aa", {act, act, act, act, act});
  options_.stall_timeout_ms = 200;
  options_.shun_ms = 100;
  ASSERT_TRUE(start());
  submit(request(7));
  const RecordingSink::Stream stream = sink_->wait_done(7);
  EXPECT_EQ(stream.tokens, std::vector<TokenId>{42}) << stream.error;
}

// A SCORE that its score cache answers takes no step.
TEST_F(PoolTest, AWorkerThatGivesWhatItKnowsKeepsItsStreams) {
  const auto knows = [](int num_scores) {
    Json fields = *parse_json_object(info_json("aa"), "info");
    fields["stats"] = {{"num_steps", 5}, {"num_cached_scores", num_scores}};
    return fields.dump();
  };
  constexpr std::chrono::milliseconds kStall{200};
  options_.stall_timeout_ms = kStall.count();
  options_.health_interval_ms = 20;
  options_.worker_timeout_ms = 100;  // where it is lost, so is the stream
  const Act tells = [&](Peer& peer) {
    const Json request = peer.request();
    const auto begin = std::chrono::steady_clock::now();
    int num_scores = 1;
    while (std::chrono::steady_clock::now() < begin + 2 * kStall) {
      peer.says(knows(++num_scores));
      EXPECT_EQ(peer.message()["verb"], "MODEL_INFO");
    }
    peer.token(request, 42, "\"stop\"");
    peer.idle();
  };
  StreamId id = 0;
  EXPECT_TRUE(testing::in_three_tries([&] {
    models_.reset();
    workers_.clear();
    workers_.push_back(worker(knows(1), {tells}));
    EXPECT_TRUE(start());
    submit(request(++id));
    return sink_->wait_done(id).tokens == std::vector<TokenId>{42};
  }));
}

TEST_F(PoolTest, CountersAreOfAllProcessesOfAWorker) {
  const auto info = [](int num_steps) {
    Json fields = *parse_json_object(info_json("aa"), "info");
    fields["stats"] = {{"num_steps", num_steps}, {"num_running", 1}};
    return fields.dump();
  };
  workers_.push_back(worker(info(5), {[](Peer& peer) {
                                        const Json request = peer.request();
                                        break_off(peer, request);
                                      },
                                      [info](Peer& peer) {
                                        peer.says(info(3));
                                        peer.token(peer.request(), 42, "\"stop\"");
                                        peer.idle();
                                      }}));
  ASSERT_TRUE(start());
  EXPECT_EQ(models_->list().front().stats.num_steps, 5);
  submit(request(7));
  sink_->wait_done(7);
  const registry::ModelStatus status = models_->list().front();
  EXPECT_EQ(status.stats.num_steps, 8);
  EXPECT_EQ(status.stats.num_running, 1);
  EXPECT_EQ(status.stats.agent.kv_dtype, "fp8_e4m3");
}

TEST_F(PoolTest, AWorkerThatDoesNotStopIsStopped) {
  const auto after = std::make_shared<std::promise<Json>>();
  add("aa", {[after](Peer& peer) {
        const Json request = peer.request();
        for (int i = 0; i < 10; ++i) peer.token(request, i);
        after->set_value(peer.request());
        peer.idle();
      }});
  ASSERT_TRUE(start());
  submit(request(7, 3));
  const RecordingSink::Stream stream = sink_->wait_done(7);
  EXPECT_EQ(stream.tokens, (std::vector<TokenId>{0, 1, 2}));
  EXPECT_EQ(stream.finish, FinishReason::kLength);
  EXPECT_EQ(after->get_future().get()["verb"], "CANCEL");
  models_.reset();
  workers_[0]->join();
}

TEST_F(PoolTest, CancelEndsAStreamHereAndThere) {
  const auto after = std::make_shared<std::promise<Json>>();
  add("aa", {[after](Peer& peer) {
        const Json request = peer.request();
        peer.token(request, 1);
        after->set_value(peer.request());
        peer.token(request, 2);  // on its way
        peer.idle();
      }});
  ASSERT_TRUE(start());
  const auto canceller = submit(request(7));
  sink_->wait_tokens(7, 1);
  canceller->cancel({1, 7});
  canceller->cancel({1, 7});  // it has ended
  EXPECT_EQ(sink_->wait_done(7).error, "cancelled");
  EXPECT_EQ(after->get_future().get()["verb"], "CANCEL");
  models_.reset();
  workers_[0]->join();
  EXPECT_FALSE(sink_->wait_done(7).event_after_end);
}

TEST_F(PoolTest, WhatAWorkerSaysIsBounded) {
  const auto says = [](Peer& peer, const Json& request, const std::string& fields) {
    peer.write("TOKEN [{\"stream_id\": " + request["stream_id"].dump() + ", " + fields + "}]");
  };
  add("aa", {[says](Peer& peer) {
               const Json request = peer.request();
               says(peer, request,
                    "\"pad\": \"" + std::string(std::size_t{17} << 20, 'x') +
                        "\", \"token\": 10, \"logprob\": -1, \"finish_reason\": \"stop\"");
               peer.idle();
             },
             [says](Peer& peer) {
               peer.token(peer.request(), 42, "\"stop\"");
               says(peer, peer.request(),
                    "\"code\": \"invalid_request\", \"retryable\": false, \"error\": \"" +
                        std::string(200'000, 'x') + "\"");
               peer.idle();
             }});
  ASSERT_TRUE(start());
  submit(request(7));
  EXPECT_EQ(sink_->wait_done(7).tokens, std::vector<TokenId>{42}) << "the first is not read";
  submit(request(8));
  EXPECT_EQ(sink_->wait_done(8).error, std::string(1000, 'x') + "...");
}

TEST_F(PoolTest, AnOverloadedWorkerIsPassedByAndAllOfThemAreAnError) {
  const auto refuse = [](Peer& peer, const Json& request) { peer.error(request, "overloaded"); };
  const Acts acts;
  const Act act = acts.act(refuse, [refuse](Peer& peer, const Json& request) {
    if (request["max_tokens"] == 9) return refuse(peer, request);
    peer.token(request, 42, "\"stop\"");
  });
  add("aa", {act});
  add("aa", {act});
  ASSERT_TRUE(start());
  submit(request(7));
  EXPECT_EQ(sink_->wait_done(7).tokens, std::vector<TokenId>{42});
  submit(request(8, 9));
  EXPECT_EQ(sink_->wait_done(8).error, "no");
}

TEST_F(PoolTest, WithoutAWorkerAStreamWaitsAndIsThenRefused) {
  options_.worker_timeout_ms = 100;
  add("aa", {[](Peer& peer) {
        const Json request = peer.request();
        break_off(peer, request);
      }});
  ASSERT_TRUE(start());
  submit(request(7));
  const RecordingSink::Stream stream = sink_->wait_done(7);
  EXPECT_NE(stream.error.find("overloaded: no worker has taken this"), std::string::npos)
      << stream.error;
  EXPECT_FALSE(models_->healthy());
  Request await = request(8);
  await.kind = RequestKind::kAwaitModel;
  submit(std::move(await));
  EXPECT_NE(sink_->wait_done(8).error.find("overloaded"), std::string::npos);
}

TEST_F(PoolTest, AWorkerThatComesBackTakesWhatWaited) {
  add("aa", {[](Peer& peer) {
               const Json request = peer.request();
               peer.token(request, 10);
               break_off(peer, request);
             },
             [](Peer& peer) {
               const Json request = peer.request();
               peer.token(request, 11, "\"stop\"");
               peer.idle();
             }});
  ASSERT_TRUE(start());
  submit(request(7));
  EXPECT_EQ(sink_->wait_done(7).tokens, (std::vector<TokenId>{10, 11}));
}

TEST_F(PoolTest, WorkersThatDifferAreRefusedByName) {
  const Act idle = [](Peer& peer) { peer.idle(); };
  add("aa", {idle}, 64);
  add("aa", {idle}, 32);
  const Result<void> started = start();
  ASSERT_FALSE(started);
  for (const std::string& part : {name(0), name(1), std::string("context_length, 64 and 32")}) {
    EXPECT_NE(started.error().message.find(part), std::string::npos) << started.error().message;
  }
}

TEST_F(PoolTest, WithoutAnyWorkerItDoesNotStart) {
  options_.worker_timeout_ms = 100;
  add("aa", {});
  const Result<void> started = start();
  ASSERT_FALSE(started);
  EXPECT_NE(started.error().message.find("no worker is ready (" + name(0)), std::string::npos)
      << started.error().message;
}

TEST_F(PoolTest, OneOfSeveralClientsDoesNotTakeAllPlaces) {
  add("aa", {[](Peer& peer) { peer.idle(); }});
  options_.max_requests = 4;
  ASSERT_TRUE(start());
  const auto refusal_of = [&](ConnectionId connection, StreamId id) {
    Request one = request(id);
    one.key.connection = connection;
    one.others_connected = true;
    const registry::Submission submission = models_->submit(std::move(one));
    const auto* refusal = std::get_if<registry::Refusal>(&submission);
    return refusal != nullptr ? refusal->error.message : "";
  };
  for (StreamId id = 1; id <= 3; ++id) EXPECT_EQ(refusal_of(1, id), "");
  EXPECT_NE(refusal_of(1, 4).find("3 requests of this connection"), std::string::npos);
  EXPECT_EQ(refusal_of(2, 5), "");
  EXPECT_NE(refusal_of(3, 6).find("overloaded"), std::string::npos);
}

TEST_F(PoolTest, StopsOfTheTextEndAStreamHere) {
  struct At42 : StopChecker {
    bool push(TokenId token, bool may_stop) override { return may_stop && token == 42; }
    std::unique_ptr<StopChecker> restarted(std::span<const TokenId> /*before*/,
                                           std::span<const TokenId> /*generated*/) const override {
      return std::make_unique<At42>();
    }
  };
  add("aa", {[](Peer& peer) {
        const Json request = peer.request();
        for (const int token : {42, 5, 42, 6}) peer.token(request, token);
        peer.idle();
      }});
  ASSERT_TRUE(start());
  Request with_stop = request(7, 20);
  with_stop.stops = std::make_shared<At42>();
  with_stop.params.min_tokens = 2;
  submit(std::move(with_stop));
  const RecordingSink::Stream stream = sink_->wait_done(7);
  EXPECT_EQ(stream.tokens, (std::vector<TokenId>{42, 5, 42}));
  EXPECT_EQ(stream.finish, FinishReason::kStop);
}

}  // namespace
}  // namespace lmtp::balance
