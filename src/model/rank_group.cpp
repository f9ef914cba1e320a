#include "lmtp/model/rank_group.h"

#include <cstddef>
#include <numeric>
#include <vector>

#include "gloo_ranks.h"
#include "lmtp/base/check.h"
#include "lmtp/model/local_ranks.h"
#include "nccl_ranks.h"

namespace lmtp::model {

const char* transport_name(Transport transport) {
  return transport == Transport::kLocal ? "local" : transport == Transport::kGloo ? "gloo" : "nccl";
}

Result<std::unique_ptr<RankGroup>> make_rank_group(Transport transport, int count,
                                                   std::chrono::milliseconds timeout,
                                                   int first_device) {
  if (transport == Transport::kGloo) return make_gloo_ranks(count, timeout);
  if (transport == Transport::kLocal) {
    return std::unique_ptr<RankGroup>(std::make_unique<LocalRanks>(count, timeout));
  }
  LMTP_CHECK(first_device >= 0, first_device);
  const Result<const NcclApi*> nccl = load_nccl();
  if (!nccl) return nccl.error();
  std::vector<int> devices(static_cast<std::size_t>(count));
  std::iota(devices.begin(), devices.end(), first_device);
  return make_nccl_ranks(**nccl, devices, timeout);
}

Result<void> check_transport(Transport transport, int count) {
  if (transport == Transport::kNccl) {
    const Result<const NcclApi*> nccl = load_nccl();
    return nccl ? Result<void>() : Result<void>(nccl.error());
  }
  const auto group = make_rank_group(transport, count);
  return group ? Result<void>() : Result<void>(group.error());
}

}  // namespace lmtp::model
