// The body of POST /v1/responses.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>

#include "generation/generation.h"
#include "lmtp/base/json.h"
#include "lmtp/base/result.h"
#include "lmtp/server/server.h"
#include "store.h"

namespace lmtp::server {

struct ResponseRequest {
  bool streams = false;
  bool is_stored = true;
  std::optional<int> max_tokens = {};
  std::optional<int> num_top_logprobs = {};  // of each token of text; nothing: no log probabilities
  std::set<std::string, std::less<>> custom_tools = {};  // their names
  OrderedJson echoed = OrderedJson::object();            // fields that the answer repeats
  std::string input = {};  // a JSON array of items, earlier responses' first; empty: not stored
  GenerationRequest generation = {};
};

// Null: it is not known. Any thread.
using FindResponse = std::function<std::shared_ptr<const StoredResponse>(const std::string& id)>;

// The errors begin with the name of the field that they are about; kNotFound is of
// previous_response_id.
Result<ResponseRequest> read_response_request(const std::string& body, const ApiLimits& limits,
                                              const FindResponse& find);

}  // namespace lmtp::server
