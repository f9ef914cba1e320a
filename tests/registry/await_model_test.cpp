// Requests that wait for a model and nothing else, and what they find when it is ready.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include "registry_fixture.h"

namespace lmtp::registry {
namespace {

struct AwaitModel : RegistryTest {
  Submission wait_for(StreamId id, const std::string& model, bool others_connected = false) {
    Request request;
    request.key = {1, id};
    request.sink = sink;
    request.model = model;
    request.others_connected = others_connected;
    request.kind = RequestKind::kAwaitModel;
    return manager->submit(std::move(request));
  }
  static bool is_taken(const Submission& submission) {
    return std::holds_alternative<std::shared_ptr<StreamCanceller>>(submission);
  }
};

TEST_F(AwaitModel, IsAnsweredWhenTheModelIsReadyAndAtOnceWhereItIs) {
  gated = true;
  start();
  EXPECT_FALSE(manager->ready_model("a"));
  EXPECT_TRUE(is_taken(wait_for(1, "a")));
  EXPECT_TRUE(is_taken(wait_for(2, "A")));
  EXPECT_TRUE(is_taken(submit(3, "a")));
  EXPECT_GE(sink->wait_loading(1).num_loading, 1);
  EXPECT_FALSE(manager->ready_model("a"));
  open_gate();
  EXPECT_EQ(sink->wait_done(1).error, "");
  EXPECT_EQ(sink->wait_done(2).error, "") << "and 'A' was found to be 'a'";
  const auto model = manager->ready_model("A");
  ASSERT_TRUE(model.has_value());
  EXPECT_EQ(model->limits.vocab_size, kFakeVocabSize);
  ASSERT_TRUE(model->tokenizer.ok());
  EXPECT_EQ((*model->tokenizer)->vocab_size(), kFakeVocabSize);
  EXPECT_EQ(sink->wait_done(3).tokens.size(), 2U);
  EXPECT_TRUE(is_taken(wait_for(4, "")));
  EXPECT_EQ(sink->wait_done(4).num_loading, 0);
  EXPECT_EQ(sink->wait_done(4).num_ends, 1);
  EXPECT_EQ(census->num_loads("/models/a"), 1);
}

TEST_F(AwaitModel, EndsAsOthersDo) {
  gated = true;
  start({.max_waiting_requests = 2});
  EXPECT_TRUE(is_taken(wait_for(1, "a", true)));
  EXPECT_FALSE(is_taken(wait_for(2, "a", true))) << "three quarters of two";
  EXPECT_TRUE(is_taken(wait_for(3, "a")));
  EXPECT_FALSE(is_taken(wait_for(4, "a"))) << "it holds a place";
  EXPECT_FALSE(is_taken(wait_for(5, "b\n")));
  std::get<std::shared_ptr<StreamCanceller>>(wait_for(6, "c"))->cancel({1, 6});
  EXPECT_EQ(sink->wait_done(6).error, "cancelled");
  failing = true;
  open_gate();
  EXPECT_EQ(sink->wait_done(1).error, "model: the weights are broken");
  EXPECT_TRUE(sink->wait_done(1).model_failed);
  EXPECT_FALSE(manager->ready_model("a"));
}

TEST_F(AwaitModel, ErrorsOfWhatWaitsNameItsSample) {
  gated = true;
  start();
  for (const int sample : {2, 3}) {
    Request request;
    request.key = {1, sample, sample};
    request.sink = sink;
    request.model = "a";
    request.prompt = {1};
    EXPECT_TRUE(is_taken(manager->submit(std::move(request))));
  }
  std::get<std::shared_ptr<StreamCanceller>>(wait_for(6, "a"))->cancel({1, 2, 2});
  EXPECT_EQ(sink->wait_done(2).sample, 2);
  manager->stop(0);
  EXPECT_EQ(sink->wait_done(3).sample, 3);
}

TEST_F(AwaitModel, AModelMayHaveNoTokenizer) {
  load_tokenizer = [] { return LoadedTokenizer(Error{ErrorCode::kInvalid, "is broken"}); };
  start();
  EXPECT_TRUE(is_taken(wait_for(1, "a")));
  EXPECT_EQ(sink->wait_done(1).error, "");
  EXPECT_EQ(manager->ready_model("a")->tokenizer.error().message, "is broken");
  load_tokenizer = []() -> LoadedTokenizer { throw std::bad_alloc(); };
  EXPECT_TRUE(is_taken(wait_for(2, "b")));
  EXPECT_EQ(sink->wait_done(2).error, "");
  EXPECT_FALSE(manager->ready_model("b")->tokenizer.ok());
}

TEST_F(AwaitModel, TheTokenizerStaysWhereTheDeviceWasLost) {
  std::atomic<bool> lost = true;
  before_step = [&lost](const auto&) -> Result<void> {
    return lost ? Result<void>(Error{ErrorCode::kInternal, "sticky"}) : Result<void>();
  };
  is_lost = [&lost] { return lost.exchange(false); };
  int num_tokenizers = 0;
  load_tokenizer = [&num_tokenizers]() -> LoadedTokenizer {
    ++num_tokenizers;
    return Error{ErrorCode::kInvalid, "none"};
  };
  start();
  EXPECT_NE(run(1, "a").error, "");
  EXPECT_TRUE(is_taken(wait_for(2, "a")));
  EXPECT_EQ(sink->wait_done(2).error, "");
  EXPECT_EQ(run(3, "a").error, "");
  EXPECT_EQ(census->num_loads("/models/a"), 2);
  EXPECT_EQ(num_tokenizers, 1);
}

}  // namespace
}  // namespace lmtp::registry
