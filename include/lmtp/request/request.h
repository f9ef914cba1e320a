// A request for tokens, whatever protocol it came by.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "lmtp/base/ids.h"
#include "lmtp/request/event.h"
#include "lmtp/request/sampling_params.h"
#include "lmtp/request/stop_checker.h"

namespace lmtp {

// kAwaitModel: nothing is computed. Its model is loaded as for the others, LoadingNotices come, and
// ModelReady or a StreamError ends it: for what has to be done with the model's tokenizer first.
enum class RequestKind { kGenerate, kScore, kAwaitModel };

struct Request {
  StreamKey key;
  // Its latencies count from when it was made, which is when its message had been read.
  std::chrono::steady_clock::time_point arrival = std::chrono::steady_clock::now();
  std::shared_ptr<EventSink> sink;
  std::string model;  // as the client named it; loading notices echo it
  // Whether connections besides its own are open: it may then not take all places for itself.
  bool others_connected = false;
  RequestKind kind = RequestKind::kGenerate;
  std::vector<TokenId> prompt;
  std::vector<TokenId> scored;  // Score only
  SamplingParams params;        // of a Score top_logprobs alone
  int num_resumed = 0;          // of the prompt's last tokens, those that count as generated
  bool wants_notices = false;   // StreamNotice
  // Generate only; null: none. It has seen the resumed tokens.
  std::shared_ptr<StopChecker> stops;
};

}  // namespace lmtp
