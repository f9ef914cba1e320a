#include "stream_table.h"

#include "lmtp/base/check.h"

namespace lmtp::server {

void StreamTable::add(StreamId id, const engine::EngineInstance& engine) {
  const bool is_new = streams_.emplace(id, Live{engine}).second;
  LMTP_CHECK(is_new, connection_, id);
}

void StreamTable::cancel(StreamId id) {
  const auto found = streams_.find(id);
  if (found == streams_.end() || found->second.cancelled) return;
  found->second.cancelled = true;
  found->second.engine.cancel({connection_, id});
}

void StreamTable::cancel_all() {
  for (const auto& [id, live] : streams_) {
    if (!live.cancelled) live.engine.cancel({connection_, id});
  }
  streams_.clear();
}

}  // namespace lmtp::server
