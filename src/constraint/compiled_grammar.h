// CompiledGrammar: a grammar that was read for one model's tokens.
#pragma once

#include <memory>
#include <utility>

#include "lmtp/constraint/grammar_compiler.h"
#include "matcher.h"
#include "vocabulary.h"

namespace lmtp::constraint {

class CompiledGrammar {
 public:
  // prototype: has consumed nothing.
  CompiledGrammar(std::shared_ptr<const Vocabulary> vocabulary, Matcher prototype)
      : vocabulary_(std::move(vocabulary)), prototype_(std::move(prototype)) {}

  const Vocabulary& vocabulary() const { return *vocabulary_; }
  Matcher new_matcher() const { return prototype_.clone(); }

 private:
  const std::shared_ptr<const Vocabulary> vocabulary_;
  const Matcher prototype_;
};

}  // namespace lmtp::constraint
