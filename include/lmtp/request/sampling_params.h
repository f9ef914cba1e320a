// How the next token of a stream is chosen: the parameters of a request with their defaults.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "lmtp/base/draw_params.h"
#include "lmtp/base/ids.h"
#include "lmtp/base/pooling.h"

namespace lmtp {

// Values added to the logits of some tokens. Immutable and shared: LMQL sends the same mask of up
// to vocabulary / 2 entries with every chunk, so equal ones are kept once (see
// protocol::BiasCache).
struct LogitBias {
  std::vector<TokenId> ids;   // ascending, no duplicates, >= 0
  std::vector<float> values;  // [ids.size()], finite or -inf

  bool operator==(const LogitBias&) const = default;
};

// The tokens that may be drawn, a bit each: token i is bit i % 64 of word i / 64. What has no bit
// has probability 0. Immutable and shared.
struct TokenMask {
  std::vector<std::uint64_t> words;  // at least one bit is set
  int num_bytes = 0;                 // as sent: (vocabulary + 7) / 8

  bool allows(TokenId token) const {
    const auto at = static_cast<std::size_t>(token);
    return at / 64 < words.size() && ((words[at / 64] >> (at % 64)) & 1) != 0;
  }
  // Whether it allows a token of the vocabulary that is not among these. Bits beyond the vocabulary
  // do not count.
  bool allows_other(std::span<const TokenId> ids, int vocab_size) const;

  bool operator==(const TokenMask&) const = default;
};

// What is reported of each position beside log probabilities (Measured).
struct Measures {
  bool entropy = false;
  bool rank = false;

  bool any() const { return entropy || rank; }
  bool operator==(const Measures&) const = default;
};

struct SamplingParams : DrawParams {
  // >= 0: presence and frequency penalties count the occurrences from this position of the sequence
  // on, its prompt's tokens first; the repetition penalty counts all.
  int penalties_from = 0;
  int top_logprobs = 1;                         // [0, kMaxTopLogprobs]
  int max_tokens = 32;                          // >= 1
  bool has_seed = false;                        // false: the server picks a fresh seed
  std::shared_ptr<const LogitBias> logit_bias;  // null: none
  std::shared_ptr<const TokenMask> mask;        // null: all tokens may be drawn
  int min_tokens = 0;       // before so many generated ones nothing that would end the stream
  bool ignore_eos = false;  // the model's end-of-text tokens do not end the stream
  std::vector<TokenId> stop_token_ids;  // others that do; at most kMaxStopTokens
  // What is reported: of the logits as the model gave them; or after penalties, bias and mask.
  bool raw_logprobs = false;
  // Tokens whose log probabilities are reported at each position, whatever is drawn: distinct, and
  // with top_logprobs at most kMaxTopLogprobs. Null: none. Immutable.
  std::shared_ptr<const std::vector<TokenId>> logprob_token_ids;
  Measures measures;
  Pooling pooling = Pooling::kNone;  // of RequestKind::kEmbed, where it is another one

  // Whether the log probabilities that are reported are those of the logits as the model gave them.
  bool reports_raw() const {
    return raw_logprobs || (!has_penalties() && logit_bias == nullptr && mask == nullptr);
  }

  // The tokens that end the stream by themselves, in any order: before min_tokens none is drawn.
  std::vector<TokenId> end_ids(std::span<const TokenId> eos_ids) const;
};

// Cap on top_logprobs; larger values are clamped.
inline constexpr int kMaxTopLogprobs = 1024;
inline constexpr std::size_t kMaxStopTokens = 64;

}  // namespace lmtp
