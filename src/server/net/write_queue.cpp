#include "write_queue.h"

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
  return texts_.front();
}

void WriteQueue::written() {
  writing_ = false;
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
