// A model agent without a model: its "KV cache" holds a hash of the tokens so far, so that it
// notices every block that was shared, copied, evicted or overwritten wrongly.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lmtp/base/check.h"
#include "lmtp/scheduler/model_agent.h"
#include "lmtp/scheduler/slot_table.h"
#include "step_gate.h"

namespace lmtp::testing {

// An adapter without weights: what it does to a stream follows from its name.
inline std::shared_ptr<const Adapter> fake_adapter(const std::string& name, int num_blocks) {
  class FakeAdapter : public Adapter {
   public:
    using Adapter::Adapter;
  };
  return std::make_shared<FakeAdapter>(name, num_blocks);
}

// The tokens of a stream that does not end while a test runs: each step checks all that came
// before, so that so many take hours.
inline constexpr int kEndless = 1'000'000;
inline constexpr int kEndlessContext = kEndless + 512;
// The cache for one, and for others beside it.
inline constexpr int kEndlessBlocks = kEndlessContext / kBlockSize + 128;

// Groups of layers with these windows after group 0, and steps of up to max_tokens. has_stubs: no
// layer sees all.
inline KvLayout windowed_layout(std::span<const int> windows, int max_tokens,
                                bool has_stubs = false) {
  KvLayout layout{
      .num_groups = 1, .windows = {}, .num_written_max = 2 * max_tokens, .has_stubs = has_stubs};
  for (const int window : windows) {
    if (window > 0) layout.windows[static_cast<std::size_t>(layout.num_groups++)] = window;
  }
  return layout;
}

struct FakeAgentOptions {
  int vocab_size = 1000;
  int num_blocks = 64;
  int num_host_blocks = 0;
  KvLayout kv_layout = {};
  std::chrono::nanoseconds fetch_time{0};
  std::chrono::nanoseconds device_wait{0};  // reported of each step
  TokenId eos_id = -1;                      // < 0: none
  bool runs_ahead = false;                  // as an agent of a device: see ModelAgent
  // Of all agents that are made with this and with copies of it: where a StepGate holds them.
  std::shared_ptr<StepLock> steps = std::make_shared<StepLock>();
  // Called at the start of each step, which no gate holds; an error fails the step.
  std::function<Result<void>(const scheduler::StepPlan&)> before_step;
  bool checks_cache = true;       // each block that is read holds what it should
  bool fails_in_forward = false;  // such an error is forward()'s; else collect()'s
  // Called behind it, with what runs in the slots.
  std::function<void(const scheduler::StepPlan&, const scheduler::SlotTable&)> on_step;
  // Called after a step that failed; empty: not lost.
  std::function<bool()> is_lost;
  // Rows for which this is true give the per-row error.
  std::function<bool(const scheduler::SlotState&)> row_fails;
};

class FakeAgent : public scheduler::ModelAgent {
 public:
  static constexpr float kEntropy = 1.5F;  // of each position, as kRank of its token
  static constexpr int kRank = 3;

  explicit FakeAgent(FakeAgentOptions options)
      : options_(std::move(options)),
        kv_(static_cast<std::size_t>(options_.num_blocks + options_.num_host_blocks) * kBlockSize,
            0) {}

  scheduler::AgentInfo info() const override {
    return {.device = "cpu",
            .dtype = "none",
            .num_blocks = options_.num_blocks,
            .kv_bytes = std::int64_t{options_.num_blocks} * kBlockSize * 8,
            .kv_layout = options_.kv_layout,
            .num_host_blocks = options_.num_host_blocks,
            .fetch_time = options_.fetch_time};
  }

  // A step is computed at once, also one ahead, as on a device's stream: after the writes of the
  // step before it, and before that step's commit.
  Result<void> forward(const scheduler::StepPlan& plan) override {
    try {
      return begin(plan);
    } catch (...) {
      slots_ = {};  // the next plan that is not ahead starts all that runs once more
      throw;
    }
  }
  // Under a mask, the next token that is allowed is drawn.
  Result<void> choose(std::span<const scheduler::RowMask> masks) override {
    if (masks.empty() || !under_way_.back().result) {
      is_forwarded_ = false;
      return {};
    }
    auto& rows = under_way_.back().result->rows;
    LMTP_CHECK(masks.size() == rows.size(), masks.size(), rows.size());
    for (std::size_t i = 0; i < rows.size(); ++i) {
      using State = scheduler::RowMask::State;
      if (rows[i].error) continue;
      if (masks[i].state == State::kFailed) rows[i].error = masks[i].error;
      if (masks[i].state == State::kReady) apply_mask(masks[i].words, i, rows[i]);
      rows[i].skipped = masks[i].state == State::kLate;
      rows[i].held = masks[i].state == State::kHeld;
      if (rows[i].held) rows[i].tokens.pop_back();
      if (rows[i].skipped) rows[i].tokens.clear();
    }
    is_forwarded_ = false;
    return {};
  }
  using ModelAgent::collect;
  Result<void> collect(scheduler::StepResult& result) override {
    try {
      if (Result<void> done = end(result); done) return done;
      const Error error = under_way_.front().result.error();
      forget();
      return error;
    } catch (...) {
      forget();
      throw;
    }
  }
  bool runs_ahead() const override { return options_.runs_ahead; }

  bool is_lost() const override { return options_.is_lost && options_.is_lost(); }

  // The tokens that a stream must get, whatever runs beside it: the reference for tests.
  static std::vector<TokenId> expected_tokens(std::vector<TokenId> prompt, int count,
                                              int vocab_size, TokenId eos_id = -1,
                                              const Adapter* adapter = nullptr) {
    std::uint64_t hash = seed_of(adapter);
    for (const TokenId token : prompt) hash = mix(hash, token);
    std::vector<TokenId> out;
    for (int i = 0; i < count; ++i) {
      out.push_back(draw(hash, vocab_size));
      if (out.back() == eos_id) break;
      hash = mix(hash, out.back());
    }
    return out;
  }

  static float logprob_after(const std::vector<TokenId>& prefix, TokenId token,
                             const Adapter* adapter = nullptr) {
    std::uint64_t hash = seed_of(adapter);
    for (const TokenId t : prefix) hash = mix(hash, t);
    return logprob(hash, token);
  }

  // Four numbers for each prompt.
  static Embedding embedding_of(const std::vector<TokenId>& prompt, Pooling pooling) {
    std::uint64_t hash = kSeed;
    for (const TokenId token : prompt) hash = mix(hash, token);
    return embedding_of(hash, pooling);
  }

 private:
  static Embedding embedding_of(std::uint64_t hash, Pooling pooling) {
    std::vector<float> numbers;
    for (TokenId i = 0; i < 4; ++i) {
      hash = mix(hash, i + 10 * static_cast<TokenId>(pooling));
      numbers.push_back(static_cast<float>(hash % 1024) / 64.0F - 8.0F);
    }
    return std::make_shared<const std::vector<float>>(std::move(numbers));
  }

  static constexpr std::uint64_t kSeed = 0x51ED270B9D4F1C35ULL;

  // Of a stream's hashes.
  static std::uint64_t seed_of(const Adapter* adapter) {
    return adapter == nullptr ? kSeed : kSeed ^ std::hash<std::string>()(adapter->name());
  }

  static std::uint64_t mix(std::uint64_t hash, TokenId token) {
    hash ^= static_cast<std::uint64_t>(token) + 0x9E3779B97F4A7C15ULL + (hash << 6) + (hash >> 2);
    hash *= 0xFF51AFD7ED558CCDULL;
    return hash ^ (hash >> 29);
  }
  static TokenId draw(std::uint64_t hash, int vocab_size) {
    return static_cast<TokenId>((hash >> 17) % static_cast<std::uint64_t>(vocab_size));
  }
  static float logprob(std::uint64_t hash, TokenId token) {
    return -static_cast<float>(mix(hash, token) % 1000) / 100.0F - 0.01F;
  }

  static TokenLogprobs list(std::uint64_t hash, const SamplingParams& params) {
    if (params.logprob_token_ids == nullptr) return nullptr;
    auto listed = std::make_shared<std::vector<TokenLogprob>>();
    for (const TokenId id : *params.logprob_token_ids) listed->push_back({id, logprob(hash, id)});
    return listed;
  }

  static Measured measure(const SamplingParams& params) {
    Measured measured{.entropy = {}, .rank = params.measures.rank ? kRank : 0};
    if (params.measures.entropy) measured.entropy = kEntropy;
    return measured;
  }

  // The next token where the bias of the step forbids the one that would have come.
  TokenId draw_allowed(std::uint64_t hash, const SamplingParams& params) const {
    TokenId token = draw(hash, options_.vocab_size);
    while (is_forbidden(params.logit_bias.get(), token)) token = (token + 1) % options_.vocab_size;
    return token;
  }

  static bool is_forbidden(const LogitBias* bias, TokenId token) {
    if (bias == nullptr) return false;
    const auto at = std::ranges::lower_bound(bias->ids, token);
    return at != bias->ids.end() && *at == token &&
           std::isinf(bias->values[static_cast<std::size_t>(at - bias->ids.begin())]);
  }

  void apply_mask(const std::uint32_t* words, std::size_t at, scheduler::RowResult& row) const {
    const std::uint64_t hash = hashes_.at(at);
    TokenId token = row.tokens.back().token;
    const auto is_allowed = [&] {
      return (words[token / 32] >> (token % 32) & 1) != 0 &&
             !is_forbidden(biases_.at(at).get(), token);
    };
    for (int i = 0; i < options_.vocab_size && !is_allowed(); ++i) {
      token = (token + 1) % options_.vocab_size;
    }
    if (!is_allowed()) row.error = Error{ErrorCode::kConstraint, "no token is possible"};
    row.tokens.back() = {token, logprob(hash, token), {{token, logprob(hash, token)}}};
  }

  std::uint64_t& slot(BlockId block, int offset) {
    LMTP_CHECK(block > kNullBlock && block < options_.num_blocks + options_.num_host_blocks, block);
    return kv_[static_cast<std::size_t>(block) * kBlockSize + static_cast<std::size_t>(offset)];
  }

  // A step has failed, with the one behind it.
  void forget() {
    under_way_.clear();
    is_forwarded_ = false;
    slots_ = {};
  }

  Result<void> end(scheduler::StepResult& result) {
    Step& step = under_way_.front();
    if (!step.result) return step.result.error();
    slots_.append(step.draws, *step.result);
    result = std::move(*step.result);
    under_way_.pop_front();
    return {};
  }

  Result<void> begin(const scheduler::StepPlan& plan) {
    if (std::exchange(is_forwarded_, false)) {  // its caller gave it up
      under_way_.pop_back();
      slots_ = {};
    }
    LMTP_CHECK(under_way_.size() < (options_.runs_ahead ? 2 : 1), under_way_.size());
    const bool is_ahead = !under_way_.empty();
    slots_.apply(plan);
    drawn_.clear();
    if (is_ahead && under_way_.back().result) {
      for (const auto& row : under_way_.back().result->rows) {
        drawn_.push_back(row.tokens.empty() ? 0 : row.tokens.back().token);
      }
    }
    const bool fails = is_ahead && !under_way_.back().result;
    Result<scheduler::StepResult> result = fails ? under_way_.back().result : compute(plan);
    if (!result && options_.fails_in_forward) {
      slots_ = {};
      return result.error();
    }
    Step step{std::move(result), {}};
    scheduler::SlotTable::list_draws(plan, step.draws);
    under_way_.push_back(std::move(step));
    is_forwarded_ = true;
    return {};
  }

  Result<scheduler::StepResult> compute(const scheduler::StepPlan& plan) {
    options_.steps->pass();
    if (options_.before_step) {
      if (Result<void> ok = options_.before_step(plan); !ok) return ok.error();
    }
    for (const auto& copy : plan.copies) {
      for (int i = 0; i < copy.num_tokens; ++i) slot(copy.to, i) = slot(copy.from, i);
    }
    load(plan);
    if (options_.on_step) options_.on_step(plan, slots_);
    scheduler::StepResult result;
    result.device_wait = options_.device_wait;
    hashes_.clear();
    biases_.clear();
    for (const auto& row : plan.rows) result.rows.push_back(run_row(row));
    return result;
  }

  // As agents do, it keeps where the weights are and not the adapter.
  struct Resident {
    std::vector<BlockId> blocks;
    std::uint64_t seed = 0;

    std::uint64_t weight(std::size_t block) const { return mix(seed, static_cast<TokenId>(block)); }
  };
  void load(const scheduler::StepPlan& plan) {
    for (const scheduler::AdapterLoad& load : plan.adapter_loads) {
      LMTP_CHECK(static_cast<int>(load.blocks.size()) == load.weights->num_blocks());
      const Resident resident{load.blocks, seed_of(load.weights.get())};
      adapters_[load.adapter] = resident;
      for (std::size_t i = 0; i < load.blocks.size(); ++i) {
        for (int at = 0; at < kBlockSize; ++at) slot(load.blocks[i], at) = resident.weight(i);
      }
    }
  }
  // REQUIRES: its weights are where they were loaded to.
  std::uint64_t seed_of_row(const scheduler::SlotState& state) {
    if (state.adapter == 0) return kSeed;
    const Resident& resident = adapters_.at(state.adapter);
    for (std::size_t i = 0; i < resident.blocks.size(); ++i) {
      for (int at = 0; at < kBlockSize; ++at) {
        LMTP_CHECK(!options_.checks_cache || slot(resident.blocks[i], at) == resident.weight(i),
                   "the adapter was overwritten", state.key.stream, state.adapter, i);
      }
    }
    return resident.seed;
  }

  scheduler::RowResult run_row(const scheduler::PlanRow& row) {
    const scheduler::SlotState& s = std::as_const(slots_).at(row.slot);
    const int num_groups = options_.kv_layout.num_groups;
    const int first_group = options_.kv_layout.has_stubs ? 1 : 0;
    // What a layer of each group has of a token: the hash of the text, and which group it is.
    const auto at = [&](int position, int group) -> std::uint64_t& {
      const int entry = position / kBlockSize * num_groups + group;
      return slot(s.blocks.at(static_cast<std::size_t>(entry)), position % kBlockSize);
    };
    const auto value = [](std::uint64_t of_text, int group) {
      return of_text ^ static_cast<std::uint64_t>(group);
    };
    const auto is_seen = [&](int position, int group) {
      const std::int32_t window = options_.kv_layout.windows.at(static_cast<std::size_t>(group));
      return window == 0 || position > row.first_position - window;
    };
    const auto token = [&](int position) {
      if (row.input_row >= 0 && position == row.first_position) {
        LMTP_CHECK(position >= static_cast<int>(s.tokens.size()), position, s.tokens.size());
        return drawn_.at(static_cast<std::size_t>(row.input_row));
      }
      return s.tokens.at(static_cast<std::size_t>(position));
    };
    LMTP_CHECK(row.num_tokens >= 1 && row.num_logits <= row.num_tokens, row.num_tokens);
    std::uint64_t hash = seed_of_row(s);
    for (int p = 0; p < row.first_position; ++p) {
      hash = mix(hash, token(p));
      for (int group = first_group; group < num_groups; ++group) {
        if (!is_seen(p, group)) continue;
        const bool is_right = !options_.checks_cache || at(p, group) == value(hash, group);
        LMTP_CHECK(is_right, "the cache does not hold this prefix", s.key.stream, p, group);
      }
    }
    scheduler::RowResult result;
    const int end = row.first_position + row.num_tokens;
    for (int p = row.first_position; p < end; ++p) {
      hash = mix(hash, token(p));
      for (int group = first_group; group < num_groups; ++group) at(p, group) = value(hash, group);
      if (p < end - row.num_logits) continue;
      const bool scored = p < end - row.num_logits + row.num_scored;
      const TokenId next = scored ? token(p + 1) : draw_allowed(hash, s.params);
      const float lp = logprob(hash, next);
      result.tokens.push_back({next, lp, {}, list(hash, s.params), measure(s.params)});
      if (!scored) result.tokens.back().top_logprobs.push_back({next, lp});
    }
    if (s.params.pooling != Pooling::kNone && end == static_cast<int>(s.tokens.size())) {
      result.embedding = embedding_of(hash, s.params.pooling);
    }
    hashes_.push_back(hash);
    biases_.push_back(s.params.logit_bias);
    if (options_.row_fails && options_.row_fails(s)) {
      result.error = Error{ErrorCode::kInternal, "logits: not a number"};
      result.tokens.clear();
    }
    return result;
  }

  struct Step {
    Result<scheduler::StepResult> result;
    std::vector<scheduler::SlotDraw> draws;
  };

  FakeAgentOptions options_;
  scheduler::SlotTable slots_;
  std::map<int, Resident> adapters_;                      // by number
  std::deque<Step> under_way_;                            // two where it runs ahead
  bool is_forwarded_ = false;                             // the newest one, and not chosen
  std::vector<std::uint64_t> hashes_;                     // of the rows of the newest step
  std::vector<std::shared_ptr<const LogitBias>> biases_;  // as well
  std::vector<TokenId> drawn_;                            // by the rows of the step before
  std::vector<std::uint64_t> kv_;  // [num_blocks, kBlockSize] hash of all tokens up to this one
};

inline std::unique_ptr<scheduler::ModelAgent> make_fake_agent(FakeAgentOptions options) {
  return std::make_unique<FakeAgent>(std::move(options));
}

}  // namespace lmtp::testing
