// Instance: a request's controller, until a sequence is bound to it.
#pragma once

#include <memory>
#include <new>
#include <string>
#include <utility>

#include "lmtp/aici/runtime.h"

namespace lmtp::aici {

// Owner: a request. One thread at a time.
class Instance {
 public:
  // REQUIRES: the runtime has instantiated it under that id.
  Instance(std::shared_ptr<Runtime> runtime, std::string request_id)
      : runtime_(std::move(runtime)), request_id_(std::move(request_id)) {}
  ~Instance() {
    try {
      if (runtime_ != nullptr) runtime_->discard(request_id_);
    } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): the runtime keeps it
    }
  }
  Instance(const Instance&) = delete;
  Instance& operator=(const Instance&) = delete;

  // REQUIRES, of both: bind() has not been called.
  const std::shared_ptr<Runtime>& runtime() const { return runtime_; }
  void bind(Sequence sequence) {
    runtime_->bind(request_id_, sequence);
    runtime_.reset();  // not where that had no memory: the request is discarded then
  }

 private:
  std::shared_ptr<Runtime> runtime_;  // null: bound
  const std::string request_id_;
};

}  // namespace lmtp::aici
