// The way of every request from what a client asks to what a model runs, whichever protocol it
// came by: its model is awaited, its text becomes token ids, its grammar is compiled, its
// controller is instantiated, its samples are submitted.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "access/caller_models.h"
#include "encoder.h"
#include "lmtp/aici/instance.h"
#include "lmtp/aici/runtime.h"
#include "lmtp/base/ids.h"
#include "lmtp/base/memory_limit.h"
#include "lmtp/base/result.h"
#include "lmtp/base/runtime.h"
#include "lmtp/constraint/grammar_compiler.h"
#include "lmtp/registry/models.h"
#include "lmtp/request/bad_words.h"
#include "lmtp/request/event.h"
#include "lmtp/request/grammar.h"
#include "lmtp/request/request.h"
#include "sample_text.h"

namespace lmtp::server {

struct StreamRows;

using Prompts = std::vector<std::vector<TokenId>>;

// Who asks: an HTTP request, or a stream of an LMTP connection.
struct Requester {
  StreamKey key;
  std::shared_ptr<EventSink> sink;
  std::shared_ptr<const Caller> caller;
  std::function<bool()> others_connected;  // Request::others_connected; asked where it submits
  runtime::Clock::time_point arrival = runtime::Clock::now();
  // ModelReady::encoding of the work that this call may hand over: another one for each call.
  std::uint64_t encoding = 0;
};

// Submits a request, or forks of one stream, in the requester's name. A fork keeps its own stream
// id.
registry::Submission submit(const CallerModels& models, const Requester& from, Request&& request);
registry::Submission submit_forks(const CallerModels& models, const Requester& from,
                                  std::vector<Request> forks);

// What decides on a sample's tokens, and forks it.
struct GenerationController {
  std::string name;  // a tag, or a module's id
  std::string arg;
  std::string request_id;  // aici::InstantiateRequest::request_id
};

// A controller that has been instantiated: what it has written by then. Its prompt is the encoded
// one.
struct BegunController {
  ControllerOutput output;
  bool changes_prompt = false;
};

// "overloaded: `what`; retry later".
Error overloaded(const std::string& what);

// Finds what can be compiled. Owner: an intake.
class GrammarRetry {
 public:
  virtual ~GrammarRetry() = default;
  // What to compile next, after the last one was; nothing: that one is the answer, be it its error,
  // which is not handed in where it says nothing of the grammar. Takes long but for the first one,
  // if that compiled.
  virtual std::optional<Grammar> next(bool has_compiled) = 0;
};

// What a request's text becomes.
struct Encoded {
  Prompts prompts = {};                   // LMTP has one
  std::vector<TokenId> scored = {};       // of a SCORE
  std::shared_ptr<StreamRows> rows = {};  // of LMTP's candidates and DECIDE; null: none
  std::string text = {};                  // of a DETOKENIZE
  // Where the model decides on it: in the place of Needs::grammar and grammar_field.
  std::optional<Grammar> grammar = {};
  std::string grammar_field = {};  // empty: that of the needs
  std::unique_ptr<GrammarRetry> retry = {};
  std::shared_ptr<const BadWords> bad_words = {};  // the intake's own; null: none
};

// Owner: the request, on its connection's strand; of one thread at a time: the strand's or the
// encoder's. Dropped to cancel what is under way, but for the wait for a model, which has a
// canceller.
class Intake : public std::enable_shared_from_this<Intake> {
 public:
  struct Needs {
    std::string model;            // as the client named it; empty: the only one
    bool has_model = true;        // false: encode() needs none
    bool is_slow = false;         // encode() takes long however few bytes there are
    std::size_t coded_bytes = 0;  // that encode() reads; it takes long from kEncodedAtOnceMax on
    std::optional<Grammar> grammar;
    std::string grammar_field = "grammar";  // what errors about it begin with
    std::size_t num_resumed = 0;            // of the prompt's tokens, the last that were generated
    std::optional<GenerationController> controller;
    std::vector<std::string> bad_words = {};
  };

  // What `models` are of, and `encoder`, outlive it. `part`: of what waits for models, the
  // connection's.
  Intake(CallerModels models, Encoder& encoder, std::shared_ptr<MemoryLimit::Part> part,
         Needs needs);
  virtual ~Intake();
  Intake(const Intake&) = delete;
  Intake& operator=(const Intake&) = delete;

  // One of: the model, and all is there; a refusal, with which the request ends; else ModelReady
  // comes to the requester's sink with encoding(), and advance() is to be called again.
  struct Progress {
    std::optional<registry::ReadyModel> model;
    std::optional<registry::Refusal> refusal;
    bool is_counted = false;                             // the refusal, by Models::refusals()
    std::shared_ptr<registry::StreamCanceller> awaited;  // while the model is waited for
  };
  // REQUIRES: it has not given the model or a refusal before.
  Progress advance(const Requester& from);

  // One sample of the request, whose prompt and parameters it has; its seed is theirs and
  // key.sample. `text`: null where it has none. REQUIRES: advance() has given the model.
  registry::Submission submit_sample(const Requester& from, Request&& request,
                                     const SampleText* text) const;

  // What waits takes memory; false where all that waits takes too much, or what this connection has
  // of it.
  bool count();

  const std::string& model_name() const { return needs_.model; }
  bool has_model() const { return needs_.has_model; }
  // Of what is awaited; 0: a model.
  std::uint64_t encoding() const { return encoding_; }
  // REQUIRES: advance() has given the model. May be moved from.
  Encoded& encoded() { return **encoded_; }
  // Null: there is no controller.
  const BegunController* begun() const { return begun_ ? &*begun_ : nullptr; }

 protected:
  // Once, on the encoder's thread where it takes long: then it must not touch what the strand does.
  // The error is the client's.
  virtual Result<Encoded> encode(const registry::ReadyModel& model) = 0;
  // Once, after encode(), on the strand. An error ends the request.
  virtual Result<void> accept(const registry::ReadyModel& /*model*/, Encoded& /*encoded*/) {
    return {};
  }
  // That it holds while it waits, beside the grammar.
  virtual std::size_t num_bytes() const = 0;

 private:
  using Compiled = constraint::GrammarCompiler::Compiled;

  Result<Encoded> encode_all(const registry::ReadyModel& model);
  Progress await_model(const Requester& from);
  Progress encode_later(const Requester& from);
  Progress compile_later(const Requester& from);
  Progress retry_later(const Requester& from);
  Progress work_later(const Requester& from, std::function<void(Intake&)> work);
  Progress instantiate_later(const Requester& from);
  Result<void> hand_over(const Requester& from);
  Result<void> take_instance();
  Error about_grammar(Error error) const;
  std::vector<TokenId> resumed() const;

  const CallerModels models_;
  Encoder& encoder_;
  const std::shared_ptr<MemoryLimit::Part> part_;
  std::size_t counted_bytes_ = 0;  // in `part_`
  Needs needs_;
  int num_awaits_ = 0;
  std::uint64_t encoding_ = 0;
  std::optional<Result<Encoded>> encoded_;
  bool is_accepted_ = false;
  std::optional<registry::ReadyModel> model_;  // that was ready when the last work was handed over
  // Other threads write where these point to, so that none of them can be the last owner of this.
  std::shared_ptr<std::optional<Compiled>> grammar_;  // null: not handed over
  bool is_first_grammar_ = true;
  std::optional<Result<std::optional<Grammar>>> retried_;  // what is compiled next
  std::shared_ptr<const BadWords> bad_words_;              // null: none
  std::shared_ptr<std::optional<Result<aici::Instantiated>>> instantiated_;  // the same
  std::shared_ptr<aici::Instance> instance_;
  std::optional<BegunController> begun_;
};

}  // namespace lmtp::server
