#include "lmtp/scheduler/draft_policy.h"

#include <algorithm>
#include <cstddef>
#include <span>

#include "repeats.h"
#include "sequence_rows.h"

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
// Steps without drafts after one in which all were refused; twice as many each time.
constexpr int kShortestPause = 4;
constexpr int kLongestPause = 256;
constexpr std::size_t kRepeatMin = 3;

}  // namespace

int DraftPolicy::room(const StepPlan& plan) const {
  if (options_.debug.eager_drafts) return options_.batch.max_tokens - plan.num_tokens;
  const int most = std::min(options_.batch.max_tokens, kStepTokensMax);
  return std::min(most - plan.num_tokens, credit_ / kPrice - static_cast<int>(plan.drafts.size()));
}

// First what followed the sequence's tokens in another one; else what followed the last few in
// itself, which may be a part that repeats from here on. One token is drawn after the drafts.
int DraftPolicy::append(const Sequence& sequence, int room, std::int64_t step,
                        const cache::PrefixCache& prefixes, std::vector<TokenId>& drafts) const {
  const bool is_eager = options_.debug.eager_drafts;
  if (sequence.is_controlled || sequence.is_end_withheld ||
      (!is_eager && step < sequence.drafts_from)) {
    return 0;
  }
  const int wanted =
      std::min({room, is_eager ? room : sequence.num_drafts_next, options_.max_drafts,
                num_tokens_max(sequence) - sequence.length() - 1});
  const auto most = static_cast<std::size_t>(std::max(wanted, 0));
  const std::size_t before = drafts.size();
  const std::span<const TokenId> tokens(sequence.tokens);
  const std::span<const TokenId> cached =
      sequence.blocks.following(prefixes, sequence.name_space, tokens, sequence.num_computed);
  if (!cached.empty()) {
    const auto count = static_cast<std::ptrdiff_t>(std::min(most, cached.size()));
    drafts.insert(drafts.end(), cached.begin(), cached.begin() + count);
  } else {
    const auto repeated = find_repeat(tokens, is_eager ? 1 : kRepeatMin);
    for (std::size_t i = 0; i < most && !repeated.empty(); ++i) {
      drafts.push_back(repeated[i % repeated.size()]);
    }
  }
  if (sequence.mask_source != nullptr && drafts.size() > before) {
    const auto first = static_cast<std::size_t>(sequence.num_prompt - sequence.num_resumed);
    const std::size_t num_free =
        sequence.mask_source->num_free(tokens.subspan(first), std::span(drafts).subspan(before));
    drafts.resize(before + num_free);
  }
  return static_cast<int>(drafts.size() - before);
}

void DraftPolicy::count(Sequence& sequence, const PlanRow& row, int num_accepted,
                        std::int64_t step) {
  const int num_refused = row.num_drafts - num_accepted;
  credit_ += row.num_tokens + kGain * num_accepted - kPrice * num_refused;
  credit_ = std::min(credit_, kCreditMax);
  if (row.num_drafts == 0) return;
  if (num_accepted == 0) {
    sequence.num_drafts_next = 1;
    sequence.drafts_from = step + sequence.draft_pause;
    sequence.draft_pause = std::min(2 * sequence.draft_pause, kLongestPause);
    return;
  }
  const int next = num_refused == 0 ? 2 * sequence.num_drafts_next : num_accepted;
  sequence.num_drafts_next = std::min(next, options_.max_drafts);
  sequence.draft_pause = kShortestPause;
}

}  // namespace lmtp::scheduler
