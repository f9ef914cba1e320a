// One repository's files into the cache: what it has, what is needed of it, and bringing that.
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

// Owner: one thread, from its making to its end.
class RepoDownload {
 public:
  RepoDownload(HttpClient& client, HubName name, const FetchOptions& options);

  // Brings what the purpose needs; the snapshot's folder.
  Result<std::string> run();
  // Brings what a snapshot lacks of the optional files, of the same commit; asks once.
  Result<void> complete(const std::string& commit);
  // Whether the last error was that the caller wanted no more.
  bool was_stopped() const { return was_stopped_; }

 private:
  struct ListAnswer;

  Result<Listing> list();
  Result<Listing> read_list(const ListAnswer& got) const;
  Result<ListAnswer> ask_for_list(const std::string& revision);
  Result<void> begin(const Listing& listing);
  Result<void> bring_tokenizer(const Listing& listing);
  Result<void> bring_model(const Listing& listing);
  Result<std::vector<std::string>> files_of(const Listing& listing, const WeightFiles& weights);
  Result<void> accept_headers(const std::vector<std::string>& names,
                              const std::vector<RemoteFile>& files);
  void note_absent(const Listing& listing) const;
  // What a first look at a model reads is small.
  Result<void> bring_small(const std::vector<std::string>& names);
  Result<std::vector<RemoteFile>> resolve(const std::vector<std::string>& names);
  Result<void> fetch(const std::vector<RemoteFile>& files, bool show_progress);
  Result<void> check_space(const std::vector<RemoteFile>& files) const;
  Result<void> run_jobs(std::vector<std::unique_ptr<Job>> jobs);
  // One round of the network; an error where the caller wants no more.
  Result<void> turn(bool busy);

  HttpClient& client_;
  const HubName name_;
  const FetchOptions& options_;
  const RepoFolder folder_;
  std::unique_ptr<DownloadContext> context_;
  std::int64_t bytes_resolved_ = 0;  // of all files that are to be fetched, as far as is known
  std::int64_t bytes_before_ = 0;    // fetched by earlier calls of fetch()
  FetchProgress progress_;
  bool was_stopped_ = false;
};

}  // namespace lmtp::hub
