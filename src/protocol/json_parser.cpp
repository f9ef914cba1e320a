#include "json_parser.h"

#include <utility>

namespace lmtp::protocol {
namespace {

constexpr std::size_t kFirstParserBytes = std::size_t{64} << 10;

}  // namespace

JsonParser::JsonParser() { trim(); }

simdjson::simdjson_result<simdjson::dom::element> JsonParser::parse(std::string_view text) {
  buffer_.clear();
  buffer_.reserve(text.size() + simdjson::SIMDJSON_PADDING);
  buffer_.append(text);
  return parse_buffer();
}

simdjson::simdjson_result<simdjson::dom::element> JsonParser::parse_with_replacement(
    std::string_view text, std::size_t begin, std::size_t num_bytes, std::string_view replacement) {
  buffer_.clear();
  buffer_.reserve(text.size() - num_bytes + replacement.size() + simdjson::SIMDJSON_PADDING);
  buffer_.append(text.substr(0, begin));
  buffer_.append(replacement);
  buffer_.append(text.substr(begin + num_bytes));
  return parse_buffer();
}

simdjson::simdjson_result<simdjson::dom::element> JsonParser::parse_buffer() {
  // The padding behind the text must be readable memory of the buffer, with any content.
  const std::size_t num_bytes = buffer_.size();
  buffer_.resize(num_bytes + simdjson::SIMDJSON_PADDING, ' ');
  return parser_.parse(buffer_.data(), num_bytes, false);
}

void JsonParser::trim() {
  if (parser_.capacity() > 0 && parser_.capacity() <= kMaxKeptParserBytes) return;
  parser_ = simdjson::dom::parser();
  // A failure to allocate shows again, as an error code, in the next parse.
  [[maybe_unused]] const auto code = parser_.allocate(kFirstParserBytes, kMaxJsonDepth);
  buffer_ = std::string();
}

JsonParser& thread_parser() {
  thread_local JsonParser parser;
  return parser;
}

}  // namespace lmtp::protocol
