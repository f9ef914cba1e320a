#include "hub_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "hub_messages.h"

namespace lmtp::hub {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kRepoBytesMax = 96;  // the hub's own limit
constexpr int kLinkAttemptsMax = 3;
constexpr mode_t kRefMode = 0644;

// lmql.models.aliases (LMQL 0.7): the only short names that LMQL has of its own. What it calls
// "local:NAME" is NAME on the hub, loaded into its own process.
struct Alias {
  std::string_view name;
  std::string_view model;
};
constexpr std::array kLmqlAliases = {Alias{"chatgpt", "openai/gpt-3.5-turbo"},
                                     Alias{"gpt-4", "openai/gpt-4"}};
constexpr std::string_view kLmqlLocal = "local:";

bool is_name_part(std::string_view part) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
  };
  return !part.empty() && part.front() != '.' && part.find("..") == std::string_view::npos &&
         std::all_of(part.begin(), part.end(), allowed);
}

// A branch's name may contain slashes ("refs/pr/1"), but must not lead out of its folder.
bool is_revision(std::string_view revision) {
  for (std::size_t begin = 0; begin <= revision.size();) {
    const std::size_t end = std::min(revision.find('/', begin), revision.size());
    if (!is_name_part(revision.substr(begin, end - begin))) return false;
    begin = end + 1;
  }
  return true;
}

// "--" would make folder names ambiguous; the hub forbids it, too.
bool is_repo(std::string_view repo) {
  if (repo.size() > kRepoBytesMax || repo.find("--") != std::string_view::npos) return false;
  const std::size_t slash = repo.find('/');
  if (slash == std::string_view::npos) return is_name_part(repo);
  return is_name_part(repo.substr(0, slash)) && is_name_part(repo.substr(slash + 1));
}

std::string folder_name(const std::string& repo) {
  std::string folder = "models--" + repo;
  if (const std::size_t slash = folder.find('/'); slash != std::string::npos) {
    folder.replace(slash, 1, "--");
  }
  return folder;
}

std::string first_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
  return line;
}

}  // namespace

bool is_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

Result<HubName> parse_hub_name(std::string_view name) {
  if (name.starts_with(kLmqlLocal)) name.remove_prefix(kLmqlLocal.size());
  for (const Alias& alias : kLmqlAliases) {
    if (name == alias.name || name == alias.model) {
      return Error{ErrorCode::kNotFound,
                   "'" + std::string(name) + "' is LMQL's name for a model of OpenAI's (" +
                       std::string(alias.model) + "), whose weights nobody can fetch"};
    }
  }
  const Error wrong{
      ErrorCode::kInvalid,
      "'" + std::string(name) + "' is not a name on the Hugging Face hub ([org/]name[@revision])"};
  HubName parsed;
  const std::size_t at = name.find('@');
  parsed.repo = name.substr(0, at);
  parsed.revision = at == std::string_view::npos ? "main" : name.substr(at + 1);
  return is_repo(parsed.repo) && is_revision(parsed.revision) ? Result<HubName>(std::move(parsed))
                                                              : wrong;
}

Result<std::string> find_snapshot(const std::string& cache, const HubName& name) {
  const RepoFolder repo(cache, name.repo);
  if (!is_folder(repo.path())) {
    return Error{ErrorCode::kNotFound, "it has no " + folder_name(name.repo)};
  }
  const std::string commit = repo.commit_of(name.revision);
  // A revision is a branch, a tag, or a commit itself.
  std::string snapshot = repo.snapshot(commit.empty() ? name.revision : commit);
  if (!is_folder(snapshot)) {
    return Error{ErrorCode::kNotFound,
                 repo.path() + " has no snapshot of revision '" + name.revision + "'"};
  }
  return snapshot;
}

RepoFolder::RepoFolder(const std::string& cache, const std::string& repo)
    : path_(cache + "/" + folder_name(repo)), locks_(cache + "/.locks/" + folder_name(repo)) {}

std::string RepoFolder::commit_of(const std::string& revision) const {
  const std::string commit = first_line(path_ + "/refs/" + revision);
  // A commit becomes a folder's name.
  return is_name_part(commit) ? commit : "";
}

Result<void> RepoFolder::prepare(const std::string& commit) const {
  for (const std::string& folder :
       {path_ + "/blobs", path_ + "/refs", snapshot(commit), std::string(locks_)}) {
    std::error_code error;
    fs::create_directories(folder, error);
    if (error) return explain_disk("the cache cannot be written", folder, error.value());
  }
  return {};
}

Result<std::int64_t> RepoFolder::free_bytes() const {
  struct statvfs disk {};
  if (statvfs(path_.c_str(), &disk) != 0) {
    return explain_disk("the free space cannot be read", path_, errno);
  }
  return static_cast<std::int64_t>(disk.f_bavail) * static_cast<std::int64_t>(disk.f_frsize);
}

Result<void> RepoFolder::link(const std::string& commit, const std::string& file,
                              const std::string& etag) const {
  const std::string path = snapshot_file(commit, file);
  const std::string target = "../../blobs/" + etag;
  for (int attempt = 0; attempt < kLinkAttemptsMax; ++attempt) {
    if (symlink(target.c_str(), path.c_str()) == 0) return {};
    if (errno != EEXIST) break;
    std::error_code ignored;
    if (fs::read_symlink(path, ignored) == target) return {};
    // A link to a missing or to another blob.
    unlink(path.c_str());
  }
  return explain_disk("the snapshot cannot be written", path, errno);
}

bool RepoFolder::is_absent(const std::string& commit, const std::string& file) const {
  std::error_code ignored;
  return fs::is_regular_file(path_ + "/.no_exist/" + commit + "/" + file, ignored);
}

void RepoFolder::note_absent(const std::string& commit, const std::string& file) const {
  const fs::path folder = path_ + "/.no_exist/" + commit;
  std::error_code ignored;
  fs::create_directories(folder, ignored);
  const std::ofstream note(folder / file, std::ios::app);
}

Result<void> RepoFolder::write_ref(const std::string& revision, const std::string& commit) const {
  if (revision == commit) return {};
  const fs::path path = path_ + "/refs/" + revision;
  if (first_line(path) == commit) return {};
  std::error_code error;
  fs::create_directories(path.parent_path(), error);
  // Not in refs/, where every file counts as a branch.
  std::string temporary = path_ + "/tmp_XXXXXX";
  const int file = mkostemp(temporary.data(), O_CLOEXEC);
  if (file < 0) return explain_disk("the cache cannot be written", temporary, errno);
  const bool written =
      write(file, commit.data(), commit.size()) == static_cast<ssize_t>(commit.size());
  const int write_errno = errno;
  // mkstemp makes files private; a cache may be shared.
  fchmod(file, kRefMode);
  close(file);
  if (written && rename(temporary.c_str(), path.c_str()) == 0) return {};
  const int error_number = written ? errno : write_errno;
  unlink(temporary.c_str());
  return explain_disk("the cache cannot be written", path.string(), error_number);
}

}  // namespace lmtp::hub
