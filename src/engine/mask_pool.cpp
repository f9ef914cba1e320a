#include "mask_pool.h"

#include <algorithm>
#include <exception>
#include <string>
#include <utility>

#include "lmtp/request/mask_source.h"

namespace lmtp::engine {
namespace {

using scheduler::RowMask;

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
  std::string error;
  RowMask::State state = RowMask::State::kLate;
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

bool MaskPool::begin(const scheduler::StepPlan& plan) {
  of_row_.assign(plan.rows.size(), nullptr);
  bool has_any = false;
  for (std::size_t i = 0; i < plan.rows.size(); ++i) {
    const scheduler::PlanRow& row = plan.rows[i];
    const scheduler::Sequence& sequence = *row.sequence;
    if (sequence.mask_source == nullptr || row.num_logits == row.num_scored) continue;
    has_any = true;
    std::shared_ptr<Job>& job = jobs_[sequence.key];
    if (job == nullptr || job->source != sequence.mask_source || job->tokens != sequence.tokens) {
      job = std::make_shared<Job>();
      job->source = sequence.mask_source;
      job->tokens = sequence.tokens;
      job->num_prompt = sequence.num_prompt;
      job->words.resize(num_words_);
      const std::lock_guard lock(mutex_);
      queue_.push_back(job);
      has_work_.notify_one();
    }
    of_row_[i] = job;
  }
  std::erase_if(jobs_, [&](const auto& entry) {
    return std::ranges::find(of_row_, entry.second) == of_row_.end();
  });
  for (int i = 0; has_any && threads_.empty() && i < num_mask_threads(); ++i) {
    threads_.emplace_back([this] { work(); });
  }
  return has_any;
}

std::span<const RowMask> MaskPool::wait(std::chrono::steady_clock::time_point deadline) {
  masks_.clear();
  if (jobs_.empty()) return masks_;
  std::unique_lock lock(mutex_);
  done_.wait_until(lock, deadline, [&] {
    return std::ranges::all_of(
        jobs_, [](const auto& entry) { return entry.second->state != RowMask::State::kLate; });
  });
  for (const std::shared_ptr<Job>& job : of_row_) {
    if (job == nullptr) {
      masks_.push_back({});
    } else {
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
    RowMask::State state = RowMask::State::kReady;
    try {
      const Result<void> done = job->source->compute(job->tokens, job->num_prompt, job->words);
      if (!done.ok()) {
        state = RowMask::State::kFailed;
        job->error = done.error().message;
      }
    } catch (const std::exception& exception) {
      state = RowMask::State::kFailed;
      job->error = exception.what();
    }
    lock.lock();
    job->state = state;
    done_.notify_all();
  }
}

}  // namespace lmtp::engine
