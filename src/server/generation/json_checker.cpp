#include "json_checker.h"

namespace lmtp::server {
namespace {

bool is_digit(char byte) { return byte >= '0' && byte <= '9'; }
bool is_blank(char byte) { return byte == ' ' || byte == '\t' || byte == '\n' || byte == '\r'; }
// -1: it is none.
int hex_digit(char byte) {
  const auto at = std::string_view("0123456789abcdef").find(static_cast<char>(byte | 0x20));
  return is_digit(byte) ? byte - '0' : at == std::string_view::npos ? -1 : static_cast<int>(at);
}

}  // namespace

bool JsonChecker::is_whole() const {
  if (!around_.empty()) return false;
  return state_ == State::kAfter || state_ == State::kZero || state_ == State::kDigits ||
         state_ == State::kDecimals || state_ == State::kPower;
}

void JsonChecker::push(char byte) {
  if (is_within_text()) return step_text(byte);
  switch (state_) {
    case State::kWrong:
      return;
    case State::kWord:
      if (byte != rest_.front()) return void(state_ = State::kWrong);
      rest_.remove_prefix(1);
      if (rest_.empty()) state_ = State::kAfter;
      return;
    case State::kMinus:
    case State::kZero:
    case State::kDigits:
    case State::kPoint:
    case State::kDecimals:
    case State::kExponent:
    case State::kSign:
    case State::kPower:
      state_ = after_number(byte);
      if (state_ == State::kAfter) go_on(byte);
      return;
    default:
      go_on(byte);
  }
}

// kAfter: the number ends before it.
JsonChecker::State JsonChecker::after_number(char byte) const {
  const bool is_power = byte == 'e' || byte == 'E';
  switch (state_) {
    case State::kMinus:
      return byte == '0' ? State::kZero : is_digit(byte) ? State::kDigits : State::kWrong;
    case State::kZero:
    case State::kDigits:
      if (state_ == State::kDigits && is_digit(byte)) return State::kDigits;
      if (byte == '.') return State::kPoint;
      return is_power ? State::kExponent : State::kAfter;
    case State::kPoint:
      return is_digit(byte) ? State::kDecimals : State::kWrong;
    case State::kDecimals:
      if (is_power) return State::kExponent;
      return is_digit(byte) ? State::kDecimals : State::kAfter;
    case State::kExponent:
      if (byte == '+' || byte == '-') return State::kSign;
      [[fallthrough]];
    case State::kSign:
      return is_digit(byte) ? State::kPower : State::kWrong;
    default:
      return is_digit(byte) ? State::kPower : State::kAfter;
  }
}

void JsonChecker::begin_value(char byte) {
  state_ = State::kWrong;
  if (byte == '{' || byte == '[') {
    around_ += byte;
    state_ = byte == '{' ? State::kFirstKey : State::kFirst;
  } else if (byte == '"') {
    is_key_ = false;
    state_ = State::kInText;
  } else if (byte == '-') {
    state_ = State::kMinus;
  } else if (is_digit(byte)) {
    state_ = byte == '0' ? State::kZero : State::kDigits;
  } else if (byte == 't' || byte == 'f' || byte == 'n') {
    rest_ = byte == 't' ? "rue" : byte == 'f' ? "alse" : "ull";
    state_ = State::kWord;
  }
}

// Between values and texts.
void JsonChecker::go_on(char byte) {
  if (is_blank(byte)) return;
  const char around = around_.empty() ? '\0' : around_.back();
  const bool may_end =
      state_ == State::kAfter || state_ == State::kFirst || state_ == State::kFirstKey;
  if (may_end && ((byte == '}' && around == '{') || (byte == ']' && around == '['))) {
    around_.pop_back();
    state_ = State::kAfter;
  } else if (state_ == State::kValue || state_ == State::kFirst) {
    begin_value(byte);
  } else if (state_ == State::kAfter && byte == ',' && around != '\0') {
    state_ = around == '{' ? State::kKey : State::kValue;
  } else if (state_ == State::kColon && byte == ':') {
    state_ = State::kValue;
  } else if ((state_ == State::kFirstKey || state_ == State::kKey) && byte == '"') {
    is_key_ = true;
    state_ = State::kInText;
  } else {
    state_ = State::kWrong;
  }
}

void JsonChecker::step_text(char byte) {
  constexpr int kHexDigits = 4;
  // Above 0xf4 are what UTF-8 never has: marks of special tokens.
  const auto number = static_cast<unsigned char>(byte);
  const bool is_wrong = number < 0x20 || number > 0xf4 || (needs_low_ && byte != '\\');
  if (state_ == State::kHex) return step_hex(byte);
  if (state_ == State::kEscape) {
    num_hex_ = kHexDigits;
    hex_ = 0;
    const bool is_known = std::string_view("\"\\/bfnrt").find(byte) != std::string_view::npos;
    state_ = byte == 'u' ? State::kHex : is_known && !needs_low_ ? State::kInText : State::kWrong;
  } else if (is_wrong) {
    state_ = State::kWrong;
  } else if (byte == '"') {
    state_ = is_key_ ? State::kColon : State::kAfter;
  } else if (byte == '\\') {
    state_ = State::kEscape;
  }
}

void JsonChecker::step_hex(char byte) {
  const int digit = hex_digit(byte);
  if (digit < 0) return void(state_ = State::kWrong);
  hex_ = hex_ * 16 + static_cast<unsigned>(digit);
  if (--num_hex_ > 0) return;
  const bool is_low = (hex_ & 0xfc00U) == 0xdc00U;
  state_ = is_low == needs_low_ ? State::kInText : State::kWrong;
  needs_low_ = (hex_ & 0xfc00U) == 0xd800U;
}

}  // namespace lmtp::server
