#include "reply_plan.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>

#include "call_grammar.h"
#include "call_grammars.h"
#include "content_grammar.h"
#include "lmtp/constraint/grammar_compiler.h"
#include "lmtp/text/reply_layout.h"
#include "lmtp/text/stream_text.h"
#include "reply_formats.h"
#include "unknown_keys.h"

namespace lmtp::server {
namespace {

using text::CallLayout;
using text::ReplyLayout;

constexpr std::string_view kEndSpaces = " \t\r\n";

std::string_view without_spaces_at_end(std::string_view text) {
  const std::size_t last = text.find_last_not_of(kEndSpaces);
  return text.substr(0, last == std::string_view::npos ? 0 : last + 1);
}

// What the reply's reasoning is by what its prompt ends with: open, still to come, or over.
GrammarTriggers reasoning_of(const ReplyLayout& layout, std::string_view prompt,
                             std::string_view begun) {
  GrammarTriggers triggers;
  if (!layout.reasoning) return triggers;
  const std::string_view begin = without_spaces_at_end(layout.reasoning->begin);
  const std::string_view end = without_spaces_at_end(layout.reasoning->end);
  const std::string_view last = without_spaces_at_end(prompt);
  const std::size_t opened = begun.rfind(begin);
  const std::size_t closed = begun.rfind(end);
  const bool is_closed = closed != std::string_view::npos;
  // Other messages end so, too, where reasoning is one of its own.
  const bool is_over =
      layout.message_begin.empty()
          ? last.ends_with(end)
          : last.ends_with(std::string(begin) + std::string(end) + layout.message_begin);
  if (is_over || (is_closed && (opened == std::string_view::npos || closed > opened))) {
    return triggers;
  }
  triggers.in_reasoning = last.ends_with(begin) || opened != std::string_view::npos;
  // What is said already is no reasoning.
  if (!triggers.in_reasoning && !begun.empty()) return triggers;
  triggers.reasoning_begin = layout.reasoning->begin;
  triggers.reasoning_end = layout.reasoning->end + layout.message_begin;
  return triggers;
}

// All that stands around content.
std::vector<std::string> markers_of(const ReplyLayout& layout) {
  std::vector<std::string> markers = layout.dropped;
  markers.push_back(layout.message_begin);
  markers.push_back(layout.content_begin);
  if (layout.reasoning) {
    markers.push_back(layout.reasoning->begin);
    markers.push_back(layout.reasoning->end);
  }
  for (const CallLayout& call : layout.calls) {
    for (const auto& text :
         {call.section_begin, call.separator, call.section_end, call.call_begin, call.name_begin,
          call.index_begin, call.id_begin, call.name_end, call.call_end, call.argument_begin,
          call.argument_name_end, call.string_name_end, call.argument_separator, call.argument_end,
          call.string_quote}) {
      if (!text.empty()) markers.push_back(text);
    }
  }
  return markers;
}

ReplyLayout marked(ReplyLayout layout, const tokenizer::Tokenizer& tokenizer) {
  for (CallLayout& call : layout.calls) {
    for (std::string* text :
         {&call.opening, &call.section_begin, &call.separator, &call.section_end, &call.call_begin,
          &call.name_begin, &call.index_begin, &call.id_begin, &call.name_end, &call.call_end,
          &call.argument_begin, &call.argument_name_end, &call.string_name_end,
          &call.argument_separator, &call.argument_end, &call.string_quote}) {
      *text = text::mark_special(tokenizer, *text);
    }
  }
  return layout;
}

bool is_schema(const Grammar& grammar) {
  return grammar.kind == Grammar::Kind::kJson || grammar.kind == Grammar::Kind::kJsonSchema;
}

class Planner {
 public:
  Planner(const registry::ReadyModel& model, std::string_view prompt, const ReplyWishes& wishes)
      : model_(model),
        layout_(*model.reply_layout),
        wishes_(wishes),
        reasoning_(reasoning_of(layout_, prompt, wishes.begun)) {
    const bool has_begun = !wishes.begun.empty() && !reasoning_.in_reasoning;
    if (has_begun) layout_.content_begin.clear();
  }

  Result<ReplyPlan> plan() && {
    OfferedTools tools = wishes_.tools.value_or(OfferedTools());
    const bool is_auto = tools.choice == OfferedTools::Choice::kAuto;
    if (is_auto && !constraint::grammar_support()) tools.functions.clear();
    if (!is_auto && layout_.calls.empty()) {
      layout_.calls = {json_layout()};
      tools.calls_several = false;
    }
    // Any other grammar of the content leaves no room for calls.
    const bool has_room = !wishes_.grammar || is_schema(*wishes_.grammar);
    plan_.grammar = wishes_.grammar;
    if (plan_.grammar) begin_content(layout_.content_begin, **model_.tokenizer, *plan_.grammar);
    if (!tools.functions.empty() && layout_.calls.empty()) {
      log_once(
          "tools: calls are not read out of what these models write, since their chat "
          "templates tell no format of calls (--tool-call-format NAME gives one):",
          {model_.name});
    }
    if (!tools.functions.empty() && !layout_.calls.empty() && has_room) {
      if (auto added = add_calls(tools); !added) return added.error();
    } else if (layout_.reasoning || !layout_.dropped.empty()) {
      read_by_layout({}, {}, std::make_shared<const LooseFunctions>(OfferedTools()));
    }
    if (!reasoning_.reasoning_end.empty()) add_reasoning();
    return std::move(plan_);
  }

 private:
  Result<void> add_calls(const OfferedTools& tools) {
    const bool is_auto = tools.choice == OfferedTools::Choice::kAuto;
    plan_.has_no_text = !is_auto;
    GrammarTriggers triggers;
    if (is_auto) triggers = call_triggers(layout_, tools, **model_.tokenizer);
    std::optional<GrammarTriggers> for_grammar;
    if (is_auto && !wishes_.grammar) for_grammar = with_reasoning(triggers);
    if (!is_auto || wishes_.grammar) for_grammar = reasoning_triggers();
    if (wishes_.grammar) {  // a call is all of the text then
      triggers.first_openings.insert(triggers.first_openings.end(), triggers.openings.begin(),
                                     triggers.openings.end());
      triggers.openings.clear();
    }
    const auto loose = std::make_shared<LooseFunctions>(tools);
    auto grammars =
        std::make_unique<CallGrammars>(std::make_shared<const ReplyLayout>(layout_), tools, model_,
                                       wishes_.grammar, for_grammar, loose);
    if (!grammars->unkept().empty()) {
      return Error{ErrorCode::kInvalid,
                   "tools: '" + grammars->unkept() +
                       "' is strict, and the form in which this model writes calls does not keep "
                       "all that its parameters say; allowed are types, listed values, unions and "
                       "references of these, bounds of numbers, and strict: false"};
    }
    plan_.grammar = grammars->grammar();
    if (is_auto) plan_.retry = std::move(grammars);
    read_by_layout(tools, triggers, loose);
    return {};
  }

  GrammarTriggers with_reasoning(GrammarTriggers triggers) const {
    triggers.reasoning_begin = reasoning_.reasoning_begin;
    triggers.reasoning_end = reasoning_.reasoning_end;
    triggers.in_reasoning = reasoning_.in_reasoning;
    triggers.dropped = layout_.dropped;
    triggers.reasoning_tokens_max = wishes_.reasoning_tokens_max;
    triggers.min_tokens = reasoning_.reasoning_end.empty() ? 0 : wishes_.min_tokens;
    return triggers;
  }

  // Nothing: the grammar holds from the first token on.
  std::optional<GrammarTriggers> reasoning_triggers() const {
    if (reasoning_.reasoning_end.empty()) return std::nullopt;
    return with_reasoning({});
  }

  void read_by_layout(const OfferedTools& tools, const GrammarTriggers& triggers,
                      std::shared_ptr<const LooseFunctions> loose) {
    plan_.markers = markers_of(layout_);
    const tokenizer::Tokenizer& tokenizer = **model_.tokenizer;
    plan_.format =
        make_format(marked(layout_, tokenizer), tools,
                    text::mark_special(tokenizer, with_reasoning(triggers)), std::move(loose));
  }

  // What constrains the reply begins after its reasoning.
  void add_reasoning() {
    plan_.counts_min_tokens = wishes_.min_tokens > 0 && constraint::grammar_support().ok();
    const bool needs_grammar =
        wishes_.reasoning_tokens_max >= 0 || wishes_.min_tokens > 0 || wishes_.has_stop_strings;
    if (!plan_.grammar && needs_grammar && constraint::grammar_support()) {
      plan_.grammar = Grammar{Grammar::Kind::kFree};
    }
    if (plan_.grammar && !plan_.grammar->triggers) plan_.grammar->triggers = reasoning_triggers();
  }

  const registry::ReadyModel& model_;
  ReplyLayout layout_;
  const ReplyWishes& wishes_;
  const GrammarTriggers reasoning_;
  ReplyPlan plan_;
};

}  // namespace

bool opens_reasoning(const ReplyLayout& layout, std::string_view prompt) {
  return reasoning_of(layout, prompt, {}).in_reasoning;
}

Result<ReplyPlan> plan_reply(const registry::ReadyModel& model, std::string_view prompt,
                             const ReplyWishes& wishes) {
  return Planner(model, prompt, wishes).plan();
}

}  // namespace lmtp::server
