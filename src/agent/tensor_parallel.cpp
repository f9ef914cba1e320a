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
#include "lmtp/model/local_ranks.h"
#include "rank_threads.h"

namespace lmtp::agent {
namespace {

using scheduler::AgentInfo;
using scheduler::ModelAgent;
using scheduler::StepResult;

// What the ranks' threads work with: they keep it alive.
struct Ranks {
  Ranks(int count, std::chrono::milliseconds timeout)
      : group(count, timeout),
        agents(static_cast<std::size_t>(count)),
        results(static_cast<std::size_t>(count)) {}

  std::unique_ptr<ModelAgent>& agent_of(int rank) { return agents[static_cast<std::size_t>(rank)]; }
  ModelAgent& agent(int rank) { return *agent_of(rank); }

  model::LocalRanks group;
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
  TensorParallelAgent(int count, std::chrono::milliseconds timeout)
      : ranks_(std::make_shared<Ranks>(count, timeout)),
        threads_(
            count, timeout,
            {.on_failure = [ranks = ranks_](const auto& reason) { ranks->group.abort(reason); },
             // What an agent frees is its thread's device's.
             .on_end = [ranks = ranks_](int rank) { ranks->agent_of(rank).reset(); }}) {}

  Result<void> load(const scheduler::LoadProgress& progress, const MakeRank& make) {
    CommonProgress common(threads_.count(), progress);
    Result<void> loaded = threads_.run_to_end([&](int rank) -> Result<void> {
      // The communicator is the group's.
      const std::shared_ptr<model::Communicator> communicator(ranks_, &ranks_->group[rank]);
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

  void set_device(std::string device) { info_.device = std::move(device); }

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
  auto agent = std::make_unique<TensorParallelAgent>(
      options.num_ranks, std::chrono::milliseconds(options.debug.rank_timeout_ms));
  if (const auto loaded = agent->load(progress, make); !loaded) return loaded.error();
  agent->set_device(device_name(options));
  return std::unique_ptr<ModelAgent>(std::move(agent));
}

}  // namespace lmtp::agent
