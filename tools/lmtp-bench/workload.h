// The programs of a load as a function of options and number: lengths, token ids, pattern.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "lmtp/base/ids.h"
#include "program.h"
#include "trace.h"

namespace lmtp::tools {

enum class LmqlPattern { kChunks, kBeams, kScores };

struct WorkloadOptions {
  std::uint64_t seed = 1;
  int vocab_size = 0;  // > 0; random ids are below it

  // Lengths, each drawn from [L - L * ratio, L + L * ratio], at least 1.
  int input_len = 128;
  int output_len = 64;
  double range_ratio = 0.0;  // [0, 1)
  // A prefix of each prompt that all programs of its group share; groups are drawn at random.
  int prefix_len = 0;
  int num_prefix_groups = 1;    // >= 1
  std::vector<TokenId> prompt;  // not empty: used for all, instead of random ids
  bool score = false;           // SCORE output_len random ids instead of generating

  // Not null (then not empty): lengths and shared blocks are those of its rows, repeated.
  std::shared_ptr<const std::vector<TraceRow>> trace;
  int trace_length_divisor = 1;  // [1, kTraceBlockTokens]; lengths are rounded up

  // Not empty: LMQL's programs, in turn, instead of single requests.
  std::vector<LmqlPattern> lmql;
  int lmql_beams = 4;
  int lmql_scores = 8;     // texts of a group
  int lmql_score_len = 6;  // tokens of each
};

// Program number `index` of a load. Pure; any thread. REQUIRES: options within their ranges.
std::unique_ptr<Program> make_program(const WorkloadOptions& options, std::uint64_t index);

// A trace's length, divided by the divisor as in make_program.
int divided_length(int tokens, int divisor);

// The ids that LMQL's mask forbids: `count` of the vocabulary, ascending, the same for a seed.
// REQUIRES: 0 <= count <= vocab_size.
std::vector<TokenId> mask_ids(std::uint64_t seed, int vocab_size, int count);

}  // namespace lmtp::tools
