#include "call_grammars.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "call_grammar.h"
#include "lark_rules.h"
#include "lmtp/base/json.h"
#include "unknown_keys.h"

namespace lmtp::server {
namespace {

constexpr std::chrono::seconds kTriesMax{5};  // then the names alone are tried
constexpr std::size_t kEachNumMax = 64;       // so that other grammars stay known
constexpr std::size_t kLoggedMax = 16;        // names
const std::string kLooseLine = "\n// loose: ";

// The functions that a grammar says to be loose.
std::unordered_set<std::string_view> loose_in(std::string_view grammar) {
  std::unordered_set<std::string_view> names;
  for (auto at = grammar.find(kLooseLine); at != std::string_view::npos;
       at = grammar.find(kLooseLine, at)) {
    at += kLooseLine.size();
    names.insert(grammar.substr(at, grammar.find('\n', at) - at));
  }
  return names;
}

}  // namespace

CallGrammars::CallGrammars(std::shared_ptr<const text::ReplyLayout> layout, OfferedTools tools,
                           const registry::ReadyModel& model, std::optional<Grammar> content,
                           std::optional<GrammarTriggers> triggers,
                           std::shared_ptr<LooseFunctions> loose)
    : layout_(std::move(layout)),
      tools_(std::move(tools)),
      model_(model.name),
      tokenizer_(*model.tokenizer),
      compiler_(model.grammars),
      content_(std::move(content)),
      triggers_(std::move(triggers)),
      loose_(std::move(loose)),
      all_(written()) {}

Grammar CallGrammars::written() {
  CallGrammar written = make_call_grammar(*layout_, tools_, tokenizer_.get());
  unkept_ = std::move(written.unkept);
  add_loose({written.cut.begin(), written.cut.end()});
  if (written.cut.size() > kLoggedMax) written.cut.resize(kLoggedMax);
  log_once(
      "tools: the schemas of these are too long to be followed in the form of this model's calls, "
      "and what is left of them is any value:",
      written.cut);
  Grammar grammar = std::move(written.grammar);
  grammar.triggers = triggers_;
  for (const OfferedFunction& function : tools_.functions) {  // no stand-in is both one's
    if (function.is_strict) grammar.text += "// strict: " + function.name + "\n";
  }
  for (const OfferedFunction& function : tools_.functions) {  // which the next turn is to know
    if (function.is_loose) grammar.text += kLooseLine.substr(1) + function.name + "\n";
  }
  if (!content_) return grammar;
  constexpr std::string_view kStart = "start:";
  grammar.text.insert(kStart.size(), " content |");
  grammar.text += "content:" + lark_literal(*tokenizer_, layout_->content_begin) + " %json " +
                  schema_with_fixed_spaces(content_->text) + "\n";
  return grammar;
}

Grammar CallGrammars::grammar() const {
  const bool may_be_loose = tools_.choice == OfferedTools::Choice::kAuto;
  auto instead = may_be_loose && compiler_ != nullptr ? compiler_->stand_in(all_) : std::nullopt;
  if (!instead) return all_;
  if (instead->kind != Grammar::Kind::kLark) {
    loose_->add_all();
    return unconstrained();
  }
  add_loose(loose_in(instead->text));
  instead->triggers = triggers_;
  return *std::move(instead);
}

std::optional<Grammar> CallGrammars::next(bool has_compiled) {
  const bool is_trial = stage_ == Stage::kEach;
  if (has_compiled && !is_trial) {
    if (stage_ != Stage::kAll && compiler_ != nullptr) compiler_->set_stand_in(all_, last_);
    return std::nullopt;
  }
  if (is_trial && !has_compiled) loosen(tools_.functions[at_]);
  if (is_trial) ++at_;
  const bool is_late = Clock::now() - begin_ > kTriesMax;
  switch (stage_) {
    case Stage::kAll:
    case Stage::kEach:
      if (!is_late) return last_ = each();
      [[fallthrough]];
    case Stage::kSome:
      stage_ = Stage::kNames;
      for (OfferedFunction& function : tools_.functions) loosen(function);
      return last_ = loosened();
    case Stage::kNames:
      if (std::ranges::any_of(tools_.functions, &OfferedFunction::is_strict)) break;
      stage_ = Stage::kNothing;
      loose_->add_all();
      log_once("tools: no grammar of them can be compiled, and nothing keeps calls to them:",
               {model_});
      return last_ = unconstrained();
    case Stage::kNothing:
      break;
  }
  return std::nullopt;
}

void CallGrammars::add_loose(const std::unordered_set<std::string_view>& names) const {
  for (std::size_t i = 0; i < tools_.functions.size() && !names.empty(); ++i) {
    if (names.contains(tools_.functions[i].name)) loose_->add(i);
  }
}

void CallGrammars::loosen(OfferedFunction& function) {
  if (function.is_strict || std::exchange(function.is_loose, true)) return;
  add_loose({function.name});  // of all that have the name
  names_.push_back(function.name);
}

Grammar CallGrammars::loosened() {
  std::string others;
  if (names_.size() > kLoggedMax) {
    others = " and " + std::to_string(names_.size() - kLoggedMax) + " others";
    names_.resize(kLoggedMax);
  }
  log_once("tools: the schemas of these" + others +
               " cannot be compiled, and any object is an argument:",
           std::exchange(names_, {}));
  return written();
}

Grammar CallGrammars::each() {
  while (at_ < tools_.functions.size() && tools_.functions[at_].is_strict) ++at_;
  stage_ = Stage::kEach;
  if (at_ < std::min(tools_.functions.size(), kEachNumMax)) {
    return Grammar{Grammar::Kind::kJsonSchema, tools_.functions[at_].parameters};
  }
  for (; at_ < tools_.functions.size(); ++at_) loosen(tools_.functions[at_]);
  stage_ = Stage::kSome;
  return loosened();
}

// What there is of the content; calls are read all the same.
Grammar CallGrammars::unconstrained() const {
  Grammar grammar = content_ ? *content_ : Grammar{Grammar::Kind::kFree};
  grammar.triggers = triggers_;
  if (grammar.triggers) {
    grammar.triggers->openings.clear();
    grammar.triggers->first_openings.clear();
  }
  return grammar;
}

}  // namespace lmtp::server
