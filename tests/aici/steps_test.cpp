// What is asked of the main channel, and when; the runtime is this test.
#include "process/steps.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace lmtp::aici {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;

constexpr int kStepsVocab = 64;

class FakeChannel : public MainChannel {
 public:
  Result<Json> ask(const Json& command, milliseconds /*time*/) override {
    commands.push_back(command);
    if (answers.empty()) return Error{ErrorCode::kUnavailable, "no answer"};
    Json answer = std::move(answers.front());
    answers.pop_front();
    return answer;
  }
  std::span<const std::byte> biases() const override { return std::as_bytes(std::span(rows)); }

  std::vector<Json> commands;
  std::deque<Json> answers;
  std::vector<float> rows = std::vector<float>(static_cast<std::size_t>(kStepsVocab) * 8);
};

Json sequence(Json result, const std::string& error = "") {
  return {{"error", error},
          {"result", std::move(result)},
          {"storage", Json::array()},
          {"logs", ""},
          {"micros", 1}};
}
Json pre(bool suspend = false, int num_forks = 1, std::vector<int> ff = {}) {
  return sequence({{"suspend", suspend}, {"num_forks", num_forks}, {"ff_tokens", ff}});
}

class StepsTest : public ::testing::Test {
 protected:
  explicit StepsTest(bool is_c) {
    const StepOptions options{kStepsVocab, kStepsVocab, channel_.rows.size() * sizeof(float)};
    steps_ = is_c ? make_steps_c(options) : make_steps_a(options);
  }
  void advance(Sequence id, Report report = {}) {
    steps_->advance(
        id, std::move(report), [this, id](Advance answer) { advances_[id] = std::move(answer); },
        now());
  }
  void choose(Sequence id, std::vector<Sequence> group) {
    steps_->choose(
        id, std::move(group), [this, id](Choice answer) { choices_[id] = std::move(answer); },
        now());
  }
  Time now() const { return std::chrono::steady_clock::now() + offset_; }
  // After that time.
  Result<void> step(milliseconds later = milliseconds(0)) {
    offset_ += later;
    return steps_->step(channel_, now());
  }

  FakeChannel channel_;
  std::unique_ptr<Steps> steps_;
  milliseconds offset_{0};
  std::map<Sequence, Advance> advances_;
  std::map<Sequence, Choice> choices_;
};

class StepsATest : public StepsTest {
 protected:
  StepsATest() : StepsTest(false) {}

  void answer_pre(Json pre_seqs, Json post_seqs = Json::object()) {
    channel_.answers.push_back(
        {{"pre_seqs", std::move(pre_seqs)}, {"post_seqs", std::move(post_seqs)}});
  }
  void answer_mid(Json seqs) {
    const auto num = seqs.size();
    channel_.answers.push_back({{"seqs", std::move(seqs)}, {"num_seqs", num}});
  }
  // A sequence that has a row.
  void begin(Sequence id) {
    steps_->bind("r" + std::to_string(id), id, now());
    advance(id);
    answer_pre({{std::to_string(id), pre()}});
    ASSERT_TRUE(step(milliseconds(3000)).ok());
    choose(id, {id});
    answer_mid({{std::to_string(id), sequence(nullptr)}});
    ASSERT_TRUE(step(milliseconds(10)).ok());
  }
};

TEST_F(StepsATest, OneCommandForAllThatAreThere) {
  for (const Sequence id : {1U, 2U}) {
    steps_->bind("r" + std::to_string(id), id, now());
    advance(id);
  }
  answer_pre({{"1", pre()}, {"2", pre(false, 2)}});
  ASSERT_TRUE(step().ok());
  EXPECT_EQ(channel_.commands.at(0),
            Json::parse(R"({"op":"post_pre_process","post_ops":[],"freed":[],
                "pre_ops":[{"id":1,"req_id":"r1"},{"id":2,"req_id":"r2"}]})"));
  EXPECT_EQ(advances_.at(2).num_forks, 2);
  steps_->fork(2, {3}, now());
  choose(1, {1});
  choose(2, {2, 3});
  // The group is not whole.
  EXPECT_EQ(steps_->next_time() > now(), false);
  choose(3, {2, 3});
  std::fill_n(channel_.rows.begin() + kStepsVocab, kStepsVocab, -100.0F);
  channel_.rows[kStepsVocab + 5] = 0;
  answer_mid({{"1", sequence(nullptr)},
              {"2", sequence(nullptr)},
              {"3", sequence({{"ff_tokens", {7}}, {"backtrack", 3}})}});
  ASSERT_TRUE(step().ok());
  EXPECT_EQ(channel_.commands.at(1),
            Json::parse(R"({"op":"mid_process","ops":[{"id":1},{"id":2},{"id":3,"clone_id":2}]})"));
  EXPECT_THAT(choices_.at(2).branches.at(0).mask, ElementsAre(1U << 5, 0U));
  const Splice splice = choices_.at(3).branches.at(0).splices.at(0);
  EXPECT_EQ(splice.num_dropped, 2);
  advance(1, {.sampled = 4, .appended = {4}});
  advance(2, {.sampled = 5, .appended = {5}});
  advance(3, {.num_dropped = 2, .appended = {7}});
  steps_->free(3, now());
  const Json stop = sequence({{"stop", true}});
  const Json go_on = sequence({{"stop", false}});
  answer_pre({{"1", pre()}, {"2", pre()}, {"3", pre()}}, {{"1", go_on}, {"2", stop}, {"3", go_on}});
  ASSERT_TRUE(step().ok());
  EXPECT_EQ(channel_.commands.at(2).at("post_ops"),
            Json::parse(R"([{"id":1,"tokens":[4],"backtrack":0},{"id":2,"tokens":[5],"backtrack":0},
                {"id":3,"tokens":[7],"backtrack":3}])"));
  EXPECT_EQ(channel_.commands.at(2).at("freed"), Json::parse("[3]"));
  EXPECT_EQ(advances_.at(1).kind, Advance::Kind::kGoOn);
  EXPECT_EQ(advances_.at(2).kind, Advance::Kind::kStop);
  EXPECT_EQ(advances_.at(3).kind, Advance::Kind::kGoOn);
  EXPECT_FALSE(steps_->has(3));
}

TEST_F(StepsATest, ARowThatAllowsNothingAllowsEverything) {
  for (float& bias : channel_.rows) bias = -100;
  begin(1);
  EXPECT_TRUE(choices_.at(1).branches.at(0).samples);
  EXPECT_THAT(choices_.at(1).branches.at(0).mask, ::testing::IsEmpty());
}

TEST_F(StepsATest, WaitsForThoseInAForwardPassButNotForEver) {
  begin(1);
  steps_->bind("r2", 2, now());
  advance(2);
  EXPECT_GT(steps_->next_time(), now() + milliseconds(1000));
  advance(1, {.sampled = 3, .appended = {3}});
  EXPECT_LE(steps_->next_time(), now());
}

TEST_F(StepsATest, WhatIsSaidOfOneThatWasNotAskedIsKept) {
  steps_->bind("r1", 1, now());
  advance(1);
  answer_pre({{"1", pre()}});
  ASSERT_TRUE(step().ok());
  steps_->bind("r2", 2, now());
  advance(2);
  answer_pre({{"1", pre(false, 1, {8, 9})}, {"2", pre()}});
  ASSERT_TRUE(step(milliseconds(50)).ok());
  EXPECT_THAT(advances_.at(1).appended, ::testing::IsEmpty());
  choose(1, {1});
  const Branch branch = choices_.at(1).branches.at(0);
  EXPECT_FALSE(branch.samples);
  EXPECT_THAT(branch.splices.at(0).appended, ElementsAre(8, 9));
  // The runtime knows that they are there.
  advance(1, {.appended = {8, 9}});
  answer_pre({{"1", pre()}, {"2", pre()}});
  ASSERT_TRUE(step(milliseconds(50)).ok());
  EXPECT_EQ(channel_.commands.back().at("post_ops"), Json::array());
}

TEST_F(StepsATest, TokensThatAreRepeatedCountOnce) {
  steps_->set_repeats_ff(true);
  steps_->bind("r1", 1, now());
  advance(1);
  answer_pre({{"1", pre(true, 1, {8})}});
  ASSERT_TRUE(step().ok());
  EXPECT_EQ(advances_.at(1).kind, Advance::Kind::kSuspend);
  EXPECT_THAT(advances_.at(1).appended, ElementsAre(8));
  advance(1);
  answer_pre({{"1", pre(false, 1, {8})}});
  ASSERT_TRUE(step(milliseconds(50)).ok());
  EXPECT_EQ(advances_.at(1).kind, Advance::Kind::kGoOn);
  EXPECT_THAT(advances_.at(1).appended, ::testing::IsEmpty());
}

TEST_F(StepsATest, AllSequencesThatWaitForEachOtherEnd) {
  steps_->bind("r1", 1, now());
  advance(1);
  for (int round = 0; round < 4; ++round) {
    answer_pre({{"1", pre(true)}});
    ASSERT_TRUE(step(milliseconds(50)).ok());
    EXPECT_NE(advances_.at(1).kind, Advance::Kind::kFail) << round;
    if (round == 0) advance(1);
    if (round == 2) break;
  }
  answer_pre({{"1", pre(true)}});
  ASSERT_TRUE(step(milliseconds(50)).ok());
  EXPECT_EQ(advances_.at(1).error, kDeadlock);
  advance(1);
  EXPECT_EQ(advances_.at(1).error, kDeadlock);
}

TEST_F(StepsATest, AnInstanceThatNobodyWantsIsClaimedAndFreedAtOnce) {
  steps_->discard("gone", now());
  answer_pre({{std::to_string(0xF0000000), pre()}});
  ASSERT_TRUE(step().ok());
  EXPECT_EQ(channel_.commands.at(0).at("pre_ops").at(0).at("req_id"), "gone");
  EXPECT_EQ(channel_.commands.at(0).at("freed"), Json::array({0xF0000000}));
  EXPECT_EQ(steps_->next_time(), Time::max());
}

TEST_F(StepsATest, AnAnswerThatLacksASequenceIsAnError) {
  steps_->bind("r1", 1, now());
  advance(1);
  answer_pre(Json::object());
  EXPECT_FALSE(step().ok());
  EXPECT_THAT(steps_->fail_all("it has ended"), ElementsAre(1U));
  EXPECT_EQ(advances_.at(1).error, "it has ended");
}

class StepsCTest : public StepsTest {
 protected:
  StepsCTest() : StepsTest(true) {}

  void answer_mid(Json seqs) {
    channel_.answers.push_back({{"seqs", std::move(seqs)},
                                {"dtype", "f32"},
                                {"first_mask_byte_offset", 0},
                                {"mask_num_bytes", kStepsVocab * 4},
                                {"mask_num_elts", kStepsVocab},
                                {"num_masks", 1}});
  }
  static Json branches(Json list) { return sequence({{"branches", std::move(list)}}); }
  static Json forced(std::vector<int> tokens, int backtrack) {
    return {{"sample_mask", nullptr},
            {"temperature", nullptr},
            {"splices", Json::array({{{"when_sampled", Json::array()},
                                      {"backtrack", backtrack},
                                      {"ff_tokens", tokens}}})}};
  }
  static Json drawn(int row) {
    return {{"sample_mask", row}, {"temperature", 0.5}, {"splices", Json::array()}};
  }
  // Sequence 1 has chosen these.
  void begin_with(Json list) {
    steps_->bind("r1", 1, now());
    advance(1);
    choose(1, {1});
    answer_mid({{"1", branches(std::move(list))}});
    ASSERT_TRUE(step().ok());
  }
  // By the last command.
  std::vector<TokenId> tokens_told() const {
    std::vector<TokenId> tokens;
    for (const Json& op : channel_.commands.back().at("ops")) {
      for (const Json& token : op.at("tokens")) tokens.push_back(token.get<TokenId>());
    }
    return tokens;
  }
};

TEST_F(StepsCTest, AnOpSaysWhatBecameOfTheLastAndAForkComesWithItsParent) {
  steps_->bind("r1", 1, now());
  advance(1);
  EXPECT_EQ(advances_.at(1).kind, Advance::Kind::kGoOn);
  choose(1, {1});
  answer_mid({{"1", branches(Json::array({drawn(1), forced({9}, 0)}))}});
  ASSERT_TRUE(step().ok());
  EXPECT_EQ(channel_.commands.at(0),
            Json::parse(R"({"op":"mid_process","freed":[],"ops":[{"id":1,"req_id":"r1",
                "backtrack":0,"tokens":[],"sampled":null,"clone_id":null,"clone_idx":null}]})"));
  EXPECT_EQ(choices_.at(1).branches.size(), 2U);
  EXPECT_EQ(choices_.at(1).branches.at(0).temperature, 0.5F);
  steps_->fork(1, {2}, now());
  advance(1, {.sampled = 6, .appended = {6}});
  advance(2, {.appended = {9}});
  choose(2, {1, 2});
  EXPECT_EQ(steps_->next_time(), Time::max());
  // The parent's client goes: its op is still that of the command.
  steps_->free(1, now());
  answer_mid({{"1", branches(Json::array({drawn(0)}))}, {"2", branches(Json::array())}});
  ASSERT_TRUE(step(milliseconds(50)).ok());
  EXPECT_EQ(channel_.commands.at(1), Json::parse(R"({"op":"mid_process","freed":[1],"ops":[
                {"id":1,"req_id":null,"backtrack":0,"tokens":[6],"sampled":6,"clone_id":null,
                 "clone_idx":null},
                {"id":2,"req_id":null,"backtrack":0,"tokens":[9],"sampled":null,"clone_id":1,
                 "clone_idx":1}]})"));
  EXPECT_EQ(choices_.at(2).kind, Choice::Kind::kStop);
  EXPECT_FALSE(steps_->has(1));
}

// The command in which the parent asks has the reports of its forks; its answer has their choices.
TEST_F(StepsCTest, WhatForksChooseBeforeTheyAskIsKept) {
  begin_with(Json::array({forced({}, 0), forced({}, 0), forced({}, 0), forced({}, 0)}));
  steps_->fork(1, {2, 3, 4}, now());
  for (const Sequence id : {1U, 2U, 3U, 4U}) advance(id);
  choose(1, {1});
  answer_mid({{"1", branches(Json::array({drawn(0)}))},
              {"2", branches(Json::array({forced({9}, 0)}))},
              {"3", branches(Json::array())},
              {"4", branches(Json::array({forced({}, 0)}))}});
  ASSERT_TRUE(step(milliseconds(50)).ok());
  EXPECT_EQ(channel_.commands.at(1).at("ops").size(), 4U);
  EXPECT_FALSE(choices_.contains(2));
  choose(2, {2});
  EXPECT_THAT(choices_.at(2).branches.at(0).splices.at(0).appended, ElementsAre(9));
  choose(3, {3});
  EXPECT_EQ(choices_.at(3).kind, Choice::Kind::kStop);
  choose(4, {4});
  EXPECT_EQ(choices_.at(4).kind, Choice::Kind::kSuspend);
  EXPECT_EQ(channel_.commands.size(), 2U);
  // What it is told of next is what became of that.
  advance(2, {.appended = {9}});
  choose(2, {2});
  answer_mid({{"2", branches(Json::array({drawn(0)}))}});
  ASSERT_TRUE(step(milliseconds(50)).ok());
  EXPECT_EQ(channel_.commands.at(2).at("ops").at(0).at("tokens"), Json::array({9}));
}

TEST_F(StepsCTest, AForkThatAsksWaitsForTheReportsOfAll) {
  begin_with(Json::array({forced({9}, 0), drawn(1), drawn(1)}));
  steps_->fork(1, {2, 3}, now());
  advance(1, {.appended = {9}});
  choose(1, {1});
  advance(2, {.sampled = 6, .appended = {6}});
  EXPECT_EQ(steps_->next_time(), Time::max());
  ASSERT_TRUE(step(milliseconds(5000)).ok());
  EXPECT_EQ(channel_.commands.size(), 1U);
  advance(3, {.sampled = 7, .appended = {7}});
  answer_mid({{"1", branches(Json::array({drawn(0)}))},
              {"2", branches(Json::array({drawn(0)}))},
              {"3", branches(Json::array({drawn(0)}))}});
  ASSERT_TRUE(step(milliseconds(50)).ok());
  EXPECT_THAT(tokens_told(), ElementsAre(9, 6, 7));
}

TEST_F(StepsCTest, AParentThatIsFreedStaysUntilItsForksHaveReported) {
  begin_with(Json::array({forced({9}, 0), drawn(1)}));
  steps_->fork(1, {2}, now());
  advance(1, {.appended = {9}});
  steps_->free(1, now());
  EXPECT_EQ(steps_->next_time(), Time::max());
  ASSERT_TRUE(step(milliseconds(5000)).ok());
  EXPECT_EQ(channel_.commands.size(), 1U);
  advance(2, {.sampled = 6, .appended = {6}});
  answer_mid({{"1", branches(Json::array({drawn(0)}))}, {"2", branches(Json::array({drawn(0)}))}});
  ASSERT_TRUE(step(milliseconds(5000)).ok());
  EXPECT_THAT(tokens_told(), ElementsAre(9, 6));
  EXPECT_EQ(channel_.commands.at(1).at("freed"), Json::array({1}));
  choose(2, {2});
  EXPECT_TRUE(choices_.at(2).branches.at(0).samples);
}

TEST_F(StepsCTest, OneThatWaitsIsAskedAgainAndItsChoiceIsKept) {
  steps_->bind("r1", 1, now());
  advance(1);
  choose(1, {1});
  answer_mid({{"1", branches(Json::array({forced({}, 0)}))}});
  ASSERT_TRUE(step().ok());
  EXPECT_EQ(choices_.at(1).kind, Choice::Kind::kSuspend);
  advances_.clear();
  advance(1);
  EXPECT_TRUE(advances_.empty());
  answer_mid({{"1", branches(Json::array({forced({}, 0)}))}});
  ASSERT_TRUE(step(milliseconds(50)).ok());
  EXPECT_TRUE(advances_.empty());
  answer_mid({{"1", branches(Json::array({forced({4, 5}, 2)}))}});
  ASSERT_TRUE(step(milliseconds(50)).ok());
  EXPECT_EQ(advances_.at(1).kind, Advance::Kind::kGoOn);
  choose(1, {1});
  EXPECT_EQ(choices_.at(1).branches.at(0).splices.at(0).num_dropped, 2);
  EXPECT_EQ(channel_.commands.size(), 3U);
}

TEST_F(StepsCTest, ARowThatAllowsNothingFails) {
  for (float& bias : channel_.rows) bias = -INFINITY;
  steps_->bind("r1", 1, now());
  advance(1);
  choose(1, {1});
  answer_mid({{"1", branches(Json::array({drawn(2)}))}});
  ASSERT_TRUE(step().ok());
  EXPECT_EQ(choices_.at(1).kind, Choice::Kind::kFail);
}

TEST_F(StepsCTest, NoCommandIsWithoutAnOp) {
  steps_->bind("r1", 1, now());
  advance(1);
  choose(1, {1});
  answer_mid({{"1", branches(Json::array({drawn(0)}))}});
  ASSERT_TRUE(step().ok());
  steps_->free(1, now());
  answer_mid({{"1", branches(Json::array())}});
  ASSERT_TRUE(step(milliseconds(50)).ok());
  EXPECT_EQ(channel_.commands.at(1).at("ops").size(), 1U);
  EXPECT_EQ(channel_.commands.at(1).at("freed"), Json::parse("[1]"));
  EXPECT_EQ(steps_->next_time(), Time::max());
}

}  // namespace
}  // namespace lmtp::aici
