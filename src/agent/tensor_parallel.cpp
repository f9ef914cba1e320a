#include "tensor_parallel.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "lmtp/base/check.h"
#include "lmtp/base/processors.h"
#include "lmtp/model/rank_group.h"
#include "load_model.h"
#include "rank_threads.h"

namespace lmtp::agent {
namespace {

using scheduler::AgentInfo;
using scheduler::ModelAgent;
using scheduler::StepResult;

// What the ranks' threads work with: they keep it alive.
struct Ranks {
  explicit Ranks(std::unique_ptr<model::RankGroup> connected)
      : group(std::move(connected)),
        agents(static_cast<std::size_t>(group->count())),
        results(static_cast<std::size_t>(group->count())) {}

  std::unique_ptr<ModelAgent>& agent_of(int rank) { return agents[static_cast<std::size_t>(rank)]; }
  ModelAgent& agent(int rank) { return *agent_of(rank); }

  const std::unique_ptr<model::RankGroup> group;
  std::vector<std::unique_ptr<ModelAgent>> agents;  // each of its rank's thread
  std::vector<StepResult> results;                  // as well
  scheduler::StepPlan plan;
};

// Whether two ranks have drawn the same, in bits.
bool are_same(const StepResult& a, const StepResult& b) {
  return std::ranges::equal(a.rows, b.rows, [](const auto& row, const auto& other) {
    return std::ranges::equal(row.tokens, other.tokens, [](const auto& one, const auto& two) {
      return one.token == two.token &&
             std::bit_cast<std::uint32_t>(one.logprob) == std::bit_cast<std::uint32_t>(two.logprob);
    });
  });
}

// The progress of all ranks as one.
class CommonProgress {
 public:
  CommonProgress(int count, const scheduler::LoadProgress& progress)
      : progress_(progress), percents_(static_cast<std::size_t>(count)) {}

  // Any thread. False: the loading is to end.
  bool report(int rank, int percent) {
    const std::lock_guard lock(mutex_);
    percents_[static_cast<std::size_t>(rank)] = percent;
    const int least = std::ranges::min(percents_);
    if (goes_on_ && progress_ && least != told_) goes_on_ = progress_(least);
    told_ = least;
    return goes_on_;
  }
  void give_up() {
    const std::lock_guard lock(mutex_);
    goes_on_ = false;
  }

 private:
  const scheduler::LoadProgress& progress_;
  std::mutex mutex_;
  std::vector<int> percents_;
  int told_ = -1;
  bool goes_on_ = true;
};

class TensorParallelAgent : public ModelAgent {
 public:
  TensorParallelAgent(std::unique_ptr<model::RankGroup> group, std::chrono::milliseconds timeout,
                      std::vector<Binding> bindings)
      : ranks_(std::make_shared<Ranks>(std::move(group))),
        threads_(
            ranks_->group->count(), timeout,
            {.on_start =
                 [bound = std::move(bindings)](int rank) {
                   if (!bound.empty()) bound[static_cast<std::size_t>(rank)].apply();
                 },
             .on_failure = [ranks = ranks_](const auto& reason) { ranks->group->abort(reason); },
             // What an agent frees is its thread's device's.
             .on_end = [ranks = ranks_](int rank) { ranks->agent_of(rank).reset(); }}) {}

  Result<void> load(const scheduler::LoadProgress& progress, const MakeRank& make) {
    CommonProgress common(threads_.count(), progress);
    Result<void> loaded = threads_.run_to_end([&](int rank) -> Result<void> {
      // The communicator is the group's.
      const std::shared_ptr<model::Communicator> communicator(ranks_, &(*ranks_->group)[rank]);
      auto agent = make(communicator, [&](int percent) { return common.report(rank, percent); });
      if (!agent) {
        common.give_up();
        return agent.error();
      }
      ranks_->agent_of(rank) = std::move(*agent);
      return {};
    });
    if (!loaded) return loaded;
    info_ = ranks_->agent(0).info();
    runs_ahead_ = ranks_->agent(0).runs_ahead();
    for (int rank = 1; rank < threads_.count(); ++rank) add(ranks_->agent(rank).info());
    return {};
  }

  void describe(std::string device, model::Transport transport) {
    info_.device = std::move(device);
    if (transport == model::Transport::kLocal) return;
    info_.notes.push_back(std::string("the ranks are connected by ") +
                          model::transport_name(transport));
  }

  AgentInfo info() const override { return info_; }

  Result<void> forward(const scheduler::StepPlan& plan) override {
    if (!is_lost_) ranks_->plan = plan;  // a thread that is left behind has the last one
    return run([ranks = ranks_](int rank) { return ranks->agent(rank).forward(ranks->plan); });
  }

  // An agent copies the masks before it does anything else.
  Result<void> choose(std::span<const scheduler::RowMask> masks) override {
    return run([ranks = ranks_, masks](int rank) { return ranks->agent(rank).choose(masks); });
  }

  using ModelAgent::collect;
  Result<void> collect(StepResult& result) override {
    Result<void> done = run([ranks = ranks_](int rank) {
      return ranks->agent(rank).collect(ranks->results[static_cast<std::size_t>(rank)]);
    });
    if (!done) return done;
    for (int rank = 1; rank < threads_.count(); ++rank) {
      if (are_same(ranks_->results[0], ranks_->results[static_cast<std::size_t>(rank)])) continue;
      is_lost_ = true;
      return Error{ErrorCode::kDeviceLost,
                   "rank " + std::to_string(rank) + " has other results than rank 0"};
    }
    std::swap(ranks_->results[0], result);
    return {};
  }

  bool runs_ahead() const override { return runs_ahead_; }
  bool is_lost() const override { return is_lost_; }

 private:
  Result<void> run(RankThreads::Task task) {
    if (is_lost_) return Error{ErrorCode::kDeviceLost, "a rank of the model was lost"};
    const Result<void> done = threads_.run(std::move(task));
    is_lost_ = !done;
    // Whatever it was: the model is loaded again, and a retry may succeed.
    return done ? Result<void>() : Error{ErrorCode::kDeviceLost, done.error().message};
  }

  void add(const AgentInfo& other) {
    LMTP_CHECK(info_.kv_layout == other.kv_layout, "ranks of one model have one layout");
    info_.num_blocks = std::min(info_.num_blocks, other.num_blocks);
    info_.num_host_blocks = std::min(info_.num_host_blocks, other.num_host_blocks);
    info_.kv_bytes += other.kv_bytes;
    info_.fetch_time = std::max(info_.fetch_time, other.fetch_time);
    info_.ranks.insert(info_.ranks.end(), other.ranks.begin(), other.ranks.end());
  }

  const std::shared_ptr<Ranks> ranks_;
  RankThreads threads_;
  AgentInfo info_;
  bool runs_ahead_ = false;
  bool is_lost_ = false;
};

}  // namespace

Result<std::unique_ptr<ModelAgent>> make_tensor_parallel(const AgentOptions& options,
                                                         const scheduler::LoadProgress& progress,
                                                         const MakeRank& make) {
  LMTP_CHECK(options.num_ranks >= 2 && options.debug.rank_timeout_ms >= 1, options.num_ranks);
  const std::chrono::milliseconds timeout(options.debug.rank_timeout_ms);
  auto group = model::make_rank_group(options.transport, options.num_ranks, timeout,
                                      options.cuda_device.value_or(-1));
  if (!group) {
    return Error{group.error().code, "--communicator: " + group.error().message};
  }
  auto agent = std::make_unique<TensorParallelAgent>(*std::move(group), timeout,
                                                     rank_bindings(options, find_processors()));
  if (const auto loaded = agent->load(progress, make); !loaded) return loaded.error();
  agent->describe(device_name(options), options.transport);
  return std::unique_ptr<ModelAgent>(std::move(agent));
}

}  // namespace lmtp::agent
