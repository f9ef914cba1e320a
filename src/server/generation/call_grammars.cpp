#include "call_grammars.h"

#include <string_view>
#include <utility>

#include "call_grammar.h"
#include "unknown_keys.h"

namespace lmtp::server {
namespace {

constexpr std::chrono::seconds kEachMax{2};  // for all of them
constexpr std::size_t kEachNumMax = 64;      // so that other grammars stay known

}  // namespace

CallGrammars::CallGrammars(std::shared_ptr<const text::ReplyLayout> layout, OfferedTools tools,
                           std::shared_ptr<const tokenizer::Tokenizer> tokenizer,
                           std::optional<Grammar> content, std::optional<GrammarTriggers> triggers)
    : layout_(std::move(layout)),
      tools_(std::move(tools)),
      tokenizer_(std::move(tokenizer)),
      content_(std::move(content)),
      triggers_(std::move(triggers)) {}

Grammar CallGrammars::grammar() const {
  Grammar grammar = make_call_grammar(*layout_, tools_, *tokenizer_);
  grammar.triggers = triggers_;
  if (!content_) return grammar;
  constexpr std::string_view kStart = "start: ";
  grammar.text.insert(kStart.size(), "content | ");
  grammar.text += "content: %json " + with_fixed_spaces(content_->text) + "\n";
  return grammar;
}

std::optional<Grammar> CallGrammars::next(bool has_compiled) {
  switch (stage_) {
    case Stage::kAll:
      if (has_compiled) return std::nullopt;
      begin_ = Clock::now();
      stage_ = Stage::kEach;
      return each();
    case Stage::kEach:
      if (!has_compiled) loosen(tools_.functions[at_]);
      ++at_;
      return each();
    case Stage::kSome:
      if (has_compiled) return std::nullopt;
      stage_ = Stage::kNone;
      for (OfferedFunction& function : tools_.functions) loosen(function);
      return loosened();
    case Stage::kNone:
      break;
  }
  return std::nullopt;
}

void CallGrammars::loosen(OfferedFunction& function) {
  if (function.is_strict || std::exchange(function.is_loose, true)) return;
  names_.push_back(function.name);
}

Grammar CallGrammars::loosened() {
  log_once("tools: the schemas of these cannot be compiled, and any object is an argument:",
           std::exchange(names_, {}));
  return grammar();
}

std::optional<Grammar> CallGrammars::each() {
  while (at_ < tools_.functions.size() && tools_.functions[at_].is_strict) ++at_;
  const bool takes_long = Clock::now() - begin_ > kEachMax || at_ >= kEachNumMax;
  if (at_ < tools_.functions.size() && !takes_long) {
    return Grammar{Grammar::Kind::kJsonSchema, tools_.functions[at_].parameters};
  }
  for (; at_ < tools_.functions.size(); ++at_) loosen(tools_.functions[at_]);
  stage_ = Stage::kSome;
  return loosened();
}

}  // namespace lmtp::server
