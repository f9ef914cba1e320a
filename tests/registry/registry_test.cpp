// Names, loading, unloading, failing: what an auto server promises, over null agents.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "registry_fixture.h"

namespace lmtp::registry {
namespace {

TEST_F(RegistryTest, LoadsWhatIsNamedAndTellsThoseWhoWait) {
  start();
  EXPECT_TRUE(manager->healthy());
  EXPECT_TRUE(manager->list().empty());
  EXPECT_EQ(state("a"), ModelState::kUnloaded);
  const auto stream = run(1, "a");
  EXPECT_EQ(stream.tokens, testing::FakeAgent::expected_tokens({1, 2}, 2, kFakeVocabSize));
  EXPECT_GE(stream.num_loading, 1);
  EXPECT_EQ(stream.loading_model, "a");
  EXPECT_FALSE(stream.event_after_end);
  EXPECT_EQ(state("a"), ModelState::kReady);
  EXPECT_EQ((*manager->status("a"))->progress_percent, 100);
  EXPECT_EQ(run(2, "a").num_loading, 0);
  EXPECT_EQ(census->num_loads("/models/a"), 1);
}

TEST_F(RegistryTest, ModelInfoNeverLoads) {
  start();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(state("a"), ModelState::kUnloaded);
  EXPECT_EQ(state("nothing"), ModelState::kStopping) << "an error";
  EXPECT_EQ(census->num_loads("/models/a"), 0);
}

TEST_F(RegistryTest, OneModelIsLoadedOnceWhateverNamesAndWhoeverAsks) {
  gated = true;
  start();
  for (StreamId id = 0; id < 6; ++id) EXPECT_EQ(refusal(id, id % 2 == 0 ? "a" : "A"), "taken");
  wait_for_state("a", ModelState::kLoading);
  open_gate();
  for (StreamId id = 0; id < 6; ++id) EXPECT_EQ(sink->wait_done(id).error, "");
  EXPECT_EQ(run(7, "A").error, "");
  EXPECT_EQ(census->num_loads("/models/a"), 1);
  EXPECT_EQ(manager->list().size(), 1U);
}

TEST_F(RegistryTest, AnEmptyNameMeansTheOneThatIsLoaded) {
  start();
  EXPECT_NE(refusal(1, "").find("no model is loaded"), std::string::npos);
  EXPECT_TRUE(std::get<Refusal>(submit(1, "")).no_model);
  run(1, "a");
  EXPECT_EQ(run(2, "").tokens.size(), 2U);
  EXPECT_EQ((*manager->status(""))->description.name, "a");
  run(3, "b");
  EXPECT_NE(refusal(4, "").find("'b'"), std::string::npos) << refusal(4, "");
  EXPECT_FALSE(manager->status("")->ok());
}

TEST_F(RegistryTest, AnEmptyNameWithNoneLoadedMeansTheDefault) {
  gated = true;
  AutoOptions options;
  options.default_model.name = "c";
  start(std::move(options));
  EXPECT_FALSE(manager->status("")) << "looked up, as a name that is not loaded";
  EXPECT_EQ(state(""), ModelState::kUnloaded);
  EXPECT_EQ(refusal(1, ""), "taken");
  EXPECT_EQ(sink->wait_loading(1).loading_model, "c");
  EXPECT_EQ(refusal(2, "a"), "taken");
  EXPECT_NE(refusal(3, "").find("several are being loaded"), std::string::npos) << refusal(3, "");
  open_gate();
  EXPECT_EQ(sink->wait_done(1).error, "");
  EXPECT_EQ(sink->wait_done(2).error, "");
}

TEST_F(RegistryTest, AnEmptyNameWaitsForTheOnlyOneThatIsLoading) {
  gated = true;
  start();
  submit(1, "a");
  EXPECT_EQ(refusal(2, ""), "taken");
  EXPECT_EQ(sink->wait_loading(2).loading_model, "a");
  open_gate();
  EXPECT_EQ(sink->wait_done(2).error, "");
}

TEST_F(RegistryTest, UnknownNamesAreAnsweredWithTheReason) {
  start();
  const auto stream = run(1, "nothing");
  EXPECT_EQ(stream.error, "model: 'nothing' is unknown");
  EXPECT_TRUE(stream.model_failed);
  EXPECT_EQ(stream.num_ends, 1);
  EXPECT_NE(refusal(2, std::string("a\0b", 3)).find("control character"), std::string::npos);
  EXPECT_EQ(run(3, "a").error, "") << "the server lives";
  EXPECT_EQ(run(4, "tgi").error, "model: 'tgi' is unknown") << "one model of several";
}

TEST_F(RegistryTest, AFailedLoadAnswersItsWaitersAndALaterRequestTriesAgain) {
  failing = true;
  start();
  const auto stream = run(1, "a");
  EXPECT_EQ(stream.error, "model: the weights are broken");
  EXPECT_TRUE(stream.model_failed);
  EXPECT_EQ(state("a"), ModelState::kFailed);
  failing = false;
  EXPECT_EQ(run(2, "a").error, "");
  EXPECT_EQ(state("a"), ModelState::kReady);
}

TEST_F(RegistryTest, TheLeastRecentlyUsedGoes) {
  start({.max_models = 2});
  run(1, "a");
  run(2, "b");
  run(3, "a");
  run(4, "c");
  EXPECT_EQ(state("b"), ModelState::kUnloaded);
  EXPECT_EQ(state("a"), ModelState::kReady);
  EXPECT_EQ(census->num_alive_max(), 2);
  run(5, "b");
  EXPECT_EQ(state("a"), ModelState::kUnloaded);
  EXPECT_EQ(census->num_loads("/models/b"), 2);
}

TEST_F(RegistryTest, NoneIsUnloadedThatHasStreams) {
  std::atomic<bool> hold = true;
  before_step = [&hold](const auto&) -> Result<void> {
    EXPECT_TRUE(eventually([&] { return !hold; }));
    return {};
  };
  start({.max_models = 1});
  submit(1, "a");
  wait_for_state("a", ModelState::kReady);
  submit(2, "b");
  wait_for_state("b", ModelState::kLoading);
  EXPECT_EQ(state("a"), ModelState::kReady);
  hold = false;
  EXPECT_EQ(sink->wait_done(1).error, "");
  EXPECT_EQ(sink->wait_done(2).error, "");
  EXPECT_EQ(state("a"), ModelState::kUnloaded);
  EXPECT_EQ(census->num_alive_max(), 1);
}

TEST_F(RegistryTest, AModelThatWaitsForRoomHoldsUpNoOther) {
  std::atomic<bool> hold = true;
  before_step = [&hold](const scheduler::StepPlan& plan) -> Result<void> {
    const auto& started = plan.changes.started;
    const bool is_first = !started.empty() && started.front().key.stream == 1;
    if (is_first) {
      EXPECT_TRUE(eventually([&] { return !hold; }));
    }
    return {};
  };
  memory_bytes = 6 * kGi;
  bytes_of_e = 11 * kGi / 2;  // beside no other
  start({.max_models = 5, .unload_after_ms = 50});
  submit(1, "a");
  wait_for_state("a", ModelState::kReady);
  submit(2, "e");
  wait_for_state("e", ModelState::kLoading);
  EXPECT_EQ(run(3, "b").error, "");
  wait_for_state("b", ModelState::kUnloaded);  // idle models are looked for in every turn
  EXPECT_EQ(run(4, "c").error, "");
  EXPECT_EQ(state("e"), ModelState::kLoading);
  hold = false;
  EXPECT_EQ(sink->wait_done(1).error, "");
  EXPECT_EQ(sink->wait_done(2).error, "");
}

// Steps fail, and the device is gone, from `lost` on until a model is loaded on it.
TEST_F(RegistryTest, AModelWhoseDeviceWasLostIsLoadedAgain) {
  std::atomic<bool> lost = false;
  before_step = [&lost](const auto&) -> Result<void> {
    return lost ? Result<void>(Error{ErrorCode::kInternal, "sticky"}) : Result<void>();
  };
  is_lost = [&lost] { return lost.exchange(false); };
  start();
  EXPECT_EQ(run(1, "a").error, "");
  lost = true;
  EXPECT_EQ(run(2, "a").error, "the step failed: sticky");
  EXPECT_EQ(run(3, "a").tokens, testing::FakeAgent::expected_tokens({1, 2}, 2, kFakeVocabSize));
  EXPECT_EQ(census->num_loads("/models/a"), 2);
  wait_for_state("a", ModelState::kReady);
  // This time it does not come back: the model is unloaded until the next request for it.
  failing = true;
  lost = true;
  EXPECT_NE(run(4, "a").error, "");
  wait_for_state("a", ModelState::kFailed);
  EXPECT_EQ(run(5, "a").error, "model: the weights are broken");
  EXPECT_EQ(census->num_alive(), 0);
  failing = false;
  EXPECT_EQ(run(6, "a").error, "");
  EXPECT_EQ(census->num_loads("/models/a"), 3);
  EXPECT_TRUE(manager->list().size() == 1 && state("a") == ModelState::kReady);
}

TEST_F(RegistryTest, AModelThatIsToBeLoadedAgainMayBeUnloadedFirst) {
  std::atomic<bool> lost = false;
  before_step = [&lost](const auto&) -> Result<void> {
    return lost ? Result<void>(Error{ErrorCode::kInternal, "sticky"}) : Result<void>();
  };
  is_lost = [&lost] { return lost.exchange(false); };
  start({.max_models = 2});
  run(1, "a");
  gated = true;
  submit(2, "b");  // has the turn now, and then "c"
  EXPECT_TRUE(eventually([&] { return census->num_loads("/models/b") > 0 || last_kv_bytes != 0; }));
  wait_for_state("b", ModelState::kLoading);
  submit(3, "c");
  wait_for_state("c", ModelState::kLoading);
  lost = true;
  EXPECT_NE(run(4, "a").error, "");
  open_gate();
  for (const StreamId id : {2, 3}) EXPECT_EQ(sink->wait_done(id).error, "");
  EXPECT_EQ(run(5, "a").error, "") << "there again, or still";
}

TEST_F(RegistryTest, WhatIsIdleForLongIsUnloaded) {
  start({.unload_after_ms = 50});
  run(1, "a");
  wait_for_state("a", ModelState::kUnloaded);
  EXPECT_TRUE(eventually([&] { return census->num_alive() == 0; }));
  EXPECT_EQ(run(2, "a").error, "");
}

TEST_F(RegistryTest, MakesRoomWhereMemoryIsShort) {
  memory_bytes = 23 * kGi / 10;  // two models fit, with little for their caches
  start({.max_models = 5});
  run(1, "a");
  EXPECT_EQ(last_kv_bytes, memory_bytes / 4);
  run(2, "b");
  EXPECT_EQ(state("a"), ModelState::kUnloaded) << "a quarter of what is left is wanted";
  EXPECT_EQ(census->num_alive_max(), 1);
}

TEST_F(RegistryTest, WhatCannotFitUnloadsNothingAndSaysWhatItNeeds) {
  memory_bytes = 4 * kGi;
  start();
  run(1, "a");
  model_bytes = 8 * kGi;
  memory_bytes = 11 * kGi;  // one is loaded
  const auto stream = run(2, "b");
  EXPECT_NE(stream.error.find("needs about 8.0 GiB"), std::string::npos) << stream.error;
  EXPECT_EQ(state("a"), ModelState::kReady);
}

TEST_F(RegistryTest, TheContextIsWhatTheKvCacheHoldsWhenItIsLoaded) {
  memory_bytes = 8 * kGi;
  gated = true;
  context_of = [](std::int64_t kv_bytes) { return kv_bytes == 2 * kGi ? 10 : 512; };
  start();
  Request request;
  request.key = {1, 1};
  request.sink = sink;
  request.model = "a";
  request.prompt = std::vector<TokenId>(20, 1);
  manager->submit(std::move(request));
  submit(2, "a");
  EXPECT_NE(sink->wait_done(1).error.find("at most 9 (one less than the context)"),
            std::string::npos)
      << sink->wait_done(1).error;
  open_gate();
  EXPECT_EQ(sink->wait_done(2).error, "");
  EXPECT_EQ((*manager->status("a"))->limits.context_length, 10);
}

TEST_F(RegistryTest, ADownloadIsMostOfTheProgressAndEndsWhereNobodyWaits) {
  std::atomic<int> percent = 0;
  std::atomic<bool> given_up = false;
  fetch = [&](const std::string& name, const ModelFactory::DownloadProgress& progress) {
    EXPECT_TRUE(eventually([&] {
      given_up = !progress({percent * 7, 700});
      return given_up || percent == 100;
    }));
    if (given_up) return Result<ServedModel>(Error{ErrorCode::kInternal, "given up"});
    return find(name);
  };
  start();
  const Submission first = submit(1, "a");
  percent = 50;
  EXPECT_TRUE(eventually([&] { return (*manager->status("a"))->progress_percent >= 45; }));
  const auto status = *manager->status("a");
  EXPECT_EQ(status->progress_percent, 45);
  ASSERT_TRUE(status->download.has_value());
  EXPECT_EQ(status->download->bytes_done, 350);
  EXPECT_EQ(status->download->bytes_total, 700);
  std::get<std::shared_ptr<StreamCanceller>>(first)->cancel({1, 1});
  EXPECT_EQ(sink->wait_done(1).error, "cancelled");
  EXPECT_TRUE(eventually([&] { return given_up.load(); }));
  percent = 100;
  EXPECT_EQ(run(2, "a").error, "");
}

TEST_F(RegistryTest, OnlySoManyAreFetchedAtATimeAndWhatIsHereDoesNotWaitForThem) {
  std::promise<void> answer;
  std::atomic<int> num_fetching = 0;
  fetch = [&, known = answer.get_future().share()](const std::string& name, const auto&) {
    if (auto here = find(name)) return here;
    ++num_fetching;
    known.wait();
    return Result<ServedModel>(Error{ErrorCode::kInternal, "'" + name + "' is unknown"});
  };
  start();
  for (StreamId id = 0; id < kFetchesMax; ++id) {
    EXPECT_EQ(refusal(id, "x" + std::to_string(id)), "taken");
  }
  // Until then they are sought on this machine, as it might be.
  EXPECT_TRUE(eventually([&] { return num_fetching >= kFetchesMax; }));
  EXPECT_NE(run(100, "y").error.find("overloaded"), std::string::npos)
      << sink->wait_done(100).error;
  EXPECT_EQ(run(102, "a").error, "");
  EXPECT_EQ(refusal(101, "x0"), "taken") << "it is sought already";
  answer.set_value();
  for (StreamId id = 0; id < kFetchesMax; ++id) EXPECT_TRUE(sink->wait_done(id).model_failed);
  EXPECT_TRUE(sink->wait_done(101).model_failed);
}

TEST_F(RegistryTest, StoppingEndsLoadingAndWaiting) {
  gated = true;
  start();
  submit(1, "a");
  submit(2, "b");
  wait_for_state("a", ModelState::kLoading);
  manager->stop(60'000);
  EXPECT_NE(sink->wait_done(1).error.find("shutting down"), std::string::npos);
  EXPECT_NE(sink->wait_done(2).error.find("shutting down"), std::string::npos);
  EXPECT_NE(refusal(3, "a").find("shutting down"), std::string::npos);
  std::string looked_up;
  EXPECT_TRUE(manager->look_up(
      "c", [&](const Result<ModelStatus>& status) { looked_up = status.error().message; }));
  EXPECT_NE(looked_up.find("shutting down"), std::string::npos);
  EXPECT_FALSE(manager->healthy());
  for (const ModelStatus& model : manager->list()) EXPECT_EQ(model.stats.num_waiting, 0);
}

TEST_F(RegistryTest, StoppingLetsStreamsFinish) {
  start();
  run(1, "a");
  submit(2, "a", 400);
  manager->stop(60'000);
  EXPECT_EQ(sink->wait_done(2).tokens.size(), 400U);
}

TEST_F(RegistryTest, ManyNamesOfOneModelAreRememberedInPart) {
  fetch = [this](const std::string&, const auto&) { return find("a"); };
  start();
  for (int i = 0; i < 3 * static_cast<int>(kNamesPerModelMax); ++i) {
    EXPECT_EQ(run(i, "name" + std::to_string(i)).error, "");
  }
  EXPECT_EQ(census->num_loads("/models/a"), 1);
  EXPECT_EQ(manager->status("name0"), std::nullopt) << "forgotten, and found again when asked for";
  EXPECT_EQ(run(1000, "name0").error, "");
}

}  // namespace
}  // namespace lmtp::registry
