// Reads texts by a model's ReplyLayout.
#include <algorithm>
#include <cctype>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "call_grammar.h"
#include "fresh.h"
#include "lmtp/text/stream_text.h"
#include "marked_arguments.h"
#include "reply_formats.h"

namespace lmtp::server {
namespace {

using text::CallLayout;
using text::ReplyScanner;

constexpr std::string_view kEdgeSpaces = " \t\r\n";

// What the samples of a request have in common.
struct Known {
  text::ReplyLayout layout;
  std::vector<OfferedFunction> functions;
  std::vector<Parameters> parameters;  // of each, where a layout has tags; else none
  std::shared_ptr<const LooseFunctions> loose;
  std::shared_ptr<const GrammarTriggers> triggers;
  bool begins_with_call = false;  // after its reasoning
};

void erase_spaces(std::string& text) {
  text.erase(0, std::min(text.find_first_not_of(kEdgeSpaces), text.size()));
}

class LayoutReader final : public ReplyReader {
 public:
  explicit LayoutReader(std::shared_ptr<const Known> known)
      : known_(std::move(known)), scanner_(known_->triggers) {
    if (known_->begins_with_call && !scanner_.in_reasoning() &&
        known_->triggers->reasoning_begin.empty()) {
      stage_ = Stage::kOpening;
    }
  }
  void read(std::string text, const TokenEvent& token, bool /*is_special*/,
            ReplyEvents& events) override {
    if (stage_ == Stage::kText) {
      take(scanner_.push(text), events);
    } else {
      held_ += text;
    }
    read_calls(events);
    if (token.finish_reason != FinishReason::kNone) finish(token.finish_reason, events);
  }

  bool in_reasoning() const override { return scanner_.in_reasoning(); }
  bool in_call() const override {
    return !known_->begins_with_call && stage_ != Stage::kText && stage_ != Stage::kOpening;
  }

  std::unique_ptr<ReplyReader> clone() const override {
    return std::make_unique<LayoutReader>(*this);
  }

 private:
  enum class Stage {
    kText,     // the scanner's
    kOpening,  // of calls, up to the first one's name
    kName,     // what follows it
    kArguments,
    kClosing,  // of the call
    kBetween,  // more calls, or the end of them
  };

  void take(std::vector<ReplyScanner::Part> parts, ReplyEvents& events) {
    for (ReplyScanner::Part& part : parts) {
      switch (part.kind) {
        case ReplyScanner::Kind::kText:
          add_text(std::move(part.bytes), events);
          break;
        case ReplyScanner::Kind::kReasoning:
          add_reasoning(part.bytes, events);
          break;
        case ReplyScanner::Kind::kReasoningEnd:
          spaces_.clear();
          was_marked_ = true;
          break;
        case ReplyScanner::Kind::kOpening:
          held_ = std::move(part.bytes);
          stage_ = Stage::kOpening;
          break;
      }
    }
  }

  // White space before and after calls and reasoning is theirs.
  void add_text(std::string text, ReplyEvents& events) {
    if (!known_->begins_with_call || !ids_.empty()) text = without_special(text);
    if (known_->begins_with_call && ids_.empty()) {  // what reasoning may have preceded
      held_ += text;
      if (!may_begin(held_)) erase_spaces(held_);
      if (!held_.empty()) stage_ = Stage::kOpening;
      return;
    }
    if (was_marked_ || !has_text_) {
      spaces_ += text;
      if (!cut_content_begin()) return;
      const std::size_t begin = spaces_.find_first_not_of(kEdgeSpaces);
      if (begin == std::string::npos) return;
      text = was_marked_ ? spaces_.substr(begin) : std::exchange(spaces_, {});
      spaces_.clear();
      was_marked_ = false;
    }
    has_text_ = has_text_ || !text.empty();
    emit_text(std::move(text), events);
  }

  // What the reply begins with before its content; false: it may be that.
  bool cut_content_begin() {
    const std::string& begin = known_->layout.content_begin;
    if (is_begun_ || !ids_.empty() || begin.empty()) return true;
    if (spaces_.size() < begin.size() && begin.starts_with(spaces_)) return false;
    is_begun_ = true;
    if (spaces_.starts_with(begin)) spaces_.erase(0, begin.size());
    return true;
  }

  // Whether calls may begin so.
  bool may_begin(std::string_view text) const {
    return std::ranges::any_of(known_->layout.calls, [&](const CallLayout& layout) {
      const std::string begin = layout.section_begin + layout.call_begin;
      return begin.starts_with(text.substr(0, begin.size()));
    });
  }

  // Without what special tokens have left.
  std::string without_special(std::string_view text) {
    std::string out;
    for (const char byte : text) {
      if (byte == text::kSpecialBegin) in_special_ = true;
      if (!in_special_) out += byte;
      if (byte == text::kSpecialEnd) in_special_ = false;
    }
    return out;
  }

  void emit_text(std::string text, ReplyEvents& events) {
    if (text.empty()) return;
    auto* const last = events.empty() ? nullptr : std::get_if<Content>(&events.back());
    if (last != nullptr) {
      last->text += text;
    } else {
      events.emplace_back(Content{std::move(text)});
    }
  }

  void add_reasoning(const std::string& text, ReplyEvents& events) {
    spaces_ += without_special(text);
    if (!has_reasoning_) erase_spaces(spaces_);
    const std::size_t last = spaces_.find_last_not_of(kEdgeSpaces);
    if (last == std::string::npos) return;
    has_reasoning_ = true;
    events.emplace_back(Reasoning{spaces_.substr(0, last + 1)});
    spaces_.erase(0, last + 1);
  }

  void read_calls(ReplyEvents& events) {
    bool goes_on = true;
    while (goes_on && stage_ != Stage::kText) {
      switch (stage_) {
        case Stage::kOpening:
          goes_on = read_opening(events);
          break;
        case Stage::kName:
          goes_on = read_name_end(events);
          break;
        case Stage::kArguments:
          goes_on = read_arguments(events);
          break;
        case Stage::kClosing:
          goes_on = read_closing(events);
          break;
        case Stage::kBetween:
          goes_on = read_between(events);
          break;
        case Stage::kText:
          break;
      }
    }
  }

  // What a call begins with, up to its name and what tells that it ends there.
  enum class Match { kNone, kPartial, kWhole };
  Match match_call(const std::string& before, const CallLayout& layout) {
    const std::string begin = before + layout.call_begin;
    std::string_view rest = held_;
    if (rest.size() <= begin.size()) {
      return begin.starts_with(rest) ? Match::kPartial : Match::kNone;
    }
    if (!rest.starts_with(begin)) return Match::kNone;
    rest.remove_prefix(begin.size());
    std::string id;
    if (!layout.name_begin.empty()) {
      const std::size_t end = id_length(rest);
      id = rest.substr(0, end);
      rest.remove_prefix(end);
      if (layout.name_begin.starts_with(rest)) return Match::kPartial;
      if (id.empty() || !rest.starts_with(layout.name_begin)) return Match::kNone;
      rest.remove_prefix(layout.name_begin.size());
    }
    Match match = Match::kNone;
    for (const OfferedFunction& function : known_->functions) {
      const Match one = match_name(rest, function.name, end_of_name(layout));
      if (one == Match::kWhole) {
        begin_call(function, layout, std::move(id),
                   held_.size() - rest.size() + function.name.size());
        return Match::kWhole;
      }
      if (one == Match::kPartial) match = one;
    }
    return match;
  }

  static Match match_name(std::string_view text, std::string_view name, std::string_view end) {
    if (text.size() <= name.size() + (end.empty() ? 0 : end.size() - 1)) {
      const bool may_be = name.starts_with(text.substr(0, name.size())) &&
                          (text.size() <= name.size() || end.starts_with(text.substr(name.size())));
      return may_be ? Match::kPartial : Match::kNone;
    }
    if (!text.starts_with(name)) return Match::kNone;
    text.remove_prefix(name.size());
    const bool ends = end.empty() ? id_length(text) == 0 : text.starts_with(end);
    return ends ? Match::kWhole : Match::kNone;
  }

  // Letters, digits, - and _.
  static std::size_t id_length(std::string_view text) {
    const auto end = std::ranges::find_if_not(
        text, [](unsigned char c) { return (std::isalnum(c) != 0) || c == '-' || c == '_'; });
    return static_cast<std::size_t>(end - text.begin());
  }

  void begin_call(const OfferedFunction& function, const CallLayout& layout, std::string id,
                  std::size_t num_bytes) {
    layout_ = &layout;
    const auto number = static_cast<std::size_t>(&function - known_->functions.data());
    arguments_.emplace(layout, known_->parameters[number], known_->loose->contains(number));
    is_broken_ = false;
    function_ = function.name;
    id_ = std::move(id);
    held_.erase(0, num_bytes);
    stage_ = Stage::kName;
  }

  // Mistral's templates take ids of nine letters and digits alone.
  std::string fresh_call_id() const {
    constexpr std::size_t kMistralBytes = 9;
    if (!known_->layout.name.starts_with("mistral")) return fresh_id("call_");
    return fresh_id("").substr(0, kMistralBytes);
  }

  // The index or the id after the name, and the end of it.
  bool read_name_end(ReplyEvents& events) {
    const bool has_index = !layout_->index_begin.empty();
    const std::string& begin = end_of_name(*layout_);
    std::size_t at = 0;
    if (has_index || !layout_->id_begin.empty()) {
      at = begin.size() + id_length(std::string_view(held_).substr(begin.size()));
    }
    const std::string_view rest = std::string_view(held_).substr(at);
    if (rest.size() < layout_->name_end.size() && layout_->name_end.starts_with(rest)) return false;
    if (!rest.starts_with(layout_->name_end)) return leave(events);
    std::string id = std::exchange(id_, {});
    if (has_index) id = "functions." + function_ + held_.substr(0, at);
    if (!layout_->id_begin.empty()) id = held_.substr(begin.size(), at - begin.size());
    // A model may give two calls the same one.
    if (id.empty() || std::ranges::find(ids_, id) != ids_.end()) id = fresh_call_id();
    ids_.push_back(id);
    held_.erase(0, at + layout_->name_end.size());
    stage_ = Stage::kArguments;
    spaces_.clear();
    events.emplace_back(CallBegins{std::move(id), function_});
    return true;
  }

  bool read_opening(ReplyEvents& events) {
    bool may_be = false;
    for (const CallLayout& layout : known_->layout.calls) {
      const Match match = match_call(layout.section_begin, layout);
      if (match == Match::kWhole) return true;
      may_be = may_be || match == Match::kPartial;
    }
    if (may_be) return false;
    reject(events);
    return true;
  }

  // What is held is no call.
  void reject(ReplyEvents& events) {
    stage_ = Stage::kText;
    const std::string held = std::exchange(held_, {});
    if (!scanner_.has_stopped()) {
      has_text_ = true;
      emit_text(without_special(held), events);
    } else {
      take(scanner_.reject(held), events);
    }
  }

  bool read_arguments(ReplyEvents& events) {
    std::string json;
    const auto state = arguments_->read(held_, json, ends_);
    if (!json.empty()) events.emplace_back(CallArguments{std::move(json)});
    if (state == ArgumentReader::State::kMore) return false;
    // What looks like a call after arguments that are none may be of a text of theirs.
    if (state != ArgumentReader::State::kDone) scanner_.end_openings();
    // Where no grammar holds, a model may write what is none.
    if (state == ArgumentReader::State::kWrong) return leave(events);
    is_broken_ = state == ArgumentReader::State::kBroken;
    stage_ = Stage::kClosing;
    return true;
  }

  bool read_closing(ReplyEvents& events) {
    std::string_view end = layout_->call_end;
    if (is_broken_ && !closing_of(*layout_).empty()) {  // it may have other brackets
      const std::string_view closing = closing_of(*layout_);
      constexpr std::size_t kBracketsMax = 64;  // and white space
      const std::size_t at = std::min(held_.find_first_not_of(kBeforeClosing), held_.size());
      if (at > kBracketsMax) return leave(events);
      const std::string_view rest = std::string_view(held_).substr(at);
      if (rest.size() < closing.size() && closing.starts_with(rest)) return false;
      if (rest.starts_with(closing)) {
        held_.erase(0, at);
        end = closing;
      }
    }
    if (held_.size() < end.size() && end.starts_with(held_)) return false;
    if (!held_.starts_with(end)) return std::exchange(is_broken_, true) ? leave(events) : true;
    held_.erase(0, end.size());
    if (!is_broken_) events.emplace_back(CallEnds{});
    const bool may_have_more = is_list(*layout_) || known_->begins_with_call;
    if (!may_have_more || !scanner_.has_openings()) return leave(events);
    stage_ = Stage::kBetween;
    return true;
  }

  bool read_between(ReplyEvents& events) {
    const Match match = match_call(layout_->separator, *layout_);
    if (match == Match::kWhole) return true;
    const std::string& end = layout_->section_end;
    if (!end.empty() && held_.starts_with(end)) {
      held_.erase(0, end.size());
      return leave(events);
    }
    if (match == Match::kPartial || (held_.size() < end.size() && end.starts_with(held_))) {
      return false;
    }
    return leave(events);
  }

  // More text follows.
  bool leave(ReplyEvents& events) {
    stage_ = Stage::kText;
    was_marked_ = true;
    arguments_.reset();
    take(scanner_.resume(std::exchange(held_, {})), events);
    return true;
  }

  void finish(FinishReason reason, ReplyEvents& events) {
    ends_ = reason;
    if (stage_ == Stage::kArguments) read_calls(events);
    // The token that closes a call may end the reply, without text of its own.
    if (stage_ == Stage::kClosing && held_.empty() && reason == FinishReason::kStop) {
      if (!is_broken_) events.emplace_back(CallEnds{});
    } else if (stage_ == Stage::kText) {
      take(scanner_.finish(), events);
    }
    // What a text without openings may have begun is content; else it is a piece of the form.
    const bool has_opening =
        std::ranges::any_of(known_->layout.calls, [&](const CallLayout& layout) {
          return !layout.opening.empty() && held_.starts_with(layout.opening);
        });
    if (stage_ == Stage::kOpening && !has_opening) {
      emit_text(without_special(std::exchange(held_, {})), events);
    }
    // All that there is.
    if (!has_text_ && ids_.empty() && !was_marked_ && !spaces_.empty() &&
        !scanner_.in_reasoning()) {
      emit_text(std::exchange(spaces_, {}), events);
    }
  }

  std::shared_ptr<const Known> known_;
  ReplyScanner scanner_;
  Stage stage_ = Stage::kText;
  const CallLayout* layout_ = nullptr;  // of the call; known_'s
  std::string function_ = {};
  std::string id_ = {};                // as the model calls it
  std::vector<std::string> ids_ = {};  // of all calls
  std::string held_ = {};
  std::string spaces_ = {};  // that may be the edge of calls or reasoning
  bool is_begun_ = false;    // content, or something else
  bool has_text_ = false;
  bool has_reasoning_ = false;
  bool was_marked_ = false;  // calls or reasoning have ended, and no text has followed
  bool in_special_ = false;  // what is left of a special token's text
  bool is_broken_ = false;   // the call's arguments are none
  FinishReason ends_ = FinishReason::kNone;
  std::optional<MarkedArguments> arguments_ = {};
};

}  // namespace

ReplyFormat make_format(const text::ReplyLayout& layout, const OfferedTools& tools,
                        GrammarTriggers triggers, std::shared_ptr<const LooseFunctions> loose) {
  auto known = std::make_shared<Known>();
  known->layout = layout;
  known->functions = tools.functions;
  known->loose = std::move(loose);
  const bool has_tags = std::ranges::any_of(layout.calls, [](const CallLayout& calls) {
    return calls.arguments == CallLayout::Arguments::kTagged;
  });
  if (has_tags) known->parameters = parameters_of(tools.functions);
  known->parameters.resize(tools.functions.size());
  known->begins_with_call = !tools.functions.empty() && tools.choice != OfferedTools::Choice::kAuto;
  known->triggers = std::make_shared<const GrammarTriggers>(std::move(triggers));
  return [known = std::shared_ptr<const Known>(std::move(known))] {
    return std::make_unique<LayoutReader>(known);
  };
}

}  // namespace lmtp::server
