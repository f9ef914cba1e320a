// What the environment says about the hub, in the variables that huggingface_hub reads.
//
// Reference: huggingface_hub 0.36 and 2.4, constants.py and utils/_auth.py.
#pragma once

#include <chrono>
#include <string>

#include "lmtp/base/result.h"

namespace lmtp::hub {

struct HubEnvironment {
  std::string endpoint;    // $HF_ENDPOINT or the public hub; http(s), without a slash at its end
  std::string origin;      // of the endpoint: the one place that the token is sent to
  std::string cache;       // as cache_folder()
  std::string token;       // empty: none
  std::string token_from;  // where the token was found, for messages: "HF_TOKEN", a path
  // It is of `hf auth login` in huggingface_hub 2, which renews it by itself, and has run out.
  bool token_expired = false;
  std::string ca_bundle;  // a file or folder of certificates; empty: the system's
  // From the first connection to the first answer of the hub, all attempts together.
  std::chrono::milliseconds answer_timeout{};
  // A transfer that brings nothing for so long is cut.
  std::chrono::milliseconds stall_timeout{};
};

// Where huggingface_hub keeps its files. Empty where not even HOME is set.
std::string cache_folder();

// The variable that forbids the network (HF_HUB_OFFLINE, TRANSFORMERS_OFFLINE); empty where none.
std::string offline_variable();

// Reads the environment, and the token's file. An error names the variable that cannot be used.
Result<HubEnvironment> read_hub_environment();

}  // namespace lmtp::hub
