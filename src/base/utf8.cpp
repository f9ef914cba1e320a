#include "lmtp/base/utf8.h"

#include <algorithm>

#include "lmtp/base/check.h"

namespace lmtp {
namespace {

// What may follow a lead byte: how many bytes, and the range of the first of them (the others are
// always 80..BF). Unicode 16, table 3-7.
struct Lead {
  std::size_t num_following;  // 0: not a lead byte of more than one
  unsigned char low, high;
};

Lead lead_of(unsigned char byte) {
  if (byte < 0xC2) return {0, 0, 0};
  if (byte < 0xE0) return {1, 0x80, 0xBF};
  if (byte == 0xE0) return {2, 0xA0, 0xBF};
  if (byte == 0xED) return {2, 0x80, 0x9F};  // no surrogates
  if (byte < 0xF0) return {2, 0x80, 0xBF};
  if (byte == 0xF0) return {3, 0x90, 0xBF};
  if (byte < 0xF4) return {3, 0x80, 0xBF};
  if (byte == 0xF4) return {3, 0x80, 0x8F};  // nothing above U+10FFFF
  return {0, 0, 0};
}

}  // namespace

Utf8Step utf8_step(std::string_view text) {
  LMTP_CHECK(!text.empty());
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  if (byte(0) < 0x80) return {Utf8Status::kWhole, 1};
  const Lead lead = lead_of(byte(0));
  if (lead.num_following == 0) return {Utf8Status::kInvalid, 1};
  for (std::size_t i = 1; i <= lead.num_following; ++i) {
    if (i == text.size()) return {Utf8Status::kPrefix, i};
    const unsigned char low = i == 1 ? lead.low : 0x80;
    const unsigned char high = i == 1 ? lead.high : 0xBF;
    if (byte(i) < low || byte(i) > high) return {Utf8Status::kInvalid, i};
  }
  return {Utf8Status::kWhole, lead.num_following + 1};
}

void append_valid_utf8(std::string_view text, std::string& out) {
  while (!text.empty()) {
    const Utf8Step step = utf8_step(text);
    if (step.status == Utf8Status::kWhole) {
      out.append(text.substr(0, step.num_bytes));
    } else {
      out.append(kReplacement);
    }
    text.remove_prefix(step.num_bytes);
  }
}

std::size_t num_characters(std::string_view text) {
  return static_cast<std::size_t>(
      std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80; }));
}

void append_utf8(char32_t code_point, std::string& out) {
  const auto push = [&out](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  const auto push_rest = [&](char32_t shift) { push(0x80 | (code_point >> shift & 0x3F)); };
  if (code_point < 0x80) {
    push(code_point);
  } else if (code_point < 0x800) {
    push(0xC0 | code_point >> 6);
    push_rest(0);
  } else if (code_point < 0x10000) {
    push(0xE0 | code_point >> 12);
    push_rest(6);
    push_rest(0);
  } else {
    push(0xF0 | code_point >> 18);
    push_rest(12);
    push_rest(6);
    push_rest(0);
  }
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const Utf8Step step = utf8_step(text);
    if (step.status != Utf8Status::kWhole) return false;
    text.remove_prefix(step.num_bytes);
  }
  return true;
}

}  // namespace lmtp
