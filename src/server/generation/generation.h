// What an HTTP endpoint asks of a model, and how it gets it: prompts of text, chat or ids, each
// continued by one sample or several; whichever protocol the endpoint speaks.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "access/caller_models.h"
#include "encoder.h"
#include "intake.h"
#include "lmtp/base/ids.h"
#include "lmtp/base/memory_limit.h"
#include "lmtp/base/result.h"
#include "lmtp/registry/models.h"
#include "lmtp/request/event.h"
#include "lmtp/request/grammar.h"
#include "lmtp/request/sampling_params.h"
#include "lmtp/server/http.h"
#include "reply_plan.h"
#include "sample_text.h"
#include "score_rows.h"

namespace lmtp::server {

// Sequences of one HTTP request: prompts times samples, or rows of scores at a time.
inline constexpr std::size_t kSequencesMax = 256;

// Owner: the server's context. Any thread.
struct GenerationContext {
  ModelsByCaller models;
  Encoder& encoder;
  MemoryLimit& waiting;  // what requests hold until their prompts are token ids
};

struct GenerationRequest {
  std::string model;  // as the client named it; empty: the only one
  // The ids of each prompt, by the model that is ready. On the encoder's thread where it may take
  // long: then it must not touch what the connection's strand does. The error is the client's.
  std::function<Result<Prompts>(const registry::ReadyModel&)> make_prompts;
  std::size_t num_bytes = 0;  // that make_prompts holds; it takes long from kEncodedAtOnceMax on
  bool is_slow = false;       // it takes long however few they are
  int num_samples = 1;        // of each prompt; their seeds are seed, seed + 1, ...
  SamplingParams params;
  std::vector<TokenId> allowed_token_ids = {};  // ascending, distinct: params.mask; empty: all
  std::vector<std::string> bad_words = {};      // at most kMaxBadWords
  bool to_context_end = false;  // as many tokens as fit, in the place of params.max_tokens
  // false: presence and frequency penalties count generated tokens alone, as OpenAI's API has it.
  bool penalizes_prompts = true;
  // Log probabilities of the prompts' tokens but for the first, before any is generated.
  bool scores_prompts = false;
  // With their ranks, beside so many alternatives of each, -1: all. REQUIRES: scores_prompts.
  std::optional<int> prompt_logprobs;
  bool generates = true;  // false: no tokens; without scores_prompts nothing is computed
  // What make_prompts decides besides, and computes nothing else of: its prompts are none, and
  // on_prompt_token() is not called. Null: nothing.
  std::shared_ptr<std::shared_ptr<ScoreRows>> score_rows = nullptr;
  TextOptions text;
  // What make_prompts decides besides, of a chat's reply; null: nothing.
  std::shared_ptr<ReplyPlan> plan = nullptr;
  std::optional<Grammar> grammar;         // of each sample's text
  std::string grammar_field = "grammar";  // Intake::Needs
  std::string cache_salt = {};            // Request's
  int priority = 0;                       // the same
  // With one prompt and one sample, and without a grammar.
  std::optional<GenerationController> controller;
  std::vector<std::string> unknown_keys;  // of the body: ignored, and named in the log
};

// The endpoint's half: writes what comes in its protocol. Called on the connection's strand.
// on_prompts comes first; on_end or on_error is the last call, unless the client goes.
class GenerationListener {
 public:
  virtual ~GenerationListener() = default;

  // The prompts are token ids, and nothing is computed yet. What the protocol allows less of than
  // the model is refused here; both may be changed. `params` has its seed.
  virtual Result<void> on_prompts(const registry::ReadyModel& model, Prompts& prompts,
                                  SamplingParams& params) = 0;
  // A token of the prompt itself; the first has none.
  virtual void on_prompt_token(int prompt, TokenEvent event) = 0;
  virtual void on_reply(Reply reply) = 0;
  // Of a controller alone: there is a sample more, what it has written, and the error by which it
  // ends a sample, the others going on.
  virtual void on_forked(const SampleForked& /*fork*/) {}
  virtual void on_output(const ControllerOutput& /*output*/) {}
  virtual void on_sample_error(int /*sample*/, const Error& /*error*/) {}
  // After the replies of one step: what was written of them may be sent. An error ends the request.
  virtual Result<void> on_step() { return {}; }
  virtual void on_end() = 0;
  // The other sequences are cancelled. `no_model`: it is unknown, or could not be loaded.
  virtual void on_error(const Error& error, bool no_model) = 0;
};

// What an answer calls the model: as the client named it, but for names that any model answers to,
// and where the operator has it called otherwise. `own`: ReadyModel::name.
std::string answered_name(const CallerModels& models, const std::string& asked,
                          const std::string& own);

// Begins; the rest comes through the listener, possibly within the call. It ends where the client
// goes, too. `context` outlives the connection. Thread: the strand of `responder`.
void generate(const GenerationContext& context, GenerationRequest request,
              std::shared_ptr<HttpResponder> responder,
              std::shared_ptr<GenerationListener> listener);

}  // namespace lmtp::server
