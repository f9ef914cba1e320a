// MaskSource: what may follow a stream's tokens, where that depends on those before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "lmtp/base/ids.h"
#include "lmtp/base/result.h"

namespace lmtp {

// What may follow.
struct NextTokens {
  // The tokens that may be drawn: token i is bit i % 32 of words[i / 32].
  // [ceil(vocabulary / 32)], all zero at first.
  std::span<std::uint32_t> words;
  // Where only one text may follow: the tokens behind the one that is drawn, which are appended
  // together. The words have one bit then, and behind these tokens another one is drawn.
  std::vector<TokenId> forced = {};
  // False: nothing is drawn, the words do not matter, and the stream is held (a controlled one).
  bool draws = true;
};

// Owner: a request, then its sequence.
class MaskSource {
 public:
  virtual ~MaskSource() = default;

  // What may follow a stream: `before`, the tokens of its prompt that do not count as generated,
  // and `generated`, all others. The error ends the stream. Any thread, also several at a time; it
  // may take longer than a step.
  virtual Result<void> compute(std::span<const TokenId> before, std::span<const TokenId> generated,
                               NextTokens& next) const = 0;

  // Calls `done` once, on any thread, perhaps within the call; `next` is there until then. False:
  // it does not, and compute() is called on a thread that may wait. On the engine's thread.
  using Done = std::function<void(Result<void>)>;
  virtual bool begin(std::span<const TokenId> /*before*/, std::span<const TokenId> /*generated*/,
                     NextTokens& /*next*/, const Done& /*done*/) const {
    return false;
  }

  // How many of `drafts`, which may follow `generated`, come where anything may: before the first
  // of them and after each of so many, compute() would allow every token and force none. On the
  // engine's thread; must not block.
  virtual std::size_t num_free(std::span<const TokenId> /*generated*/,
                               std::span<const TokenId> /*drafts*/) const {
    return 0;
  }

  // Whether an answer is a function of the arguments alone: it is then used again where a stream
  // comes back to the same tokens. Else each is used once, and the source is asked anew.
  virtual bool is_of_tokens_alone() const { return true; }

  // The source of a fork, which begins with the same tokens. Must not block.
  virtual std::shared_ptr<const MaskSource> forked() const = 0;
};

}  // namespace lmtp
