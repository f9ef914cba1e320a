// JSON that comes in pieces: whether it is any, without keeping it.
#pragma once

#include <string>
#include <string_view>

namespace lmtp::server {

// Owner: a reader of a reply. The bytes are UTF-8.
class JsonChecker {
 public:
  // The next bytes.
  void push(std::string_view bytes) {
    for (const char byte : bytes) push(byte);
  }
  void push(char byte);
  // Whether they are one value, and all of it.
  bool is_whole() const;
  bool is_wrong() const { return state_ == State::kWrong; }
  // Whether the next byte is one of a text, or ends it.
  bool is_within_text() const { return state_ >= State::kInText; }

 private:
  enum class State {
    kValue,     // one is expected
    kFirst,     // one, or the list's end
    kFirstKey,  // a member, or the object's end
    kKey,
    kColon,
    kAfter,  // a value
    kWord,   // `rest_` of it is expected
    kMinus,
    kZero,
    kDigits,
    kPoint,
    kDecimals,
    kExponent,
    kSign,  // after the exponent's
    kPower,
    kWrong,
    kInText,  // from here on within one
    kEscape,
    kHex,  // num_hex_ digits are expected
  };

  void begin_value(char byte);
  void go_on(char byte);
  void step_text(char byte);
  void step_hex(char byte);
  State after_number(char byte) const;

  State state_ = State::kValue;
  std::string around_;  // the brackets that are open
  bool is_key_ = false;
  int num_hex_ = 0;
  unsigned hex_ = 0;        // what those before say
  bool needs_low_ = false;  // the half of a surrogate pair, as the other one has come
  std::string_view rest_;
};

}  // namespace lmtp::server
