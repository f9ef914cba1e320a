// simdjson's DOM parser with limits on depth and kept memory.
#pragma once

#include <simdjson.h>

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace lmtp::protocol {

// Deeper nesting than any message has is refused.
inline constexpr std::size_t kMaxJsonDepth = 32;
// trim() frees a parser that has grown beyond this.
inline constexpr std::size_t kMaxKeptParserBytes = std::size_t{2} << 20;

// One document at a time: the result of parse() is valid until the next call.
// Owner: the thread that parses (see thread_parser).
class JsonParser {
 public:
  JsonParser();

  // Copies `text`, which may be anything; errors are in the returned code.
  simdjson::simdjson_result<simdjson::dom::element> parse(std::string_view text);

  // As parse, with an empty array or object in place of each of `values`, or null for a string.
  // REQUIRES: they are views into `text`, in order and disjoint; each is an array, an object or a
  // string.
  simdjson::simdjson_result<simdjson::dom::element> parse_without(
      std::string_view text, std::span<const std::string_view> values);

  // The text that the last call parsed.
  std::string_view parsed_text() const { return {buffer_.data(), num_bytes_}; }

  // Frees memory after a large message. Invalidates the result of parse().
  void trim();

 private:
  simdjson::simdjson_result<simdjson::dom::element> parse_buffer();

  simdjson::dom::parser parser_;
  std::string buffer_;
  std::size_t num_bytes_ = 0;  // of the buffer, without the padding
};

// The calling thread's parser; made on first use.
JsonParser& thread_parser();

// Trims the parser at the end of a scope.
class ParserTrimmer {
 public:
  explicit ParserTrimmer(JsonParser& parser) : parser_(parser) {}
  ~ParserTrimmer() { parser_.trim(); }
  ParserTrimmer(const ParserTrimmer&) = delete;
  ParserTrimmer& operator=(const ParserTrimmer&) = delete;

 private:
  JsonParser& parser_;
};

}  // namespace lmtp::protocol
