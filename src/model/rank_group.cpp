#include "lmtp/model/rank_group.h"

#include "gloo_ranks.h"
#include "lmtp/model/local_ranks.h"

namespace lmtp::model {

const char* transport_name(Transport transport) {
  return transport == Transport::kGloo ? "gloo" : "local";
}

Result<std::unique_ptr<RankGroup>> make_rank_group(Transport transport, int count,
                                                   std::chrono::milliseconds timeout) {
  if (transport == Transport::kGloo) return make_gloo_ranks(count, timeout);
  return std::unique_ptr<RankGroup>(std::make_unique<LocalRanks>(count, timeout));
}

}  // namespace lmtp::model
