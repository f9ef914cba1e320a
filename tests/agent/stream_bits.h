// Streams through an engine with a real agent, on a CPU and on a device that runs ahead, whose
// entries are compared bit for bit.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "bit_cases.h"
#include "device_under_test.h"
#include "lmtp/agent/agent.h"
#include "lmtp/engine/engine.h"
#include "lmtp/model/kv_cache.h"
#include "source_dir.h"

namespace lmtp::testing {

inline constexpr int kContext = 128;

struct Outcome {
  std::vector<TokenEvent> entries;
  std::string error = {};
  bool done = false;
  int num_preemptions = 0;  // where it asked for notices
};

class OutcomeSink : public EventSink {
 public:
  void deliver(std::span<StreamEvent> events) override {
    const std::lock_guard lock(mutex_);
    for (StreamEvent& event : events) {
      if (auto* token = std::get_if<TokenEvent>(&event)) {
        Outcome& outcome = outcomes_[token->stream_id];
        outcome.done = token->finish_reason != FinishReason::kNone;
        outcome.entries.push_back(std::move(*token));
        if (on_token_) on_token_(outcome.entries.back().stream_id, outcome.entries.size());
      } else if (auto* error = std::get_if<StreamError>(&event)) {
        outcomes_[error->stream_id] = {{}, error->error.message, true};
        if (on_error_) on_error_();
      } else if (const auto* notice = std::get_if<StreamNotice>(&event)) {
        const bool is_preempted = notice->kind == StreamNotice::Kind::kPreempted;
        outcomes_[notice->stream_id].num_preemptions += is_preempted ? 1 : 0;
      }
    }
    changed_.notify_all();
  }
  // Called on the engine's thread: with a stream and the number of its tokens so far.
  void watch(std::function<void(StreamId, std::size_t)> on_token, std::function<void()> on_error) {
    on_token_ = std::move(on_token);
    on_error_ = std::move(on_error);
  }
  Outcome wait(StreamId id) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::minutes(5), [&] { return outcomes_[id].done; });
    return outcomes_[id];
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<StreamId, Outcome> outcomes_;
  std::function<void(StreamId, std::size_t)> on_token_;
  std::function<void()> on_error_;
};

enum class Where { kCpu, kDevice };

// Engines with a real agent, and requests to them.
class StreamBits : public ::testing::TestWithParam<Where> {
 protected:
  // num_blocks: of the KV cache; 0: as many as all streams need.
  static std::unique_ptr<engine::Engine> make_engine(int num_blocks = 0,
                                                     const scheduler::DebugOptions& debug = {},
                                                     int num_host_blocks = 0, int max_drafts = 0) {
    agent::AgentOptions options;
    options.source.folder = source_dir() + "/tests/goldens/" + checkpoint_;
    options.source.name = options.source.folder;
    options.config = *model::load_model_config(options.source);
    for (model::LayerSpec& layer : options.config.layers) {
      if (layer.window > 0 && window_ > 0) layer.window = window_;
    }
    options.debug = debug;
    options.num_threads = 1;
    options.context_length = kContext;
    options.batch.max_tokens = 64;
    const std::int64_t block_bytes =
        model::kv_block_bytes(model::kv_specs(options.config), agent::kv_type(options));
    options.kv_cache_bytes = (num_blocks > 0 ? num_blocks : 600) * block_bytes;
    options.swap_bytes = num_host_blocks * block_bytes;
    if (GetParam() == Where::kDevice) {
      options.cuda_device = 0;
      options.debug.backend = &device_under_test();
      options.debug.graphs_at_load_ms = 0;
    }
    auto agent = agent::make_agent(options, no_progress);
    EXPECT_TRUE(agent.ok()) << agent.error().message;
    vocab_size_ = options.config.vocab_size;
    engine::EngineOptions engine_options;
    engine_options.batch = options.batch;
    engine_options.debug = debug;
    engine_options.max_drafts = max_drafts;
    engine_options.debug.check_invariants = true;
    return std::make_unique<engine::Engine>(
        std::move(*agent),
        engine::ModelLimits{.vocab_size = vocab_size_, .context_length = kContext, .eos_ids = {}},
        engine_options);
  }
  static bool no_progress(int) { return true; }

  static std::vector<Outcome> run(engine::Engine& engine, const std::vector<Request>& requests) {
    const auto sink = std::make_shared<OutcomeSink>();
    std::vector<Request> submitted = requests;
    for (std::size_t i = 0; i < submitted.size(); ++i) {
      submitted[i].key = {1, static_cast<StreamId>(i)};
      submitted[i].sink = sink;
      EXPECT_TRUE(engine::check_request(submitted[i], {vocab_size_, kContext, {}}));
    }
    EXPECT_TRUE(engine.instance().submit_all(submitted));
    std::vector<Outcome> outcomes;
    for (std::size_t i = 0; i < requests.size(); ++i) {
      outcomes.push_back(sink->wait(static_cast<StreamId>(i)));
      EXPECT_EQ(outcomes.back().error, "") << i;
    }
    return outcomes;
  }
  static std::vector<Outcome> run_alone(engine::Engine& engine,
                                        const std::vector<Request>& requests) {
    std::vector<Outcome> outcomes;
    for (const Request& request : requests) outcomes.push_back(run(engine, {request})[0]);
    return outcomes;
  }

  // The emulation of a device takes milliseconds a token: fewer and shorter streams there.
  static int num_tokens() { return GetParam() == Where::kDevice ? 14 : 24; }
  static std::vector<Request> make_requests(int first, int count) {
    std::vector<Request> made;
    for (int number = first; number < first + count; ++number) {
      made.push_back(request(number));
      if (GetParam() == Where::kDevice && made.size() == 3) break;
    }
    return made;
  }

  // Of every kind that there is.
  static Request request(int number) {
    Request made;
    made.prompt = prompt_of(number, 5 + number * 3);
    SamplingParams& params = made.params;
    params.max_tokens = num_tokens();
    params.has_seed = true;
    params.seed = static_cast<std::uint64_t>(number) * 77;
    params.temperature = number % 4 == 0 ? 0.0F : 0.9F;
    params.top_p = number % 3 == 1 ? 0.9F : 1.0F;
    params.top_k = number % 5 == 2 ? 11 : 0;
    params.min_p = number % 5 == 3 ? 0.05F : 0.0F;
    params.typical_p = number % 3 == 2 ? 0.9F : 1.0F;
    params.top_logprobs = number % 4;
    params.raw_logprobs = number % 2 == 1;
    params.measures = {.entropy = number % 5 != 1, .rank = number % 3 != 1};
    if (number % 3 == 2) params.repetition_penalty = 1.3F;
    if (number % 3 == 2) params.frequency_penalty = 0.2F;
    if (number % 6 == 2) params.penalties_from = static_cast<int>(made.prompt.size());
    if (number % 4 >= 2) {
      auto bias = std::make_shared<LogitBias>();
      bias->ids = {1, 9, 40};
      bias->values = {-100.0F, 2.0F, 1.5F};
      params.logit_bias = bias;
    }
    if (number % 4 % 3 == 1) {
      auto mask = std::make_shared<TokenMask>();
      mask->num_bytes = (vocab_size_ + 7) / 8;
      mask->words.assign(static_cast<std::size_t>(vocab_size_) / 64 + 1, 0xF0F7'FEF1'7F3F'FFEFU);
      params.mask = mask;
    }
    return made;
  }

  static inline int vocab_size_ = 0;
  // The next engines' model, and another window than its own.
  static inline std::string checkpoint_ = "checkpoints/five-heads-f16";
  static inline int window_ = 0;
};

inline std::string name_of(const ::testing::TestParamInfo<Where>& which) {
  return which.param == Where::kCpu ? "Cpu" : "Device";
}

inline void expect_same(const TokenEvent& got, const TokenEvent& wanted) {
  EXPECT_EQ(got.token, wanted.token);
  EXPECT_EQ(bits(got.logprob), bits(wanted.logprob));
  EXPECT_EQ(got.measured.entropy.has_value(), wanted.measured.entropy.has_value());
  EXPECT_EQ(bits(got.measured.entropy.value_or(0.0F)),
            bits(wanted.measured.entropy.value_or(0.0F)));
  EXPECT_EQ(got.measured.rank, wanted.measured.rank);
  ASSERT_EQ(got.top_logprobs.has_value(), wanted.top_logprobs.has_value());
  ASSERT_EQ(got.top_logprobs->size(), wanted.top_logprobs->size());
  for (std::size_t i = 0; i < got.top_logprobs->size(); ++i) {
    EXPECT_EQ((*got.top_logprobs)[i].token, (*wanted.top_logprobs)[i].token);
    EXPECT_EQ(bits((*got.top_logprobs)[i].logprob), bits((*wanted.top_logprobs)[i].logprob));
  }
}

// `got` are the entries of `wanted` from `first` on.
inline void expect_tail(const Outcome& got, const Outcome& wanted, std::size_t first = 0) {
  ASSERT_EQ(got.entries.size(), wanted.entries.size() - first);
  for (std::size_t i = 0; i < got.entries.size(); ++i) {
    SCOPED_TRACE(i);
    expect_same(got.entries[i], wanted.entries[first + i]);
    EXPECT_EQ(got.entries[i].finish_reason, wanted.entries[first + i].finish_reason);
  }
}

}  // namespace lmtp::testing
