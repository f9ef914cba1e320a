// The streams of a batch, and those that run before and beside them.
#pragma once

#include <cstdint>
#include <vector>

#include "lmtp/request/request.h"

namespace lmtp::numerics {

// The model's limits for drawing streams.
struct StreamLimits {
  int vocab_size = 0;
  int context_length = 0;
};

// Tokens that every stream generates or scores at least, and at most.
inline constexpr int kTokensMin = 32;
inline constexpr int kTokensMax = 56;
// Of most prompts; the longest chunk of a grid takes steps of many of them.
inline constexpr int kPromptMax = 256;
// The smallest vocabulary, for a batch of 64 and as many hogs.
inline constexpr int kVocabSizeMin = 128;
inline constexpr int kContextMin = 152;
// The context that is used at most: enough for streams longer than the longest chunk of a grid, and
// for three splits of attention (kernels/attention.h).
inline constexpr int kContextMax = 640;

// A batch: generated, then scored, of mixed lengths, biases, temperatures and penalties. The first
// of the scored, or the only stream, is longer than any chunk of a grid, or as long as the context
// allows. The first tokens of the prompts differ, so that none finds another's prefix cached.
// Without keys and sinks. `lone_score`: the only stream scores; several are always mixed.
// Any thread. REQUIRES: 2 * count <= vocab_size.
std::vector<Request> draw_batch(std::uint64_t seed, int count, bool lone_score,
                                const StreamLimits& limits);

// How many of a batch generate; they come before those that score.
int num_generated(const std::vector<Request>& batch);

// Tokens that all scored streams of a batch of `count` compute in one step at most, where each may
// take as many as the longest chunk of a grid.
int scored_tokens_max(int count);

// Streams whose prompts share prefixes with those of `batch` that end inside a block, of the same
// adapters; a few generate long texts. Of a prompt over kPromptMax they share at most
// kSharedOfLongMax tokens. There is none for prompts of less than two tokens.
inline constexpr int kSharedOfLongMax = 7;
std::vector<Request> draw_forerunners(std::uint64_t seed, const std::vector<Request>& batch,
                                      const StreamLimits& limits);

// As many streams as the batch has ("hogs"), which grow while those of the batch run; the first up
// to the whole context. Their prompts share no prefix with the batch of that seed.
std::vector<Request> draw_hogs(std::uint64_t seed, int batch_size, const StreamLimits& limits);

// How many steps after the one before it each of `count` streams arrives; most come together with
// others, all within kArrivalSteps.
inline constexpr int kArrivalSteps = 8;
std::vector<int> draw_gaps(std::uint64_t seed, std::size_t count);

// KV blocks that it takes at its beginning (its prompt) and at its end.
int blocks_of_prompt(const Request& request);
int blocks_at_end(const Request& request);

// Tokens that its client receives.
int tokens_to_come(const Request& request);

}  // namespace lmtp::numerics
