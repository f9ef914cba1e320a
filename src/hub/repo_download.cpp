#include "repo_download.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "web_address.h"

namespace lmtp::hub {
namespace {

namespace fs = std::filesystem;

// How soon a stopped download ends, and a progress bar moves.
constexpr std::chrono::milliseconds kTurn{50};
// Left free on the disk for others.
constexpr std::int64_t kSpareBytes = std::int64_t{16} << 20;

bool is_file(const std::string& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

std::int64_t size_or_zero(const std::string& path) {
  std::error_code error;
  const auto size = fs::file_size(path, error);
  return error ? 0 : static_cast<std::int64_t>(size);
}

}  // namespace

struct RepoDownload::ListAnswer {
  HttpAnswer answer;
  std::string body;
};

RepoDownload::RepoDownload(HttpClient& client, HubName name, const FetchOptions& options)
    : client_(client),
      name_(std::move(name)),
      options_(options),
      folder_(client.hub().cache, name_.repo) {}

Result<std::string> RepoDownload::run() {
  const auto listing = list();
  if (!listing) return listing.error();
  context_ = std::make_unique<DownloadContext>(
      DownloadContext{client_, folder_, name_.repo, name_.revision, listing->commit});
  if (auto prepared = folder_.prepare(listing->commit); !prepared) return prepared.error();
  const auto files = choose_files(*listing);
  if (!files) return files.error();
  if (auto brought = bring(*files, true); !brought) return brought.error();
  // Last, so that a revision never leads to a snapshot that is half there.
  if (auto written = folder_.write_ref(name_.revision, listing->commit); !written) {
    return written.error();
  }
  return folder_.snapshot(listing->commit);
}

Result<Listing> RepoDownload::list() {
  // What is there of it already stays one version: tokenizer and weights of the same commit.
  const std::string pinned = folder_.commit_of(name_.revision);
  auto got = ask_for_list(pinned.empty() ? name_.revision : pinned);
  if (!got) return got.error();
  if (!pinned.empty() && is_revision_missing(got->answer)) {
    got = ask_for_list(name_.revision);
    if (!got) return got.error();
  }
  if (!got->answer.ok()) {
    return explain(got->answer, {name_.repo, name_.revision, ""}, client_.hub());
  }
  auto listing = parse_listing(got->body);
  if (!listing) {
    return Error{client_.hub().endpoint + " gives no usable list of the files of '" + name_.repo +
                 "': " + listing.error().message + "; check HF_ENDPOINT and the proxy"};
  }
  return listing;
}

// The first contact: all its attempts together have the time of one answer.
Result<RepoDownload::ListAnswer> RepoDownload::ask_for_list(const std::string& revision) {
  ListAnswer got;
  Retry retry;
  HttpExchange exchange(client_);
  const auto deadline = Clock::now() + client_.hub().answer_timeout;
  while (true) {
    got.body.clear();
    bool too_long = false;
    HttpRequest request;
    request.url = client_.hub().endpoint + "/api/models/" + quote(name_.repo, true) + "/revision/" +
                  quote(revision, false);
    request.answer_timeout =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
    request.on_body = [&got, &too_long](std::string_view piece) {
      too_long = got.body.size() + piece.size() > kListingBytesMax;
      if (!too_long) got.body += piece;
      return !too_long;
    };
    exchange.start(std::move(request));
    while (exchange.active()) {
      if (auto turned = turn(false); !turned) return turned.error();
    }
    if (too_long) return Error{"the hub's list of the files of '" + name_.repo + "' has no end"};
    got.answer = exchange.answer();
    // Nobody is there: that will not change in a moment.
    const bool nobody =
        got.answer.transport == Transport::kNoName || got.answer.transport == Transport::kNoHost;
    if (nobody || !is_transient(got.answer) ||
        !retry.again(Clock::now(), got.answer.retry_after_s) || retry.at() >= deadline) {
      return got;
    }
    while (Clock::now() < retry.at()) {
      if (auto turned = turn(false); !turned) return turned.error();
    }
  }
}

Result<std::vector<std::string>> RepoDownload::choose_files(const Listing& listing) {
  const std::string repo = "'" + name_.repo + "'";
  std::vector<std::string> files = small_files(listing, options_.purpose);
  if (options_.purpose == Purpose::kTokenizer) {
    const bool any = listing.has("tokenizer.json") || listing.has("tokenizer.model") ||
                     (listing.has("vocab.json") && listing.has("merges.txt"));
    if (any) return files;
    return Error{repo +
                 " has no tokenizer (tokenizer.json, vocab.json with merges.txt, or "
                 "tokenizer.model): name the model that it was made from"};
  }
  if (!listing.has("config.json")) {
    return Error{repo + " has no config.json: it is not a model as `transformers` keeps it"};
  }
  const auto weights = weight_files(listing);
  if (!weights) {
    return Error{repo + " has " + weights.error().message +
                 ": name a repository that has its weights as safetensors"};
  }
  files.push_back(weights->file);
  if (!weights->is_index) return files;
  if (auto brought = bring({weights->file}, false); !brought) return brought.error();
  const auto shards = read_index(folder_.snapshot_file(listing.commit, weights->file));
  if (!shards) return shards.error();
  for (const std::string& shard : *shards) {
    if (!listing.has(shard)) {
      return Error{repo + " lacks " + shard + ", which its " + weights->file + " names"};
    }
    files.push_back(shard);
  }
  return files;
}

Result<void> RepoDownload::bring(const std::vector<std::string>& names, bool show_progress) {
  std::vector<RemoteFile> files;
  for (const std::string& name : names) {
    if (!is_file(folder_.snapshot_file(context_->commit, name))) files.push_back({name, "", 0});
  }
  std::vector<std::unique_ptr<Job>> jobs;
  for (RemoteFile& file : files) jobs.push_back(std::make_unique<ResolveJob>(*context_, file));
  if (auto resolved = run_jobs(std::move(jobs)); !resolved) return resolved;
  if (auto enough = check_space(files); !enough) return enough;
  jobs.clear();
  std::int64_t total = 0;
  for (const RemoteFile& file : files) {
    total += file.size;
    jobs.push_back(std::make_unique<FetchJob>(*context_, file));
  }
  if (show_progress) progress_.bytes_total = total;
  return run_jobs(std::move(jobs));
}

Result<void> RepoDownload::check_space(const std::vector<RemoteFile>& files) const {
  std::int64_t needed = 0;
  for (const RemoteFile& file : files) {
    const std::string blob = folder_.blob(file.etag);
    if (is_file(blob)) continue;
    needed += std::max<std::int64_t>(0, file.size - size_or_zero(blob + ".incomplete"));
  }
  const auto free = folder_.free_bytes();
  if (!free) return free.error();
  if (needed == 0 || needed <= *free - kSpareBytes) return {};
  return Error{"'" + name_.repo + "' needs " + size_text(needed) + " more on the disk of " +
               folder_.path() + ", which has " + size_text(*free) +
               ": make room, or put the cache elsewhere with HF_HUB_CACHE"};
}

Result<void> RepoDownload::run_jobs(std::vector<std::unique_ptr<Job>> jobs) {
  std::int64_t finished_bytes = 0;
  while (!jobs.empty()) {
    bool busy = false;
    std::int64_t active_bytes = 0;
    const auto now = Clock::now();
    for (std::size_t i = 0; i < std::min(kParallelMax, jobs.size());) {
      const auto state = jobs[i]->step(now);
      if (!state) return state.error();
      if (*state == Job::State::kFinished) {
        finished_bytes += jobs[i]->bytes_done();
        jobs.erase(jobs.begin() + static_cast<std::ptrdiff_t>(i));
        continue;
      }
      busy = busy || *state == Job::State::kBusy;
      active_bytes += jobs[i]->bytes_done();
      ++i;
    }
    progress_.bytes_done = finished_bytes + active_bytes;
    if (auto turned = turn(busy); !turned) return turned;
  }
  return {};
}

Result<void> RepoDownload::turn(bool busy) {
  client_.run(busy ? std::chrono::milliseconds(0) : kTurn);
  const FetchProgress shown = progress_.bytes_total > 0 ? progress_ : FetchProgress{};
  if (options_.progress && !options_.progress(shown)) {
    return Error{"fetching '" + name_.repo + "' was stopped; what has come is kept"};
  }
  return {};
}

}  // namespace lmtp::hub
