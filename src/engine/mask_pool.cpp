#include "mask_pool.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "lmtp/base/guarded.h"
#include "lmtp/request/mask_source.h"

namespace lmtp::engine {
namespace {

using scheduler::RowMask;

// The sequence of a row that needs a mask, or null.
const scheduler::Sequence* masked(const scheduler::StepPlan& plan, std::size_t row,
                                  const scheduler::Scheduler& scheduler) {
  const scheduler::Sequence* sequence = scheduler.sequence_of(plan, row);
  const bool wants = sequence != nullptr && sequence->mask_source != nullptr;
  return wants && plan.rows[row].draws() ? sequence : nullptr;
}

// Masks are computed beside the model's own threads.
int num_mask_threads() {
  constexpr unsigned kThreadsMax = 4;
  return static_cast<int>(std::clamp(std::thread::hardware_concurrency() / 4, 1U, kThreadsMax));
}

}  // namespace

struct MaskPool::Job {
  std::shared_ptr<const MaskSource> source;
  std::vector<TokenId> tokens;
  int num_prompt = 0;
  std::vector<std::uint32_t> words;
  // Guarded by the pool's mutex.
  std::string error;
  RowMask::State state = RowMask::State::kLate;

  bool was_late = false;  // in a step before; the engine's thread alone

  bool is_of(const scheduler::Sequence& sequence) const {
    return source == sequence.mask_source && num_prompt == sequence.num_prompt &&
           tokens == sequence.tokens;
  }
};

MaskPool::MaskPool(int vocab_size) : num_words_((static_cast<std::size_t>(vocab_size) + 31) / 32) {}

MaskPool::~MaskPool() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  has_work_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

bool MaskPool::is_wanted(const scheduler::StepPlan& plan, const scheduler::Scheduler& scheduler) {
  for (std::size_t i = 0; i < plan.rows.size(); ++i) {
    if (masked(plan, i, scheduler) != nullptr) return true;
  }
  return false;
}

void MaskPool::begin(const scheduler::StepPlan& plan, const scheduler::Scheduler& scheduler) {
  of_row_.assign(plan.rows.size(), nullptr);
  for (std::size_t i = 0; i < plan.rows.size(); ++i) {
    const scheduler::Sequence* const wanted = masked(plan, i, scheduler);
    if (wanted == nullptr) continue;
    const scheduler::Sequence& sequence = *wanted;
    const auto known = jobs_.find(sequence.key);
    if (known != jobs_.end() && known->second->is_of(sequence)) {
      of_row_[i] = known->second;
      continue;
    }
    const auto job = std::make_shared<Job>();
    job->source = sequence.mask_source;
    job->tokens = sequence.tokens;
    job->num_prompt = sequence.num_prompt;
    job->words.resize(num_words_);
    of_row_[i] = jobs_[sequence.key] = job;
    const std::lock_guard lock(mutex_);
    queue_.push_back(job);
    has_work_.notify_one();
  }
  drop_unused(scheduler);
  if (jobs_.empty() || !threads_.empty()) return;
  for (int i = 0; i < num_mask_threads(); ++i) threads_.emplace_back([this] { work(); });
}

// A sequence that was set back is in a later plan again, and finds its mask then.
void MaskPool::drop_unused(const scheduler::Scheduler& scheduler) {
  if (jobs_.empty()) return;
  std::erase_if(jobs_, [&](const auto& entry) {
    const scheduler::Sequence* const sequence = scheduler.sequence(entry.first);
    return sequence == nullptr || !entry.second->is_of(*sequence);
  });
  const std::lock_guard lock(mutex_);
  std::erase_if(queue_, [&](const std::shared_ptr<Job>& job) {
    return std::ranges::none_of(jobs_, [&](const auto& entry) { return entry.second == job; });
  });
}

std::span<const RowMask> MaskPool::wait_for(int wait_ms) {
  masks_.clear();
  const auto is_job = [](const std::shared_ptr<Job>& job) { return job != nullptr; };
  if (std::ranges::none_of(of_row_, is_job)) return masks_;
  // What was late before is not waited for again, unless nothing else would come of the step.
  const bool has_others = std::ranges::any_of(
      of_row_, [](const auto& job) { return job == nullptr || !job->was_late; });
  std::unique_lock lock(mutex_);
  done_.wait_for(lock, std::chrono::milliseconds(wait_ms), [&] {
    return std::ranges::all_of(of_row_, [&](const std::shared_ptr<Job>& job) {
      return job == nullptr || job->state != RowMask::State::kLate || (has_others && job->was_late);
    });
  });
  for (const std::shared_ptr<Job>& job : of_row_) {
    if (job == nullptr) {
      masks_.push_back({});
    } else {
      job->was_late = job->state == RowMask::State::kLate;
      masks_.push_back({.state = job->state, .words = job->words.data(), .error = job->error});
    }
  }
  return masks_;
}

void MaskPool::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    has_work_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
    if (stopping_) return;
    const std::shared_ptr<Job> job = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    Result<void> done =
        guarded([&] { return job->source->compute(job->tokens, job->num_prompt, job->words); });
    lock.lock();
    job->state = done ? RowMask::State::kReady : RowMask::State::kFailed;
    if (!done) job->error = done.error().message;
    done_.notify_all();
  }
}

}  // namespace lmtp::engine
