// Grammars without an engine: compiled, and streams that are drawn by them.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lmtp/constraint/grammar_compiler.h"
#include "lmtp/tokenizer/tokenizer.h"
#include "support/source_dir.h"

namespace lmtp::constraint::testing {

using Tokenizer = std::shared_ptr<const tokenizer::Tokenizer>;
using Kind = Grammar::Kind;

// A tokenizer from a folder in the repository.
inline Tokenizer load(const std::string& folder) {
  auto loaded = tokenizer::load_tokenizer(lmtp::testing::source_dir() + "/" + folder);
  EXPECT_TRUE(loaded.ok()) << folder;
  return std::move(*loaded);
}

inline const Tokenizer& demo() {
  static const Tokenizer tokenizer = load("models/demo");
  return tokenizer;
}

// Mask words are of the logits, of which a model may have more than tokens.
inline int vocab_size_of(const tokenizer::Tokenizer& tokenizer) {
  return tokenizer.vocab_size() + 21;
}

inline GrammarCompiler::Compiled compile(GrammarCompiler& compiler, const Grammar& grammar,
                                         ConnectionId share = 0) {
  std::promise<GrammarCompiler::Compiled> answer;
  compiler.compile(
      grammar, [&](GrammarCompiler::Compiled compiled) { answer.set_value(std::move(compiled)); },
      {}, share);
  return answer.get_future().get();
}

// A stream of one tokenizer, drawn by its masks.
struct Drawn {
  std::vector<TokenId> tokens;
  int num_forced = 0;
  bool has_ended = false;
  std::optional<Error> error = {};
};

class Streams {
 public:
  explicit Streams(Tokenizer tokenizer = demo(),
                   CompilerOptions options = {.timeout = std::chrono::hours(1)}, int vocab_size = 0)
      : tokenizer_(std::move(tokenizer)),
        vocab_size_(vocab_size > 0 ? vocab_size : vocab_size_of(*tokenizer_)),
        compiler_(tokenizer_, vocab_size_, {tokenizer_->eos_id()}, options) {}

  GrammarCompiler& compiler() { return compiler_; }
  const tokenizer::Tokenizer& tokenizer() const { return *tokenizer_; }
  TokenId eos() const { return tokenizer_->eos_id(); }

  std::shared_ptr<const CompiledGrammar> grammar(Kind kind, const std::string& text) {
    auto compiled = compile(compiler_, {kind, text});
    EXPECT_TRUE(compiled.ok()) << text << ": " << compiled.error().message;
    return compiled.ok() ? *compiled : nullptr;
  }
  std::string refusal(Kind kind, const std::string& text) {
    const auto compiled = compile(compiler_, {kind, text});
    if (compiled.ok()) return "it is accepted";
    EXPECT_EQ(compiled.error().code, ErrorCode::kInvalid);
    EXPECT_TRUE(compiled.error().message.starts_with("grammar: ")) << compiled.error().message;
    return compiled.error().message;
  }

  struct Next {
    std::vector<std::uint32_t> words;
    std::vector<TokenId> forced;
    bool allows(TokenId token) const {
      return (words[static_cast<std::size_t>(token) / 32] >> (token % 32) & 1U) != 0;
    }
    std::vector<TokenId> allowed() const {
      std::vector<TokenId> ids;
      for (std::size_t id = 0; id < words.size() * 32; ++id) {
        if (allows(static_cast<TokenId>(id))) ids.push_back(static_cast<TokenId>(id));
      }
      return ids;
    }
  };
  Result<Next> next(const MaskSource& source, std::span<const TokenId> generated) const {
    Next next;
    next.words.resize((static_cast<std::size_t>(vocab_size_) + 31) / 32);
    NextTokens to{next.words};
    const std::vector<TokenId> before = {1, 2, 3};
    if (Result<void> done = source.compute(before, generated, to); !done) return done.error();
    next.forced = std::move(to.forced);
    return next;
  }

  // As an engine does, from `tokens` on: each draw is a function of `seed` and place.
  Drawn draw(const ConstrainedStream& stream, std::uint64_t seed, std::size_t num_max,
             std::vector<TokenId> tokens = {}) const {
    Drawn drawn{.tokens = std::move(tokens)};
    while (drawn.tokens.size() < num_max && !drawn.has_ended) {
      const auto found = next(*stream.mask_source, drawn.tokens);
      if (!found.ok()) {
        drawn.error = found.error();
        return drawn;
      }
      const auto allowed = found->allowed();
      if (allowed.empty()) {
        drawn.error = Error{ErrorCode::kConstraint, "allows nothing"};
        return drawn;
      }
      std::uint64_t hash = (seed * 1000003 + drawn.tokens.size() + 1) * 0x9E3779B97F4A7C15ULL;
      hash ^= hash >> 29U;
      const TokenId token = allowed[hash % allowed.size()];
      drawn.tokens.push_back(token);
      drawn.has_ended = stream.stops->push(token, true) || token == eos();
      for (const TokenId id : found->forced) {
        if (drawn.has_ended || drawn.tokens.size() >= num_max) break;
        drawn.tokens.push_back(id);
        EXPECT_FALSE(stream.stops->push(id, false));
        ++drawn.num_forced;
      }
    }
    return drawn;
  }

  // How the stream takes a text, which is spelled as the tokenizer spells it.
  enum class Taken { kEnded, kMayEnd, kMayNotEnd, kRefused };
  Taken take(const std::shared_ptr<const CompiledGrammar>& grammar, std::string_view text) const {
    const auto ids = tokenizer_->encode_continuation(text);
    EXPECT_TRUE(ids.ok());
    if (!constrain(grammar, *ids, nullptr).ok()) return Taken::kRefused;
    const auto stream = constrain(grammar, {}, nullptr);
    bool has_ended = false;
    for (const TokenId id : *ids) has_ended = stream->stops->push(id, true);
    if (has_ended) return Taken::kEnded;
    const auto last = next(*stream->mask_source, *ids);
    if (!last.ok()) return Taken::kRefused;
    return last->allows(eos()) ? Taken::kMayEnd : Taken::kMayNotEnd;
  }

  std::string text_of(std::span<const TokenId> tokens) const {
    std::string text;
    for (const TokenId token : tokens) {
      if (token != eos()) text += tokenizer_->token_bytes(token);
    }
    return text;
  }

 private:
  Tokenizer tokenizer_;
  int vocab_size_;
  GrammarCompiler compiler_;
};

}  // namespace lmtp::constraint::testing
