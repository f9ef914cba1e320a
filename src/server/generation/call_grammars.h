// Finds a grammar of a chat's calls that can be compiled.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "intake.h"
#include "lmtp/base/runtime.h"
#include "lmtp/registry/models.h"
#include "lmtp/request/grammar.h"
#include "lmtp/text/reply_layout.h"
#include "offered_tools.h"

namespace lmtp::server {

// The grammar of a chat's calls, with as many of the tools' schemas as can be compiled: all of
// them; without those that cannot be compiled alone; the names alone; none at all, where no tool is
// strict. What was found so is kept by the model's compiler, and is first the next time.
class CallGrammars final : public GrammarRetry {
 public:
  // content: what the text is that is no call, by a schema. loose: of these tools; a function is
  // added before a grammar is given out that takes arguments which its schema does not. REQUIRES:
  // the model has a tokenizer.
  CallGrammars(std::shared_ptr<const text::ReplyLayout> layout, OfferedTools tools,
               const registry::ReadyModel& model, std::optional<Grammar> content,
               std::optional<GrammarTriggers> triggers, std::shared_ptr<LooseFunctions> loose);

  // The first to compile.
  Grammar grammar() const;
  // A strict function whose schema the form of calls does not keep; empty: there is none.
  const std::string& unkept() const { return unkept_; }
  std::optional<Grammar> next(bool has_compiled) override;

 private:
  using Clock = runtime::Clock;
  enum class Stage { kAll, kEach, kSome, kNames, kNothing };

  Grammar written();
  void loosen(OfferedFunction& function);
  Grammar loosened();
  Grammar each();
  Grammar unconstrained() const;
  void add_loose(const std::unordered_set<std::string_view>& names) const;

  const std::shared_ptr<const text::ReplyLayout> layout_;
  OfferedTools tools_;
  const std::string model_;
  const std::shared_ptr<const tokenizer::Tokenizer> tokenizer_;
  const std::shared_ptr<constraint::GrammarCompiler> compiler_;  // null: nothing is kept
  const std::optional<Grammar> content_;
  const std::optional<GrammarTriggers> triggers_;
  const std::shared_ptr<LooseFunctions> loose_;
  const Clock::time_point begin_ = Clock::now();
  std::string unkept_;
  const Grammar all_;
  Grammar last_;  // that was given out
  Stage stage_ = Stage::kAll;
  std::size_t at_ = 0;              // the function whose schema is tried
  std::vector<std::string> names_;  // of those that have become loose
};

}  // namespace lmtp::server
