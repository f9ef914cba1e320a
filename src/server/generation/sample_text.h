// The text of a stream's samples: what they have in common before their first token, and what each
// of their tokens says.
#pragma once

#include <cstddef>
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
#include "reply.h"

namespace lmtp::server {

struct TextOptions {
  bool skip_special_tokens = true;
  std::vector<std::string> stop;  // strings that end a sample
  bool include_stop = false;      // and are part of its text
  // As vLLM: a token that ends a sample by itself is no part of its text, unless include_stop. The
  // last one of a grammar is.
  bool cuts_end_token = false;
  ReplyFormat format = {};
  std::vector<std::string> markers = {};  // texts whose special tokens the format reads
};

// The text of one sample, from its tokens. Copied before the first one for another sample, and
// later for a fork. Owner: the connection, on its strand.
class SampleText {
 public:
  // `num_resumed`: of the prompt's last tokens, those that count as generated.
  // REQUIRES: model.tokenizer.ok(), num_resumed <= prompt.size().
  SampleText(const registry::ReadyModel& model, std::span<const TokenId> prompt,
             std::size_t num_resumed, const SamplingParams& params, TextOptions options);
  SampleText(const SampleText& other);
  SampleText& operator=(const SampleText& other) { return *this = SampleText(other); }
  SampleText(SampleText&&) = default;
  SampleText& operator=(SampleText&&) = default;
  ~SampleText() = default;

  // For the sample's request; null: there are no stop strings.
  std::shared_ptr<StopChecker> make_stop_checker() const;

  // The sample's next token, behind those that it drops.
  Reply read(TokenEvent event);

  // The last tokens are the stream's no more: those that were read, and then the prompt's.
  // REQUIRES: num_tokens is less than all.
  void backtrack(std::size_t num_tokens);

 private:
  struct Ends {
    std::vector<TokenId> ids;      // that end a sample by themselves, whatever their text
    std::vector<TokenId> cut_ids;  // whose text is cut where they do
    ReplyFormat format;
    // As it is before the first token; nothing: there are no stop strings.
    std::optional<text::TextStopChecker> checker;
    std::shared_ptr<const text::StopStrings> strings;  // null: none
  };

  void begin_text();
  void read_piece(std::string text, const TokenEvent& token, bool is_special, ReplyEvents& events);
  void cut_end_token(const Reply& reply, std::string& text) const;

  text::TokenDecoder::Options decoder_;
  bool include_stop_;
  std::vector<TokenId> tokens_;       // of the prompt, then those that were read
  std::size_t num_prompt_;            // of them; less where some were dropped
  std::size_t num_before_;            // of them, those whose text is not the stream's
  std::shared_ptr<const Ends> ends_;  // null: there is nothing of that
  std::optional<text::StreamText> text_;
  std::unique_ptr<ReplyReader> reader_;  // null: all is content
  int num_calls_ = 0;                    // that have begun
};

}  // namespace lmtp::server
