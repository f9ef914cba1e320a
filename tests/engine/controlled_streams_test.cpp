// Streams that controllers decide on, with a runtime whose controllers are lists of what they do,
// in an engine with an agent that runs ahead and with one that does not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "counting.h"
#include "fake_agent.h"
#include "lmtp/aici/instance.h"
#include "lmtp/aici/runtime.h"
#include "lmtp/engine/engine.h"
#include "lmtp/request/account.h"
#include "lmtp/request/caller.h"
#include "recording_sink.h"

namespace lmtp::engine {
namespace {

using aici::Advance;
using aici::Branch;
using aici::Choice;
using testing::counting;
using testing::FakeAgent;
using testing::RecordingSink;
using testing::StepGate;

constexpr int kControlledVocab = 1000;

// What a controller does from one token to the next.
struct Act {
  Advance advance = {};
  Choice choice = {};
};
using Script = std::deque<Act>;

Branch only(std::vector<TokenId> tokens) {
  Branch branch;
  branch.mask.resize((kControlledVocab + 31) / 32);
  for (const TokenId token : tokens) {
    branch.mask[static_cast<std::size_t>(token) / 32] |= 1U << (token % 32);
  }
  return branch;
}
Act draw(Branch branch = {}) {
  return {.advance = {}, .choice = {.branches = {std::move(branch)}}};
}
Act splice(int num_dropped, std::vector<TokenId> tokens) {
  Branch branch{.samples = false, .splices = {{.num_dropped = num_dropped, .appended = tokens}}};
  return draw(std::move(branch));
}
Act stop() { return {.advance = {.kind = Advance::Kind::kStop}, .choice = {}}; }

// Answers within the call, or later on a thread of its own.
class ScriptedRuntime : public aici::Runtime {
 public:
  ~ScriptedRuntime() override {
    for (std::thread& thread : threads_) thread.join();
  }

  void upload(std::string, aici::Auth, Done<Result<aici::ModuleInfo>>) override {}
  void set_tags(std::string, std::vector<std::string>, aici::Auth,
                Done<Result<std::vector<aici::TagInfo>>>) override {}
  void get_tags(aici::Auth, Done<Result<std::vector<aici::TagInfo>>>) override {}
  void instantiate(aici::InstantiateRequest, Done<Result<aici::Instantiated>>) override {}

  void bind(const std::string& request_id, aici::Sequence sequence) override {
    const std::lock_guard lock(mutex_);
    scripts_[sequence] = requests.at(request_id);
  }
  void discard(const std::string& request_id) override {
    const std::lock_guard lock(mutex_);
    discarded.insert(request_id);
  }
  void advance(aici::Sequence sequence, aici::Report report, Done<Advance> done) override {
    Advance answer;
    {
      const std::lock_guard lock(mutex_);
      reports[sequence].push_back(std::move(report));
      Script& script = scripts_.at(sequence);
      answer = script.empty() ? stop().advance : script.front().advance;
      const bool is_choice = answer.kind == Advance::Kind::kGoOn;
      if (!is_choice && !script.empty()) script.pop_front();
    }
    run([done, answer] { done(answer); });
  }
  void choose(aici::Sequence sequence, std::vector<aici::Sequence> group,
              Done<Choice> done) override {
    Choice answer;
    {
      const std::lock_guard lock(mutex_);
      groups.push_back(std::move(group));
      answer = scripts_.at(sequence).front().choice;
      scripts_.at(sequence).pop_front();
    }
    run([done, answer] { done(answer); });
  }
  void fork(aici::Sequence parent, std::vector<aici::Sequence> children) override {
    const std::lock_guard lock(mutex_);
    for (std::size_t i = 0; i < children.size(); ++i) {
      scripts_[children[i]] = i < forks.size() ? forks[i] : scripts_.at(parent);
    }
  }
  void free(aici::Sequence sequence) override {
    const std::lock_guard lock(mutex_);
    EXPECT_EQ(scripts_.erase(sequence), 1U) << sequence;
  }
  std::size_t num_live() {
    const std::lock_guard lock(mutex_);
    return scripts_.size();
  }
  // Keeps the answers back until open().
  void close() {
    const std::lock_guard lock(mutex_);
    is_closed_ = true;
  }
  void open() {
    std::vector<std::function<void()>> answers;
    {
      const std::lock_guard lock(mutex_);
      is_closed_ = false;
      answers.swap(kept_);
    }
    for (const auto& answer : answers) answer();
  }

  std::map<std::string, Script> requests;
  std::vector<Script> forks;
  bool on_threads = false;
  std::map<aici::Sequence, std::vector<aici::Report>> reports;
  std::vector<std::vector<aici::Sequence>> groups;
  std::set<std::string> discarded;

 private:
  void run(std::function<void()> answer) {
    {
      const std::lock_guard lock(mutex_);
      if (is_closed_) return kept_.push_back(std::move(answer));
    }
    if (!on_threads) return answer();
    const std::lock_guard lock(mutex_);
    threads_.emplace_back(std::move(answer));
  }

  std::mutex mutex_;
  bool is_closed_ = false;
  std::vector<std::function<void()>> kept_;
  std::map<aici::Sequence, Script> scripts_;
  std::vector<std::thread> threads_;
};

class ControlledStreamsTest : public ::testing::TestWithParam<bool> {
 protected:
  void make_engine(int mask_wait_ms = 60'000) {
    testing::FakeAgentOptions agent;
    agent.vocab_size = kControlledVocab;
    agent.num_blocks = 128;
    agent.runs_ahead = GetParam();
    agent.steps = steps_;
    EngineOptions options;
    options.debug.check_invariants = true;
    options.mask_wait_ms = mask_wait_ms;
    const ModelLimits limits{.vocab_size = kControlledVocab, .context_length = 512, .eos_ids = {}};
    engine_ = std::make_unique<Engine>(testing::make_fake_agent(agent), limits, options);
  }

  void submit(StreamId id, Script script, int max_tokens = 40, bool wants_notices = false) {
    runtime_->requests[std::to_string(id)] = std::move(script);
    Request request = plain(id, max_tokens);
    request.wants_notices = wants_notices;
    request.controller = std::make_shared<aici::Instance>(runtime_, std::to_string(id));
    EXPECT_TRUE(engine_->instance().submit(std::move(request)).ok());
  }
  void submit_plain(StreamId id, int max_tokens) {
    EXPECT_TRUE(engine_->instance().submit(plain(id, max_tokens)).ok());
  }
  Request plain(StreamId id, int max_tokens) {
    Request request;
    request.key = {1, id};
    request.sink = sink_;
    request.prompt = counting(0, 20);
    request.params.max_tokens = max_tokens;
    return request;
  }

  // What follows these tokens.
  static std::vector<TokenId> after(std::vector<TokenId> generated, int count) {
    std::vector<TokenId> prompt = counting(0, 20);
    prompt.insert(prompt.end(), generated.begin(), generated.end());
    return FakeAgent::expected_tokens(prompt, count, kControlledVocab);
  }

  const std::shared_ptr<RecordingSink> sink_ = std::make_shared<RecordingSink>();
  const std::shared_ptr<ScriptedRuntime> runtime_ = std::make_shared<ScriptedRuntime>();
  const std::shared_ptr<testing::StepLock> steps_ = std::make_shared<testing::StepLock>();
  std::unique_ptr<Engine> engine_;
};

INSTANTIATE_TEST_SUITE_P(Agents, ControlledStreamsTest, ::testing::Bool());

constexpr int kNotWaited = 1;  // ms: where a choice is kept back, steps go on without it

TEST_P(ControlledStreamsTest, DrawWhatTheirControllerAllows) {
  make_engine();
  submit(1, {draw(only({7})), draw(), draw(only({8, 9})), stop()});
  submit_plain(2, 10);
  const auto one = sink_->wait_done(1);
  ASSERT_EQ(one.tokens.size(), 3U);
  EXPECT_EQ(one.tokens[0], 7);
  EXPECT_EQ(one.tokens[1], after({7}, 1)[0]);
  EXPECT_TRUE(one.tokens[2] == 8 || one.tokens[2] == 9);
  EXPECT_EQ(one.finish, FinishReason::kStop);
  EXPECT_EQ(one.num_ends, 1);
  EXPECT_EQ(sink_->wait_done(2).tokens, after({}, 10));
  engine_.reset();
  EXPECT_EQ(runtime_->num_live(), 0U);
  const std::vector<aici::Report>& reports = runtime_->reports.begin()->second;
  ASSERT_EQ(reports.size(), 4U);
  EXPECT_TRUE(reports[0].appended.empty());
  EXPECT_EQ(reports[1].sampled, 7);
  EXPECT_EQ(reports[1].appended, std::vector<TokenId>{7});
}

TEST_P(ControlledStreamsTest, GetTokensThatWereNotDrawn) {
  make_engine();
  Act first = draw();
  first.advance.appended = {5, 6};
  submit(1, {first, splice(0, {11, 12, 13}), splice(2, {14}), draw(), stop()});
  const auto one = sink_->wait_done(1);
  const TokenId second = after({5, 6}, 1)[0];
  std::vector<TokenId> expected{5, 6, second, 11, 14};
  expected.push_back(after(expected, 1)[0]);
  EXPECT_EQ(one.tokens, expected);
  EXPECT_EQ(one.finish, FinishReason::kStop);
  engine_.reset();
  const std::vector<aici::Report>& reports = runtime_->reports.begin()->second;
  ASSERT_EQ(reports.size(), 5U);
  EXPECT_EQ(reports[2].appended, (std::vector<TokenId>{11, 12, 13}));
  EXPECT_EQ(reports[2].sampled, std::nullopt);
  EXPECT_EQ(reports[3].num_dropped, 2);
}

TEST_P(ControlledStreamsTest, ReplaceWhatWasDrawn) {
  make_engine();
  Branch branch = only({7});
  branch.splices = {{.when_sampled = {3}, .appended = {4}},
                    {.when_sampled = {7}, .num_dropped = 0, .appended = {20, 21}}};
  Branch keeps = only({8});
  keeps.splices = {{.keeps_sampled = true, .appended = {22}}};
  submit(1, {draw(branch), draw(keeps), draw(only({9})), stop()});
  EXPECT_EQ(sink_->wait_done(1).tokens, (std::vector<TokenId>{20, 21, 8, 22, 9}));
}

// The tokens are then those of before, and the controller is asked anew all the same.
TEST_P(ControlledStreamsTest, RejectWhatWasDrawn) {
  make_engine();
  Branch rejects = only({7});
  rejects.splices = {{}};
  Branch restores = only({8});
  restores.splices = {{.num_dropped = 1, .appended = {3}}};
  submit(1,
         {draw(rejects), draw(rejects), draw(only({3})), draw(restores), draw(only({9})), stop()});
  submit_plain(2, 10);
  EXPECT_EQ(sink_->wait_done(1).tokens, (std::vector<TokenId>{3, 9}));
  EXPECT_EQ(sink_->wait_done(2).tokens, after({}, 10));
  engine_.reset();
  EXPECT_EQ(runtime_->groups.size(), 5U) << "its choices";
  const std::vector<aici::Report>& reports = runtime_->reports.begin()->second;
  ASSERT_EQ(reports.size(), 6U);
  EXPECT_EQ(reports[1].sampled, 7);
  EXPECT_TRUE(reports[1].appended.empty());
  EXPECT_EQ(reports[4].sampled, 8);
  EXPECT_EQ(reports[4].num_dropped, 1);
}

TEST_P(ControlledStreamsTest, TellWhatWasPutBeforeTheirEnd) {
  make_engine();
  submit(1, {draw(only({7})), splice(0, {11, 12}), stop()});
  submit(2, {draw(only({7})), draw(only({8})), splice(2, {13}), stop()});
  submit(3, {draw(only({7})), draw(only({8})), splice(1, {}), stop()});
  EXPECT_EQ(sink_->wait_done(1).tokens, (std::vector<TokenId>{7, 11, 12}));
  EXPECT_EQ(sink_->wait_done(2).tokens, std::vector<TokenId>{13});
  EXPECT_EQ(sink_->wait_done(3).tokens, std::vector<TokenId>{7});
  for (StreamId id = 1; id < 4; ++id) {
    EXPECT_EQ(sink_->wait_done(id).finish, FinishReason::kStop) << id;
    EXPECT_EQ(sink_->wait_done(id).num_ends, 1) << id;
  }
}

TEST_P(ControlledStreamsTest, AreCancelledWithTheirForks) {
  make_engine();
  StepGate gate(steps_);
  Act fork = draw();
  fork.advance.num_forks = 2;
  Script script(200, draw());
  script[1] = fork;
  submit(1, script, 400);
  gate.let(8);
  sink_->wait_fork_begun(1, 1);
  engine_->instance().cancel({1, 1});
  gate.open();
  EXPECT_EQ(sink_->wait_done(1).error, "cancelled");
  EXPECT_EQ(sink_->wait_fork_done(1, 1).error, "cancelled");
}

TEST_P(ControlledStreamsTest, EndByTheirLength) {
  make_engine();
  Act first = draw();
  first.advance.appended = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  submit(1, {first}, 5);
  const auto one = sink_->wait_done(1);
  EXPECT_EQ(one.tokens, (std::vector<TokenId>{1, 2, 3, 4, 5}));
  EXPECT_EQ(one.finish, FinishReason::kLength);
}

TEST_P(ControlledStreamsTest, StopBeforeAToken) {
  make_engine();
  submit(1, {stop()});
  const auto one = sink_->wait_done(1);
  EXPECT_TRUE(one.tokens.empty());
  EXPECT_EQ(one.finish, FinishReason::kStop);
}

TEST_P(ControlledStreamsTest, ForkBeforeATokenIsChosen) {
  make_engine();
  Act fork = draw(only({1}));
  fork.advance.num_forks = 4;
  runtime_->forks = {
      {draw(only({2})), draw()}, {draw(only({3})), draw()}, {draw(only({4})), draw()}};
  submit(1, {draw(), fork, draw(), stop()});
  const TokenId first = after({}, 1)[0];
  EXPECT_EQ(sink_->wait_done(1).tokens, (std::vector<TokenId>{first, 1, after({first, 1}, 1)[0]}));
  for (TokenId i = 1; i < 4; ++i) {
    const auto one = sink_->wait_fork_done(1, i);
    EXPECT_EQ(one.tokens, (std::vector<TokenId>{first, i + 1, after({first, i + 1}, 1)[0]}));
    EXPECT_EQ(one.forked_at, 1);
    EXPECT_EQ(one.fork_of, 0);
  }
  engine_.reset();
  EXPECT_EQ(runtime_->num_live(), 0U);
  EXPECT_EQ(runtime_->groups.at(1).size(), 4U);
}

TEST_P(ControlledStreamsTest, ForkByTheirChoice) {
  make_engine();
  Branch spliced{.samples = false, .splices = {{.num_dropped = 1, .appended = {30}}}};
  submit(1, {draw(),
             {.advance = {}, .choice = {.branches = {only({5}), only({6}), spliced}}},
             draw(only({9})),
             stop()});
  const TokenId first = after({}, 1)[0];
  EXPECT_EQ(sink_->wait_done(1).tokens, (std::vector<TokenId>{first, 5, 9}));
  EXPECT_EQ(sink_->wait_fork_done(1, 1).tokens, (std::vector<TokenId>{first, 6, 9}));
  EXPECT_EQ(sink_->wait_fork_done(1, 2).tokens, (std::vector<TokenId>{30, 9}));
}

TEST_P(ControlledStreamsTest, ForksCountForTheStreamsOfTheirKey) {
  make_engine();
  AccountLimits limits;
  limits.max_streams = 3;
  const auto caller = std::make_shared<Caller>();
  caller->account = std::make_shared<Account>("ann", 1, limits);
  const auto run = [&](StreamId id, int num_forks) {
    Act fork = draw();
    fork.advance.num_forks = num_forks;
    runtime_->requests[std::to_string(id)] = {draw(), fork, draw(), stop()};
    Request request = plain(id, 40);
    request.caller = caller;
    request.controller = std::make_shared<aici::Instance>(runtime_, std::to_string(id));
    EXPECT_TRUE(caller->account->begin(0).ok());
    EXPECT_TRUE(engine_->instance().submit(std::move(request)).ok());
    return sink_->wait_done(id).error;
  };
  const std::string error = run(1, 4);
  EXPECT_NE(error.find("3 streams of the key 'ann' are under way"), std::string::npos) << error;
  caller->account->ended(1);
  EXPECT_EQ(run(2, 3), "") << "what was refused has taken no place";
  sink_->wait_fork_done(2, 1);
  sink_->wait_fork_done(2, 2);
  EXPECT_FALSE(caller->account->begin(0).ok()) << "all three are taken";
}

// The last of the tokens that the fork shares comes before it.
TEST_P(ControlledStreamsTest, ForkBehindTokensThatWerePut) {
  make_engine();
  submit(1, {splice(0, {11, 12}),
             {.advance = {}, .choice = {.branches = {only({5}), only({6})}}},
             stop()});
  EXPECT_EQ(sink_->wait_done(1).tokens, (std::vector<TokenId>{11, 12, 5}));
  const auto fork = sink_->wait_fork_done(1, 1);
  EXPECT_EQ(fork.tokens, (std::vector<TokenId>{11, 12, 6}));
  EXPECT_FALSE(fork.event_after_end);
}

TEST_P(ControlledStreamsTest, WaitWithoutHoldingUpOthers) {
  make_engine();
  runtime_->on_threads = true;
  Act suspend{.advance = {.kind = Advance::Kind::kSuspend}, .choice = {}};
  submit(1, {draw(only({1})), suspend, draw(only({2})), stop()});
  submit_plain(2, 300);
  EXPECT_EQ(sink_->wait_done(1).tokens, (std::vector<TokenId>{1, 2}));
  EXPECT_EQ(sink_->wait_done(2).tokens, after({}, 300));
}

// Nothing is answered until the other stream has ended.
TEST_P(ControlledStreamsTest, AreNotWaitedForByStepsWithoutThem) {
  make_engine();
  runtime_->close();
  submit(1, {draw(only({1})), draw(only({2})), stop()});
  submit_plain(2, 300);
  EXPECT_EQ(sink_->wait_done(2).tokens, after({}, 300));
  EXPECT_EQ(engine_->stats().num_masks, 0);
  EXPECT_EQ(engine_->stats().mask_wait_us, 0);
  runtime_->open();
  EXPECT_EQ(sink_->wait_done(1).tokens, (std::vector<TokenId>{1, 2}));
  EXPECT_EQ(engine_->stats().num_masks, 2);
  EXPECT_EQ(engine_->stats().num_late_masks, 0);
}

TEST_P(ControlledStreamsTest, FailAlone) {
  make_engine();
  Act in_advance{.advance = {.kind = Advance::Kind::kFail, .error = "no way"}, .choice = {}};
  Act in_choice{.advance = {}, .choice = {.kind = Choice::Kind::kFail, .error = "no choice"}};
  submit(1, {draw(only({1})), in_advance});
  submit(2, {draw(only({1})), in_choice});
  submit(3, {draw(only({1})), splice(100, {})});
  submit(4, {draw(only({1})), splice(0, {kControlledVocab})});
  submit_plain(5, 30);
  EXPECT_EQ(sink_->wait_done(1).error, "no way");
  EXPECT_EQ(sink_->wait_done(2).error, "no choice");
  EXPECT_NE(sink_->wait_done(3).error, "");
  EXPECT_NE(sink_->wait_done(4).error, "");
  for (StreamId id = 1; id < 5; ++id) {
    EXPECT_EQ(sink_->wait_done(id).tokens, std::vector<TokenId>{1}) << id;
  }
  EXPECT_EQ(sink_->wait_done(5).tokens, after({}, 30));
}

TEST_P(ControlledStreamsTest, FailWhereTheyPutAndDropForEver) {
  make_engine();
  Script script;
  for (int i = 0; i < 5000; ++i) {
    script.push_back(splice(0, {5}));
    script.push_back(splice(1, {}));
  }
  submit(1, std::move(script));
  EXPECT_THAT(sink_->wait_done(1).error, ::testing::HasSubstr("allowed are 1000 and 8"));
}

TEST_P(ControlledStreamsTest, AreFreedByCancelsAndStops) {
  make_engine(kNotWaited);
  StepGate gate(steps_);
  submit(1, Script(100, draw()), 100);
  submit(2, Script(100, draw()), 100);
  gate.let(20);
  sink_->wait_tokens(1, 2);
  runtime_->close();  // so that they wait for ever
  engine_->instance().cancel({1, 1});
  gate.open();
  EXPECT_EQ(sink_->wait_done(1).error, "cancelled");
  engine_->stop(30);
  EXPECT_NE(sink_->wait_done(2).error, "");
  {
    Request late = plain(3, 5);
    late.controller = std::make_shared<aici::Instance>(runtime_, "3");
    EXPECT_FALSE(engine_->instance().submit(std::move(late)).ok());
  }
  EXPECT_TRUE(runtime_->discarded.contains("3"));
}

// Nobody sends a command any more once the last one has ended so.
TEST_P(ControlledStreamsTest, EndAnEngineThatStopsByTheirChoice) {
  make_engine(kNotWaited);
  StepGate gate(steps_);
  Script script(10, draw(only({1})));
  script.push_back({.advance = {}, .choice = {.kind = Choice::Kind::kFail, .error = "no choice"}});
  submit(1, std::move(script), 40, true);
  gate.let(5);
  sink_->wait_tokens(1, 1);
  runtime_->close();
  gate.open();
  std::thread stop([&] { engine_->stop(600'000); });
  EXPECT_FALSE(sink_->wait_notice(1).notices.empty()) << "that the engine stops";
  runtime_->open();
  stop.join();
  EXPECT_EQ(sink_->wait_done(1).error, "no choice");
}

}  // namespace
}  // namespace lmtp::engine
