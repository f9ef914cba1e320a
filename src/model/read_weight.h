// Reading of weights, for WeightStores.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>

#include "kernels/worker_pool.h"
#include "lmtp/base/result.h"
#include "lmtp/model/weight_store.h"

namespace lmtp::model {

// Reads bytes [first, first + count) of the weight to `to`. REQUIRES: they are whole elements. Any
// thread.
Result<void> read_weight(const StoredWeight& weight, std::uint64_t first, std::size_t count,
                         std::byte* to);

// The same, by all threads of the pool.
Result<void> read_weight(kernels::WorkerPool& pool, const StoredWeight& weight, std::uint64_t first,
                         std::size_t count, std::byte* to);

// The first error of several reading threads. Any thread.
class FirstError {
 public:
  void note(const Result<void>& done) {
    if (!done.ok()) {
      const std::lock_guard lock(mutex_);
      if (!error_.has_value()) error_ = done.error();
    }
  }
  // REQUIRES: the threads have finished.
  Result<void> result() const {
    return error_.has_value() ? Result<void>(*error_) : Result<void>();
  }

 private:
  std::mutex mutex_;
  std::optional<Error> error_;
};

}  // namespace lmtp::model
