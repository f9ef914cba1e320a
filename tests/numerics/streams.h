// The streams of a batch, and the others that run before and beside them.
#pragma once

#include <cstdint>
#include <vector>

#include "lmtp/engine/request.h"

namespace lmtp::numerics {

// What may be drawn for a model.
struct StreamLimits {
  int vocab_size = 0;
  int context_length = 0;
};

// Tokens that every stream generates or scores at least, and at most.
inline constexpr int kTokensMin = 32;
inline constexpr int kTokensMax = 56;
// What a model must have for a batch of 64 and as many hogs.
inline constexpr int kVocabSizeMin = 128;
inline constexpr int kContextMin = 152;

// A batch: generated and scored, of mixed lengths, biases, temperatures and penalties. The first
// tokens of their prompts differ, so that none finds another's prefix cached. Without keys and
// sinks. Any thread. REQUIRES: 2 * count <= vocab_size.
std::vector<engine::Request> draw_batch(std::uint64_t seed, int count, const StreamLimits& limits);

// Streams whose prompts agree with those of `batch` up to somewhere inside a block; a few go on for
// long. Those of the batch with less than two tokens of prompt have none.
std::vector<engine::Request> draw_forerunners(std::uint64_t seed,
                                              const std::vector<engine::Request>& batch,
                                              const StreamLimits& limits);

// As many streams again, which grow while those of the batch come and go; the first until it has
// the whole context. Their prompts begin as none of the batch of that seed.
std::vector<engine::Request> draw_hogs(std::uint64_t seed, int batch_size,
                                       const StreamLimits& limits);

// How many steps after the one before it each of `count` streams arrives; most come together with
// others, all within a few steps.
std::vector<int> draw_gaps(std::uint64_t seed, std::size_t count);

// KV blocks that it takes at its beginning (its prompt) and at its end.
int blocks_of_prompt(const engine::Request& request);
int blocks_at_end(const engine::Request& request);

// Tokens that its client is sent.
int tokens_to_come(const engine::Request& request);

}  // namespace lmtp::numerics
