#include "workload.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "counter_random.h"
#include "lmql_programs.h"
#include "lmtp/base/check.h"

namespace lmtp::tools {
namespace {

// The use of a random number, as a part of its key, so that uses are independent.
enum class Use : std::uint64_t { kLength = 1, kGroup, kPrefix, kPrompt, kBlock, kScored, kMask };

std::uint64_t key_of(const WorkloadOptions& options, Use use) {
  return random_bits(options.seed, static_cast<std::uint64_t>(use));
}

std::uint64_t key_of(const WorkloadOptions& options, Use use, std::uint64_t number) {
  return random_bits(key_of(options, use), number);
}

void append_random(const WorkloadOptions& options, std::uint64_t key, int count,
                   std::vector<TokenId>& ids) {
  for (int i = 0; i < count; ++i) {
    ids.push_back(
        static_cast<TokenId>(random_below(key, static_cast<std::uint64_t>(i), options.vocab_size)));
  }
}

int drawn_length(const WorkloadOptions& options, int length, std::uint64_t counter) {
  const int spread = static_cast<int>(std::floor(length * options.range_ratio));
  const std::int64_t offset = random_below(key_of(options, Use::kLength), counter, 2 * spread + 1);
  return std::max(1, length - spread + static_cast<int>(offset));
}

// A single request, or the first prompt and the output length of an LMQL program.
struct SingleRequest {
  std::vector<TokenId> prompt;
  int output_len = 0;
};

SingleRequest draw_request(const WorkloadOptions& options, std::uint64_t index) {
  SingleRequest single;
  single.output_len = drawn_length(options, options.output_len, 2 * index + 1);
  if (!options.prompt.empty()) {
    single.prompt = options.prompt;
    return single;
  }
  const int input_len = drawn_length(options, options.input_len, 2 * index);
  const std::int64_t group =
      random_below(key_of(options, Use::kGroup), index, options.num_prefix_groups);
  single.prompt.reserve(static_cast<std::size_t>(options.prefix_len) +
                        static_cast<std::size_t>(input_len));
  append_random(options, key_of(options, Use::kPrefix, static_cast<std::uint64_t>(group)),
                options.prefix_len, single.prompt);
  append_random(options, key_of(options, Use::kPrompt, index), input_len, single.prompt);
  return single;
}

// A token within one of the row's blocks depends on the block's id and its place alone.
SingleRequest trace_request(const WorkloadOptions& options, std::uint64_t index) {
  const TraceRow& row = (*options.trace)[index % options.trace->size()];
  SingleRequest single;
  single.output_len = divided_length(row.output_tokens, options.trace_length_divisor);
  const auto length =
      static_cast<std::size_t>(divided_length(row.prompt_tokens, options.trace_length_divisor));
  const std::uint64_t own_key = key_of(options, Use::kPrompt, index);
  single.prompt.reserve(length);
  for (std::size_t i = 0; i < length; ++i) {
    const std::size_t block =
        i * static_cast<std::size_t>(options.trace_length_divisor) / kTraceBlockTokens;
    const std::uint64_t key =
        block < row.prefix_blocks.size()
            ? key_of(options, Use::kBlock, static_cast<std::uint64_t>(row.prefix_blocks[block]))
            : own_key;
    single.prompt.push_back(static_cast<TokenId>(random_below(key, i, options.vocab_size)));
  }
  return single;
}

class SingleStep final : public Program {
 public:
  explicit SingleStep(Request request) : request_(std::move(request)) {}

  std::vector<Request> next(const std::vector<Answer>& answers) override {
    std::vector<Request> requests;
    if (answers.empty()) requests.push_back(std::move(request_));
    return requests;
  }

 private:
  Request request_;
};

std::unique_ptr<Program> lmql_program(const WorkloadOptions& options, std::uint64_t index,
                                      SingleRequest single) {
  std::vector<std::vector<TokenId>> texts;
  switch (options.lmql[index % options.lmql.size()]) {
    case LmqlPattern::kChunks:
      return chunk_program(std::move(single.prompt), single.output_len);
    case LmqlPattern::kBeams:
      return beam_program(std::move(single.prompt), single.output_len, options.lmql_beams);
    case LmqlPattern::kScores:
      break;
  }
  for (int i = 0; i < options.lmql_scores; ++i) {
    const std::uint64_t key = key_of(options, Use::kScored, index);
    append_random(options, random_bits(key, static_cast<std::uint64_t>(i)), options.lmql_score_len,
                  texts.emplace_back());
  }
  return score_program(std::move(single.prompt), std::move(texts));
}

}  // namespace

std::unique_ptr<Program> make_program(const WorkloadOptions& options, std::uint64_t index) {
  LMTP_CHECK(options.vocab_size > 0, options.vocab_size);
  SingleRequest single =
      options.trace ? trace_request(options, index) : draw_request(options, index);
  if (!options.lmql.empty()) return lmql_program(options, index, std::move(single));
  Request request;
  request.prompt = std::move(single.prompt);
  if (options.score) {
    append_random(options, key_of(options, Use::kScored, index), single.output_len, request.scored);
  } else {
    request.max_tokens = single.output_len;
  }
  return std::make_unique<SingleStep>(std::move(request));
}

int divided_length(int tokens, int divisor) { return (tokens + divisor - 1) / divisor; }

std::vector<TokenId> mask_ids(std::uint64_t seed, int vocab_size, int count) {
  LMTP_CHECK(count >= 0 && count <= vocab_size, count, vocab_size);
  WorkloadOptions options;
  options.seed = seed;
  const std::uint64_t key = key_of(options, Use::kMask);
  std::vector<TokenId> ids;
  // Selection sampling: each id is taken with probability (ids still needed) / (ids left).
  for (TokenId id = 0; id < vocab_size; ++id) {
    const auto wanted = count - static_cast<int>(ids.size());
    if (random_below(key, static_cast<std::uint64_t>(id), vocab_size - id) < wanted) {
      ids.push_back(id);
    }
  }
  return ids;
}

}  // namespace lmtp::tools
