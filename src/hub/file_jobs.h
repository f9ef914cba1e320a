// The two jobs of one file: its metadata (ResolveJob) and its download (FetchJob).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "file_lock.h"
#include "http_client.h"
#include "hub_cache.h"
#include "hub_messages.h"
#include "job.h"
#include "partial_blob.h"

namespace lmtp::hub {

struct RemoteFile {
  std::string name;
  std::string etag;       // the blob's name
  std::int64_t size = 0;  // bytes
};

// Shared by all jobs of one download. Outlives them.
struct DownloadContext {
  HttpClient& client;
  const RepoFolder& folder;
  std::string repo;
  std::string revision;  // as requested, for messages
  std::string commit;
  std::chrono::milliseconds retry_pause;

  // The address of one file of it.
  std::string url_of(const std::string& file) const;
  Subject subject(const std::string& file) const { return {repo, revision, file}; }
};

// Whether a Content-Range ("bytes 100-199/200") begins at `offset`.
bool begins_at(std::string_view content_range, std::int64_t offset);

// HEAD: fills `file`.etag and .size.
class ResolveJob : public Job {
 public:
  ResolveJob(const DownloadContext& context, RemoteFile& file);
  Result<State> step(Clock::time_point now) override;

 private:
  Result<void> take(const HttpAnswer& answer);

  const DownloadContext& context_;
  RemoteFile& file_;
  HttpExchange exchange_;
  Retry retry_;
  bool started_ = false;
  bool pausing_ = false;
};

// Lock, GET (the missing rest), verify, rename, link. An existing blob is only linked.
class FetchJob : public Job {
 public:
  FetchJob(const DownloadContext& context, RemoteFile file);
  Result<State> step(Clock::time_point now) override;
  std::int64_t bytes_done() const override { return bytes_done_; }

 private:
  enum class Phase { kLock, kHash, kStart, kTransfer, kPause };

  Result<State> lock(Clock::time_point now);
  Result<State> hash();
  void start();
  bool on_start(const HttpAnswer& answer);
  bool on_body(std::string_view piece);
  Result<State> transferred(Clock::time_point now);
  Result<State> check();
  Result<State> link();

  const DownloadContext& context_;
  const RemoteFile file_;
  const std::string blob_path_;
  HttpExchange exchange_;
  FileLock lock_;
  std::unique_ptr<PartialBlob> blob_;
  Retry retry_;
  Phase phase_ = Phase::kLock;
  std::int64_t bytes_done_ = 0;
  std::int64_t bytes_best_ = 0;   // the most bytes that any attempt reached
  std::optional<Error> error_;    // of writing a body
  bool checked_once_ = false;     // and the hash was wrong
  Clock::time_point lock_moved_;  // when the file of the lock's holder last grew
};

}  // namespace lmtp::hub
