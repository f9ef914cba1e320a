#include "stream_end.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "lmtp/request/logit_bias.h"

namespace lmtp::scheduler {

bool check_stops(Sequence& sequence, TokenId token, bool is_appended) {
  const bool may_stop = sequence.num_counted() >= sequence.params.min_tokens;
  if (sequence.is_end_withheld && may_stop) {
    sequence.params.logit_bias = std::move(sequence.own_bias);
    sequence.is_end_withheld = false;
  }
  return sequence.stops != nullptr && sequence.stops->push(token, may_stop && !is_appended);
}

void withhold_end(Sequence& sequence, std::span<const TokenId> eos_ids) {
  SamplingParams& params = sequence.params;
  if (sequence.kind != RequestKind::kGenerate || sequence.is_end_withheld ||
      sequence.num_counted() >= params.min_tokens) {
    return;
  }
  std::vector<TokenId> ids = params.end_ids(eos_ids);
  if (ids.empty()) return;
  std::ranges::sort(ids);
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  std::shared_ptr<const LogitBias> withholding = forbid(params.logit_bias.get(), ids);
  sequence.own_bias = std::exchange(params.logit_bias, std::move(withholding));
  sequence.is_end_withheld = true;
}

}  // namespace lmtp::scheduler
