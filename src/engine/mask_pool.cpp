#include "mask_pool.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "lmtp/base/guarded.h"
#include "lmtp/base/runtime.h"
#include "lmtp/request/mask_source.h"

namespace lmtp::engine {
namespace {

using scheduler::RowMask;

// The sequence of a row that needs a mask, or null. One that has drafts may draw anything.
const scheduler::Sequence* masked(const scheduler::StepPlan& plan, std::size_t row,
                                  const scheduler::Scheduler& scheduler) {
  const scheduler::Sequence* sequence = scheduler.sequence_of(plan, row);
  const bool wants =
      sequence != nullptr && sequence->mask_source != nullptr && plan.rows[row].num_drafts == 0;
  return wants && plan.rows[row].draws() ? sequence : nullptr;
}

// Tokens of the prompt that do not count as generated.
std::size_t num_before_of(const scheduler::Sequence& sequence) {
  return static_cast<std::size_t>(sequence.num_prompt - sequence.num_resumed);
}

// Masks are computed beside the model's own threads.
std::size_t num_mask_threads() {
  constexpr unsigned kThreadsMax = 4;
  if (runtime::is_simulated()) return 2;  // whatever machine it is on
  return std::clamp(std::thread::hardware_concurrency() / 4, 1U, kThreadsMax);
}

}  // namespace

// What those who compute masks need; it may outlive the pool.
struct MaskPool::Shared {
  std::mutex mutex;
  runtime::Condition done;
};

struct MaskPool::Job {
  std::shared_ptr<const MaskSource> source;
  std::vector<TokenId> tokens;
  std::size_t num_before = 0;
  std::vector<std::uint32_t> words;
  NextTokens next;  // of `words`; written before `state` says so
  // Guarded by the pool's mutex.
  Error error;
  RowMask::State state = RowMask::State::kLate;

  // The engine's thread alone.
  bool was_late = false;  // in a step before
  bool is_spent = false;  // a row had it, and the source is to be asked anew

  std::span<const TokenId> before() const { return std::span(tokens).first(num_before); }
  std::span<const TokenId> generated() const { return std::span(tokens).subspan(num_before); }
  bool begin(const MaskSource::Done& done) {
    return source->begin(before(), generated(), next, done);
  }
  Result<void> compute() { return source->compute(before(), generated(), next); }
  bool allows_none() const {
    return std::ranges::all_of(words, [](std::uint32_t word) { return word == 0; });
  }
  bool is_of(const scheduler::Sequence& sequence) const {
    return source == sequence.mask_source && num_before == num_before_of(sequence) &&
           tokens == sequence.tokens;
  }
};

MaskPool::MaskPool(int vocab_size)
    : num_words_((static_cast<std::size_t>(vocab_size) + 31) / 32),
      shared_(std::make_shared<Shared>()) {}

MaskPool::~MaskPool() {
  {
    const std::lock_guard lock(shared_->mutex);
    stopping_ = true;
  }
  has_work_.notify_all();
  for (runtime::Thread& thread : threads_) thread.join();
}

void MaskPool::begin(const scheduler::StepPlan& plan, const scheduler::Scheduler& scheduler) {
  masks_.clear();
  of_row_.assign(plan.rows.size(), nullptr);
  for (std::size_t i = 0; i < plan.rows.size(); ++i) {
    const scheduler::Sequence* const wanted = masked(plan, i, scheduler);
    if (wanted == nullptr) continue;
    const scheduler::Sequence& sequence = *wanted;
    const auto known = jobs_.find(sequence.key);
    if (known != jobs_.end() && known->second->is_of(sequence) && !known->second->is_spent) {
      of_row_[i] = known->second;
      continue;
    }
    of_row_[i] = jobs_[sequence.key] = make_job(sequence);
  }
  drop_unused(scheduler);
}

std::shared_ptr<MaskPool::Job> MaskPool::make_job(const scheduler::Sequence& sequence) {
  auto job = std::make_shared<Job>();
  job->source = sequence.mask_source;
  job->tokens = sequence.tokens;
  job->num_before = num_before_of(sequence);
  job->words.resize(num_words_);
  job->next.words = job->words;
  const auto done = [shared = shared_, job](Result<void> result) {
    end(*shared, *job, std::move(result));
  };
  if (job->begin(done)) return job;
  {
    const std::lock_guard lock(shared_->mutex);
    queue_.push_back(job);
  }
  has_work_.notify_one();
  while (threads_.size() < num_mask_threads()) threads_.emplace_back([this] { work(); });
  return job;
}

void MaskPool::end(Shared& shared, Job& job, Result<void> done) {
  if (done && job.next.draws && job.allows_none()) {
    done = Error{ErrorCode::kConstraint, "constraint: allows no token here"};
  }
  {
    const std::lock_guard lock(shared.mutex);
    if (!done) job.error = done.error();
    job.state = !done            ? RowMask::State::kFailed
                : job.next.draws ? RowMask::State::kReady
                                 : RowMask::State::kHeld;
  }
  shared.done.notify_all();
}

// A sequence that was set back is in a later plan again, and finds its mask then.
void MaskPool::drop_unused(const scheduler::Scheduler& scheduler) {
  if (jobs_.empty()) return;
  std::erase_if(jobs_, [&](const auto& entry) {
    const scheduler::Sequence* const sequence = scheduler.sequence(entry.first);
    return sequence == nullptr || !entry.second->is_of(*sequence);
  });
  const std::lock_guard lock(shared_->mutex);
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
  const auto since = runtime::Clock::now();
  std::unique_lock lock(shared_->mutex);
  shared_->done.wait_for(lock, std::chrono::milliseconds(wait_ms), [&] {
    return std::ranges::all_of(of_row_, [&](const std::shared_ptr<Job>& job) {
      return job == nullptr || job->state != RowMask::State::kLate || (has_others && job->was_late);
    });
  });
  for (const std::shared_ptr<Job>& job : of_row_) {
    if (job == nullptr) {
      masks_.push_back({});
    } else {
      job->was_late = job->state == RowMask::State::kLate;
      job->is_spent = !job->was_late && !job->source->is_of_tokens_alone();
      ++counts_.num_masks;
      counts_.num_late += job->was_late ? 1 : 0;
      masks_.push_back({.state = job->state, .words = job->words.data(), .error = job->error});
    }
  }
  counts_.waited += runtime::Clock::now() - since;
  return masks_;
}

// Where memory ran out as a later step began, the masks are of that one, or of none: the engine
// starts over, and takes nothing of the result.
void MaskPool::add_forced(scheduler::StepResult& result) const {
  if (masks_.size() > std::min(result.rows.size(), of_row_.size())) return;
  for (std::size_t i = 0; i < masks_.size(); ++i) {
    const bool is_ready = masks_[i].state == RowMask::State::kReady && of_row_[i] != nullptr;
    if (is_ready) result.rows[i].forced = of_row_[i]->next.forced;
  }
}

void MaskPool::work() {
  std::unique_lock lock(shared_->mutex);
  while (true) {
    has_work_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
    if (stopping_) return;
    const std::shared_ptr<Job> job = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    end(*shared_, *job, guarded([&] { return job->compute(); }));
    lock.lock();
  }
}

}  // namespace lmtp::engine
