// What a request was begun with, when its model goes.
#include "generation/intake.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "fake_tokenizer.h"
#include "recording_sink.h"

namespace lmtp::server {
namespace {

using registry::ReadyModel;
using registry::Submission;

constexpr int kVocab = 300;

// One model, which may be unloaded. Requests for it are counted, and never answered.
class OneModel final : public registry::Models {
 public:
  class Canceller final : public registry::StreamCanceller {
   public:
    void cancel(StreamKey /*key*/) override {}
  };

  std::optional<ReadyModel> ready_model(const std::string& /*name*/) const override {
    return model;
  }
  Submission submit(Request&& request) override {
    kinds.push_back(request.kind);
    return std::make_shared<Canceller>();
  }
  std::string lasting_name(const std::string& name) const override { return name; }
  Submission submit_forks(std::vector<Request> /*forks*/) override { return registry::Refusal{}; }
  Result<void> backtrack(const std::string& /*model*/, Backtrack /*command*/) override {
    return {};
  }
  Result<void> check_access(const Account& /*account*/,
                            const std::string& /*name*/) const override {
    return {};
  }
  registry::RefusalCounts& refusals() override { return refusals_; }
  const registry::RefusalCounts& refusals() const override { return refusals_; }
  std::optional<engine::ModelLimits> limits_of(const std::string& /*name*/) const override {
    return std::nullopt;
  }
  std::optional<Result<registry::ModelStatus>> status(const std::string& /*name*/) const override {
    return std::nullopt;
  }
  bool look_up(std::string /*name*/,
               std::function<void(Result<registry::ModelStatus>)> /*done*/) override {
    return false;
  }
  void load_adapter(AdapterSource /*source*/, std::string /*base*/, bool /*may_replace*/,
                    const AdapterDone& /*done*/) override {}
  void unload_adapter(std::string /*name*/, const AdapterDone& /*done*/) override {}
  std::vector<registry::ModelStatus> list() const override { return {}; }
  bool is_auto() const override { return false; }
  const registry::ModelDescription& default_model() const override { return description_; }
  bool healthy() const override { return model.has_value(); }
  void stop(int /*grace_ms*/) override {}

  std::optional<ReadyModel> model;
  std::vector<RequestKind> kinds;  // of what was submitted

 private:
  registry::RefusalCounts refusals_;
  registry::ModelDescription description_;
};

class TextIntake final : public Intake {
 public:
  using Intake::Intake;

 protected:
  Result<Encoded> encode(const ReadyModel& model) override {
    return Encoded{.prompts = {*(*model.tokenizer)->encode("ab")}};
  }
  std::size_t num_bytes() const override { return 2; }
};

class IntakeTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::shared_ptr<const tokenizer::Tokenizer> bytes =
        std::make_shared<const testing::FakeTokenizer>(kVocab);
    const std::vector<TokenId> eos_ids = {kVocab - 1};
    const engine::ModelLimits limits{
        .vocab_size = kVocab, .context_length = 64, .eos_ids = eos_ids};
    const Error none{ErrorCode::kNotFound, "none"};
    models_.model = {"fake", limits, bytes, none};
    models_.model->grammars = std::make_shared<constraint::GrammarCompiler>(bytes, kVocab, eos_ids);
    encoder_.start();
  }
  std::shared_ptr<TextIntake> intake(Intake::Needs needs) {
    return std::make_shared<TextIntake>(CallerModels(models_, nullptr), encoder_,
                                        std::make_shared<MemoryLimit::Part>(waiting_),
                                        std::move(needs));
  }
  Requester requester(StreamId id) {
    return {.key = {1, id},
            .sink = sink_,
            .caller = {},
            .others_connected = [] { return false; },
            .encoding = 5};
  }
  static Intake::Needs json() {
    Intake::Needs needs;
    needs.grammar = Grammar{Grammar::Kind::kJson};
    return needs;
  }
  // Hands work over, has the model unloaded, and goes on.
  void goes_on(StreamId id, Intake::Needs needs) {
    const auto kept = intake(std::move(needs));
    const auto begun = kept->advance(requester(id));
    ASSERT_FALSE(begun.model || begun.refusal);
    EXPECT_EQ(kept->encoding(), 5U) << "it is no model that is awaited";
    const auto model = std::exchange(models_.model, std::nullopt);
    ASSERT_TRUE(sink_->wait_done(id).done);
    const auto ended = kept->advance(requester(id));
    ASSERT_TRUE(ended.model) << (ended.refusal ? ended.refusal->error.message : "awaits a model");
    EXPECT_EQ(ended.model->name, "fake");
    EXPECT_EQ(kept->encoded().prompts, Prompts({{'a', 'b'}}));
    EXPECT_TRUE(models_.kinds.empty()) << "no model was asked for";
    models_.model = model;
  }

  MemoryLimit waiting_{1 << 20};
  Encoder encoder_;
  OneModel models_;
  std::shared_ptr<testing::RecordingSink> sink_ = std::make_shared<testing::RecordingSink>();
};

TEST_F(IntakeTest, WhatWasBegunWithAModelGoesOnWhereItIsUnloaded) {
  Intake::Needs slow;
  slow.is_slow = true;
  goes_on(1, std::move(slow));
  if (constraint::grammar_support()) goes_on(2, json());
}

TEST_F(IntakeTest, ItKeepsTheCompilerWhoseEndWouldWaitForIt) {
  if (!constraint::grammar_support()) GTEST_SKIP() << "built without grammars";
  const auto kept = intake(json());
  const std::weak_ptr<constraint::GrammarCompiler> compiler = models_.model->grammars;
  kept->advance(requester(1));
  models_.model.reset();
  EXPECT_FALSE(compiler.expired()) << "the thread that unloads it is not held up";
  ASSERT_TRUE(sink_->wait_done(1).done);
}

TEST_F(IntakeTest, WhatHasNotBegunAwaitsItsModel) {
  models_.model.reset();
  const auto kept = intake({});
  for (int turn = 0; turn < 3; ++turn) {
    const auto awaits = kept->advance(requester(1));
    EXPECT_TRUE(awaits.awaited != nullptr && !awaits.model && !awaits.refusal);
    EXPECT_EQ(kept->encoding(), 0U);
  }
  EXPECT_EQ(models_.kinds, std::vector(3, RequestKind::kAwaitModel));
  const auto gives_up = kept->advance(requester(1));
  ASSERT_TRUE(gives_up.refusal);
  EXPECT_EQ(gives_up.refusal->error.code, ErrorCode::kUnavailable);
}

}  // namespace
}  // namespace lmtp::server
