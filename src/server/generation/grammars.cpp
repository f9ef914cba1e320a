#include "grammars.h"

#include <cstddef>
#include <span>
#include <utility>

#include "encode_text.h"
#include "lmtp/base/guarded.h"

namespace lmtp::server {

Result<void> check_grammars(const registry::ReadyModel& model) {
  if (!model.tokenizer) return no_tokenizer("grammar", model.tokenizer.error());
  const Result<void> supported = constraint::grammar_support();
  if (supported) return {};
  return Error{ErrorCode::kInvalid, "grammar: " + supported.error().message + "; leave it out"};
}

Result<void> constrain(const std::shared_ptr<const constraint::CompiledGrammar>& grammar,
                       Request& request) {
  const std::span<const TokenId> prompt(request.prompt);
  auto stream =
      constraint::constrain(grammar, prompt.last(static_cast<std::size_t>(request.num_resumed)),
                            std::move(request.stops));
  if (!stream) return stream.error();
  request.mask_source = std::move(stream->mask_source);
  request.stops = std::move(stream->stops);
  return {};
}

void tell_ready(EventSink& sink, const ModelReady& event) {
  for (int attempt = 0; attempt < 2; ++attempt) {  // the second where there was no memory
    const Result<void> delivered = guarded([&]() -> Result<void> {
      deliver_now(sink, event);
      return {};
    });
    if (delivered) return;
  }
}

}  // namespace lmtp::server
