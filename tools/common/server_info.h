// A server's model_info, as far as the programs need it.
#pragma once

#include <string>
#include <vector>

#include "lmtp/base/ids.h"

namespace lmtp::tools {

// Missing fields are 0 or empty; LMQL's own server sends hardly any.
struct ServerInfo {
  std::string model = {};
  int vocab_size = 0;
  int context_length = 0;
  std::vector<TokenId> eos_token_ids = {};  // ascending
  bool can_cancel = false;
  bool knows_text = false;  // encodes and decodes
  std::string json = {};    // the whole model_info
};

// `json`: the model_info of an answer to MODEL_INFO.
ServerInfo read_server_info(const std::string& json);

// Whether its model has random weights, and so no tokenizer.
bool has_random_weights(const ServerInfo& info);

}  // namespace lmtp::tools
