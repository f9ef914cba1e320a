// Requests that want no tokens, only what can be said of their prompts, or of what follows them.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "generation.h"
#include "lmtp/server/http.h"

namespace lmtp::server {

// The body of the answer, once all is computed. `model`: answered_name(). On
// the strand, or on the thread of the encoder.
using BodyAtEnd = std::function<Result<std::string>(const std::string& model)>;

// About how many bytes that body has, once all is computed: where they are many it is made on the
// encoder's thread. Null: few.
using BytesAtEnd = std::function<std::size_t()>;

// Answers with that body, or with what `make_error` makes of an error. Thread: the strand of
// `responder`.
void answer_at_end(const GenerationContext& context, GenerationRequest request,
                   const std::shared_ptr<HttpResponder>& responder, BodyAtEnd make_body,
                   HttpResponse (*make_error)(const Error&, bool no_model),
                   BytesAtEnd num_bytes = nullptr);

// The body of the answer; called where make_prompts is. The model has a tokenizer.
using MakeBody = std::function<std::string(const registry::ReadyModel&, const Prompts&)>;

// The same.
void answer_prompts(const GenerationContext& context, GenerationRequest request,
                    const std::shared_ptr<HttpResponder>& responder, MakeBody make_body,
                    HttpResponse (*make_error)(const Error&, bool no_model));

}  // namespace lmtp::server
