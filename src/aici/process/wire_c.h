// Dialect C of the main channel: mid_process alone. Pure functions; any thread.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "process/bias_rows.h"
#include "process/wire.h"

namespace lmtp::aici::wire_c {

struct Op {
  Sequence id = 0;
  int backtrack = 0;
  std::vector<TokenId> tokens = {};
  std::optional<TokenId> sampled = {};
  // Of a sequence's first: either the request, or its parent and the branch there.
  std::optional<std::string> request_id = {};
  std::optional<Sequence> clone_id = {};
  std::optional<int> clone_idx = {};
};
Json command_of(const std::vector<Op>& ops, const std::vector<Sequence>& freed);

// backtrack counts the token that was drawn, in a branch that draws one.
struct WireSplice {
  std::vector<TokenId> when_sampled;
  int backtrack = 0;
  std::vector<TokenId> ff_tokens;
};
struct WireBranch {
  std::optional<std::size_t> sample_mask;  // a row
  std::optional<float> temperature;
  std::vector<WireSplice> splices;
};
struct Mid {
  std::vector<WireBranch> branches;
};
struct MidAnswer {
  Results<Mid> seqs;
  RowPlaces rows;
};
Result<MidAnswer> read_mid(const Json& data, int vocab_size);

}  // namespace lmtp::aici::wire_c
