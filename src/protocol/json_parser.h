// simdjson's DOM parser with this project's limits.
#pragma once

#include <simdjson.h>

#include <cstddef>
#include <string>
#include <string_view>

namespace lmtp::protocol {

// Deeper nesting than any message has is refused.
inline constexpr std::size_t kMaxJsonDepth = 32;
// A parser that has grown beyond this for one large message is given back after it.
inline constexpr std::size_t kMaxKeptParserBytes = std::size_t{2} << 20;

// One document at a time: what parse() returns is valid until the next call.
// Owner: the thread that parses (see thread_parser).
class JsonParser {
 public:
  JsonParser();

  // Copies `text`. REQUIRES: nothing of `text`; what is wrong with it comes back as the code.
  simdjson::simdjson_result<simdjson::dom::element> parse(std::string_view text);

  // As parse, with `replacement` in place of the bytes [begin, begin + num_bytes).
  simdjson::simdjson_result<simdjson::dom::element> parse_with_replacement(
      std::string_view text, std::size_t begin, std::size_t num_bytes,
      std::string_view replacement);

  // Gives memory back where a large message has made the parser grow. Ends what parse() returned.
  void trim();

 private:
  simdjson::simdjson_result<simdjson::dom::element> parse_buffer();

  simdjson::dom::parser parser_;
  std::string buffer_;
};

// The calling thread's own parser; made on first use.
JsonParser& thread_parser();

// Trims the parser when a scope ends.
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
