// Finds a grammar of a chat's calls that can be compiled.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "intake.h"
#include "lmtp/request/grammar.h"
#include "lmtp/text/reply_layout.h"
#include "lmtp/tokenizer/tokenizer.h"
#include "offered_tools.h"

namespace lmtp::server {

// The grammar of a chat's calls, with as many of the tools' schemas as can be compiled.
class CallGrammars final : public GrammarRetry {
 public:
  CallGrammars(std::shared_ptr<const text::ReplyLayout> layout, OfferedTools tools,
               std::shared_ptr<const tokenizer::Tokenizer> tokenizer,
               std::optional<Grammar> content, std::optional<GrammarTriggers> triggers);

  Grammar grammar() const;
  std::optional<Grammar> next(bool has_compiled) override;

 private:
  using Clock = std::chrono::steady_clock;
  enum class Stage { kAll, kEach, kSome, kNone };

  void loosen(OfferedFunction& function);
  Grammar loosened();
  std::optional<Grammar> each();

  const std::shared_ptr<const text::ReplyLayout> layout_;
  OfferedTools tools_;
  const std::shared_ptr<const tokenizer::Tokenizer> tokenizer_;
  const std::optional<Grammar> content_;
  const std::optional<GrammarTriggers> triggers_;
  Stage stage_ = Stage::kAll;
  std::size_t at_ = 0;              // the function whose schema is tried
  std::vector<std::string> names_;  // of those that have become loose
  Clock::time_point begin_ = {};
};

}  // namespace lmtp::server
