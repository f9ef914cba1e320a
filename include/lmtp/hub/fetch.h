// From a model's name to a local folder, downloading what is missing.
//
// The hub and its cache are those of huggingface_hub, with its environment variables (docs/hub.md):
// $HF_ENDPOINT, $HF_HOME, $HF_HUB_CACHE, $HF_TOKEN, $HF_HUB_OFFLINE, proxies.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "lmtp/base/model_source.h"
#include "lmtp/base/result.h"
#include "lmtp/hub/model_source.h"

namespace lmtp::hub {

// Sums over all files of the download.
struct FetchProgress {
  std::int64_t bytes_done = 0;   // including bytes from earlier attempts and other processes
  std::int64_t bytes_total = 0;  // 0: not known yet
};

inline constexpr std::int64_t kDownloadBytesMax = std::int64_t{1} << 50;

struct FetchOptions {
  // kServe: configuration, tokenizer and weights; kTokenizer: the tokenizer's files alone.
  Purpose purpose = Purpose::kServe;
  bool allow_download = true;                           // false: local files only, as resolve_model
  std::int64_t download_bytes_max = kDownloadBytesMax;  // for one model
  // kServe: called before the weights are downloaded, in this order, on the calling thread; the
  // first error ends the download. `folder` holds config.json, and generation_config.json if there
  // is one.
  std::function<Result<void>(const std::string& folder)> accept_config;
  // `headers`: of all safetensors files that the model needs. Not called for other formats.
  std::function<Result<void>(const std::string& folder, const std::vector<WeightHeader>& headers)>
      accept_weights;
  // Called about twenty times a second on the calling thread, from the first request on, also while
  // no data arrive; never if nothing needs to be downloaded. False ends the download with an error;
  // a later one resumes it.
  std::function<bool(const FetchProgress&)> progress;
  // Before the second attempt at what has failed in a way that passes; twice as long each time, up
  // to 16 times. > 0.
  std::chrono::milliseconds retry_pause{250};
};

// As resolve_model, but a hub name that is not complete in the local cache is downloaded into it.
// For a complete one the hub is asked once for missing small files (generation_config.json, parts
// of the tokenizer); if it does not answer, that is a warning.
// Blocks until done; any thread, several at once, also for the same name: each file is downloaded
// once. A hub that cannot be reached is an error within five seconds ($HF_HUB_ETAG_TIMEOUT changes
// that). The error names the file or model, the reason and the remedy; it never contains the token.
Result<ModelSource> fetch_model(std::string_view model, const FetchOptions& options);

}  // namespace lmtp::hub
