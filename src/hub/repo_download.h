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

 private:
  struct ListAnswer;

  Result<Listing> list();
  Result<ListAnswer> ask_for_list(const std::string& revision);
  Result<std::vector<std::string>> choose_files(const Listing& listing);
  Result<void> bring(const std::vector<std::string>& files, bool show_progress);
  Result<void> check_space(const std::vector<RemoteFile>& files) const;
  Result<void> run_jobs(std::vector<std::unique_ptr<Job>> jobs);
  // One round of the network; an error where the caller wants no more.
  Result<void> turn(bool busy);

  HttpClient& client_;
  const HubName name_;
  const FetchOptions& options_;
  const RepoFolder folder_;
  std::unique_ptr<DownloadContext> context_;
  FetchProgress progress_;
};

}  // namespace lmtp::hub
