// The text of a stream: where it ends, on the engine's thread, and its pieces, where they are sent.
// Both read the same tokens the same way, so they agree on the text and on where it stops.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lmtp/base/ids.h"
#include "lmtp/request/event.h"
#include "lmtp/request/stop_checker.h"
#include "lmtp/text/stop_strings.h"
#include "lmtp/tokenizer/tokenizer.h"

namespace lmtp::text {

// Bytes that no text has.
inline constexpr char kSpecialBegin = '\xff';
inline constexpr char kSpecialEnd = '\xfe';

// The text with those marks around each special token that the tokenizer finds in it, and these
// tokens, which are appended.
std::string mark_special(const tokenizer::Tokenizer& tokenizer, std::string_view text,
                         std::vector<TokenId>* special = nullptr);

// Tokens to text that is certain by now. Owner: one stream; one thread.
class TokenDecoder {
 public:
  struct Options {
    std::shared_ptr<const tokenizer::Tokenizer> tokenizer;  // not null
    bool skip_special_tokens = true;                        // they give no text
    // Nothing with text comes before the first token, which has then no space in front where
    // decode() takes that away.
    bool at_start = false;
    // Special tokens whose text is given between kSpecialBegin and kSpecialEnd, so that no other
    // token can look like one; null: none. Immutable.
    std::shared_ptr<const std::vector<TokenId>> marked = nullptr;
  };

  explicit TokenDecoder(Options options) : options_(std::move(options)) {}

  std::string push(TokenId token);
  // The text of a special token that is left out, or marked; empty: of any other. A stop string may
  // be it, but never some of it.
  std::string_view special(TokenId token) const;
  bool is_marked(TokenId token) const;
  // What was held back of an unfinished character.
  std::string finish() { return decoder_.finish(); }

 private:
  Options options_;
  tokenizer::StreamDecoder decoder_;
};

// Whether the tokens give no text, so that what follows them is at the start of one.
bool is_without_text(const TokenDecoder::Options& options, std::span<const TokenId> tokens);

// Ends a stream with the token by which its text contains a stop string; also with a special token
// whose text is one, where it has none in the stream's, or is marked.
class TextStopChecker : public StopChecker {
 public:
  // `resumed`: generated before; a stop string within them does not count.
  TextStopChecker(TokenDecoder::Options options, std::shared_ptr<const StopStrings> stops,
                  std::span<const TokenId> resumed);

  bool push(TokenId token, bool may_stop) override;
  std::unique_ptr<StopChecker> restarted(std::span<const TokenId> before,
                                         std::span<const TokenId> generated) const override;

 private:
  TokenDecoder::Options options_;
  std::shared_ptr<const StopStrings> stops_;
  TokenDecoder decoder_;
  StopMatcher matcher_;
};

// Cuts a stream's text into a piece for each token. What may be the beginning of a stop string is
// held back; the pieces together are the text up to the stop string, or all of it.
// Owner: the session; its strand.
class StreamText {
 public:
  // stops: null: none. `include_stop`: the text ends behind the stop string. The text of the
  // resumed tokens has been sent, but for what was held back.
  StreamText(TokenDecoder::Options options, std::shared_ptr<const StopStrings> stops,
             bool include_stop, std::span<const TokenId> resumed);

  struct Piece {
    std::string text;
    std::optional<std::string> stop_text;  // the stop string that ended the stream
  };
  // `reason`: the token's. Whether a stop string counts, the engine has decided: it does where the
  // stream has stopped.
  Piece push(TokenId token, FinishReason reason);

 private:
  Piece cut(TokenId token, std::string decoded, FinishReason reason);

  TokenDecoder decoder_;
  std::optional<StopMatcher> matcher_;
  bool include_stop_;
  std::string held_;  // what may be the beginning of a stop string
};

}  // namespace lmtp::text
