// A request for tokens, independent of the protocol.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lmtp/base/ids.h"
#include "lmtp/base/runtime.h"
#include "lmtp/request/adapter.h"
#include "lmtp/request/bad_words.h"
#include "lmtp/request/caller.h"
#include "lmtp/request/event.h"
#include "lmtp/request/grammar.h"
#include "lmtp/request/mask_source.h"
#include "lmtp/request/sampling_changes.h"
#include "lmtp/request/sampling_params.h"
#include "lmtp/request/stop_checker.h"

namespace lmtp {

namespace aici {
class Instance;
}

// kEmbed: no token is generated. One TokenEvent without a token ends it, with the embedding that
// params.pooling asks for.
// kAwaitModel: nothing is computed. Its model is loaded as for the others, LoadingNotices come, and
// ModelReady or a StreamError ends it: for what has to be done with the model's tokenizer first.
enum class RequestKind { kGenerate, kScore, kEmbed, kAwaitModel };

// A live Generate of the same connection, whose tokens so far another one begins with.
struct ForkOf {
  StreamKey key;
  SamplingChanges changes;  // of its parameters
};

struct Request {
  StreamKey key;
  // Latencies count from here: the request is made when its message has been read.
  runtime::Clock::time_point arrival = runtime::Clock::now();
  std::shared_ptr<EventSink> sink;
  std::string model;                       // as the client named it; loading notices echo it
  std::shared_ptr<const Adapter> adapter;  // that `model` names; null: none
  std::shared_ptr<const Caller> caller;    // null: nobody whom anything is counted for
  // Whether others are connected, by share(): one of them may then not use all request slots.
  bool others_connected = false;
  RequestKind kind = RequestKind::kGenerate;
  std::vector<TokenId> prompt;
  std::vector<TokenId> scored;  // Score only
  SamplingParams params;        // of a Score top_logprobs alone, of an Embed pooling
  // Score and Embed only: it is not the first of several that a client asked for together, and so
  // many of its prompt's tokens count for the client's key; the others were counted before.
  std::optional<int> part_tokens = {};
  int num_resumed = 0;         // of the prompt's last tokens, those that count as generated
  bool wants_notices = false;  // StreamNotice
  // Only requests with the same one find the prefixes and scores of each other. A fork has its
  // parent's.
  std::string cache_salt;
  // Among the waiting requests of one share(): what has a lower one is admitted first. A fork has
  // its parent's.
  int priority = 0;
  // Generate only; null: none. It has seen the resumed tokens.
  std::shared_ptr<StopChecker> stops;
  std::shared_ptr<const MaskSource> mask_source;  // Generate only; null: none
  std::shared_ptr<const Grammar> grammar;         // that these two are of, for who sends it on
  std::shared_ptr<const BadWords> bad_words;      // the same, of mask_source
  std::shared_ptr<aici::Instance> controller;     // Generate only; null: none
  // Not null: a Generate that has no prompt and parameters of its own. ForkBegun is its first
  // event.
  std::shared_ptr<const ForkOf> fork;
  std::string logged_prompt;  // Caller::log_prompts: how the prompt begins

  // Null: its caller has no key.
  Account* account() const { return caller != nullptr ? caller->account.get() : nullptr; }
  ConnectionId share() const { return share_of(caller.get(), key.connection); }
};

// Of a live Generate the last tokens are dropped, generated ones and then the prompt's, and others
// put behind the rest. Its next event says what was dropped; an EditRefused that nothing was.
struct Backtrack {
  StreamKey key;
  std::int64_t num_dropped = 0;  // >= 0, as it was sent
  std::vector<TokenId> appended;
  std::shared_ptr<EventSink> sink;
};

}  // namespace lmtp
