#include "stream_table.h"

#include <utility>

#include "lmtp/base/check.h"

namespace lmtp::server {

StreamTable::Live* StreamTable::find(StreamId id) {
  const auto found = streams_.find(id);
  return found != streams_.end() ? &found->second : nullptr;
}

StreamTable::Live& StreamTable::add(StreamId id,
                                    std::shared_ptr<registry::StreamCanceller> canceller,
                                    std::string model) {
  Live live{.canceller = std::move(canceller), .extended = nullptr, .model = std::move(model)};
  const auto [at, is_new] = streams_.emplace(id, std::move(live));
  LMTP_CHECK(is_new, connection_, id);
  return at->second;
}

StreamTable::Live& StreamTable::add(StreamId id, std::unique_ptr<ExtendedStream> extended) {
  const auto [at, is_new] = streams_.emplace(
      id, Live{.canceller = nullptr, .extended = std::move(extended), .model = {}});
  LMTP_CHECK(is_new, connection_, id);
  const ExtendedStream& stream = *at->second.extended;
  if (stream.first_deadline) deadlines_.insert({*stream.first_deadline, id, true});
  if (stream.deadline) deadlines_.insert({*stream.deadline, id, false});
  return at->second;
}

void StreamTable::erase(StreamId id) {
  const auto found = streams_.find(id);
  if (found == streams_.end()) return;
  if (found->second.extended != nullptr) met_all(id, *found->second.extended);
  streams_.erase(found);
}

template <typename End>
void StreamTable::end(StreamId id, const Live& live, const End& end_sample) const {
  if (live.canceller != nullptr) end_sample(*live.canceller, StreamKey{connection_, id});
  if (live.extended == nullptr) return;
  if (live.extended->rows != nullptr) {
    for (const auto& [row, canceller] : live.extended->rows->live) {
      end_sample(*canceller, StreamKey{connection_, id, row});
    }
  }
  int index = 0;
  for (const ExtendedStream::Sample& sample : live.extended->samples) {
    const StreamKey key{connection_, id, index++};
    if (sample.canceller != nullptr) end_sample(*sample.canceller, key);
  }
}

void StreamTable::cancel(StreamId id) {
  Live* live = find(id);
  if (live == nullptr || std::exchange(live->cancelled, true)) return;
  if (live->extended != nullptr) met_all(id, *live->extended);
  end(id, *live,
      [](registry::StreamCanceller& canceller, StreamKey key) { canceller.cancel(key); });
}

void StreamTable::cancel_all() {
  for (const auto& [id, live] : streams_) {
    if (live.cancelled) continue;
    end(id, live,
        [](registry::StreamCanceller& canceller, StreamKey key) { canceller.cancel_later(key); });
  }
  streams_.clear();
  deadlines_.clear();
}

std::optional<StreamTable::Deadline> StreamTable::next_deadline() const {
  if (deadlines_.empty()) return std::nullopt;
  return *deadlines_.begin();
}

void StreamTable::met_first(StreamId id, ExtendedStream& stream) {
  if (!stream.first_deadline) return;
  deadlines_.erase({*stream.first_deadline, id, true});
  stream.first_deadline.reset();
}

void StreamTable::met_all(StreamId id, ExtendedStream& stream) {
  met_first(id, stream);
  if (!stream.deadline) return;
  deadlines_.erase({*stream.deadline, id, false});
  stream.deadline.reset();
}

}  // namespace lmtp::server
