// From a model's name to a folder on this disk, downloading what is missing.
//
// The hub and its cache are those of huggingface_hub, with its environment variables (docs/hub.md):
// $HF_ENDPOINT, $HF_HOME, $HF_HUB_CACHE, $HF_TOKEN, $HF_HUB_OFFLINE, proxies.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "lmtp/base/model_source.h"
#include "lmtp/base/result.h"
#include "lmtp/hub/model_source.h"

namespace lmtp::hub {

// Of all files that are being fetched, together.
struct FetchProgress {
  std::int64_t bytes_done = 0;   // also what an earlier attempt or another process has brought
  std::int64_t bytes_total = 0;  // 0: not known yet
};

inline constexpr std::int64_t kDownloadBytesMax = std::int64_t{1} << 50;

struct FetchOptions {
  // kServe: configuration, tokenizer and weights; kTokenizer: the tokenizer's files alone.
  Purpose purpose = Purpose::kServe;
  bool allow_download = true;  // false: what is on this disk, as resolve_model
  // More than that is not fetched for one model.
  std::int64_t download_bytes_max = kDownloadBytesMax;
  // kServe: asked before the weights come, in this order, by the thread that calls; the first error
  // ends the download. `folder` holds config.json, and generation_config.json where there is one.
  std::function<Result<void>(const std::string& folder)> accept_config;
  // Of all safetensors files that the model needs. Not asked where its weights are no such files.
  std::function<Result<void>(const std::string& folder, const std::vector<WeightHeader>& headers)>
      accept_weights;
  // Called about twenty times a second, by the thread that calls fetch_model, from the first
  // contact on and also while nothing comes; not at all where nothing needs to be fetched. False
  // ends the download with an error; what has come is kept for the next one.
  std::function<bool(const FetchProgress&)> progress;
};

// As resolve_model, but a hub name that is not whole in the local cache is downloaded into it. Of
// one that is, the hub is asked once for the small files that it lacks (generation_config.json,
// parts of the tokenizer); where it does not answer, they are done without, with a warning.
// Blocks for as long as that takes; any thread, several at once, also for the same name: each file
// is fetched once. A hub that cannot be reached is an error within five seconds
// ($HF_HUB_ETAG_TIMEOUT changes that). The error says what was wanted, why it cannot be had, and
// what would help; it never holds the token.
Result<ModelSource> fetch_model(std::string_view model, const FetchOptions& options);

}  // namespace lmtp::hub
