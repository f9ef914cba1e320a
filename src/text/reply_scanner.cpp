#include "lmtp/text/reply_scanner.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "lmtp/text/stream_text.h"

namespace lmtp::text {
namespace {

constexpr std::string_view kBlanks = " \t\r\n\v\f";
constexpr int kFenceTicks = 3;

}  // namespace

GrammarTriggers mark_special(const tokenizer::Tokenizer& tokenizer, GrammarTriggers triggers,
                             std::vector<TokenId>* special) {
  const auto mark = [&](std::string& text) { text = mark_special(tokenizer, text, special); };
  mark(triggers.reasoning_begin);
  mark(triggers.reasoning_end);
  for (auto* texts : {&triggers.openings, &triggers.first_openings, &triggers.dropped}) {
    std::ranges::for_each(*texts, mark);
  }
  return triggers;
}

ReplyScanner::ReplyScanner(std::shared_ptr<const GrammarTriggers> triggers)
    : triggers_(std::move(triggers)), in_reasoning_(triggers_->in_reasoning) {}

// The longest marker that begins there; one that only may do so goes before a shorter one that
// does.
ReplyScanner::Found ReplyScanner::find_at(std::size_t at) const {
  const std::string_view rest = std::string_view(held_).substr(at);
  Found found;
  std::size_t num_partial = 0;
  const auto look_for = [&](const std::string& marker, Found::What what) {
    if (marker.empty() || marker.front() != rest.front()) return;
    if (rest.starts_with(marker)) {
      if (marker.size() > found.length) found = {what, marker.size()};
    } else if (marker.starts_with(rest)) {
      num_partial = rest.size();
    }
  };
  const GrammarTriggers& triggers = *triggers_;
  if (in_reasoning_) {
    look_for(triggers.reasoning_end, Found::What::kReasoningEnd);
    if (is_fresh_) look_for(triggers.reasoning_begin, Found::What::kReasoningBegin);
  } else {
    if (is_fresh_) look_for(triggers.reasoning_begin, Found::What::kReasoningBegin);
    for (const std::string& text : triggers.dropped) look_for(text, Found::What::kDropped);
    if (is_first_ && has_openings_) {
      for (const auto& text : triggers.first_openings) look_for(text, Found::What::kOpening);
    }
    if (!in_fence_ && has_openings_) {
      for (const std::string& text : triggers.openings) look_for(text, Found::What::kOpening);
    }
  }
  const bool may_be_longer = num_partial > 0 && num_partial >= found.length;
  if (may_be_longer && !is_last_) return {Found::What::kPartial, 0};
  return found;
}

// A byte that is part of no marker.
void ReplyScanner::pass(char byte) {
  if (kBlanks.find(byte) == std::string_view::npos) is_fresh_ = is_first_ = false;
  if (in_reasoning_) return;
  if (byte == '\n') {
    is_line_start_ = true;
    num_ticks_ = 0;
  } else if (is_line_start_ && byte == '`') {
    if (++num_ticks_ == kFenceTicks) in_fence_ = !in_fence_;
  } else if (byte != ' ' || num_ticks_ > 0) {
    is_line_start_ = false;
  }
}

std::vector<ReplyScanner::Part> ReplyScanner::scan() {
  std::vector<Part> parts;
  std::size_t begin = 0;  // of what is not in `parts` yet
  std::size_t at = 0;
  const auto emit = [&] {
    if (at == begin) return;
    parts.push_back(
        {in_reasoning_ ? Kind::kReasoning : Kind::kText, held_.substr(begin, at - begin)});
    begin = at;
  };
  while (at < held_.size()) {
    const Found found = find_at(at);
    if (found.what == Found::What::kPartial) break;
    if (found.what == Found::What::kNothing) {
      pass(held_[at++]);
      continue;
    }
    emit();
    if (found.what == Found::What::kOpening) {
      parts.push_back({Kind::kOpening, held_.substr(at)});
      held_.clear();
      has_stopped_ = true;
      return parts;
    }
    in_reasoning_ = found.what == Found::What::kReasoningBegin;
    if (found.what == Found::What::kReasoningEnd) {
      parts.push_back({Kind::kReasoningEnd, {}});
      is_first_ = true;
    }
    is_fresh_ = true;
    at += found.length;
    begin = at;
  }
  emit();
  held_.erase(0, at);
  return parts;
}

std::vector<ReplyScanner::Part> ReplyScanner::push(std::string_view bytes) {
  held_ += bytes;
  return scan();
}

std::vector<ReplyScanner::Part> ReplyScanner::finish() {
  is_last_ = true;
  return scan();
}

std::vector<ReplyScanner::Part> ReplyScanner::resume(std::string_view bytes) {
  has_stopped_ = false;
  is_fresh_ = is_line_start_ = true;
  is_first_ = false;
  num_ticks_ = 0;
  held_ = bytes;
  return scan();
}

std::vector<ReplyScanner::Part> ReplyScanner::reject(std::string_view bytes) {
  has_stopped_ = false;
  held_ = bytes.substr(1);
  pass(bytes.front());
  std::vector<Part> parts{{Kind::kText, std::string(bytes.substr(0, 1))}};
  std::ranges::move(scan(), std::back_inserter(parts));
  return parts;
}

}  // namespace lmtp::text
