// Embeddings of one request's inputs: what is embedded, and what is made of what the model gives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "generation.h"
#include "lmtp/base/memory_limit.h"
#include "lmtp/base/pooling.h"
#include "lmtp/base/result.h"
#include "lmtp/request/event.h"
#include "score_rows.h"

namespace lmtp::server {

inline constexpr std::size_t kEmbeddedMax = 2048;                        // inputs of a request
inline constexpr std::size_t kEmbeddedTokensMax = std::size_t{1} << 20;  // of all together
inline constexpr std::size_t kEmbeddedBytesMax = std::size_t{16} << 20;  // of all texts together

class EmbeddingRows final : public ScoreRows {
 public:
  // What has come counts in `limit`, which outlives this. More than `numbers_max` numbers are not
  // to be answered: rows that are left are not computed then. REQUIRES: each prompt has a token.
  EmbeddingRows(Prompts prompts, Pooling pooling, MemoryLimit& limit,
                std::size_t numbers_max = SIZE_MAX)
      : prompts_(std::move(prompts)),
        pooling_(pooling),
        numbers_max_(numbers_max),
        embeddings_(prompts_.size()),
        held_(limit) {
    for (std::size_t row = prompts_.size(); row > 0; --row) left_.push_back(row - 1);
  }

  std::optional<ScoreOfRow> next() override;
  void give_back(std::size_t row) override { left_.push_back(row); }
  void read(std::size_t row, const TokenEvent& event) override;
  void end(std::size_t /*row*/) override {}

  // Why there is no answer, but for what the model says: too many numbers for one, or no memory.
  const std::optional<Error>& error() const { return error_; }
  // One for each prompt; null before its end.
  const std::vector<Embedding>& embeddings() const { return embeddings_; }
  std::size_t num_bytes() const;  // of these
  std::size_t num_tokens() const;
  std::size_t num_cached() const { return num_cached_; }

 private:
  const Prompts prompts_;
  const Pooling pooling_;
  const std::size_t numbers_max_;
  std::vector<Embedding> embeddings_;
  std::vector<std::size_t> left_;  // the next one is the last
  std::size_t num_cached_ = 0;
  MemoryLimit::Part held_;
  std::optional<Error> error_;
};

// The first `dimensions` numbers, 0: all, of length 1 where they are normalised and not all zero.
std::vector<float> finished(const std::vector<float>& embedding, std::size_t dimensions,
                            bool normalizes);

}  // namespace lmtp::server
