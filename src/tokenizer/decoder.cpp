#include "decoder.h"

#include <simdjson.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "byte_alphabet.h"
#include "lmtp/base/utf8.h"

namespace lmtp::tokenizer {
namespace {

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// The byte of a token such as <0x0A>.
std::optional<char> byte_of(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
  // Rust's number parser takes a plus sign.
  const int high = token[3] == '+' ? 0 : hex_digit(token[3]);
  const int low = hex_digit(token[4]);
  if (high < 0 || low < 0) return std::nullopt;
  return static_cast<char>(high * 16 + low);
}

std::string replaced(const SplitPattern& pattern, std::string_view content, std::string_view text) {
  PatternScratch scratch;
  SplitPattern::Finder finder = pattern.find_in(text, scratch);
  std::string out;
  std::size_t done = 0;
  while (const auto match = finder.next()) {
    out.append(text.substr(done, match->begin - done)).append(content);
    done = match->end;
  }
  out.append(text.substr(done));
  return out;
}

std::string stripped(const DecoderStep& step, std::string_view text) {
  for (std::size_t i = 0; i < step.start && text.starts_with(step.content); ++i) {
    text.remove_prefix(step.content.size());
  }
  for (std::size_t i = 0; i < step.stop && text.ends_with(step.content); ++i) {
    text.remove_suffix(step.content.size());
  }
  return std::string(text);
}

std::string with_spaces(std::string_view mark, std::string_view by, std::string_view text) {
  std::string out;
  for (std::size_t pos = 0; pos < text.size();) {
    const std::size_t end = std::min(text.find(mark, pos), text.size());
    out.append(text.substr(pos, end - pos));
    if (end < text.size()) out.append(by);
    pos = end + mark.size();
  }
  return out;
}

// A run of byte tokens that is valid UTF-8 becomes that text; otherwise each byte becomes U+FFFD.
std::vector<std::string> with_bytes(const std::vector<std::string>& tokens) {
  std::vector<std::string> out;
  std::string bytes;
  const auto end_run = [&] {
    if (simdjson::validate_utf8(bytes.data(), bytes.size())) {
      if (!bytes.empty()) out.push_back(bytes);
    } else {
      out.insert(out.end(), bytes.size(), std::string(kReplacement));
    }
    bytes.clear();
  };
  for (const std::string& token : tokens) {
    if (const auto byte = byte_of(token)) {
      bytes.push_back(*byte);
      continue;
    }
    end_run();
    out.push_back(token);
  }
  end_run();
  return out;
}

// A token with a character outside the alphabet is taken literally.
std::string spelt_bytes(std::string_view token) {
  std::string bytes;
  if (!append_spelt_bytes(token, bytes)) bytes = token;
  return bytes;
}

}  // namespace

void Decoder::run(const DecoderStep& step, std::vector<std::string>& tokens) const {
  switch (step.kind) {
    case DecoderStep::Kind::kReplace:
      for (std::string& token : tokens) token = replaced(*step.pattern, step.content, token);
      return;
    case DecoderStep::Kind::kByteFallback:
      tokens = with_bytes(tokens);
      return;
    case DecoderStep::Kind::kFuse:
      tokens = {std::accumulate(tokens.begin(), tokens.end(), std::string())};
      return;
    case DecoderStep::Kind::kStrip:
      for (std::string& token : tokens) token = stripped(step, token);
      return;
    case DecoderStep::Kind::kBytes: {
      std::string bytes;
      for (const std::string& token : tokens) bytes += spelt_bytes(token);
      tokens.assign(1, "");
      append_valid_utf8(bytes, tokens[0]);
      return;
    }
    case DecoderStep::Kind::kJoin:
      for (std::size_t i = 1; i < tokens.size(); ++i) tokens[i].insert(0, " ");
      return;
    case DecoderStep::Kind::kMetaspace:
      for (std::size_t i = 0; i < tokens.size(); ++i) {
        tokens[i] = with_spaces(step.content, i == 0 && step.drops_first ? "" : " ", tokens[i]);
      }
      return;
  }
}

std::string Decoder::decode(std::vector<std::string> tokens) const {
  for (const DecoderStep& step : steps_) run(step, tokens);
  return std::accumulate(tokens.begin(), tokens.end(), std::string());
}

std::string Decoder::bytes_of(std::string_view spelling) const {
  std::vector<std::string> tokens = {std::string(spelling)};
  for (const DecoderStep& step : steps_) {
    if (step.kind == DecoderStep::Kind::kFuse) break;  // later steps apply to the whole text
    if (step.kind == DecoderStep::Kind::kBytes) return spelt_bytes(tokens[0]);
    if (step.kind == DecoderStep::Kind::kJoin) return " " + tokens[0];
    if (step.kind == DecoderStep::Kind::kByteFallback) {
      if (const auto byte = byte_of(tokens[0])) return {*byte};
    } else if (step.kind == DecoderStep::Kind::kMetaspace) {
      tokens[0] = with_spaces(step.content, " ", tokens[0]);
    } else {
      run(step, tokens);
    }
  }
  return std::move(tokens[0]);
}

std::size_t Decoder::spaces_dropped_max() const {
  bool fused = false;
  for (const DecoderStep& step : steps_) {
    if (step.kind == DecoderStep::Kind::kFuse || step.kind == DecoderStep::Kind::kBytes) {
      fused = true;
    }
    if (step.kind == DecoderStep::Kind::kJoin) return 1;
    if (step.kind == DecoderStep::Kind::kMetaspace && step.drops_first) {
      return std::numeric_limits<std::size_t>::max();
    }
    if (step.kind == DecoderStep::Kind::kStrip && fused && step.content == " ") return step.start;
  }
  return 0;
}

}  // namespace lmtp::tokenizer
