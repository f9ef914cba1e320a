// Finds where the values of a JSON object or array begin and end, without validating them.
//
// For what a parser cannot give: the text of a value as received, and the fields of a document that
// is invalid further on. Text that is not JSON gives spans that are not JSON, but no read out of
// bounds.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

namespace lmtp::protocol {

// The position after the value that begins at `pos`, or text.size() if it does not end.
// REQUIRES: pos <= text.size().
std::size_t skip_value(std::string_view text, std::size_t pos);

// Whether an array has a string, an array or an object in it. REQUIRES: it begins with its bracket.
bool is_nested(std::string_view array);
// Commas outside of strings.
std::size_t count_commas(std::string_view container);

// Iterates over the fields of the object at the front of `text` (after blanks).
//
//   ObjectScanner scanner(text);
//   while (scanner.next()) { use(scanner.key(), scanner.value_begin()); scanner.skip_value(); }
class ObjectScanner {
 public:
  explicit ObjectScanner(std::string_view text);

  // Moves to the next field; false at the end of the object or at invalid JSON.
  // REQUIRES: the previous field's value has been skipped.
  bool next();

  // The text between the key's quotes, escapes included.
  std::string_view key() const { return key_; }
  std::size_t value_begin() const { return value_begin_; }

  // Moves past the current value and returns its text.
  std::string_view skip_value();
  // The same if the caller knows the value's length.
  void skip_bytes(std::size_t num_bytes) { pos_ = value_begin_ + num_bytes; }

 private:
  std::string_view text_;
  std::size_t pos_ = 0;
  std::string_view key_;
  std::size_t value_begin_ = 0;
  bool first_ = true;
};

// The texts of the values of the array at the front of `text`.
std::vector<std::string_view> split_raw_array(std::string_view text);

}  // namespace lmtp::protocol
