// top_p over a row of weights, in time linear in the vocabulary.
#pragma once

#include <span>
#include <vector>

#include "lmtp/base/ids.h"

namespace lmtp::sampling {

// The nucleus of Holtzman et al. 2020: the shortest list of greatest weights, ties by the lowest
// id, that holds top_p of their sum. Instead of sorting the row, weights are summed in buckets of
// equal leading bits, and only the bucket in which the list ends is sorted.
//
// Owner: a Sampler; one thread at a time.
class Nucleus {
 public:
  Nucleus();

  // Sets the weights outside of the nucleus to zero. weights: [vocab_size] f32 in [0, 1], not all
  // zero; 0 < top_p < 1.
  void keep(std::span<float> weights, float top_p);

 private:
  std::vector<double> sums_;       // by bucket
  std::vector<TokenId> boundary_;  // ids of the bucket in which the list ends
};

}  // namespace lmtp::sampling
