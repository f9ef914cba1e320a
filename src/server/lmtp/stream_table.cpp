#include "stream_table.h"

#include <utility>

#include "lmtp/base/check.h"

namespace lmtp::server {

void StreamTable::add(StreamId id, std::shared_ptr<registry::StreamCanceller> canceller) {
  const bool is_new = streams_.emplace(id, Live{std::move(canceller)}).second;
  LMTP_CHECK(is_new, connection_, id);
}

void StreamTable::cancel(StreamId id) {
  const auto found = streams_.find(id);
  if (found == streams_.end() || found->second.cancelled) return;
  found->second.cancelled = true;
  found->second.canceller->cancel({connection_, id});
}

void StreamTable::cancel_all() {
  for (const auto& [id, live] : streams_) {
    if (!live.cancelled) live.canceller->cancel_later({connection_, id});
  }
  streams_.clear();
}

}  // namespace lmtp::server
