// Communicator: sums and gathers over the ranks of a model whose weights are divided among them.
#pragma once

#include <stdexcept>

#include "kernels/matrix.h"
#include "kernels/stream.h"
#include "lmtp/model/shard.h"

namespace lmtp::model {

// Another rank failed, or did not come. The group is at an end.
class RankError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Owner: the agent of its rank; one thread at a time.
class Communicator {
 public:
  Communicator() = default;
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  virtual Shard shard() const = 0;

  // y [m, n] f32, where the ops of `stream` run, becomes the sum over all ranks, on each of them.
  // It is added in the order of the ranks, ((y0 + y1) + y2) + ..., so that a row's bits depend
  // neither on which rank comes first nor on other rows. Throws RankError; y is undefined then.
  // REQUIRES: all ranks make the same calls, with the same m and n, in the same order.
  virtual void sum(kernels::Stream& stream, kernels::Matrix<float> y) = 0;

  // The same, but of y [m, n] each rank has written columns alone, those of vocab_share(n,
  // shard()), and gets those of the others. Throws and REQUIRES as sum().
  virtual void gather(kernels::Stream& stream, kernels::Matrix<float> y) = 0;
};

// Of a model that is not divided: the sum is y itself.
class SingleRank : public Communicator {
 public:
  Shard shard() const override { return {}; }
  void sum(kernels::Stream&, kernels::Matrix<float>) override {}
  void gather(kernels::Stream&, kernels::Matrix<float>) override {}
};

}  // namespace lmtp::model
