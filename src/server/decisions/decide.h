// Answers an HTTP request of typed questions, in whichever protocol.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "answers.h"
#include "generation/generation.h"
#include "generation/json_fields.h"
#include "lmtp/server/http.h"
#include "question.h"

namespace lmtp::server {

struct Decided {
  const DecisionRequest& request;
  std::string model;                   // answered_name()
  std::vector<TypedAnswer> answers;    // one for each question
  std::int64_t num_prompt_tokens = 0;  // of all questions
  std::int64_t num_cached_tokens = 0;  // of these, that a cache had
};

// The fields that all protocols have, beside the questions: scoring, diagnostics,
// chat_template_kwargs.
void read_decision_options(JsonFields& fields, const OrderedJson& body, DecisionRequest& request);

// Answers with the body that `write` makes, or with what `make_error` makes of an error, be it that
// of reading the request. Thread: the strand of `responder`; both are called there.
void decide(const GenerationContext& context, Result<DecisionRequest> request,
            const std::shared_ptr<HttpResponder>& responder, std::string (*write)(const Decided&),
            HttpResponse (*make_error)(const Error&, bool no_model));

}  // namespace lmtp::server
