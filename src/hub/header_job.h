// Downloads the header of a file of weights, which lists its tensors, before the file itself.
#pragma once

#include <cstdint>
#include <string>

#include "file_jobs.h"
#include "http_client.h"
#include "job.h"
#include "lmtp/hub/fetch.h"

namespace lmtp::hub {

// Limits for one safetensors file, and for all files of a repository together.
inline constexpr std::int64_t kHeaderBytesMax = std::int64_t{16} << 20;
inline constexpr std::int64_t kHeadersBytesMax = std::int64_t{128} << 20;

// Reads the header of a local file, with HeaderJob's result.
Result<WeightHeader> read_header(const std::string& path, const std::string& name);

// GET of a range: fills `header`, whose file and file_size are set. Subtracts the header's bytes
// from `budget`.
class HeaderJob : public Job {
 public:
  HeaderJob(const DownloadContext& context, WeightHeader& header, std::int64_t& budget);
  Result<State> step(Clock::time_point now) override;

 private:
  void start();
  bool on_start(const HttpAnswer& answer);
  bool on_body(std::string_view piece);
  Error broken(const std::string& what) const;

  const DownloadContext& context_;
  WeightHeader& header_;
  std::int64_t& budget_;
  std::int64_t wanted_;  // bytes from the file's beginning
  HttpExchange exchange_;
  Retry retry_;
  enum class Phase { kStart, kTransfer, kPause } phase_ = Phase::kStart;
};

}  // namespace lmtp::hub
