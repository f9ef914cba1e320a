#include "lmtp/hub/fetch.h"

#include <filesystem>
#include <string>
#include <system_error>
#include <utility>

#include "http_client.h"
#include "hub_cache.h"
#include "hub_environment.h"
#include "lmtp/base/log.h"
#include "local_model.h"
#include "model_files.h"
#include "repo_download.h"

namespace lmtp::hub {
namespace {

namespace fs = std::filesystem;

// The optional files that a snapshot lacks and that the hub may have, for a message; empty: none.
std::string unasked_files(const RepoFolder& folder, const std::string& commit, Purpose purpose) {
  std::string names;
  for (const std::string& file : optional_files(purpose)) {
    std::error_code ignored;
    if (fs::is_regular_file(folder.snapshot_file(commit, file), ignored) ||
        folder.is_absent(commit, file)) {
      continue;
    }
    names += (names.empty() ? "" : ", ") + file;
  }
  return names;
}

// Completes a cached model, `source`, with the optional files that the hub has.
Result<ModelSource> complete(ModelSource source, const HubName& name, const FetchOptions& options) {
  auto hub = read_hub_environment();
  if (!hub) return source;
  const auto snapshot = find_snapshot(hub->cache, name);
  if (!snapshot) return source;
  const std::string commit = fs::path(*snapshot).filename().string();
  const std::string unasked =
      unasked_files(RepoFolder(hub->cache, name.repo), commit, options.purpose);
  if (unasked.empty()) return source;
  const auto client = HttpClient::create(*std::move(hub));
  if (!client) return source;
  RepoDownload download(**client, name, options);
  const Result<void> completed = download.complete(commit);
  if (completed) return source;
  if (download.was_stopped()) return completed.error();
  log::warning("'" + name.repo + "' is used as the cache has it, without " + unasked +
               ", as the hub cannot be asked for them: " + completed.error().message +
               "; HF_HUB_OFFLINE=1 does not ask");
  return source;
}

}  // namespace

Result<ModelSource> fetch_model(std::string_view model, const FetchOptions& options) {
  auto local = resolve_model(model, options.purpose);
  if (!may_be_on_hub(model)) return local;
  const auto name = parse_hub_name(model);
  if (!name) return local;
  const std::string offline = offline_variable();
  if (local) {
    const bool may_ask = options.allow_download && offline.empty();
    return may_ask ? complete(*std::move(local), *name, options) : local;
  }
  if (!offline.empty()) {
    return Error{local.error().code,
                 local.error().message + "; and " + offline +
                     " forbids to fetch it: unset it, or name a model of this disk"};
  }
  if (!options.allow_download) {
    return Error{local.error().code,
                 local.error().message +
                     "; and downloads are not allowed here: fetch it first, with `hf download " +
                     name->repo +
                     (name->revision == "main" ? "`" : " --revision " + name->revision + "`")};
  }
  auto hub = read_hub_environment();
  if (!hub) return hub.error();
  if (hub->cache.empty()) {
    return Error{ErrorCode::kUnavailable,
                 "there is no place for '" + name->repo + "': set HOME, HF_HOME or HF_HUB_CACHE"};
  }
  const auto client = HttpClient::create(*std::move(hub));
  if (!client) return client.error();
  const auto snapshot = RepoDownload(**client, *name, options).run();
  if (!snapshot) return snapshot.error();
  return from_snapshot(model, *name, *snapshot, options.purpose);
}

}  // namespace lmtp::hub
