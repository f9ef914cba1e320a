#include "normalizer.h"

#include "byte_alphabet.h"
#include "lmtp/base/utf8.h"
#include "unicode_data.h"

namespace lmtp::tokenizer {
namespace {

constexpr char32_t kCapitalIWithDot = 0x130;

using Normalized = Normalizer::Normalized;

// Each writes the new text to `out`, which is empty, or returns the old one unchanged.

Normalized replace(const NormalizerStep& step, std::string_view text, PatternScratch& scratch,
                   std::string& out) {
  SplitPattern::Finder finder = step.pattern->find_in(text, scratch);
  std::size_t done = 0;
  bool found = false;
  bool front_moved = false;
  while (const auto match = finder.next()) {
    found = true;
    // A replacement of several characters counts as being at the last one's position.
    const bool one_char = match->end == code_point_at(text, 0).num_bytes;
    front_moved = front_moved || (match->begin == 0 && (step.content.empty() || !one_char));
    out.append(text.substr(done, match->begin - done)).append(step.content);
    done = match->end;
  }
  if (!found) return {text};
  out.append(text.substr(done));
  return {out, front_moved};
}

Normalized lowercase(std::string_view text, std::string& out) {
  for (std::size_t pos = 0; pos < text.size();) {
    const CodePoint point = code_point_at(text, pos);
    if (point.value == kCapitalIWithDot) {
      out.append("i\xCC\x87");
    } else {
      append_utf8(lower_case(point.value), out);
    }
    pos += point.num_bytes;
  }
  return {out};
}

Normalized strip(const NormalizerStep& step, std::string_view text) {
  std::size_t begin = 0;
  std::size_t end = text.size();
  while (step.strip_left && begin < end) {
    const CodePoint point = code_point_at(text, begin);
    if (!contains(space_ranges(), point.value)) break;
    begin += point.num_bytes;
  }
  while (step.strip_right && end > begin) {
    std::size_t last = end - 1;
    while ((static_cast<unsigned char>(text[last]) & 0xC0) == 0x80) --last;
    if (!contains(space_ranges(), code_point_at(text, last).value)) break;
    end = last;
  }
  return {text.substr(begin, end - begin), begin > 0};
}

// sentencepiece's rules for machine translation: removes control characters, makes all spaces
// plain.
Normalized nmt(std::string_view text, std::string& out) {
  const auto is_dropped = [](char32_t c) {
    return (c >= 0x01 && c <= 0x08) || c == 0x0B || (c >= 0x0E && c <= 0x1F) || c == 0x7F ||
           c == 0x8F || c == 0x9F;
  };
  const auto is_space = [](char32_t c) {
    return c == 0x09 || c == 0x0A || c == 0x0C || c == 0x0D || c == 0x1680 ||
           (c >= 0x200B && c <= 0x200F) || c == 0x2028 || c == 0x2029 || c == 0x2581 ||
           c == 0xFEFF || c == 0xFFFD;
  };
  bool front_moved = false;
  for (std::size_t pos = 0; pos < text.size();) {
    const CodePoint point = code_point_at(text, pos);
    if (is_dropped(point.value)) {
      front_moved = front_moved || pos == 0;
    } else {
      append_utf8(is_space(point.value) ? U' ' : point.value, out);
    }
    pos += point.num_bytes;
  }
  return {out, front_moved};
}

Normalized run(const NormalizerStep& step, std::string_view text, PatternScratch& scratch,
               std::string& out) {
  switch (step.kind) {
    case NormalizerStep::Kind::kForm:
      if (!step.form->may_change(text)) return {text};
      step.form->apply(text, out);
      return {out};
    case NormalizerStep::Kind::kPrepend:
      if (text.empty()) return {text};
      out.append(step.content).append(text);
      return {out};
    case NormalizerStep::Kind::kReplace:
      return replace(step, text, scratch, out);
    case NormalizerStep::Kind::kLowercase:
      return lowercase(text, out);
    case NormalizerStep::Kind::kStrip:
      return strip(step, text);
    case NormalizerStep::Kind::kNmt:
      return nmt(text, out);
    case NormalizerStep::Kind::kCharsmap:
      step.charsmap->apply(text, out);
      return {out};
    case NormalizerStep::Kind::kSpellBytes:
      append_spelling(text, out);
      return {out};
  }
  return {text};
}

}  // namespace

Normalized Normalizer::apply(std::string_view text, NormalizerScratch& scratch) const {
  Normalized result{text};
  std::size_t unused = 0;  // of the two texts: the one that `result` does not lie in
  for (const NormalizerStep& step : steps_) {
    std::string& out = scratch.texts[unused];
    out.clear();
    const Normalized next = run(step, result.text, scratch.pattern, out);
    result = {next.text, result.front_moved || next.front_moved};
    if (next.text.data() == out.data()) unused = 1 - unused;
  }
  return result;
}

}  // namespace lmtp::tokenizer
