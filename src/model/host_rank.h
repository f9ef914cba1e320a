// HostRank: a Communicator that sums and gathers in host memory.
#pragma once

#include "kernels/memory.h"
#include "lmtp/model/communicator.h"

namespace lmtp::model {

class HostRank : public Communicator {
 public:
  explicit HostRank(Shard shard) : shard_(shard) {}

  Shard shard() const override { return shard_; }
  void sum(kernels::Stream& stream, kernels::Matrix<float> y) override;
  void gather(kernels::Stream& stream, kernels::Matrix<float> y) override;

 private:
  // As sum() and gather(), of y [m, n] f32 in host memory.
  virtual void sum_on_host(kernels::Matrix<float> y) = 0;
  virtual void gather_on_host(kernels::Matrix<float> y) = 0;

  // Calls combine(y), on a device with a copy of y, which is copied back.
  template <typename Combine>
  void on_host(kernels::Stream& stream, kernels::Matrix<float> y, const Combine& combine);

  const Shard shard_;
  kernels::Memory staged_;  // page-locked, of a device's matrix
};

}  // namespace lmtp::model
