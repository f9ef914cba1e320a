#include "embedding_rows.h"

#include <algorithm>
#include <cmath>
#include <string>

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
  if (error_) return;
  const std::size_t size = event.embedding == nullptr ? 0 : event.embedding->size();
  if (size > numbers_max_ / embeddings_.size()) {
    error_ = Error{ErrorCode::kInvalid,
                   "input: the answer is longer than allowed (--max-write-queue); at most " +
                       std::to_string(numbers_max_ / size) + " inputs may be asked at a time"};
  } else if (!held_.replace(held_.bytes(), held_.bytes() + size * sizeof(float))) {
    error_ = Error{ErrorCode::kOverloaded,
                   "input: embeddings of all requests together take more memory than is allowed "
                   "(--max-write-queues); try again later, or with fewer at a time"};
  }
  if (error_) return left_.clear();
  embeddings_[row] = event.embedding;
  num_cached_ += static_cast<std::size_t>(std::max(event.num_cached, 0));
}

std::size_t EmbeddingRows::num_bytes() const {
  constexpr std::size_t kNumberBytes = 12;  // as JSON has it
  std::size_t num_bytes = 0;
  for (const Embedding& one : embeddings_) {
    num_bytes += one != nullptr ? one->size() * kNumberBytes : 0;
  }
  return num_bytes;
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
