// Drives a ModelAgent by hand-made plans: a scheduler that gives each stream its own blocks and the
// chunk sizes that the test sets.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lmtp/agent/agent.h"
#include "lmtp/request/request.h"
#include "lmtp/scheduler/step_plan.h"

namespace lmtp::testing {

inline constexpr std::int64_t kTestKvBytes = std::int64_t{1} << 28;
inline constexpr int kTestBatchedTokens = 512;

inline ModelSource folder_source(const std::string& folder) {
  ModelSource source;
  source.name = folder;
  source.folder = folder;
  return source;
}

// On `device` if it is given, else on the CPU.
inline std::unique_ptr<scheduler::ModelAgent> load_agent(
    const ModelSource& source, int num_threads = 2,
    kernels::WeightType weight_type = kernels::WeightType::kF32,
    const kernels::Backend* device = nullptr,
    std::optional<kernels::ElementType> kv_cache_type = {}, int num_ranks = 1) {
  const auto config = model::load_model_config(source);
  EXPECT_TRUE(config.ok()) << (config.ok() ? "" : config.error().message);
  agent::AgentOptions options;
  options.source = source;
  options.config = *config;
  options.num_threads = num_threads;
  options.num_ranks = num_ranks;
  options.weight_type = weight_type;
  options.kv_cache_type = kv_cache_type;
  options.kv_cache_bytes = kTestKvBytes;
  options.batch.max_tokens = kTestBatchedTokens;
  if (device != nullptr) {
    options.cuda_device = 0;
    options.debug.backend = device;
    options.debug.graphs_at_load_ms = 0;  // these take long on the emulation
  }
  auto agent = agent::make_agent(options, nullptr);
  EXPECT_TRUE(agent.ok()) << (agent.ok() ? "" : agent.error().message);
  return std::move(*agent);
}

// A sequence whose blocks the test chooses.
struct DrivenSequence {
  SequenceId id = 0;
  StreamKey key;
  RequestKind kind = RequestKind::kGenerate;
  int adapter = 0;
  std::vector<TokenId> tokens;
  int num_prompt = 0;
  int num_computed = 0;
  std::vector<BlockId> blocks;  // [runs of tokens, groups of layers]
  SamplingParams params;

  int length() const { return static_cast<int>(tokens.size()); }
  // The last token of a Score is never fed.
  int num_to_compute() const { return kind == RequestKind::kScore ? length() - 1 : length(); }
};

// All that is known of a sequence, for a slot.
inline scheduler::SlotStart start_of(const DrivenSequence& sequence, int slot) {
  return {.slot = slot,
          .key = sequence.key,
          .adapter = sequence.adapter,
          .tokens = sequence.tokens,
          .blocks = sequence.blocks,
          .params = sequence.params};
}

// A stream with what came out of it.
struct DrivenStream {
  DrivenSequence sequence;
  int slot = -1;
  bool is_started = false;         // a plan has said so
  int num_wanted = 0;              // tokens to generate; a Score's follow from its tokens
  int chunk = kTestBatchedTokens;  // most tokens a step
  std::vector<scheduler::TokenResult> results;

  bool done() const {
    return sequence.kind == RequestKind::kScore ? sequence.num_computed >= sequence.num_to_compute()
                                                : static_cast<int>(results.size()) >= num_wanted;
  }
};

class AgentDriver {
 public:
  explicit AgentDriver(scheduler::ModelAgent& agent) : agent_(agent) {}

  int num_groups() const { return agent_.info().kv_layout.num_groups; }

  // Adds a stream of its own blocks; valid while the driver lives.
  DrivenStream& add(RequestKind kind, std::vector<TokenId> tokens, int num_prompt, int num_wanted,
                    int chunk = kTestBatchedTokens) {
    DrivenStream& stream = streams_.emplace_back();
    stream.sequence.id = streams_.size();
    stream.slot = static_cast<int>(streams_.size()) - 1;
    stream.sequence.kind = kind;
    stream.sequence.num_prompt = num_prompt;
    stream.num_wanted = num_wanted;
    stream.chunk = chunk;
    const int length = static_cast<int>(tokens.size()) + num_wanted + 1;
    const int num_runs = (length + kBlockSize - 1) / kBlockSize;
    for (int i = num_runs * num_groups(); i > 0; --i) {
      stream.sequence.blocks.push_back(next_block_++);
    }
    // Blocks in falling order, so that a kernel that assumes adjacent blocks fails.
    std::reverse(stream.sequence.blocks.begin(), stream.sequence.blocks.end());
    stream.sequence.tokens = std::move(tokens);
    EXPECT_LT(next_block_, agent_.info().num_blocks);
    return stream;
  }

  DrivenStream& generate(const std::vector<TokenId>& prompt, int num_wanted,
                         const SamplingParams& params = {}, int chunk = kTestBatchedTokens) {
    DrivenStream& stream =
        add(RequestKind::kGenerate, prompt, static_cast<int>(prompt.size()), num_wanted, chunk);
    stream.sequence.params = params;
    return stream;
  }

  DrivenStream& score(const std::vector<TokenId>& prompt, const std::vector<TokenId>& scored,
                      int chunk = kTestBatchedTokens) {
    std::vector<TokenId> tokens = prompt;
    tokens.insert(tokens.end(), scored.begin(), scored.end());
    return add(RequestKind::kScore, std::move(tokens), static_cast<int>(prompt.size()), 0, chunk);
  }

  // Steps until all streams are done.
  void run() {
    while (step()) {
    }
  }

  // As run(), but each step of decodes is started before the last one is finished. What the last
  // step of a stream gives beyond num_wanted is dropped, as if the stream had stopped.
  // REQUIRES: the streams are Generates without penalties, and their blocks hold a token more.
  void run_ahead() {
    scheduler::StepPlan plan = plan_step();
    EXPECT_TRUE(agent_.start(plan));
    std::vector<DrivenStream*> planned = planned_;
    for (bool done = false; !done;) {
      scheduler::StepPlan next = plan_behind(plan, planned);
      if (!next.empty()) {
        EXPECT_TRUE(agent_.start(next));
      }
      const auto result = agent_.collect();
      ASSERT_TRUE(result.ok()) << result.error().message;
      for (std::size_t i = 0; i < planned.size(); ++i) {
        commit(*planned[i], plan.rows[i], result->rows[i]);
      }
      plan = std::move(next);
      planned = planned_;
      done = plan.empty();
    }
  }

  bool step() {
    const scheduler::StepPlan plan = plan_step();
    if (plan.empty()) return false;
    const auto result = agent_.execute(plan);
    EXPECT_TRUE(result.ok()) << (result.ok() ? "" : result.error().message);
    for (std::size_t i = 0; i < planned_.size(); ++i) {
      commit(*planned_[i], plan.rows[i], result->rows[i]);
    }
    return true;
  }

  void copy_before_next_step(scheduler::BlockCopy copy) { copies_.push_back(copy); }

 private:
  scheduler::StepPlan plan_step() {
    scheduler::StepPlan plan;
    planned_.clear();
    for (DrivenStream& stream : streams_) {
      const int left_in_step = kTestBatchedTokens - plan.num_tokens;
      if (stream.done() || left_in_step == 0) continue;
      add(plan, stream, plan_row(stream, left_in_step));
    }
    plan.copies = std::move(copies_);
    copies_.clear();
    return plan;
  }

  // One token more of each stream of `plan`, computed even if the stream has all its tokens by
  // then.
  scheduler::StepPlan plan_behind(const scheduler::StepPlan& plan,
                                  const std::vector<DrivenStream*>& planned) {
    scheduler::StepPlan next;
    planned_.clear();
    for (std::size_t i = 0; i < planned.size(); ++i) {
      DrivenStream& stream = *planned[i];
      EXPECT_EQ(plan.rows[i].num_logits, 1);
      if (!stream.done()) {
        add(next, stream,
            {.slot = stream.slot,
             .first_position = stream.sequence.length(),
             .num_tokens = 1,
             .num_logits = 1,
             .input_row = static_cast<int>(i)});
      }
    }
    return next;
  }

  // The agent learns the rest from what it draws.
  void add(scheduler::StepPlan& plan, DrivenStream& stream, scheduler::PlanRow row) {
    if (!stream.is_started) plan.changes.started.push_back(start_of(stream.sequence, stream.slot));
    stream.is_started = true;
    plan.rows.push_back(row);
    plan.num_tokens += row.num_tokens;
    plan.num_logits += row.num_logits;
    planned_.push_back(&stream);
  }

  static scheduler::PlanRow plan_row(const DrivenStream& stream, int left_in_step) {
    const DrivenSequence& sequence = stream.sequence;
    const int left = sequence.num_to_compute() - sequence.num_computed;
    scheduler::PlanRow row;
    row.slot = stream.slot;
    row.first_position = sequence.num_computed;
    row.num_tokens = std::min({left, stream.chunk, left_in_step});
    const int end = row.first_position + row.num_tokens;
    if (sequence.kind == RequestKind::kGenerate) {
      row.num_logits = end == sequence.length() ? 1 : 0;
    } else {
      // Position p scores the token p + 1, where that is behind the prompt.
      row.num_logits = std::clamp(end - (sequence.num_prompt - 1), 0, row.num_tokens);
      row.num_scored = row.num_logits;
    }
    return row;
  }

  static void commit(DrivenStream& stream, const scheduler::PlanRow& row,
                     const scheduler::RowResult& result) {
    EXPECT_FALSE(result.error.has_value()) << (result.error ? result.error->message : "");
    EXPECT_EQ(static_cast<int>(result.tokens.size()), row.num_logits);
    stream.sequence.num_computed += row.num_tokens;
    for (const scheduler::TokenResult& token : result.tokens) {
      if (stream.sequence.kind == RequestKind::kGenerate && stream.done()) return;
      stream.results.push_back(token);
      if (stream.sequence.kind == RequestKind::kGenerate) {
        stream.sequence.tokens.push_back(token.token);
      }
    }
  }

  scheduler::ModelAgent& agent_;
  std::deque<DrivenStream> streams_;
  std::vector<scheduler::BlockCopy> copies_;
  std::vector<DrivenStream*> planned_;  // of the last plan
  BlockId next_block_ = 1;
};

}  // namespace lmtp::testing
