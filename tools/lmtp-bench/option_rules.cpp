#include "option_rules.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace lmtp::tools {
namespace {

std::string conflict(const BenchOptions& options) {
  const bool trace = options.dataset_name == "trace";
  if (options.load.num_requests > 0 && options.load.duration_s > 0) {
    return "--num-prompts and --duration exclude each other";
  }
  const auto no_rate = [](double rate) { return std::isnan(rate) || rate <= 0; };
  if (std::ranges::any_of(options.request_rates, no_rate)) {
    return "--request-rate: a number above 0, or inf";
  }
  const std::size_t num_points = std::max<std::size_t>(1, options.request_rates.size()) *
                                 std::max<std::size_t>(1, options.max_concurrencies.size());
  if (num_points > kPointsMax) {
    return "a sweep has " + std::to_string(kPointsMax) + " points at most";
  }
  if (trace == options.dataset_path.empty()) {
    return "--dataset-name trace and --dataset-path FILE go together";
  }
  if (options.use_trace_timestamps && (!trace || !options.request_rates.empty())) {
    return "--use-trace-timestamps: with --dataset-name trace and without --request-rate";
  }
  if (options.workload.score && options.dataset_name == "lmql") {
    return "--score: not with --dataset-name lmql; --lmql-pattern scores does it";
  }
  if (options.load.keep_records && options.json_path.empty()) {
    return "--save-detailed: with --json FILE";
  }
  return "";
}

// The properties of a load that options depend on.
struct Uses {
  explicit Uses(const BenchOptions& options)
      : trace(options.dataset_name == "trace"),
        lmql(options.dataset_name == "lmql"),
        chunks(has(options, LmqlPattern::kChunks)),
        beams(has(options, LmqlPattern::kBeams)),
        scores(has(options, LmqlPattern::kScores)),
        generates(lmql ? chunks || beams : !options.workload.score),
        own_prompt(!options.workload.prompt.empty()),
        input_len(!trace && !own_prompt),
        output_len(!trace && (!lmql || generates)),
        lengths_vary((options.dataset_name == "random" || lmql) && (input_len || output_len)),
        gaps(std::ranges::any_of(options.request_rates, [](double r) { return std::isfinite(r); })),
        seed(!own_prompt || options.workload.score || chunks || scores || gaps ||
             (lengths_vary && options.workload.range_ratio > 0)) {}

  static bool has(const BenchOptions& options, LmqlPattern pattern) {
    return std::ranges::count(options.workload.lmql, pattern) > 0;
  }

  const bool trace;
  const bool lmql;
  const bool chunks;
  const bool beams;
  const bool scores;
  const bool generates;
  const bool own_prompt;
  const bool input_len;
  const bool output_len;
  const bool lengths_vary;
  const bool gaps;  // arrivals are drawn at random
  const bool seed;
};

struct Rule {
  const char* option;
  bool has_effect;
  const char* where_none;  // when it has no effect, and what to do
};

std::vector<Rule> rules_of(const BenchOptions& options) {
  const Uses uses(options);
  constexpr const char* kTrace =
      "without --dataset-name trace and --dataset-path FILE: add these, or leave it out";
  constexpr const char* kTraceLengths =
      "on a trace, which has its own lengths: leave it out; --trace-length-divisor changes those";
  constexpr const char* kOwnPrompt =
      "beside --prompt, which is sent as it is: leave one of the two out";
  constexpr const char* kLmql = "without --dataset-name lmql: add that, or leave it out";
  constexpr const char* kPattern =
      "on these programs: add --dataset-name lmql with the --lmql-pattern it is about, or leave it "
      "out";
  constexpr const char* kScored = "on what is scored: leave it out, or have something generated";
  const char* const input = uses.trace ? kTraceLengths : kOwnPrompt;
  return {
      {"--burstiness", uses.gaps, "without a finite --request-rate: add one, or leave it out"},
      {"--seed", uses.seed, "where nothing is drawn: leave it out, or leave --prompt out"},
      {"--random-input-len", uses.input_len, input},
      {"--random-output-len", uses.output_len,
       uses.trace ? kTraceLengths : "on LMQL's scores: give --lmql-score-len instead"},
      {"--random-range-ratio", uses.lengths_vary,
       "on lengths that are given: choose --dataset-name random or lmql, or leave it out"},
      {"--prefix-len", uses.input_len, input},
      {"--num-prefix-groups", uses.input_len && options.workload.prefix_len > 0,
       "without prefixes of drawn prompts: add --prefix-len N, or leave it out"},
      {"--prompt", !uses.trace, "on a trace: leave it out, or choose another --dataset-name"},
      {"--temperature", uses.generates, kScored},
      {"--ignore-eos", uses.generates, kScored},
      {"--ban-token", uses.generates, kScored},
      {"--trace-speedup", options.use_trace_timestamps,
       "without --use-trace-timestamps: add that, or leave it out"},
      {"--trace-length-divisor", uses.trace, kTrace},
      {"--max-model-len", uses.trace, kTrace},
      {"--lmql-pattern", uses.lmql, kLmql},
      {"--lmql-mask-size", uses.chunks, kPattern},
      {"--lmql-beams", uses.beams, kPattern},
      {"--lmql-scores", uses.scores, kPattern},
      {"--lmql-score-len", uses.scores, kPattern},
  };
}

}  // namespace

std::string wrong_options(const BenchOptions& options, const IsGiven& is_given) {
  if (std::string wrong = conflict(options); !wrong.empty()) return wrong;
  for (const Rule& rule : rules_of(options)) {
    if (rule.has_effect || !is_given(rule.option)) continue;
    return std::string(rule.option) + " has no effect " + rule.where_none;
  }
  return "";
}

}  // namespace lmtp::tools
