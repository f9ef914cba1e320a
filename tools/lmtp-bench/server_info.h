// What a server says of its model, as far as a load needs it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lmtp/base/ids.h"
#include "lmtp/base/result.h"

namespace lmtp::tools {

// What it does not say is 0 or empty; LMQL's own server says none of this.
struct ServerInfo {
  int vocab_size = 0;
  int context_length = 0;
  std::vector<TokenId> eos_token_ids;  // ascending
  std::string json;                    // the whole model_info
};

// Asks with MODEL_INFO. An error where the server cannot be reached or refuses; a server that does
// not answer in time is one that says nothing.
Result<ServerInfo> ask_server(const std::string& host, std::uint16_t port,
                              const std::string& model);

}  // namespace lmtp::tools
