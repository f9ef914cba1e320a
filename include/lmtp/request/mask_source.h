// MaskSource: which tokens a stream may draw next, where that depends on those before.
#pragma once

#include <cstdint>
#include <span>

#include "lmtp/base/ids.h"
#include "lmtp/base/result.h"

namespace lmtp {

// Owner: a request, then its sequence and those that are forked from it.
class MaskSource {
 public:
  virtual ~MaskSource() = default;

  // Sets the bits of the tokens that may follow `tokens`, prompt and all: token i is bit i % 32 of
  // words[i / 32]. words: [ceil(vocabulary / 32)], all zero. A function of its arguments alone: a
  // stream may be cut, forked, or computed again. The error ends the stream. Any thread, also
  // several at a time; it may take longer than a step.
  virtual Result<void> compute(std::span<const TokenId> tokens, int num_prompt,
                               std::span<std::uint32_t> words) const = 0;
};

}  // namespace lmtp
