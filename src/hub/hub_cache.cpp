#include "hub_cache.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <system_error>

namespace lmtp::hub {
namespace {

namespace fs = std::filesystem;

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

bool is_name_part(std::string_view part) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
  };
  return !part.empty() && part.front() != '.' && part.find("..") == std::string_view::npos &&
         std::all_of(part.begin(), part.end(), allowed);
}

// A branch may hold slashes ("refs/pr/1"), but leads nowhere outside its folder.
bool is_revision(std::string_view revision) {
  for (std::size_t begin = 0; begin <= revision.size();) {
    const std::size_t end = std::min(revision.find('/', begin), revision.size());
    if (!is_name_part(revision.substr(begin, end - begin))) return false;
    begin = end + 1;
  }
  return true;
}

std::string first_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
  return line;
}

bool is_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

}  // namespace

Result<HubName> parse_hub_name(std::string_view name) {
  const Error wrong{"'" + std::string(name) +
                    "' is not a name on the Hugging Face hub ([org/]name[@revision])"};
  HubName parsed;
  const std::size_t at = name.find('@');
  parsed.repo = name.substr(0, at);
  parsed.revision = at == std::string_view::npos ? "main" : name.substr(at + 1);
  const std::string_view repo = parsed.repo;
  const std::size_t slash = repo.find('/');
  const bool repo_ok = slash == std::string_view::npos ? is_name_part(repo)
                                                       : is_name_part(repo.substr(0, slash)) &&
                                                             is_name_part(repo.substr(slash + 1));
  if (!repo_ok || !is_revision(parsed.revision)) return wrong;
  return parsed;
}

std::string cache_folder() {
  for (const char* name : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"}) {
    if (std::string folder = environment(name); !folder.empty()) return folder;
  }
  if (const std::string home = environment("HF_HOME"); !home.empty()) return home + "/hub";
  if (const std::string cache = environment("XDG_CACHE_HOME"); !cache.empty()) {
    return cache + "/huggingface/hub";
  }
  const std::string home = environment("HOME");
  return home.empty() ? "" : home + "/.cache/huggingface/hub";
}

Result<std::string> find_snapshot(const std::string& cache, const HubName& name) {
  std::string repo_folder = "models--" + name.repo;
  if (const std::size_t slash = repo_folder.find('/'); slash != std::string::npos) {
    repo_folder.replace(slash, 1, "--");
  }
  const fs::path repo = fs::path(cache) / repo_folder;
  if (!is_folder(repo)) return Error{"it has no " + repo_folder};
  const std::string commit = first_line(repo / "refs" / name.revision);
  // A revision is a branch, a tag, or a commit itself.
  const fs::path snapshot = repo / "snapshots" / (commit.empty() ? name.revision : commit);
  if (!is_folder(snapshot)) {
    return Error{repo.string() + " has no snapshot of revision '" + name.revision + "'"};
  }
  return snapshot.string();
}

}  // namespace lmtp::hub
