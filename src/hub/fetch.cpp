#include "lmtp/hub/fetch.h"

#include <string>
#include <utility>

#include "http_client.h"
#include "hub_cache.h"
#include "hub_environment.h"
#include "local_model.h"
#include "model_files.h"
#include "repo_download.h"

namespace lmtp::hub {

Result<ModelSource> fetch_model(std::string_view model, const FetchOptions& options) {
  auto local = resolve_model(model, options.purpose);
  if (local || !may_be_on_hub(model)) return local;
  const auto name = parse_hub_name(model);
  if (!name) return local;
  if (const std::string variable = offline_variable(); !variable.empty()) {
    return Error{local.error().message + "; and " + variable +
                 " forbids to fetch it: unset it, or name a model of this disk"};
  }
  if (!options.allow_download) {
    return Error{local.error().message +
                 "; and downloads are not allowed here: fetch it first, with `hf download " +
                 name->repo +
                 (name->revision == "main" ? "`" : " --revision " + name->revision + "`")};
  }
  auto hub = read_hub_environment();
  if (!hub) return hub.error();
  if (hub->cache.empty()) {
    return Error{"there is no place for '" + name->repo + "': set HOME, HF_HOME or HF_HUB_CACHE"};
  }
  const auto client = HttpClient::create(*std::move(hub));
  if (!client) return client.error();
  const auto snapshot = RepoDownload(**client, *name, options).run();
  if (!snapshot) return snapshot.error();
  return from_snapshot(model, *name, *snapshot, options.purpose);
}

}  // namespace lmtp::hub
