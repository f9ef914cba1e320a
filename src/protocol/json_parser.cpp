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

simdjson::simdjson_result<simdjson::dom::element> JsonParser::parse_without(
    std::string_view text, std::span<const std::string_view> values) {
  constexpr std::size_t kInsteadBytes = 4;
  std::size_t num_bytes = text.size() + values.size() * kInsteadBytes;
  for (const std::string_view value : values) num_bytes -= value.size();
  buffer_.clear();
  buffer_.reserve(num_bytes + simdjson::SIMDJSON_PADDING);
  std::size_t at = 0;
  for (const std::string_view value : values) {
    const auto begin = static_cast<std::size_t>(value.data() - text.data());
    buffer_.append(text.substr(at, begin - at));
    buffer_.append(value.front() == '[' ? "[]" : value.front() == '{' ? "{}" : "null");
    at = begin + value.size();
  }
  buffer_.append(text.substr(at));
  return parse_buffer();
}

simdjson::simdjson_result<simdjson::dom::element> JsonParser::parse_buffer() {
  // The padding behind the text must be readable memory of the buffer, with any content.
  num_bytes_ = buffer_.size();
  buffer_.resize(num_bytes_ + simdjson::SIMDJSON_PADDING, ' ');
  return parser_.parse(buffer_.data(), num_bytes_, false);
}

void JsonParser::trim() {
  if (parser_.capacity() > 0 && parser_.capacity() <= kMaxKeptParserBytes) return;
  parser_ = simdjson::dom::parser();
  // If this fails to allocate, the next parse returns the error.
  [[maybe_unused]] const auto code = parser_.allocate(kFirstParserBytes, kMaxJsonDepth);
  buffer_ = std::string();
  num_bytes_ = 0;
}

JsonParser& thread_parser() {
  thread_local JsonParser parser;
  return parser;
}

}  // namespace lmtp::protocol
