#include "lmtp/catalog/model_names.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

namespace lmtp::catalog {
namespace {

namespace fs = std::filesystem;

bool exists(const fs::path& path) {
  std::error_code ignored;
  return fs::symlink_status(path, ignored).type() != fs::file_type::not_found;
}

bool is_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

bool is_gguf_file(const fs::path& path) {
  std::error_code ignored;
  return is_gguf(path.string()) && fs::is_regular_file(path, ignored);
}

bool is_inside(const fs::path& path, const fs::path& folder) {
  const auto [in_folder, in_path] =
      std::mismatch(folder.begin(), folder.end(), path.begin(), path.end());
  return in_folder == folder.end();
}

bool goes_up(const fs::path& path) {
  return std::find(path.begin(), path.end(), "..") != path.end();
}

bool is_random(std::string_view name) { return name == "random" || name.starts_with("random:"); }

// Dangling links count as inside: loading then reports the missing file.
bool files_stay_inside(const fs::path& model, const fs::path& folder) {
  std::error_code error;
  for (auto file = fs::directory_iterator(model, error); !error && file != fs::end(file);
       file.increment(error)) {
    std::error_code ignored;
    const fs::path target = fs::canonical(file->path(), ignored);
    if (!target.empty() && !is_inside(target, folder)) return false;
  }
  return !error;
}

Error not_served(const std::string& name, const NamePolicy& policy) {
  return Error{
      ErrorCode::kNotFound,
      "'" + name +
          "' is not served here: beyond this machine there are 'demo', what lies under "
          "--model-dir" +
          (policy.downloads.empty()
               ? ", and what is in the Hugging Face cache of the server (it does not "
                 "download, for want of --allow-download)"
               : " and names on the Hugging Face hub that are in the server's cache, or that "
                 "its --allow-download allows")};
}

// nullopt if the model_dirs have no such folder.
std::optional<Result<ModelSource>> from_model_dirs(const std::string& name,
                                                   const NamePolicy& policy) {
  const fs::path path(name);
  if (goes_up(path)) return std::nullopt;
  // Where any folder may be served, an absolute path needs no model_dir.
  if (path.is_absolute() && policy.anything) return std::nullopt;
  bool leads_out = false;
  for (const std::string& folder : policy.model_dirs) {
    const fs::path candidate = path.is_absolute() ? path : folder / path;
    const bool is_file = is_gguf_file(candidate);
    if (!is_folder(candidate) && !is_file) continue;
    std::error_code error;
    const fs::path canonical = fs::canonical(candidate, error);
    if (error || !is_inside(canonical, folder) ||
        (!is_file && !files_stay_inside(canonical, folder))) {
      leads_out = true;
      continue;
    }
    auto source = hub::resolve_model((is_file ? candidate : canonical).string());
    if (!source && !policy.anything) return not_served(name, policy);
    if (source) source->name = name;
    return source;
  }
  if (!leads_out) return std::nullopt;
  if (!policy.anything) return not_served(name, policy);
  return Error{
      ErrorCode::kInvalid,
      "'" + name + "' leads out of --model-dir by a symbolic link; name the folder itself"};
}

bool looks_like_a_path(const std::string& name) {
  return name.empty() || name.front() == '/' || name.front() == '.' || name.front() == '~' ||
         name.back() == '/' || goes_up(name);
}

Result<ModelSource> fetch(const std::string& name, const NamePolicy& policy,
                          hub::FetchOptions options) {
  options.allow_download = options.allow_download && may_download(name, policy);
  return hub::fetch_model(name, options);
}

// A name of the hub and nothing else: what lies in the folder where the server was started has
// nothing to do with it.
Result<ModelSource> from_hub(const std::string& name, const NamePolicy& policy,
                             const hub::FetchOptions& options) {
  if (looks_like_a_path(name)) return not_served(name, policy);
  std::string hub_name = name;
  if (exists(hub_name)) hub_name += "@main";
  if (exists(hub_name)) return not_served(name, policy);
  auto source = fetch(hub_name, policy, options);
  if (!source && !may_download(hub_name, policy)) return not_served(name, policy);
  if (source) source->name = name;
  return source;
}

}  // namespace

bool is_loopback(const std::string& host) {
  if (host == "localhost") return true;
  in_addr v4{};
  if (inet_pton(AF_INET, host.c_str(), &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127;
  in6_addr v6{};
  return inet_pton(AF_INET6, host.c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

Result<std::vector<std::string>> canonical_folders(const std::vector<std::string>& folders) {
  std::vector<std::string> canonical;
  for (const std::string& folder : folders) {
    std::error_code error;
    const fs::path path = fs::canonical(folder, error);
    if (error || !is_folder(path)) {
      return Error{ErrorCode::kNotFound, "--model-dir: '" + folder + "' is no folder" +
                                             (error ? " (" + error.message() + ")" : "")};
    }
    canonical.push_back(path.string());
  }
  return canonical;
}

bool may_be_on_hub(const std::string& name) {
  return !looks_like_a_path(name) && !is_random(name) && name != "demo" && name != "auto" &&
         !exists(name);
}

bool may_download(const std::string& name, const NamePolicy& policy) {
  return hub::matches_any(name, policy.downloads);
}

Result<std::string> resolve_adapter(const std::string& path, const NamePolicy& policy) {
  std::vector<fs::path> candidates;
  for (const std::string& folder : policy.model_dirs) candidates.push_back(fs::path(folder) / path);
  if (policy.any_adapter) candidates.emplace_back(path);
  for (const fs::path& candidate : candidates) {
    std::error_code error;
    const fs::path canonical = fs::canonical(candidate, error);
    if (error || !is_folder(canonical)) continue;
    const auto holds = [&](const std::string& folder) {
      return is_inside(canonical, folder) && files_stay_inside(canonical, folder);
    };
    if (policy.any_adapter || std::ranges::any_of(policy.model_dirs, holds)) {
      return canonical.string();
    }
  }
  return Error{
      ErrorCode::kNotFound,
      "lora_path: '" + path + "' is no folder" +
          (policy.any_adapter ? "" : " under --model-dir, beyond which clients name none")};
}

Result<ModelSource> resolve_name(const std::string& name, const NamePolicy& policy,
                                 const hub::FetchOptions& options) {
  if (name == "auto") {
    return Error{ErrorCode::kInvalid,
                 "'auto' names no model; send the name of one, such as 'demo', a hub name or a "
                 "folder"};
  }
  if (name == "demo") return hub::resolve_model(name);
  if (is_random(name)) return policy.anything ? hub::resolve_model(name) : not_served(name, policy);
  if (auto found = from_model_dirs(name, policy)) return std::move(*found);
  return policy.anything ? fetch(name, policy, options) : from_hub(name, policy, options);
}

}  // namespace lmtp::catalog
