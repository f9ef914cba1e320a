#include "repo_download.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "header_job.h"
#include "lmtp/base/text.h"
#include "local_model.h"
#include "web_address.h"

namespace lmtp::hub {
namespace {

namespace fs = std::filesystem;

// The interval of calls of FetchOptions::progress.
constexpr std::chrono::milliseconds kTurn{50};
// To be left free on the disk.
constexpr std::int64_t kSpareBytes = std::int64_t{16} << 20;

}  // namespace

struct RepoDownload::ListingAnswer {
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
  if (auto begun = begin(*listing); !begun) return begun.error();
  const auto downloaded = options_.purpose == Purpose::kTokenizer ? download_tokenizer(*listing)
                                                                  : download_model(*listing);
  if (!downloaded) return downloaded.error();
  note_absent(*listing);
  // Last, so that a revision never leads to an incomplete snapshot.
  if (auto written = folder_.write_ref(name_.revision, listing->commit); !written) {
    return written.error();
  }
  return folder_.snapshot(listing->commit);
}

Result<void> RepoDownload::complete(const std::string& commit) {
  const auto got = request_listing(commit);
  if (!got) return got.error();
  const auto listing = read_list(*got);
  if (!listing) return listing.error();
  if (listing->commit != commit) {
    return Error{ErrorCode::kUnavailable,
                 client_.hub().endpoint + " answers for another commit than it was asked for"};
  }
  if (auto begun = begin(*listing); !begun) return begun;
  auto files = resolve(small_files(*listing, options_.purpose));
  if (!files) return files.error();
  if (auto fetched = fetch(*files, true); !fetched) return fetched;
  note_absent(*listing);
  return {};
}

Result<void> RepoDownload::begin(const Listing& listing) {
  context_ = std::make_unique<DownloadContext>(DownloadContext{
      client_, folder_, name_.repo, name_.revision, listing.commit, options_.retry_pause});
  return folder_.prepare(listing.commit);
}

void RepoDownload::note_absent(const Listing& listing) const {
  for (const std::string& file : optional_files(options_.purpose)) {
    if (!listing.has(file)) folder_.note_absent(listing.commit, file);
  }
}

Result<Listing> RepoDownload::list() {
  // If the cache has a part of it, the rest comes from the same commit, so that tokenizer and
  // weights match.
  const std::string pinned = folder_.commit_of(name_.revision);
  auto got = request_listing(pinned.empty() ? name_.revision : pinned);
  if (!got) return got.error();
  if (!pinned.empty() && is_revision_missing(got->answer)) {
    got = request_listing(name_.revision);
    if (!got) return got.error();
  }
  return read_list(*got);
}

Result<Listing> RepoDownload::read_list(const ListingAnswer& got) const {
  if (!got.answer.ok()) {
    return explain(got.answer, {name_.repo, name_.revision, ""}, client_.hub());
  }
  auto listing = parse_listing(got.body);
  if (!listing) {
    return Error{ErrorCode::kUnavailable,
                 client_.hub().endpoint + " gives no usable list of the files of '" + name_.repo +
                     "': " + listing.error().message + "; check HF_ENDPOINT and the proxy"};
  }
  return listing;
}

// The first contact: all attempts together share one answer_timeout.
Result<RepoDownload::ListingAnswer> RepoDownload::request_listing(const std::string& revision) {
  ListingAnswer got;
  Retry retry(options_.retry_pause);
  HttpExchange exchange(client_);
  const auto deadline = Clock::now() + client_.hub().answer_timeout;
  while (true) {
    got.body.clear();
    bool too_long = false;
    HubRequest request;
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
      if (auto polled = poll_network(false); !polled) return polled.error();
    }
    if (too_long) {
      return Error{ErrorCode::kUnavailable,
                   "the hub's list of the files of '" + name_.repo + "' has no end"};
    }
    got.answer = exchange.answer();
    // Not transient: a retry a moment later would fail, too.
    const bool unreachable =
        got.answer.transport == Transport::kNoName || got.answer.transport == Transport::kNoHost;
    if (unreachable || !is_transient(got.answer) ||
        !retry.again(Clock::now(), got.answer.retry_after_s) || retry.at() >= deadline) {
      return got;
    }
    while (Clock::now() < retry.at()) {
      if (auto polled = poll_network(false); !polled) return polled.error();
    }
  }
}

Result<void> RepoDownload::download_tokenizer(const Listing& listing) {
  if (!has_tokenizer(listing.files)) {
    return Error{
        ErrorCode::kNotFound,
        "'" + name_.repo +
            "' has no tokenizer (tokenizer.json, vocab.json with merges.txt, tokenizer.model, "
            "tekken.json, ...): name the model that it was made from"};
  }
  const auto files = resolve(small_files(listing, options_.purpose));
  return files ? fetch(*files, true) : files.error();
}

Result<void> RepoDownload::download_model(const Listing& listing) {
  const std::string repo = "'" + name_.repo + "'";
  if (!listing.has(kConfig)) {
    return Error{ErrorCode::kNotFound,
                 repo + " has no config.json: it is not a model as `transformers` keeps it"};
  }
  const auto weights = weight_files(listing);
  if (!weights) {
    return Error{weights.error().code,
                 repo + " has " + weights.error().message +
                     ": name a repository that has its weights as safetensors"};
  }
  std::vector<std::string> first = {kConfig};
  if (listing.has(kGenerationConfig)) first.emplace_back(kGenerationConfig);
  if (auto downloaded = download_small(first); !downloaded) return downloaded;
  if (options_.accept_config) {
    auto accepted = options_.accept_config(folder_.snapshot(listing.commit));
    if (!accepted) return accepted;
  }
  const auto names = files_of(listing, *weights);
  if (!names) return names.error();
  std::vector<std::string> all = small_files(listing, options_.purpose);
  all.insert(all.end(), names->begin(), names->end());
  const auto files = resolve(all);
  if (!files) return files.error();
  if (weights->file.find(".safetensors") != std::string::npos) {
    if (auto accepted = accept_headers(*names, *files); !accepted) return accepted;
  }
  return fetch(*files, true);
}

// The names of the weights' files; downloads the index if there is one.
Result<std::vector<std::string>> RepoDownload::files_of(const Listing& listing,
                                                        const WeightFiles& weights) {
  if (!weights.is_index) return std::vector{weights.file};
  if (auto downloaded = download_small({weights.file}); !downloaded) return downloaded.error();
  auto shards = read_index(folder_.snapshot_file(listing.commit, weights.file));
  if (!shards) return shards;
  for (const std::string& shard : *shards) {
    if (!listing.has(shard)) {
      return Error{ErrorCode::kNotFound, "'" + name_.repo + "' lacks " + shard + ", which its " +
                                             weights.file + " names"};
    }
  }
  return shards;
}

Result<void> RepoDownload::accept_headers(const std::vector<std::string>& names,
                                          const std::vector<RemoteFile>& files) {
  if (!options_.accept_weights) return {};
  std::vector<WeightHeader> headers(names.size());
  std::vector<std::unique_ptr<Job>> jobs;
  std::int64_t budget = kHeadersBytesMax;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const auto remote = std::find_if(files.begin(), files.end(),
                                     [&](const RemoteFile& file) { return file.name == names[i]; });
    if (remote == files.end()) {
      auto header = read_header(folder_.snapshot_file(context_->commit, names[i]), names[i]);
      if (!header) return header.error();
      headers[i] = *std::move(header);
    } else {
      headers[i].file = names[i];
      headers[i].file_size = remote->size;
      jobs.push_back(std::make_unique<HeaderJob>(*context_, headers[i], budget));
    }
  }
  if (auto got = run_jobs(std::move(jobs)); !got) return got;
  return options_.accept_weights(folder_.snapshot(context_->commit), headers);
}

Result<void> RepoDownload::download_small(const std::vector<std::string>& names) {
  const auto files = resolve(names);
  if (!files) return files.error();
  for (const RemoteFile& file : *files) {
    if (file.size > static_cast<std::int64_t>(kIndexBytesMax)) {
      return Error{ErrorCode::kInvalid, file.name + " of '" + name_.repo + "' has " +
                                            file_size_text(file.size) +
                                            ", more than such a file can have"};
    }
  }
  return fetch(*files, false);
}

// The files that the cache lacks, with their sizes.
Result<std::vector<RemoteFile>> RepoDownload::resolve(const std::vector<std::string>& names) {
  std::vector<RemoteFile> files;
  for (const std::string& name : names) {
    if (!is_file(folder_.snapshot_file(context_->commit, name))) files.push_back({name, "", 0});
  }
  std::vector<std::unique_ptr<Job>> jobs;
  for (RemoteFile& file : files) jobs.push_back(std::make_unique<ResolveJob>(*context_, file));
  if (auto resolved = run_jobs(std::move(jobs)); !resolved) return resolved.error();
  for (const RemoteFile& file : files) {
    bytes_resolved_ += file.size;
    // Checked here, so that the sum cannot overflow.
    if (bytes_resolved_ > kDownloadBytesMax) {
      return Error{ErrorCode::kUnavailable, "'" + name_.repo + "' claims to be larger than " +
                                                file_size_text(kDownloadBytesMax) +
                                                ": check HF_ENDPOINT"};
    }
  }
  if (bytes_resolved_ > options_.download_bytes_max) {
    return Error{ErrorCode::kInvalid, "'" + name_.repo + "' is a download of " +
                                          file_size_text(bytes_resolved_) + ", and at most " +
                                          file_size_text(options_.download_bytes_max) +
                                          " are allowed here (--download-max)"};
  }
  return files;
}

Result<void> RepoDownload::fetch(const std::vector<RemoteFile>& files, bool show_progress) {
  if (auto enough = check_space(files); !enough) return enough;
  std::vector<std::unique_ptr<Job>> jobs;
  std::int64_t total = bytes_before_;
  for (const RemoteFile& file : files) {
    total += file.size;
    jobs.push_back(std::make_unique<FetchJob>(*context_, file));
  }
  if (show_progress) progress_.bytes_total = total;
  auto fetched = run_jobs(std::move(jobs));
  bytes_before_ = total;
  return fetched;
}

Result<void> RepoDownload::check_space(const std::vector<RemoteFile>& files) const {
  std::int64_t needed = 0;
  for (const RemoteFile& file : files) {
    const std::string blob = folder_.blob(file.etag);
    if (is_file(blob)) continue;
    needed += std::max<std::int64_t>(0, file.size - unfinished_bytes(blob));
  }
  const auto free = folder_.free_bytes();
  if (!free) return free.error();
  if (needed == 0 || needed <= *free - kSpareBytes) return {};
  return Error{ErrorCode::kUnavailable,
               "'" + name_.repo + "' needs " + file_size_text(needed) + " more on the disk of " +
                   folder_.path() + ", which has " + file_size_text(*free) +
                   ": make room, or put the cache elsewhere with HF_HUB_CACHE"};
}

Result<void> RepoDownload::run_jobs(std::vector<std::unique_ptr<Job>> jobs) {
  std::int64_t finished_bytes = bytes_before_;
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
    if (auto polled = poll_network(busy); !polled) return polled;
  }
  return {};
}

Result<void> RepoDownload::poll_network(bool busy) {
  client_.run(busy ? std::chrono::milliseconds(0) : kTurn);
  const FetchProgress shown = progress_.bytes_total > 0 ? progress_ : FetchProgress{};
  if (options_.progress && !options_.progress(shown)) {
    was_stopped_ = true;
    return Error{ErrorCode::kCancelled,
                 "fetching '" + name_.repo + "' was stopped; what has come is kept"};
  }
  return {};
}

}  // namespace lmtp::hub
