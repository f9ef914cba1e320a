#include "trigger_walks.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace lmtp::constraint {
namespace {

using Kind = text::ReplyScanner::Kind;
using Part = text::ReplyScanner::Part;

constexpr std::size_t kWalksMax = 4;
constexpr std::string_view kSpaces = " \t\r\n";

}  // namespace

TriggerWalks::TriggerWalks(const GrammarTriggers& triggers,
                           std::shared_ptr<const Vocabulary> vocabulary,
                           std::shared_ptr<Matchers> matchers)
    : markers_(std::make_shared<const text::ReplyScanner::Markers>(triggers)),
      vocabulary_(std::move(vocabulary)),
      matchers_(std::move(matchers)),
      reasoning_begin_(vocabulary_->spell_marker(triggers.reasoning_begin)),
      reasoning_end_(vocabulary_->spell_marker(triggers.reasoning_end)) {
  const auto keep = [&](const std::vector<TokenId>& ids) {
    std::ranges::copy_if(ids, std::back_inserter(marker_ids_),
                         [&](TokenId id) { return vocabulary_->tokenizer()->is_special(id); });
  };
  keep(reasoning_begin_);
  keep(reasoning_end_);
  for (const auto* openings : {&triggers.openings, &triggers.first_openings}) {
    for (const std::string& opening : *openings) keep(vocabulary_->spell_marker(opening));
  }
}

bool TriggerWalks::waits_for_openings() const {
  return !triggers().openings.empty() || !triggers().first_openings.empty();
}

TriggerWalks::Walk TriggerWalks::begin() const {
  Walk walk{.scanner = text::ReplyScanner(markers_)};
  const bool in_reasoning = walk.scanner.in_reasoning();
  Place& place = walk.place;
  place.counts = !in_reasoning;
  place.is_free = in_reasoning || waits_for_openings() || matchers_ == nullptr;
  walk.may_reason = !place.is_free && !reasoning_begin_.empty();
  if (walk.may_reason) place.also = reasoning_begin_.front();
  if (in_reasoning && triggers().reasoning_tokens_max == 0) place.only = reasoning_end_.front();
  return walk;
}

// As the text of a reply has them: of special tokens those alone that are markers.
std::string_view TriggerWalks::text_of(TokenId token) const {
  const tokenizer::Tokenizer& tokenizer = *vocabulary_->tokenizer();
  const bool is_text =
      !tokenizer.is_special(token) || std::ranges::find(marker_ids_, token) != marker_ids_.end();
  return is_text ? tokenizer.token_bytes(token) : std::string_view();
}

bool TriggerWalks::has_ended(const Walk& walk) const {
  Result<Matcher> matcher = matchers_->take(walk.place.tokens);
  if (!matcher) return false;  // the next mask says it
  const bool ends = matcher->is_stopped();
  matchers_->give_back(std::move(*matcher));
  return ends;
}

// The grammar's text is the last so many bytes.
void TriggerWalks::begin_grammar(std::size_t num_bytes, Walk& walk) const {
  std::vector<TokenId>& tokens = walk.place.tokens;
  tokens.clear();
  std::size_t at = walk.tokens.size();
  while (num_bytes > 0 && at > 0) {
    const TokenId token = walk.tokens[--at];
    const std::string_view bytes = text_of(token);
    if (bytes.size() <= num_bytes) {
      tokens.insert(tokens.begin(), token);
      num_bytes -= bytes.size();
      continue;
    }
    const auto end = vocabulary_->spell(bytes.substr(bytes.size() - num_bytes));
    tokens.insert(tokens.begin(), end.begin(), end.end());
    num_bytes = 0;
  }
  walk.place.is_free = false;
}

void TriggerWalks::follow_grammar(TokenId token, Walk& walk) const {
  walk.place.tokens.push_back(token);
  if (!triggers().repeats || !has_ended(walk)) return;
  walk.place.is_free = true;
  walk.place.tokens.clear();
  (void)walk.scanner.resume({});
}

void TriggerWalks::await_opening(Parts parts, Walk& walk) const {
  while (walk.scanner.has_stopped()) {
    const std::string begun = std::move(parts.back().bytes);
    begin_grammar(begun.size(), walk);
    Result<Matcher> matcher = matchers_->take(walk.place.tokens);
    if (matcher) return matchers_->give_back(std::move(*matcher));
    walk.place.is_free = true;  // what follows it in the same token is none of the grammar's
    parts = walk.scanner.reject(begun);
  }
}

void TriggerWalks::await_reasoning(TokenId token, const Parts& parts, Walk& walk) const {
  if (matchers_ == nullptr) return;
  Place& place = walk.place;
  const auto end = std::ranges::find(parts, Kind::kReasoningEnd, &Part::kind);
  if (end != parts.end()) {
    std::string rest;
    for (auto part = end + 1; part != parts.end(); ++part) rest += part->bytes;
    rest.erase(0, std::min(rest.find_first_not_of(kSpaces), rest.size()));
    return begin_grammar(rest.size(), walk);
  }
  if (walk.scanner.in_reasoning()) {
    walk.may_reason = false;
    place.is_free = true;
    place.tokens.clear();
    return;
  }
  place.tokens.push_back(token);
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
  walk.num_reasoning += was_reasoning ? 1 : 0;
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
  if (!place.is_free && !walk.may_reason) return follow_grammar(token, walk);
  const bool was_reasoning = walk.scanner.in_reasoning();
  Parts parts = walk.scanner.push(text_of(token));
  if (waits_for_openings()) {
    await_opening(std::move(parts), walk);
  } else {
    await_reasoning(token, parts, walk);
  }
  count(was_reasoning, walk);
}

Place TriggerWalks::at(std::span<const TokenId> generated) {
  const std::lock_guard lock(mutex_);
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
  return walk.place;
}

}  // namespace lmtp::constraint
