// CompiledGrammar: a grammar that was read for one model's tokens.
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "lmtp/constraint/grammar_compiler.h"
#include "matcher.h"
#include "vocabulary.h"

namespace lmtp::constraint {

class CompiledGrammar {
 public:
  // Allows anything.
  explicit CompiledGrammar(std::shared_ptr<const Vocabulary> vocabulary)
      : vocabulary_(std::move(vocabulary)) {}
  // prototype: has consumed nothing.
  CompiledGrammar(std::shared_ptr<const Vocabulary> vocabulary, Matcher prototype)
      : vocabulary_(std::move(vocabulary)),
        prototype_(std::make_shared<const Matcher>(std::move(prototype))) {}
  // The same for streams that go on from what `resumed` has consumed.
  CompiledGrammar(const CompiledGrammar& grammar, Matcher resumed)
      : vocabulary_(grammar.vocabulary_),
        prototype_(grammar.prototype_),
        resumed_(std::move(resumed)) {}

  const Vocabulary& vocabulary() const { return *vocabulary_; }
  const std::shared_ptr<const Vocabulary>& shared_vocabulary() const { return vocabulary_; }
  bool allows_anything() const { return prototype_ == nullptr; }
  // REQUIRES: not allows_anything().
  Matcher new_matcher() const { return prototype_->clone(); }
  const std::optional<Matcher>& resumed() const { return resumed_; }

 private:
  const std::shared_ptr<const Vocabulary> vocabulary_;
  const std::shared_ptr<const Matcher> prototype_;
  const std::optional<Matcher> resumed_;
};

}  // namespace lmtp::constraint
