// The text of a stream's samples: what they have in common before their first token.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lmtp/base/ids.h"
#include "lmtp/registry/models.h"
#include "lmtp/request/event.h"
#include "lmtp/request/sampling_params.h"
#include "lmtp/request/stop_checker.h"
#include "lmtp/text/stream_text.h"

namespace lmtp::server {

struct TextOptions {
  bool skip_special_tokens = true;
  std::vector<std::string> stop;  // strings that end a sample
  bool include_stop = false;      // and are part of its text
};

// The text of one sample, from its tokens. Copied before the first one, for another sample.
// Owner: the connection, on its strand.
class SampleText {
 public:
  // `num_resumed`: of the prompt's last tokens, those that count as generated.
  // REQUIRES: model.tokenizer.ok(), num_resumed <= prompt.size().
  SampleText(const registry::ReadyModel& model, std::span<const TokenId> prompt,
             std::size_t num_resumed, const SamplingParams& params, TextOptions options);

  // For the sample's request; null: there are no stop strings.
  std::shared_ptr<StopChecker> make_stop_checker() const;

  text::StreamText::Piece push(TokenId token, FinishReason reason);

  // The last tokens are the stream's no more: those that were pushed, and then the prompt's.
  // REQUIRES: num_tokens is less than all.
  void backtrack(std::size_t num_tokens);

 private:
  struct Stops {
    text::TextStopChecker checker;  // as it is before the first token
    // Tokens that end a sample by themselves, whatever their text.
    std::vector<TokenId> ids;
    std::shared_ptr<const text::StopStrings> strings;
  };

  void begin_text();

  text::TokenDecoder::Options decoder_;
  bool include_stop_;
  std::vector<TokenId> tokens_;         // of the prompt, then those that were pushed
  std::size_t num_before_;              // of them, those whose text is not the stream's
  std::shared_ptr<const Stops> stops_;  // null: none
  std::optional<text::StreamText> text_;
};

// A seed for a request without one, so that its client can be told which it was. Below 2^53, so
// that every JSON reader gets it right; so is it for each sample, whose index is added.
std::uint64_t fresh_seed();

}  // namespace lmtp::server
