// Controllers that do whatever comes to their mind, in streams beside others that have none: each
// stream, forks too, gets token by token what a naive model says, reports say what became of it,
// and the engine and the other streams go on.
#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "counting.h"
#include "eventually.h"
#include "fake_agent.h"
#include "lmtp/aici/instance.h"
#include "lmtp/aici/runtime.h"
#include "lmtp/engine/engine.h"
#include "recording_sink.h"

namespace lmtp::engine {
namespace {

using aici::Advance;
using aici::Branch;
using aici::Choice;
using aici::Splice;
using testing::counting;
using testing::FakeAgent;
using testing::RecordingSink;

constexpr int kRandomVocab = 50;
constexpr int kPromptLength = 20;
constexpr int kChoicesMax = 20;  // of a sequence, then it stops
constexpr int kForksMax = 5;     // of a request

// How a sequence has ended by its controller.
struct Ending {
  std::vector<TokenId> tokens;
  bool fails = false;
  auto operator<=>(const Ending&) const = default;
};

class RandomRuntime : public aici::Runtime {
 public:
  RandomRuntime(unsigned seed, bool on_thread) : random_(seed) {
    if (on_thread) thread_ = std::thread([this] { work(); });
  }
  ~RandomRuntime() override {
    {
      const std::lock_guard lock(mutex_);
      is_ending_ = true;
    }
    has_answers_.notify_all();
    if (thread_.joinable()) thread_.join();
  }

  void upload(std::string, aici::Auth, Done<Result<aici::ModuleInfo>>) override {}
  void set_tags(std::string, std::vector<std::string>, aici::Auth,
                Done<Result<std::vector<aici::TagInfo>>>) override {}
  void get_tags(aici::Auth, Done<Result<std::vector<aici::TagInfo>>>) override {}
  void instantiate(aici::InstantiateRequest, Done<Result<aici::Instantiated>>) override {}
  void discard(const std::string&) override {}

  void bind(const std::string& request_id, aici::Sequence sequence) override {
    const std::lock_guard lock(mutex_);
    live_[sequence] = {.request = std::stoi(request_id)};
  }
  void advance(aici::Sequence sequence, aici::Report report, Done<Advance> done) override {
    const std::lock_guard lock(mutex_);
    Live& live = live_.at(sequence);
    check(live, report);
    answer([done = std::move(done), given = next_advance(live)] { done(given); });
  }
  void choose(aici::Sequence sequence, std::vector<aici::Sequence>, Done<Choice> done) override {
    const std::lock_guard lock(mutex_);
    Live& live = live_.at(sequence);
    EXPECT_TRUE(live.branches.empty()) << "it is asked before it has reported";
    answer([done = std::move(done), given = next_choice(live)] { done(given); });
  }
  void fork(aici::Sequence parent, std::vector<aici::Sequence> children) override {
    const std::lock_guard lock(mutex_);
    Live& from = live_.at(parent);
    num_forks_[from.request] += static_cast<int>(children.size());
    for (std::size_t i = 0; i < children.size(); ++i) {
      Live child = from;
      if (!from.branches.empty()) child.branches = {from.branches.at(i + 1)};
      live_[children[i]] = std::move(child);
    }
    if (!from.branches.empty()) from.branches.resize(1);
  }
  void free(aici::Sequence sequence) override {
    const std::lock_guard lock(mutex_);
    EXPECT_EQ(live_.erase(sequence), 1U);
  }

  std::size_t num_live() {
    const std::lock_guard lock(mutex_);
    return live_.size();
  }
  int num_forks(int request) {
    const std::lock_guard lock(mutex_);
    return num_forks_[request];
  }
  std::vector<Ending> endings(int request) {
    const std::lock_guard lock(mutex_);
    return endings_[request];
  }
  int num_restored() {
    const std::lock_guard lock(mutex_);
    return num_restored_;
  }

 private:
  struct Live {
    int request = 0;
    std::vector<TokenId> tokens = {};   // generated ones
    std::vector<Branch> branches = {};  // of the last choice; the first is the sequence's
    int num_choices = 0;
  };

  int below(int limit) { return static_cast<int>(random_() % static_cast<unsigned>(limit)); }
  bool one_in(int chances) { return below(chances) == 0; }
  std::vector<TokenId> some_tokens(int most) {
    std::vector<TokenId> tokens(static_cast<std::size_t>(below(most + 1)));
    for (TokenId& token : tokens) token = below(kRandomVocab);
    return tokens;
  }
  // Beside the sequence itself.
  int some_forks(int request) {
    int& num = num_wanted_[request];
    const int more = one_in(8) ? below(kForksMax - num + 1) : 0;
    num += more;
    return more;
  }

  static bool allows(const Branch& branch, TokenId token) {
    const auto at = static_cast<std::size_t>(token);
    return branch.mask.empty() || (branch.mask[at / 32] >> (at % 32) & 1U) != 0;
  }

  // What became of its branch.
  void check(Live& live, const aici::Report& report) {
    aici::Report expected;
    if (!live.branches.empty()) {
      const Branch branch = std::exchange(live.branches, {}).front();
      expected = expected_of(live, branch);
    }
    EXPECT_EQ(report.sampled, expected.sampled);
    EXPECT_EQ(report.num_dropped, expected.num_dropped);
    EXPECT_EQ(report.appended, expected.appended);
    const std::vector<TokenId> before = live.tokens;
    const auto dropped = std::min(live.tokens.size(), static_cast<std::size_t>(report.num_dropped));
    live.tokens.resize(live.tokens.size() - dropped);
    live.tokens.insert(live.tokens.end(), report.appended.begin(), report.appended.end());
    const bool was_asked = report.sampled || dropped > 0;
    num_restored_ += was_asked && live.tokens == before ? 1 : 0;
  }
  static aici::Report expected_of(const Live& live, const Branch& branch) {
    if (!branch.samples) {
      const Splice& only = branch.splices.front();
      return {.num_dropped = only.num_dropped, .appended = only.appended};
    }
    std::vector<TokenId> prefix = counting(0, kPromptLength);
    prefix.insert(prefix.end(), live.tokens.begin(), live.tokens.end());
    TokenId drawn = FakeAgent::expected_tokens(prefix, 1, kRandomVocab).front();
    while (!allows(branch, drawn)) drawn = (drawn + 1) % kRandomVocab;
    for (const Splice& splice : branch.splices) {
      const auto& when = splice.when_sampled;
      if (!when.empty() && std::ranges::find(when, drawn) == when.end()) continue;
      aici::Report report{
          .sampled = drawn, .num_dropped = splice.num_dropped, .appended = splice.appended};
      if (splice.keeps_sampled) report.appended.insert(report.appended.begin(), drawn);
      return report;
    }
    return {.sampled = drawn, .num_dropped = 0, .appended = {drawn}};
  }

  void end(const Live& live, bool fails) {
    endings_[live.request].push_back({fails ? std::vector<TokenId>{} : live.tokens, fails});
  }

  Advance next_advance(Live& live) {
    Advance advance;
    if (live.num_choices >= kChoicesMax || one_in(30)) {
      advance.kind = Advance::Kind::kStop;
    } else if (one_in(60)) {
      advance = {.kind = Advance::Kind::kFail, .error = "no more"};
    } else if (one_in(20)) {
      advance.kind = Advance::Kind::kSuspend;
    } else {
      advance.num_forks = 1 + some_forks(live.request);
    }
    const bool ends = advance.kind == Advance::Kind::kStop || advance.kind == Advance::Kind::kFail;
    if (ends) {
      end(live, advance.kind == Advance::Kind::kFail);
      return advance;
    }
    if (one_in(4)) advance.appended = some_tokens(4);
    live.tokens.insert(live.tokens.end(), advance.appended.begin(), advance.appended.end());
    return advance;
  }

  Choice next_choice(Live& live) {
    ++live.num_choices;
    Choice choice;
    if (one_in(50)) {
      choice = {.kind = Choice::Kind::kFail, .error = "no choice"};
      end(live, true);
    } else if (one_in(50)) {
      choice.kind = Choice::Kind::kStop;
      end(live, false);
    } else if (one_in(30)) {
      choice.kind = Choice::Kind::kSuspend;
    } else {
      for (int more = some_forks(live.request); more >= 0; --more) {
        choice.branches.push_back(next_branch(live));
      }
      live.branches = choice.branches;
    }
    return choice;
  }

  Branch next_branch(const Live& live) {
    if (one_in(4)) return {.samples = false, .splices = {next_splice(live)}};
    Branch branch;
    if (one_in(4)) branch.temperature = 0.5F * static_cast<float>(below(2));
    if (!one_in(3)) {
      branch.mask.resize((kRandomVocab + 31) / 32);
      for (int num = 1 + below(6); num > 0; --num) {
        const auto token = static_cast<std::size_t>(below(kRandomVocab));
        branch.mask[token / 32] |= 1U << (token % 32);
      }
    }
    for (int num = below(3); num > 0; --num) {
      Splice splice = next_splice(live);
      if (one_in(2)) splice.when_sampled = some_tokens(20);
      splice.keeps_sampled = splice.num_dropped == 0 && one_in(2);
      branch.splices.push_back(std::move(splice));
    }
    return branch;
  }
  // One in three restores what was there: the token that is drawn is rejected, or others are put
  // in the place of equal ones.
  Splice next_splice(const Live& live) {
    const int most = static_cast<int>(std::min<std::size_t>(live.tokens.size(), 20));
    Splice splice{.num_dropped = below(most + 1)};
    if (one_in(3)) {
      splice.appended.assign(live.tokens.end() - splice.num_dropped, live.tokens.end());
    } else {
      splice.appended = some_tokens(4);
    }
    return splice;
  }

  // At once where it has no thread: the engine's calls do not come back from there.
  void answer(std::function<void()> call) {
    if (!thread_.joinable()) return call();
    answers_.push_back(std::move(call));
    has_answers_.notify_one();
  }

  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      has_answers_.wait(lock, [this] { return is_ending_ || !answers_.empty(); });
      if (answers_.empty()) return;
      const auto call = std::move(answers_.front());
      answers_.pop_front();
      lock.unlock();
      call();
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::mt19937 random_;
  std::map<aici::Sequence, Live> live_;
  std::map<int, int> num_wanted_;  // forks by request
  std::map<int, int> num_forks_;   // those that were made
  std::map<int, std::vector<Ending>> endings_;
  int num_restored_ = 0;
  bool is_ending_ = false;
  std::deque<std::function<void()>> answers_;
  std::condition_variable has_answers_;
  std::thread thread_;
};

// Whether the agent runs ahead, and whether answers come on another thread, for which no step
// waits.
using Where = std::tuple<bool, bool>;

class RandomControllersTest : public ::testing::TestWithParam<Where> {
 protected:
  static constexpr StreamId kControlled = 8;
  static constexpr StreamId kPlain = 4;
  static constexpr int kPlainTokens = 200;

  // The blocks of plain streams are their own.
  static std::vector<TokenId> prompt_of(StreamId id) {
    return counting(id < kControlled ? 0 : static_cast<int>(id), kPromptLength);
  }

  void run_round(unsigned seed) {
    const auto [runs_ahead, on_thread] = GetParam();
    const auto runtime = std::make_shared<RandomRuntime>(seed, on_thread);
    const auto sink = std::make_shared<RecordingSink>();
    testing::FakeAgentOptions agent;
    agent.vocab_size = kRandomVocab;
    agent.num_blocks = seed % 2 == 0 ? 400 : 20;
    agent.runs_ahead = runs_ahead;
    EngineOptions options;
    options.debug.check_invariants = true;
    options.mask_wait_ms = on_thread ? 0 : 60'000;
    const ModelLimits limits{.vocab_size = kRandomVocab, .context_length = 256, .eos_ids = {}};
    Engine engine(testing::make_fake_agent(agent), limits, options);
    std::vector<Request> requests;
    for (StreamId id = 0; id < kControlled + kPlain; ++id) {
      Request& request = requests.emplace_back();
      request.key = {1, id};
      request.sink = sink;
      request.prompt = prompt_of(id);
      request.params.max_tokens = id < kControlled ? 230 : kPlainTokens;
      if (id < kControlled) {
        request.controller = std::make_shared<aici::Instance>(runtime, std::to_string(id));
      }
    }
    EXPECT_TRUE(engine.instance().submit_all(requests));
    EXPECT_TRUE(engine.instance().cancel({1, 0}));
    for (StreamId id = 0; id < kControlled + kPlain; ++id) EXPECT_TRUE(sink->wait_done(id).done);
    EXPECT_TRUE(testing::eventually([&] { return runtime->num_live() == 0; }));
    for (StreamId id = 0; id < kControlled; ++id) {
      SCOPED_TRACE("stream " + std::to_string(id));
      check_stream(*runtime, *sink, id);
    }
    for (StreamId id = kControlled; id < kControlled + kPlain; ++id) {
      const auto expected = FakeAgent::expected_tokens(prompt_of(id), kPlainTokens, kRandomVocab);
      EXPECT_EQ(sink->wait_done(id).tokens, expected) << id;
    }
    EXPECT_EQ(engine.stats().num_failed_steps, 0);
    num_restored_ += runtime->num_restored();
    num_preemptions_ += engine.stats().num_preemptions;
  }

  void check_stream(RandomRuntime& runtime, RecordingSink& sink, StreamId id) {
    const int num_forks = runtime.num_forks(static_cast<int>(id));
    num_forks_ += num_forks;
    std::vector<Ending> got;
    for (int sample = 0; sample <= num_forks; ++sample) {
      const auto one = sample == 0 ? sink.wait_done(id) : sink.wait_fork_done(id, sample);
      EXPECT_EQ(one.num_ends, 1);
      EXPECT_FALSE(one.event_after_end);
      const bool fails = !one.error.empty();
      if (one.error == "cancelled") {
        EXPECT_EQ(id, 0);
        continue;
      }
      got.push_back({fails ? std::vector<TokenId>{} : one.tokens, fails});
    }
    std::vector<Ending> expected = runtime.endings(static_cast<int>(id));
    if (id == 0) return;  // what was wanted as it was cancelled is not done
    std::ranges::sort(got);
    std::ranges::sort(expected);
    EXPECT_EQ(got.size(), expected.size());
    EXPECT_TRUE(got == expected);
  }

  int num_restored_ = 0;
  int num_forks_ = 0;
  std::int64_t num_preemptions_ = 0;
};

INSTANTIATE_TEST_SUITE_P(Agents, RandomControllersTest,
                         ::testing::Combine(::testing::Bool(), ::testing::Bool()));

TEST_P(RandomControllersTest, GetWhatTheyWantAndHarmNobody) {
  constexpr unsigned kRounds = 12;
  for (unsigned seed = 0; seed < kRounds && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    run_round(seed);
  }
  EXPECT_GT(num_restored_, 100);
  EXPECT_GT(num_forks_, 20);
  EXPECT_GT(num_preemptions_, 0);
}

}  // namespace
}  // namespace lmtp::engine
