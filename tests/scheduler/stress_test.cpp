// Random operations on scheduler, cache and pool: whatever happens, every stream gets, event by
// event, what a naive model says that it gets alone, and after each operation no block has leaked
// (Scheduler::check_invariants). The fake agent aborts where a block does not hold what it should.
// Where all log probabilities find a place, a Score gets at once what was reported before.
//
// A new operation is a function and a line in operations(). LMTP_OPERATIONS sets how many are drawn
// in all cases together, LMTP_SEED the first case's seed.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "scheduler_driver.h"
#include "stress_cases.h"

namespace lmtp::scheduler {
namespace {

using testing::FakeAgent;
using testing::FakeAgentOptions;
using testing::SchedulerDriver;

constexpr int kStressVocab = 3;  // few tokens: prefixes collide all the time
constexpr int kStreamsMax = 40;
constexpr int kAdapters = 40;

class StressTest : public ::testing::TestWithParam<std::size_t> {
 protected:
  struct Operation {
    const char* name;
    int weight;
    // False: there was nothing to do it to.
    bool (StressTest::*run)();
  };

  static const auto& operations() {
    static const std::array table = {
        Operation{"step", 60, &StressTest::step},
        Operation{"generate", 9, &StressTest::generate},
        Operation{"score", 4, &StressTest::score},
        Operation{"cancel", 4, &StressTest::cancel},
        Operation{"evict", 1, &StressTest::evict},
        Operation{"preempt", 2, &StressTest::preempt},
        Operation{"append", 4, &StressTest::append},
        Operation{"truncate", 5, &StressTest::truncate},
        Operation{"backtrack", 3, &StressTest::backtrack},
        Operation{"fork", 4, &StressTest::fork},
        Operation{"hold", 3, &StressTest::hold},
        Operation{"release", 3, &StressTest::release},
        Operation{"suspend", 2, &StressTest::suspend},
        Operation{"resume", 2, &StressTest::resume},
        Operation{"replace", 1, &StressTest::replace},
    };
    return table;
  }

  static const Case& shape() { return kCases[GetParam()]; }

  static std::int64_t score_cache_bytes() {
    return kScoreCacheBytes[GetParam() % kScoreCacheBytes.size()];
  }
  static bool keeps_all_scores() { return score_cache_bytes() == kScoreCacheBytes.back(); }

  static FakeAgentOptions agent_options() {
    FakeAgentOptions agent;
    agent.vocab_size = kStressVocab;
    agent.num_blocks = shape().num_blocks;
    agent.num_host_blocks = shape().num_host_blocks;
    agent.kv_layout =
        testing::windowed_layout(shape().windows, shape().max_batched_tokens, shape().has_stubs);
    agent.runs_ahead = shape().runs_ahead;
    agent.row_fails = [](const SlotState& state) {
      return state.key.stream % 17 == 0 && state.tokens.size() % 13 == 2;
    };
    agent.fails_in_forward = GetParam() % 2 == 1;
    auto num_steps = std::make_shared<int>(0);
    agent.before_step = [num_steps](const StepPlan&) -> Result<void> {
      if (++*num_steps % 97 == 0) return Error{ErrorCode::kInternal, "a step that fails"};
      return {};
    };
    return agent;
  }

  static SchedulerOptions scheduler_options() {
    SchedulerOptions options;
    options.vocab_size = kStressVocab;
    options.context_length = shape().context_length;
    options.batch.max_tokens = shape().max_batched_tokens;
    options.batch.max_adapters = 3;
    options.score_cache_bytes = score_cache_bytes();
    options.max_drafts = shape().max_drafts;
    options.debug.eager_drafts = true;
    return options;
  }

  // In [0, limit).
  int below(int limit) { return static_cast<int>(random_() % static_cast<unsigned>(limit)); }
  Scheduler& scheduler() { return driver_.scheduler(); }

  static StreamKey key_of(StreamId id) { return {static_cast<ConnectionId>(1 + id % 3), id}; }

  // Any that is live; sometimes one that is not: 0.
  StreamId any_stream() {
    if (streams_.empty() || below(20) == 0) return 0;
    auto at = streams_.begin();
    std::advance(at, below(static_cast<int>(streams_.size())));
    return at->first;
  }

  std::vector<TokenId> random_tokens(int count) {
    std::vector<TokenId> tokens;
    for (int i = 0; i < count; ++i) tokens.push_back(below(kStressVocab));
    return tokens;
  }

  // The beginning of a text that was, and a few more tokens; at most half a context.
  std::vector<TokenId> random_prompt() {
    const auto half = static_cast<std::size_t>(shape().context_length / 2);
    std::vector<TokenId> prompt = texts_[static_cast<std::size_t>(below(64))];
    const int longest = static_cast<int>(std::min(prompt.size(), half));
    prompt.resize(static_cast<std::size_t>(1 + below(longest)));
    for (const TokenId token : random_tokens(below(20))) prompt.push_back(token);
    prompt.resize(std::min(prompt.size(), half));
    return prompt;
  }

  std::shared_ptr<const Adapter> new_adapter() {
    return testing::fake_adapter("adapter " + std::to_string(++num_adapters_),
                                 shape().adapter_blocks);
  }
  std::shared_ptr<const Adapter> any_adapter() {
    if (shape().adapter_blocks == 0 || below(4) == 0) return nullptr;
    auto& adapter = adapters_[static_cast<std::size_t>(below(kAdapters))];
    if (adapter == nullptr) adapter = new_adapter();
    return adapter;
  }
  // It is served no more: its streams go on, and another one has its name.
  bool replace() {
    if (shape().adapter_blocks == 0) return true;
    adapters_[static_cast<std::size_t>(below(kAdapters))] = new_adapter();
    return true;
  }

  NaiveStream& begin(RequestKind kind, const std::vector<TokenId>& prompt) {
    NaiveStream& stream = streams_[++last_id_];
    stream = {.kind = kind, .text = prompt, .num_prompt = static_cast<int>(prompt.size())};
    stream.adapter = any_adapter();
    return stream;
  }

  static void clamp(NaiveStream& stream) {
    stream.num_generated_max =
        std::min(stream.max_tokens, shape().context_length - stream.num_prompt);
  }

  bool generate(std::vector<TokenId> prompt, int max_tokens) {
    if (static_cast<int>(streams_.size()) >= kStreamsMax) return false;
    NaiveStream& stream = begin(RequestKind::kGenerate, prompt);
    stream.max_tokens = max_tokens;
    clamp(stream);
    SamplingParams params;
    params.min_tokens = below(4) == 0 ? below(40) : 0;  // appended ones go one a step
    const StreamKey key = key_of(last_id_);
    driver_.generate(key.stream, std::move(prompt), max_tokens, key.connection, params,
                     stream.adapter);
    return true;
  }
  bool generate() { return generate(random_prompt(), 1 + below(40)); }
  bool evict() { return generate(random_tokens(shape().context_length - 1), 1); }

  // Tokens that are scored or generated already, of a text that was.
  void split_text(std::vector<TokenId>& prompt, std::vector<TokenId>& scored) {
    const std::vector<TokenId>& text = texts_[static_cast<std::size_t>(below(64))];
    const int size = static_cast<int>(text.size());
    const auto first = text.begin() + below(std::min(size, shape().context_length / 2));
    prompt.assign(text.begin(), first);
    scored.assign(first, first + std::min<std::ptrdiff_t>(1 + below(20), text.end() - first));
  }

  bool score() {
    if (static_cast<int>(streams_.size()) >= kStreamsMax) return false;
    std::vector<TokenId> prompt = random_prompt();
    if (below(8) == 0) prompt.clear();
    std::vector<TokenId> scored = random_tokens(1 + below(20));
    if (below(2) == 0) split_text(prompt, scored);
    NaiveStream& stream = begin(RequestKind::kScore, prompt);
    stream.text.insert(stream.text.end(), scored.begin(), scored.end());
    const StreamKey key = key_of(last_id_);
    const auto size = static_cast<int>(scored.size());
    const int least = num_known_of(stream, true);
    const int most = num_known_of(stream, false);
    if (!keeps_all_scores()) scheduler().set_recalls(below(40));
    driver_.score(key.stream, std::move(prompt), scored, key.connection, stream.adapter);
    if (!keeps_all_scores()) return true;
    const bool is_done = !streams_.contains(key.stream);
    EXPECT_TRUE(is_done ? most == size : least < size) << key.stream;
    if (!is_done) {
      EXPECT_GE(stream.num_reported, least) << key.stream;
      EXPECT_LE(stream.num_reported, most) << key.stream;
    }
    return true;
  }

  std::uint64_t prefix_of(const NaiveStream& stream, std::size_t num_tokens) const {
    std::uint64_t hash =
        std::hash<std::string>()(stream.adapter == nullptr ? "" : stream.adapter->name());
    for (std::size_t i = 0; i < num_tokens; ++i) {
      hash = (hash ^ static_cast<std::uint64_t>(stream.text[i] + 1)) * 0x9E3779B97F4A7C15ULL;
      hash ^= hash >> 29;
    }
    return hash;
  }
  // Of what it scores: nothing precedes the first token of an empty prompt, which is always known.
  int num_known_of(const NaiveStream& stream, bool is_certain) const {
    const auto first = static_cast<std::size_t>(stream.num_prompt);
    std::size_t end = std::max<std::size_t>(first, 1);
    for (; end < stream.text.size(); ++end) {
      const auto known = scores_.find(prefix_of(stream, end + 1));
      if (known == scores_.end()) break;
      if (is_certain && streams_.contains(known->second)) break;
    }
    return static_cast<int>(end - first);
  }
  // A stream that generates keeps those of its last block to itself until it ends.
  void note_score(StreamId id, const NaiveStream& stream, std::size_t num_tokens) {
    const StreamId keeper = stream.kind == RequestKind::kScore ? 0 : id;
    StreamId& known = scores_.emplace(prefix_of(stream, num_tokens), keeper).first->second;
    if (keeper == 0 && streams_.contains(known)) known = 0;
  }

  bool step() {
    StepLimits limits;
    if (below(4) == 0) limits = {.prefill = below(40), .cached = below(40), .alone = below(80)};
    if (below(4) == 0) limits.fetched = below(4);
    bool any = driver_.step(limits);
    for (int more = shape().runs_ahead ? below(6) : 0; more > 0; --more) any |= driver_.step();
    driver_.settle();
    return any;
  }

  bool cancel() {
    const StreamId id = any_stream();
    EXPECT_EQ(scheduler().remove(key_of(id)), streams_.erase(id) == 1);
    return id != 0;
  }

  // Where it runs, this is what a preemption does.
  bool preempt() {
    const StreamId id = any_stream();
    if (id == 0 || streams_.at(id).is_suspended) return false;
    EXPECT_TRUE(scheduler().suspend(key_of(id)));
    EXPECT_TRUE(scheduler().resume(key_of(id)));
    streams_.at(id).is_held = false;
    return true;
  }

  bool backtrack(StreamId id, int num_dropped, const std::vector<TokenId>& appended) {
    const Result<void> done = scheduler().backtrack(key_of(id), num_dropped, appended);
    const auto at = streams_.find(id);
    if (at == streams_.end()) {
      EXPECT_FALSE(done.ok()) << id;
      return false;
    }
    NaiveStream& stream = at->second;
    const int num_kept = std::max(0, stream.num_generated() - num_dropped);
    NaiveStream cut = stream;
    cut.num_prompt = std::min(stream.num_prompt, stream.length() - num_dropped);
    clamp(cut);
    const bool is_allowed = stream.kind == RequestKind::kGenerate &&
                            num_dropped < stream.length() &&
                            num_kept + static_cast<int>(appended.size()) < cut.num_generated_max;
    EXPECT_EQ(done.ok(), is_allowed) << id << " drop " << num_dropped;
    if (!is_allowed) return false;
    const int length = stream.length() - num_dropped;
    stream.num_backtracked += std::max(0, stream.num_prompt + stream.num_reported - length);
    stream.text.resize(static_cast<std::size_t>(length));
    stream.forced_end = std::min(stream.forced_end, stream.text.size());
    stream.num_prompt = std::min(stream.num_prompt, length);
    clamp(stream);
    stream.num_reported = std::min(stream.num_reported, length - stream.num_prompt);
    stream.text.insert(stream.text.end(), appended.begin(), appended.end());
    return true;
  }
  bool append() { return backtrack(any_stream(), 0, random_tokens(1 + below(24))); }
  bool truncate() { return backtrack(any_stream(), num_to_drop(), {}); }
  bool backtrack() { return backtrack(any_stream(), num_to_drop(), random_tokens(1 + below(20))); }
  int num_to_drop() { return below(8) == 0 ? below(100) : 1 + below(20); }

  bool fork() {
    const StreamId from = any_stream();
    if (static_cast<int>(streams_.size()) >= kStreamsMax) return false;
    const StreamId live = below(20) == 0 ? any_stream() : 0;
    const StreamId to = live != 0 ? live : last_id_ + 1;
    const Result<ForkBegun> done = scheduler().fork(key_of(from), key_of(to));
    const auto at = streams_.find(from);
    const bool is_allowed = at != streams_.end() && at->second.kind == RequestKind::kGenerate &&
                            !streams_.contains(to) && at->second.num_forks < Scheduler::kMaxForks;
    EXPECT_EQ(done.ok(), is_allowed) << from << " into " << to;
    if (!is_allowed) return false;
    ++at->second.num_forks;
    NaiveStream copy = at->second;
    copy.num_forks = 0;
    copy.num_backtracked = 0;
    copy.is_suspended = copy.is_held = false;
    clamp(copy);
    streams_[to] = std::move(copy);
    last_id_ = std::max(last_id_, to);
    return true;
  }

  bool hold() {
    const StreamId id = any_stream();
    if (id == 0 || streams_.at(id).is_suspended) return false;
    scheduler().hold(key_of(id));
    streams_.at(id).is_held = true;
    return true;
  }
  bool release() {
    const auto at =
        std::ranges::find_if(streams_, [](const auto& stream) { return stream.second.is_held; });
    if (at == streams_.end()) return false;
    scheduler().release(key_of(at->first));
    at->second.is_held = false;
    return true;
  }
  bool suspend() {
    const StreamId id = any_stream();
    EXPECT_EQ(scheduler().suspend(key_of(id)).ok(), id != 0);
    if (id != 0) streams_.at(id).is_suspended = true;
    if (id != 0) streams_.at(id).is_held = false;
    return id != 0;
  }
  bool resume() {
    const auto at = std::ranges::find_if(
        streams_, [](const auto& stream) { return stream.second.is_suspended; });
    const StreamId id = at != streams_.end() ? at->first : any_stream();
    EXPECT_EQ(scheduler().resume(key_of(id)).ok(), id != 0);
    if (id != 0) streams_.at(id).is_suspended = false;
    return id != 0;
  }

  // What was generated becomes a prompt, as LMQL does.
  void end(StreamId id) {
    texts_[static_cast<std::size_t>(below(64))] = streams_.at(id).text;
    streams_.erase(id);
  }

  void check(const SchedulerEvent& event) {
    const auto at = streams_.find(event.key.stream);
    ASSERT_NE(at, streams_.end()) << event.key.stream << ": an event after the last one";
    NaiveStream& stream = at->second;
    ASSERT_FALSE(stream.is_suspended || stream.is_held) << at->first;
    const auto* token = std::get_if<TokenEvent>(&event.entry);
    if (token == nullptr) {
      ++num_failed_;
      return end(at->first);
    }
    ASSERT_EQ(token->num_backtracked, std::exchange(stream.num_backtracked, 0)) << at->first;
    const auto next = static_cast<std::size_t>(stream.num_prompt + stream.num_reported++);
    const std::vector<TokenId> before(stream.text.begin(),
                                      stream.text.begin() + static_cast<std::ptrdiff_t>(next));
    const bool is_known = next < stream.text.size();
    const Adapter* adapter = stream.adapter.get();
    if (!is_known) {
      stream.text.push_back(FakeAgent::expected_tokens(before, 1, kStressVocab, -1, adapter)[0]);
    }
    ASSERT_EQ(token->token, stream.text[next]) << at->first;
    if (!before.empty()) {
      ASSERT_EQ(token->logprob, FakeAgent::logprob_after(before, token->token, adapter))
          << at->first;
    }
    if (!before.empty()) note_score(at->first, stream, next + 1);
    const bool scores = stream.kind == RequestKind::kScore;
    const bool is_forced = is_known && !scores && next < stream.forced_end;
    ASSERT_EQ(token->is_forced, is_forced) << at->first;
    ASSERT_EQ(token->is_appended, is_known && !scores && !is_forced) << at->first;
    const bool ends = scores ? next + 1 == stream.text.size()
                             : !is_known && stream.num_generated() == stream.num_generated_max;
    const FinishReason last = scores ? FinishReason::kStop : FinishReason::kLength;
    ASSERT_EQ(token->finish_reason, ends ? last : FinishReason::kNone) << at->first;
    ++num_events_;
    num_generated_ += scores || token->is_appended ? 0 : 1;
    if (ends) return end(at->first);
    if (!is_known && !scores) take_forced(stream);
  }

  // Of some rows that draw, what follows is certain. Streams of which that is said have no drafts.
  void force(const StepPlan& plan, StepResult& result) {
    for (std::size_t i = 0; i < plan.rows.size(); ++i) {
      const Sequence* const sequence = scheduler().sequence_of(plan, i);
      if (sequence == nullptr || !plan.rows[i].draws() || below(8) != 0) continue;
      if (plan.rows[i].num_drafts > 0) continue;
      result.rows[i].forced = random_tokens(1 + below(20));
      streams_.at(sequence->key.stream).forced = result.rows[i].forced;
    }
  }

  // One at least is drawn behind them.
  void take_forced(NaiveStream& stream) {
    const int room = stream.num_generated_max - stream.num_generated() - 1;
    stream.forced.resize(std::min(stream.forced.size(), static_cast<std::size_t>(room)));
    stream.text.insert(stream.text.end(), stream.forced.begin(), stream.forced.end());
    if (!stream.forced.empty()) stream.forced_end = stream.text.size();
    num_forced_ += static_cast<std::int64_t>(std::exchange(stream.forced, {}).size());
  }

  const unsigned seed_ =
      static_cast<unsigned>(from_environment("LMTP_SEED", 1)) + static_cast<unsigned>(GetParam());
  std::mt19937 random_{seed_};
  SchedulerDriver driver_{agent_options(), scheduler_options()};
  std::map<StreamId, NaiveStream> streams_;
  std::vector<std::vector<TokenId>> texts_{64, {0}};
  std::array<std::shared_ptr<const Adapter>, kAdapters> adapters_;
  // Of what was reported, the prefixes with their tokens, and the stream that may have it alone.
  std::unordered_map<std::uint64_t, StreamId> scores_;
  int num_adapters_ = 0;
  StreamId last_id_ = 0;
  int num_events_ = 0;
  int num_failed_ = 0;
  std::int64_t num_forced_ = 0;
  std::int64_t num_generated_ = 0;  // of those forced, those that were reported as well
};

TEST_P(StressTest, EveryStreamGetsWhatItWouldGetAlone) {
  constexpr int kOperationsInTests = 280'000;
  const int count =
      from_environment("LMTP_OPERATIONS", kOperationsInTests) / static_cast<int>(kCases.size());
  std::printf("%d operations, seed %u\n", count, seed_);
  SCOPED_TRACE("LMTP_SEED for this case: " + std::to_string(seed_));
  driver_.set_on_event([this](const SchedulerEvent& event) { check(event); });
  driver_.set_on_result([this](const StepPlan& plan, StepResult& result) { force(plan, result); });
  std::vector<int> weights;
  for (const Operation& operation : operations()) weights.push_back(operation.weight);
  std::discrete_distribution<std::size_t> which(weights.begin(), weights.end());
  std::vector<int> num_done(weights.size());
  for (int i = 0; i < count && !HasFailure(); ++i) {
    const std::size_t drawn = which(random_);
    num_done[drawn] += (this->*operations()[drawn].run)() ? 1 : 0;
    scheduler().check_invariants();
    for (const auto& [id, stream] : streams_) {
      expect_held(*scheduler().sequence(key_of(id)), shape());
    }
    if (i % 256 == 0) scheduler().score_cache().check_invariants();
  }
  while (resume() || release()) {
  }
  for (auto& [id, stream] : streams_) {
    if (stream.is_suspended) ADD_FAILURE() << id;
  }
  driver_.run();
  EXPECT_TRUE(streams_.empty());
  EXPECT_EQ(scheduler().pool().num_pinned(), 0);
  EXPECT_EQ(scheduler().pool().num_adapter(), scheduler().pool().num_idle());
  if (shape().adapter_blocks > 0) {
    EXPECT_GT(scheduler().counters().num_adapter_loads, count / 100);
  }
  for (std::size_t i = 0; i < num_done.size(); ++i) {
    EXPECT_GT(num_done[i], 0) << operations()[i].name;
  }
  EXPECT_GT(num_failed_, 0);
  EXPECT_GT(num_forced_, 0);
  EXPECT_EQ(num_forced_, scheduler().counters().num_forced_tokens);
  EXPECT_EQ(num_generated_, scheduler().counters().num_generated_tokens);
  // A few are soon those of other adapters.
  if (score_cache_bytes() > 0 && (shape().adapter_blocks == 0 || keeps_all_scores())) {
    EXPECT_GT(scheduler().counters().num_cached_scores, 10);
  }
  if (keeps_all_scores()) {
    EXPECT_LT(scheduler().score_cache().num_bytes(), score_cache_bytes()) << "some were dropped";
  }
  EXPECT_GT(num_events_, count / 4);
  if (shape().num_blocks < 18) {  // with more it does not come in every run
    EXPECT_GT(scheduler().counters().num_preemptions, 0);
  }
  if (shape().num_host_blocks > 0) {
    EXPECT_GT(scheduler().counters().num_swapped_out, 100);
    EXPECT_GT(scheduler().counters().num_host_hits, shape().num_host_blocks > 1 ? 5 : 0);
  }
  EXPECT_EQ(scheduler().counters().num_accepted_drafts > 100, shape().max_drafts > 0);
  EXPECT_EQ(scheduler().counters().num_refused_drafts > 100, shape().max_drafts > 0);
  if (shape().runs_ahead) {
    EXPECT_GT(driver_.num_steps_ahead(), 100);
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, StressTest, ::testing::Range<std::size_t>(0, kCases.size()));

}  // namespace
}  // namespace lmtp::scheduler
