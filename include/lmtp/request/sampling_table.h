// The sampling parameters, each with its name, range and help. Parsing and serialising of messages,
// the command line, the REPL and the documentation all use this table.
//
// A new number needs a member of DrawParams (lmtp/base/draw_params.h), if it changes what is drawn,
// or else of SamplingParams; a row here; and its use, in the op sample of the CPU and of CUDA.
// Every API reads the row as it is here, but where it has a spelling of its own. `param-rows ROOT`
// (tools/dev) then writes it into docs/lmtp.md, docs/schema/lmtp.json, docs/examples/lmtp.py and
// packaging/lmtp-client.1.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <variant>

#include "lmtp/request/sampling_params.h"

namespace lmtp {

struct ParamRange {
  double low = 0.0;
  double high = 0.0;
  bool low_allowed = true;  // false: (low, high]
};

struct SamplingParam {
  // float: within the range. int: >= range.low, clamped to range.high. bool. The seed, which may be
  // absent. The logit biases.
  using Member = std::variant<float SamplingParams::*, int SamplingParams::*,
                              bool SamplingParams::*, std::uint64_t SamplingParams::*,
                              std::shared_ptr<const LogitBias> SamplingParams::*>;

  std::string_view name;
  Member member;
  ParamRange range;
  std::string_view help;
};

inline constexpr std::string_view kTopKName = "top_k";
inline constexpr std::string_view kTopLogprobsName = "top_logprobs";
inline constexpr std::string_view kMaxTokensName = "max_tokens";
inline constexpr std::string_view kLogitBiasName = "logit_bias";
inline constexpr double kMaxBias = 1e30;
inline constexpr int kMaxCount = 1 << 30;

// In the order in which a message's fields are checked and written.
inline constexpr std::array kSamplingTable = {
    SamplingParam{"temperature",
                  &SamplingParams::temperature,
                  {0.0, 100.0},
                  "0 takes the most probable token; ties go to the lowest id"},
    SamplingParam{"top_p",
                  &SamplingParams::top_p,
                  {0.0, 1.0, false},
                  "draw among the most probable that together have this probability"},
    SamplingParam{kTopKName,
                  &SamplingParams::top_k,
                  {0, kMaxCount},
                  "draw among so many of the most probable; 0 is off"},
    SamplingParam{
        "min_p",
        &SamplingParams::min_p,
        {0.0, 1.0},
        "draw among those at least this times as probable as the most probable; 0 is off"},
    SamplingParam{
        "typical_p",
        &SamplingParams::typical_p,
        {0.0, 1.0, false},
        "draw among those nearest to the mean surprise that together have this probability"},
    SamplingParam{"repetition_penalty",
                  &SamplingParams::repetition_penalty,
                  {0.0, 100.0, false},
                  "divides positive and multiplies negative logits of tokens that occur"},
    SamplingParam{"presence_penalty",
                  &SamplingParams::presence_penalty,
                  {-100.0, 100.0},
                  "subtracted once from the logit of a token that occurs"},
    SamplingParam{"frequency_penalty",
                  &SamplingParams::frequency_penalty,
                  {-100.0, 100.0},
                  "subtracted for every occurrence"},
    SamplingParam{
        "penalties_from",
        &SamplingParams::penalties_from,
        {0, kMaxCount},
        "of the prompt's tokens, presence_penalty and frequency_penalty pass over so many"},
    SamplingParam{kTopLogprobsName,
                  &SamplingParams::top_logprobs,
                  {0, kMaxTopLogprobs},
                  "alternatives to report with each token"},
    SamplingParam{kMaxTokensName,
                  &SamplingParams::max_tokens,
                  {1, kMaxCount},
                  "tokens to generate at most; prompt and new tokens fit the context"},
    SamplingParam{"min_tokens",
                  &SamplingParams::min_tokens,
                  {0, kMaxCount},
                  "nothing but max_tokens ends the stream before so many generated tokens"},
    SamplingParam{
        "ignore_eos", &SamplingParams::ignore_eos, {}, "end-of-text tokens do not end the stream"},
    SamplingParam{"seed", &SamplingParams::seed, {}, "the same seed draws the same tokens"},
    SamplingParam{kLogitBiasName,
                  &SamplingParams::logit_bias,
                  {-kMaxBias, kMaxBias},
                  "added to the logits of these tokens"},
};

// The parameter's value as the REPL shows it: "0.8", "none", "{50256:-100,11:2.5}".
std::string param_text(const SamplingParams& params, const SamplingParam& param);

}  // namespace lmtp
