// Downloads the needed files of one repository into the cache.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "file_jobs.h"
#include "http_client.h"
#include "hub_cache.h"
#include "lmtp/base/result.h"
#include "lmtp/hub/fetch.h"
#include "model_files.h"

namespace lmtp::hub {

// Owner: one thread.
class RepoDownload {
 public:
  RepoDownload(HttpClient& client, HubName name, const FetchOptions& options);

  // Downloads what the purpose needs; returns the snapshot's folder.
  Result<std::string> run();
  // Downloads the optional files that a snapshot lacks, from the same commit; one attempt.
  Result<void> complete(const std::string& commit);
  // Whether the last error was that FetchOptions::progress returned false.
  bool was_stopped() const { return was_stopped_; }

 private:
  struct ListingAnswer;

  Result<Listing> list();
  Result<Listing> read_list(const ListingAnswer& got) const;
  Result<ListingAnswer> request_listing(const std::string& revision);
  Result<void> begin(const Listing& listing);
  Result<void> download_tokenizer(const Listing& listing);
  Result<void> download_model(const Listing& listing);
  Result<std::vector<std::string>> files_of(const Listing& listing, const WeightFiles& weights);
  Result<void> accept_headers(const std::vector<std::string>& names,
                              const std::vector<RemoteFile>& files);
  void note_absent(const Listing& listing) const;
  // Downloads small files without progress reports.
  Result<void> download_small(const std::vector<std::string>& names);
  Result<std::vector<RemoteFile>> resolve(const std::vector<std::string>& names);
  Result<void> fetch(const std::vector<RemoteFile>& files, bool show_progress);
  Result<void> check_space(const std::vector<RemoteFile>& files) const;
  Result<void> run_jobs(std::vector<std::unique_ptr<Job>> jobs);
  // Runs the network once and reports progress; an error if that returned false.
  Result<void> poll_network(bool busy);

  HttpClient& client_;
  const HubName name_;
  const FetchOptions& options_;
  const RepoFolder folder_;
  std::unique_ptr<DownloadContext> context_;
  std::int64_t bytes_resolved_ = 0;  // of all files to be fetched, as far as known
  std::int64_t bytes_before_ = 0;    // fetched by earlier calls of fetch()
  FetchProgress progress_;
  bool was_stopped_ = false;
};

}  // namespace lmtp::hub
