#include "trigger_walks.h"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

#include "lmtp/text/stream_text.h"

namespace lmtp::constraint {
namespace {

using Kind = text::ReplyScanner::Kind;
using Part = text::ReplyScanner::Part;

constexpr std::size_t kWalksMax = 4;
constexpr std::string_view kSpaces = " \t\r\n";

// Empty where the tokenizer cannot spell all of it.
std::vector<TokenId> spelled(const std::string& text, const Vocabulary& vocabulary) {
  std::vector<TokenId> ids = vocabulary.spell_marker(text);
  std::size_t num_bytes = 0;
  for (const TokenId id : ids) num_bytes += vocabulary.tokenizer()->token_bytes(id).size();
  if (num_bytes != text.size()) ids.clear();
  return ids;
}

}  // namespace

std::span<const TokenId> Place::text(std::span<const TokenId> generated,
                                     std::vector<TokenId>& room) const {
  const auto own = generated.subspan(begin);
  if (before.empty()) return own;
  room = before;
  room.insert(room.end(), own.begin(), own.end());
  return room;
}

TriggerWalks::TriggerWalks(const GrammarTriggers& triggers,
                           std::shared_ptr<const Vocabulary> vocabulary,
                           std::shared_ptr<Matchers> matchers)
    : triggers_(std::make_shared<const GrammarTriggers>(
          text::mark_special(*vocabulary->tokenizer(), triggers, &marker_ids_))),
      vocabulary_(std::move(vocabulary)),
      matchers_(std::move(matchers)),
      reasoning_begin_(spelled(triggers.reasoning_begin, *vocabulary_)),
      reasoning_end_(spelled(triggers.reasoning_end, *vocabulary_)) {}

TriggerWalks::TriggerWalks(const TriggerWalks& other)
    : marker_ids_(other.marker_ids_),
      triggers_(other.triggers_),
      vocabulary_(other.vocabulary_),
      matchers_(other.matchers_),
      reasoning_begin_(other.reasoning_begin_),
      reasoning_end_(other.reasoning_end_),
      walks_([&] {
        const std::lock_guard lock(other.mutex_);
        return other.walks_;
      }()) {}

bool TriggerWalks::waits_for_openings() const {
  return !triggers().openings.empty() || !triggers().first_openings.empty();
}

TriggerWalks::Walk TriggerWalks::begin() const {
  Walk walk{.scanner = text::ReplyScanner(triggers_)};
  const bool in_reasoning = walk.scanner.in_reasoning();
  Place& place = walk.place;
  place.counts = !in_reasoning;
  place.is_free = in_reasoning || waits_for_openings() || matchers_ == nullptr;
  walk.may_reason = !place.is_free && !reasoning_begin_.empty();
  if (walk.may_reason) place.also = reasoning_begin_.front();
  if (in_reasoning && triggers().reasoning_tokens_max == 0 && !reasoning_end_.empty()) {
    place.only = reasoning_end_.front();
  }
  return walk;
}

// As the text of a reply has them: of special tokens those alone that are markers.
std::string TriggerWalks::text_of(TokenId token) const {
  const tokenizer::Tokenizer& tokenizer = *vocabulary_->tokenizer();
  std::string text(tokenizer.token_bytes(token));
  if (!tokenizer.is_special(token)) return text;
  if (std::ranges::find(marker_ids_, token) == marker_ids_.end()) return {};
  return text.insert(0, 1, text::kSpecialBegin).append(1, text::kSpecialEnd);
}

// An error: the grammar does not allow it.
Result<void> TriggerWalks::take_text(const Walk& walk, bool* is_stopped) const {
  std::vector<TokenId> room;
  Result<Matcher> matcher = matchers_->take(walk.place.text(walk.tokens, room));
  if (!matcher) return matcher.error();
  if (is_stopped != nullptr) *is_stopped = matcher->is_stopped();
  matchers_->give_back(std::move(*matcher));
  return {};
}

// The grammar's text is the last so many bytes.
void TriggerWalks::begin_grammar(std::size_t num_bytes, Walk& walk) const {
  Place& place = walk.place;
  place.before.clear();
  place.begin = walk.tokens.size();
  while (num_bytes > 0 && place.begin > 0) {
    const std::string bytes = text_of(walk.tokens[place.begin - 1]);
    if (bytes.size() > num_bytes) {
      place.before = vocabulary_->spell(std::string_view(bytes).substr(bytes.size() - num_bytes));
      break;
    }
    num_bytes -= bytes.size();
    --place.begin;
  }
  place.is_free = false;
}

void TriggerWalks::follow_grammar(Walk& walk) const {
  bool has_ended = false;  // where it fails the next mask says it
  if (triggers().repeats) (void)take_text(walk, &has_ended);
  if (!has_ended) return;
  walk.place.is_free = true;
  (void)walk.scanner.resume({});
}

void TriggerWalks::await_opening(Parts parts, Walk& walk) const {
  while (walk.scanner.has_stopped() && matchers_ != nullptr) {
    const std::string begun = std::move(parts.back().bytes);
    begin_grammar(begun.size(), walk);
    if (take_text(walk)) return;
    walk.place.is_free = true;  // what follows it in the same token is none of the grammar's
    parts = walk.scanner.reject(begun);
  }
}

void TriggerWalks::await_reasoning(const Parts& parts, Walk& walk) const {
  if (matchers_ == nullptr) return;
  Place& place = walk.place;
  const auto end = std::ranges::find(parts, Kind::kReasoningEnd, &Part::kind);
  if (end != parts.end()) {
    std::string rest;
    for (auto part = end + 1; part != parts.end(); ++part) rest += part->bytes;
    rest.erase(0, std::min(rest.find_first_not_of(kSpaces), rest.size()));
    begin_grammar(rest.size(), walk);
    if (!take_text(walk)) begin_grammar(0, walk);  // what follows the end is none of the grammar's
    return;
  }
  if (walk.scanner.in_reasoning()) {
    walk.may_reason = false;
    place.is_free = true;
    return;
  }
  const std::size_t num_tokens = walk.tokens.size();
  walk.may_reason = num_tokens < reasoning_begin_.size() &&
                    std::ranges::equal(walk.tokens, std::span(reasoning_begin_).first(num_tokens));
  if (walk.may_reason) place.also = reasoning_begin_[num_tokens];
}

void TriggerWalks::count(bool was_reasoning, Walk& walk) const {
  const bool in_reasoning = walk.scanner.in_reasoning();
  Place& place = walk.place;
  if (in_reasoning != was_reasoning) {
    place.counts = !in_reasoning;
    place.num_counted = 0;
  }
  if (!in_reasoning) return;
  walk.num_reasoning = was_reasoning ? walk.num_reasoning + 1 : 0;
  const int num_beyond = walk.num_reasoning - triggers().reasoning_tokens_max;
  if (triggers().reasoning_tokens_max >= 0 && num_beyond >= 0 &&
      num_beyond < static_cast<int>(reasoning_end_.size())) {
    place.only = reasoning_end_[static_cast<std::size_t>(num_beyond)];
  }
}

void TriggerWalks::push(TokenId token, Walk& walk) const {
  Place& place = walk.place;
  walk.tokens.push_back(token);
  place.also = place.only = kNoToken;
  place.num_counted += place.counts ? 1 : 0;
  if (!place.is_free && !walk.may_reason) return follow_grammar(walk);
  const bool was_reasoning = walk.scanner.in_reasoning();
  Parts parts = walk.scanner.push(text_of(token));
  if (waits_for_openings()) {
    await_opening(std::move(parts), walk);
  } else {
    await_reasoning(parts, walk);
  }
  count(was_reasoning, walk);
}

// With the mutex held.
TriggerWalks::Walk& TriggerWalks::walk_to(std::span<const TokenId> generated) {
  auto found = std::ranges::find_if(walks_, [&](const Walk& walk) {
    return walk.tokens.size() <= generated.size() &&
           std::ranges::equal(walk.tokens, generated.first(walk.tokens.size()));
  });
  if (found == walks_.end()) {
    walks_.push_front(begin());
    if (walks_.size() > kWalksMax) walks_.pop_back();
  } else {
    walks_.splice(walks_.begin(), walks_, found);
  }
  Walk& walk = walks_.front();
  for (const TokenId token : generated.subspan(walk.tokens.size())) push(token, walk);
  return walk;
}

Place TriggerWalks::at(std::span<const TokenId> generated) {
  const std::lock_guard lock(mutex_);
  return walk_to(generated).place;
}

bool TriggerWalks::withholds_ends(const Place& place) const {
  if (place.counts) return place.num_counted < triggers().min_tokens;
  return matchers_ != nullptr && !waits_for_openings();  // what is asked for comes afterwards
}

std::size_t TriggerWalks::num_free(std::span<const TokenId> generated,
                                   std::span<const TokenId> drafts) {
  const auto is_free = [&](const Walk& walk) {
    return walk.place.is_free && walk.place.only == kNoToken && !withholds_ends(walk.place);
  };
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return 0;
  Walk& walk = walk_to(generated);
  if (!is_free(walk)) return 0;
  Walk ahead = walk;  // refused drafts are no part of the stream
  std::size_t num = 0;
  for (; num < drafts.size(); ++num) {
    push(drafts[num], ahead);
    if (!is_free(ahead)) break;
  }
  return num;
}

}  // namespace lmtp::constraint
