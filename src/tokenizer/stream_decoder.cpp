#include <algorithm>
#include <utility>

#include "lmtp/base/utf8.h"
#include "lmtp/tokenizer/tokenizer.h"

namespace lmtp::tokenizer {

std::string StreamDecoder::push(std::string_view bytes) {
  std::string text = std::move(held_);
  text.append(bytes);
  held_.clear();
  // Only the last three bytes can be an unfinished character, and its lead byte is among them.
  for (std::size_t i = text.size() - std::min<std::size_t>(text.size(), 3); i < text.size(); ++i) {
    const std::string_view tail = std::string_view(text).substr(i);
    const Utf8Step step = utf8_step(tail);
    if (step.status == Utf8Status::kPrefix && step.num_bytes == tail.size()) {
      held_ = tail;
      text.resize(i);
      break;
    }
  }
  std::string out;
  out.reserve(text.size());
  append_valid_utf8(text, out);
  return out;
}

std::string StreamDecoder::finish() {
  const bool unfinished = !held_.empty();
  held_.clear();
  return unfinished ? std::string(kReplacement) : std::string();
}

}  // namespace lmtp::tokenizer
