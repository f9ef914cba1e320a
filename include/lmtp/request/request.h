// A request for tokens, whatever protocol it came by.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "lmtp/base/ids.h"
#include "lmtp/request/event.h"
#include "lmtp/request/sampling_params.h"

namespace lmtp {

enum class RequestKind { kGenerate, kScore };

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
  SamplingParams params;        // Generate only
};

}  // namespace lmtp
