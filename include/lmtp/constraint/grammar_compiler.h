// GrammarCompiler: from a grammar to what keeps a stream's text to it.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "lmtp/base/ids.h"
#include "lmtp/base/result.h"
#include "lmtp/request/grammar.h"
#include "lmtp/request/mask_source.h"
#include "lmtp/request/stop_checker.h"
#include "lmtp/tokenizer/tokenizer.h"

namespace lmtp::constraint {

// Whether grammars work in this program; the error says why not. The first call loads llguidance
// and has it make a mask. Any thread.
Result<void> grammar_support();

// A grammar for one model. Immutable; any thread.
class CompiledGrammar;

// What a request takes of a grammar: Request::mask_source and Request::stops.
struct ConstrainedStream {
  std::shared_ptr<const MaskSource> mask_source;
  std::shared_ptr<StopChecker> stops;  // ends the stream where nothing can follow
};

// A stream whose text must match from `generated` on, the tokens of the prompt that count as
// generated. stops: of its text; null: none. The error, kInvalid, "resumed: ...", says which of
// `generated` the grammar does not allow. Any thread. It takes microseconds for each of them,
// unless the grammar was compiled for these.
//
// Errors of the mask source are kConstraint, "constraint: ...": a token of a stream that the
// grammar does not allow there, by name, or that it has become too complex. NextTokens::forced has
// what would be drawn token by token otherwise. It is not what llguidance forces at the first of
// them: a tokenizer may spell the rest of a text in another way when it begins later, so it is
// asked again at each token, and the last one is left to be drawn. Where `stops` is given nothing
// is forced, since what is put in ends no stream.
//
// end_ids: what ends the stream beside the model's own end tokens; special ones may follow where
// those may.
// triggers: the grammar's, which compile() does not look at; none: it holds from the first token
// on.
Result<ConstrainedStream> constrain(const std::shared_ptr<const CompiledGrammar>& grammar,
                                    std::span<const TokenId> generated,
                                    std::shared_ptr<StopChecker> stops,
                                    const std::optional<GrammarTriggers>& triggers = {},
                                    std::vector<TokenId> end_ids = {});

struct CompilerOptions {
  std::chrono::milliseconds timeout{10'000};     // of one grammar, from when it is asked for
  std::size_t bytes_max = std::size_t{4} << 20;  // of a text; clients' have kMaxGrammarBytes
};

// Owner: a model. Any thread.
class GrammarCompiler {
 public:
  // Makes nothing yet. vocab_size: of the logits; ids of the tokenizer from there on are never
  // drawn.
  GrammarCompiler(std::shared_ptr<const tokenizer::Tokenizer> tokenizer, int vocab_size,
                  std::vector<TokenId> eos_ids, CompilerOptions options = {});
  // What waits is answered with an error. Waits for the grammar that is being compiled, but not
  // beyond its time: its thread ends by itself then.
  ~GrammarCompiler();
  GrammarCompiler(const GrammarCompiler&) = delete;
  GrammarCompiler& operator=(const GrammarCompiler&) = delete;

  using Compiled = Result<std::shared_ptr<const CompiledGrammar>>;
  using Done = std::function<void(Compiled)>;

  // Its triggers do not matter: grammars with others are the same one here. REQUIRES: with triggers
  // nothing is resumed here.
  // Calls `done` once: within the call where the grammar is known or refused at once, else on the
  // compiler's own thread, which must not be blocked. Errors: kInvalid, "grammar: ..." for what is
  // wrong with it, or where it takes too long; kOverloaded where too many wait, or too many that
  // took too long are still being compiled. Shares take turns, and what one of them has compiled
  // for more than a second holds up no other.
  //
  // resumed: what constrain() will be given as `generated`; it is looked at here, on the compiler's
  // thread, also where the grammar is known. The error, kInvalid, is then constrain()'s.
  void compile(const Grammar& grammar, Done done, std::vector<TokenId> resumed = {},
               ConnectionId share = 0);

  // What its user compiles in the place of a grammar that cannot be compiled, without triggers.
  // Kept as what is compiled is, unless both are too long for that.
  void set_stand_in(const Grammar& of, const Grammar& other);
  std::optional<Grammar> stand_in(const Grammar& of);

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace lmtp::constraint
