#include "write_queue.h"

#include <cstdint>
#include <utility>

namespace lmtp::server {
namespace {

std::size_t bytes_of(const std::string& text) { return sizeof(std::string) + text.capacity(); }

}  // namespace

bool WriteQueue::add(std::string text) {
  num_bytes_ += bytes_of(text);
  texts_.push_back(std::move(text));
  if (num_bytes_ > max_bytes_) {
    registry_.log_closed(id_, "its client does not read what it asked for");
    clear();
    return false;
  }
  if (!part_.set(num_bytes_)) registry_.reclaim(Held::kWriteQueue);
  return true;
}

const std::string& WriteQueue::begin_write() {
  writing_ = true;
  if (is_traced()) write_begin_ = trace::Clock::now();
  return texts_.front();
}

// On the track of its connection.
void WriteQueue::trace_write() const {
  trace::Record record{.kind = trace::Record::Kind::kSpan,
                       .process = trace::Trace::kServerProcess,
                       .track = id_,
                       .category = "connection",
                       .name = "write",
                       .begin = write_begin_,
                       .end = trace::Clock::now()};
  record.with("connection", static_cast<std::int64_t>(id_))
      .with("bytes", static_cast<std::int64_t>(texts_.front().size()));
  trace_->add({&record, 1});
}

void WriteQueue::written() {
  writing_ = false;
  if (is_traced()) trace_write();
  num_bytes_ -= bytes_of(texts_.front());
  part_.set(num_bytes_);
  texts_.pop_front();
}

void WriteQueue::clear() {
  texts_.resize(writing_ ? 1 : 0);
  num_bytes_ = writing_ ? bytes_of(texts_.front()) : 0;
  part_.set(num_bytes_);
}

}  // namespace lmtp::server
