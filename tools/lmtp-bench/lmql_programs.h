// The ways in which LMQL uses a model, as its client sends them (LMQL, src/lmql/models/lmtp and
// src/lmql/runtime/dclib).
#pragma once

#include <memory>
#include <vector>

#include "program.h"

namespace lmtp::tools {

inline constexpr int kLmqlChunkTokens = 16;  // LMQL's default chunksize
inline constexpr int kLmqlBeamsMax = 1024;   // the protocol's top_logprobs

// argmax or sample under constraints: chunks of 16 tokens with the same mask, each sent with the
// prompt and all tokens so far. REQUIRES: output_tokens >= 1.
std::unique_ptr<Program> chunk_program(std::vector<TokenId> prompt, int output_tokens);

// Beam search: every step requests one token with its best alternatives for each beam, and
// continues with the best `num_beams` of all. REQUIRES: num_steps >= 1, num_beams in [1,
// kLmqlBeamsMax].
std::unique_ptr<Program> beam_program(std::vector<TokenId> prompt, int num_steps, int num_beams);

// `X in [...]` and `distribution`: texts scored at once behind one prefix.
std::unique_ptr<Program> score_program(std::vector<TokenId> prompt,
                                       std::vector<std::vector<TokenId>> texts);

}  // namespace lmtp::tools
