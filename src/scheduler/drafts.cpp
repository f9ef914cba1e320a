// The part of Scheduler that drafts: tokens that may be drawn next go through the model with the
// last known one, and those that are drawn indeed need no step of their own.
#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "lmtp/scheduler/scheduler.h"
#include "repeats.h"
#include "token_budget.h"

namespace lmtp::scheduler {
namespace {

// More rows take a CPU proportionally longer: there drafts would not come for free.
constexpr int kStepTokensMax = 32;
// Drafts are paid for by what a step computes, in fortieths of a row: so refused ones are at most a
// fortieth of all rows and a quarter of those accepted. That is, more than a twentieth only where
// at least twice as many are accepted.
constexpr int kPrice = 40;
constexpr int kGain = 10;
constexpr int kCreditMax = 64 * kPrice;
// Steps without drafts behind one in which all were refused; twice as many each time.
constexpr int kShortestPause = 4;
constexpr int kLongestPause = 256;
constexpr std::size_t kRepeatMin = 3;

}  // namespace

// Of a row that draws. Not where masks or a controller decide what comes, by each token, and not
// before min_tokens, where the bias depends on the position.
bool Scheduler::may_draft(const Sequence& sequence) const {
  return sequence.mask_source == nullptr && !sequence.is_controlled && !sequence.is_end_withheld &&
         (options_.debug.eager_drafts || step_ >= sequence.drafts_from);
}

// At most `count`: what followed the sequence's tokens in another one; else what followed the last
// few in itself, which may be a part that repeats from here on.
void Scheduler::add_drafts(const Sequence& sequence, int count,
                           std::vector<TokenId>& drafts) const {
  const std::span<const TokenId> tokens(sequence.tokens);
  const int num_full = std::min(sequence.num_indexed, sequence.num_computed / kBlockSize);
  const BlockId parent = num_full == 0 ? cache::PrefixCache::root(sequence.adapter)
                                       : sequence.blocks[static_cast<std::size_t>(num_full) - 1];
  const auto tail = tokens.subspan(static_cast<std::size_t>(num_full) * kBlockSize);
  const auto wanted = static_cast<std::size_t>(count);
  const std::span<const TokenId> cached = prefix_cache_.following(parent, tail);
  if (!cached.empty()) {
    drafts.insert(drafts.end(), cached.begin(),
                  cached.begin() + static_cast<std::ptrdiff_t>(std::min(wanted, cached.size())));
    return;
  }
  const auto repeated = find_repeat(tokens, options_.debug.eager_drafts ? 1 : kRepeatMin);
  for (std::size_t i = 0; i < wanted && !repeated.empty(); ++i) {
    drafts.push_back(repeated[i % repeated.size()]);
  }
}

// Last of a plan: of what tokens and blocks are left. None is preempted for them.
void Scheduler::plan_drafts() {
  StepPlan& plan = making_->plan;
  const bool is_eager = options_.debug.eager_drafts;
  const int most =
      is_eager ? options_.batch.max_tokens : std::min(options_.batch.max_tokens, kStepTokensMax);
  for (std::size_t i = 0; i < plan.rows.size(); ++i) {
    PlanRow& row = plan.rows[i];
    Sequence& sequence = *making_->sequences[i];
    const auto num_before = static_cast<int>(plan.drafts.size());
    int room = most - plan.num_tokens;
    if (!is_eager) room = std::min(room, draft_credit_ / kPrice - num_before);
    if (room < 1) return;
    if (!row.draws() || !may_draft(sequence)) continue;
    // One is drawn behind them.
    const int wanted =
        std::min({room, is_eager ? room : sequence.num_drafts_next, options_.max_drafts,
                  num_tokens_max(sequence) - sequence.length() - 1});
    add_drafts(sequence, wanted, plan.drafts);
    const int count = static_cast<int>(plan.drafts.size()) - num_before;
    if (count < 1) continue;
    if (!reserve(sequence, row.num_tokens + count)) {
      plan.drafts.resize(static_cast<std::size_t>(num_before));
      continue;
    }
    row.num_drafts = count;
    row.num_tokens += count;
    row.num_logits += count;
    plan.num_tokens += count;
    plan.num_logits += count;
  }
}

// What a row has brought. A stream whose drafts are accepted gets more of them; one whose first is
// refused pauses.
void Scheduler::count_drafts(Sequence& sequence, const PlanRow& row, int num_accepted) {
  const int num_refused = row.num_drafts - num_accepted;
  counters_.num_accepted_drafts += num_accepted;
  counters_.num_refused_drafts += num_refused;
  draft_credit_ += row.num_tokens + kGain * num_accepted - kPrice * num_refused;
  draft_credit_ = std::min(draft_credit_, kCreditMax);
  if (row.num_drafts == 0) return;
  if (num_accepted == 0) {
    sequence.num_drafts_next = 1;
    sequence.drafts_from = step_ + sequence.draft_pause;
    sequence.draft_pause = std::min(2 * sequence.draft_pause, kLongestPause);
    return;
  }
  const int next = num_refused == 0 ? 2 * sequence.num_drafts_next : num_accepted;
  sequence.num_drafts_next = std::min(next, options_.max_drafts);
  sequence.draft_pause = kShortestPause;
}

}  // namespace lmtp::scheduler
