// The hub's settings from the environment variables that huggingface_hub reads.
//
// Reference: huggingface_hub 0.36 and 2.4, constants.py and utils/_auth.py.
#pragma once

#include <chrono>
#include <string>

#include "lmtp/base/result.h"
#include "lmtp/hub/model_source.h"

namespace lmtp::hub {

struct HubEnvironment {
  std::string endpoint;    // $HF_ENDPOINT or the public hub; http(s), without a slash at its end
  std::string origin;      // of the endpoint: the token is sent nowhere else
  std::string cache;       // as cache_folder()
  std::string token;       // empty: none
  std::string token_from;  // where the token was found, for messages: "HF_TOKEN", a path
  // The token was made by `hf auth login` of huggingface_hub 2, which would renew it, and has
  // expired.
  bool token_expired = false;
  std::string ca_bundle;  // a file or folder of certificates; empty: the system's
  // From the first connection to the first answer of the hub, all attempts together.
  std::chrono::milliseconds answer_timeout{};
  // A transfer without data for so long is aborted.
  std::chrono::milliseconds stall_timeout{};
};

// The variable that forbids network access (HF_HUB_OFFLINE, TRANSFORMERS_OFFLINE); empty: none.
std::string offline_variable();

// Reads the environment, and the token's file. An error names the variable that cannot be used.
Result<HubEnvironment> read_hub_environment();

}  // namespace lmtp::hub
