#include "embedding_rows.h"

#include <algorithm>
#include <cmath>

namespace lmtp::server {

std::optional<ScoreOfRow> EmbeddingRows::next() {
  if (left_.empty()) return std::nullopt;
  ScoreOfRow row{.row = left_.back()};
  left_.pop_back();
  row.prompt = prompts_[row.row];
  row.pooling = pooling_;
  if (row.row > 0) row.part_tokens = static_cast<int>(row.prompt.size());
  return row;
}

void EmbeddingRows::read(std::size_t row, const TokenEvent& event) {
  embeddings_[row] = event.embedding;
  num_cached_ += static_cast<std::size_t>(std::max(event.num_cached, 0));
}

std::size_t EmbeddingRows::num_tokens() const {
  std::size_t num_tokens = 0;
  for (const auto& prompt : prompts_) num_tokens += prompt.size();
  return num_tokens;
}

std::vector<float> finished(const std::vector<float>& embedding, std::size_t dimensions,
                            bool normalizes) {
  const std::size_t size =
      dimensions > 0 ? std::min(dimensions, embedding.size()) : embedding.size();
  std::vector<float> made(embedding.begin(), embedding.begin() + static_cast<std::ptrdiff_t>(size));
  if (!normalizes) return made;
  double sum = 0;
  for (const float one : made) sum += static_cast<double>(one) * static_cast<double>(one);
  const double length = std::sqrt(sum);
  if (length == 0) return made;
  for (float& one : made) one = static_cast<float>(static_cast<double>(one) / length);
  return made;
}

}  // namespace lmtp::server
