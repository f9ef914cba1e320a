// The cache of huggingface_hub on this disk:
//   CACHE/models--ORG--NAME/refs/main                  the commit that a branch or tag is at
//   CACHE/models--ORG--NAME/blobs/HASH                 a file's content, named by its hash
//   CACHE/models--ORG--NAME/blobs/HASH.incomplete      a partial download (version 2 of
//                                                      huggingface_hub: HASH.UUID.incomplete)
//   CACHE/models--ORG--NAME/.no_exist/COMMIT/a.json    an empty file: the commit has no a.json
//   CACHE/models--ORG--NAME/snapshots/COMMIT/config.json -> ../../blobs/HASH
//   CACHE/.locks/models--ORG--NAME/HASH.lock           held (flock) by the blob's writer
//
// Reference: huggingface_hub 0.36 and 2.4, "Understand caching", file_download.py and constants.py.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "lmtp/base/result.h"

namespace lmtp::hub {

// False, too, where that cannot be found out.
bool is_folder(const std::filesystem::path& path);

// "org/name@revision"; the default revision is "main".
struct HubName {
  std::string repo;
  std::string revision;
};

// An error if it cannot be a name on the hub: [org/]name of letters, digits, '-', '_' and '.'.
// LMQL's prefix "local:" is removed; its names for OpenAI's models are refused.
Result<HubName> parse_hub_name(std::string_view name);

// The snapshot's folder. The error says what is missing.
Result<std::string> find_snapshot(const std::string& cache, const HubName& name);

// One repository's folder. Plain paths and single operations; any thread, any process.
class RepoFolder {
 public:
  RepoFolder(const std::string& cache, const std::string& repo);

  // The commit of a branch or tag as noted in the cache; empty: unknown.
  std::string commit_of(const std::string& revision) const;
  std::string snapshot(const std::string& commit) const { return path_ + "/snapshots/" + commit; }
  std::string snapshot_file(const std::string& commit, const std::string& file) const {
    return snapshot(commit) + "/" + file;
  }
  std::string blob(const std::string& etag) const { return path_ + "/blobs/" + etag; }
  std::string lock(const std::string& etag) const { return locks_ + "/" + etag + ".lock"; }
  const std::string& path() const { return path_; }

  // Makes the folders that a download of this commit writes to.
  Result<void> prepare(const std::string& commit) const;
  // Free disk space.
  Result<std::int64_t> free_bytes() const;
  // Gives the blob its name in the snapshot, by a relative link.
  Result<void> link(const std::string& commit, const std::string& file,
                    const std::string& etag) const;
  // Whether the cache notes that the commit has no such file.
  bool is_absent(const std::string& commit, const std::string& file) const;
  // Notes that. If it fails, the hub is asked again next time.
  void note_absent(const std::string& commit, const std::string& file) const;
  // Notes the commit of a branch or tag; atomic for concurrent readers.
  Result<void> write_ref(const std::string& revision, const std::string& commit) const;

 private:
  const std::string path_;
  const std::string locks_;
};

}  // namespace lmtp::hub
