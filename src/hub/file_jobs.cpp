#include "file_jobs.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "lmtp/base/log.h"
#include "lmtp/base/text.h"
#include "lmtp/hub/fetch.h"
#include "web_address.h"

namespace lmtp::hub {
namespace {

constexpr std::size_t kEtagBytesMax = 128;

// An ETag becomes a file's name, so it must be a valid one.
bool is_blob_name(std::string_view etag) {
  return !etag.empty() && etag.size() <= kEtagBytesMax && etag.front() != '.' &&
         !etag.ends_with(".incomplete") && std::all_of(etag.begin(), etag.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '-' || c == '_' || c == '.';
         });
}

}  // namespace

bool begins_at(std::string_view content_range, std::int64_t offset) {
  constexpr std::string_view kUnit = "bytes ";
  if (!content_range.starts_with(kUnit)) return false;
  content_range.remove_prefix(kUnit.size());
  std::int64_t begin = -1;
  const auto [end, error] =
      std::from_chars(content_range.data(), content_range.data() + content_range.size(), begin);
  return error == std::errc() && begin == offset;
}

std::string DownloadContext::url_of(const std::string& file) const {
  return client.hub().endpoint + "/" + quote(repo, true) + "/resolve/" + quote(commit, false) +
         "/" + quote(file, true);
}

ResolveJob::ResolveJob(const DownloadContext& context, RemoteFile& file)
    : context_(context), file_(file), exchange_(context.client), retry_(context.retry_pause) {}

Result<Job::State> ResolveJob::step(Clock::time_point now) {
  if (exchange_.active() || (pausing_ && now < retry_.at())) return State::kWaiting;
  if (!started_ || pausing_) {
    HubRequest request;
    request.url = context_.url_of(file_.name);
    request.head = true;
    request.answer_timeout = context_.client.hub().stall_timeout;
    started_ = true;
    pausing_ = false;
    exchange_.start(std::move(request));
    return State::kWaiting;
  }
  const HttpAnswer& answer = exchange_.answer();
  const bool redirected = answer.transport == Transport::kOk && answer.status / 100 == 3;
  if (answer.ok() || redirected) {
    if (auto taken = take(answer); !taken) return taken.error();
    return State::kFinished;
  }
  if (is_transient(answer) && retry_.again(now, answer.retry_after_s)) {
    pausing_ = true;
    return State::kWaiting;
  }
  return explain(answer, context_.subject(file_.name), context_.client.hub());
}

Result<void> ResolveJob::take(const HttpAnswer& answer) {
  const std::string about =
      file_.name + " of '" + context_.repo + "': " + context_.client.hub().endpoint + " ";
  constexpr const char* kRemedy = ": check HF_ENDPOINT, and whether a proxy changes the answers";
  if (answer.commit.empty()) {
    return Error{ErrorCode::kUnavailable,
                 about + "does not answer as a hub does (no X-Repo-Commit)" + kRemedy};
  }
  if (answer.commit != context_.commit) {
    return Error{ErrorCode::kUnavailable,
                 about + "answers for another commit than it was asked for" + kRemedy};
  }
  if (!is_blob_name(answer.etag)) {
    return Error{ErrorCode::kUnavailable, about + "gives no usable ETag" + kRemedy};
  }
  if (!answer.size || *answer.size > kDownloadBytesMax) {
    return Error{ErrorCode::kUnavailable, about + "gives no usable size" + kRemedy};
  }
  file_.etag = answer.etag;
  file_.size = *answer.size;
  return {};
}

FetchJob::FetchJob(const DownloadContext& context, RemoteFile file)
    : context_(context),
      file_(std::move(file)),
      blob_path_(context.folder.blob(file_.etag)),
      exchange_(context.client),
      retry_(context.retry_pause),
      lock_moved_(Clock::now()) {}

Result<Job::State> FetchJob::step(Clock::time_point now) {
  switch (phase_) {
    case Phase::kLock:
      return lock(now);
    case Phase::kHash:
      return hash();
    case Phase::kPause:
      if (now < retry_.at()) return State::kWaiting;
      start();
      return State::kWaiting;
    case Phase::kStart:
      start();
      return State::kWaiting;
    case Phase::kTransfer:
      break;
  }
  if (!exchange_.active()) return transferred(now);
  bytes_done_ = blob_->num_bytes();
  return State::kWaiting;
}

Result<Job::State> FetchJob::lock(Clock::time_point now) {
  const auto acquired = lock_.try_acquire(context_.folder.lock(file_.etag));
  if (!acquired) return acquired.error();
  if (!*acquired) {
    // Another process downloads it; its bytes are reported as progress.
    const std::int64_t size = std::max(unfinished_bytes(blob_path_), size_of(blob_path_));
    if (size > bytes_done_) {
      bytes_done_ = std::min(size, file_.size);
      lock_moved_ = now;
    }
    if (now - lock_moved_ < kDownloadIdleMax) return State::kWaiting;
    return Error{ErrorCode::kUnavailable, "another process is fetching " + file_.name + " of '" +
                                              context_.repo +
                                              "' and gets nowhere: end it (it holds " +
                                              context_.folder.lock(file_.etag) + ")"};
  }
  if (size_of(blob_path_) == file_.size) return link();
  auto blob = PartialBlob::open(blob_path_, file_.etag, file_.size);
  if (!blob) return blob.error();
  blob_ = *std::move(blob);
  phase_ = Phase::kHash;
  return State::kBusy;
}

Result<Job::State> FetchJob::hash() {
  const auto all = blob_->hash_some();
  if (!all) return all.error();
  if (!*all) return State::kBusy;
  bytes_done_ = blob_->num_bytes();
  if (bytes_done_ == file_.size) return check();
  phase_ = Phase::kStart;
  return State::kBusy;
}

void FetchJob::start() {
  HubRequest request;
  request.url = context_.url_of(file_.name);
  request.range_from = blob_->num_bytes();
  request.answer_timeout = context_.client.hub().stall_timeout;
  request.on_start = [this](const HttpAnswer& answer) { return on_start(answer); };
  request.on_body = [this](std::string_view piece) { return on_body(piece); };
  bytes_best_ = std::max(bytes_best_, blob_->num_bytes());
  phase_ = Phase::kTransfer;
  exchange_.start(std::move(request));
}

bool FetchJob::on_start(const HttpAnswer& answer) {
  if (answer.status == 206 && begins_at(answer.content_range, blob_->num_bytes())) return true;
  if (answer.status == 206) {
    error_ = Error{ErrorCode::kUnavailable,
                   file_.name + " of '" + context_.repo + "': " + answer.origin +
                       " sends another part than it was asked for: check the proxy"};
    return false;
  }
  // The server sends the whole file despite the requested range.
  blob_->restart();
  return true;
}

bool FetchJob::on_body(std::string_view piece) {
  const std::int64_t num_after = blob_->num_bytes() + static_cast<std::int64_t>(piece.size());
  if (num_after > file_.size) {
    error_ = Error{ErrorCode::kUnavailable,
                   file_.name + " of '" + context_.repo + "' is larger than the hub says (" +
                       file_size_text(file_.size) + "): check HF_ENDPOINT and the proxy"};
    return false;
  }
  if (auto appended = blob_->append(piece); !appended) error_ = appended.error();
  return !error_;
}

Result<Job::State> FetchJob::transferred(Clock::time_point now) {
  if (error_) return *error_;
  bytes_done_ = blob_->num_bytes();
  const HttpAnswer& answer = exchange_.answer();
  if (blob_->num_bytes() == file_.size && answer.ok()) return check();
  if (blob_->num_bytes() > bytes_best_) retry_.reset();
  // The range is beyond the server's file: the partial file is of other content.
  const bool bad_range = answer.transport == Transport::kOk && answer.status == 416;
  // A signed URL may have expired; the next attempt gets a new one.
  const bool denied_elsewhere = answer.transport == Transport::kOk && answer.status == 403 &&
                                answer.origin != context_.client.hub().origin;
  const bool cut = answer.ok() || bad_range;  // ended without an error, but too early
  const std::int64_t num_bytes = blob_->num_bytes();
  if (bad_range) blob_->restart();
  if ((cut || denied_elsewhere || is_transient(answer)) &&
      retry_.again(now, answer.retry_after_s)) {
    log::debug("hub: " + file_.name + " of " + context_.repo + " at " + file_size_text(num_bytes) +
               " of " + file_size_text(file_.size) + ": trying again (HTTP " +
               std::to_string(answer.status) + " " + answer.detail + ")");
    phase_ = Phase::kPause;
    return State::kWaiting;
  }
  if (cut) {
    return Error{
        ErrorCode::kUnavailable,
        file_.name + " of '" + context_.repo + "' ends after " + std::to_string(num_bytes) +
            " of " + std::to_string(file_.size) +
            " bytes, again and again: try again later, or check HF_ENDPOINT and the proxy"};
  }
  return explain(answer, context_.subject(file_.name), context_.client.hub());
}

Result<Job::State> FetchJob::check() {
  if (blob_->is_right()) {
    if (auto committed = blob_->commit(); !committed) return committed.error();
    return link();
  }
  if (checked_once_) {
    blob_->drop();
    return Error{
        ErrorCode::kUnavailable,
        file_.name + " of '" + context_.repo + "' does not have the hash that the hub says (" +
            file_.etag +
            "), twice: it was dropped; check HF_ENDPOINT and the proxy, or try again later"};
  }
  // The bytes of an earlier attempt may be wrong: once more, from the start.
  if (auto restarted = blob_->restart_in_own_file(); !restarted) return restarted.error();
  checked_once_ = true;
  bytes_done_ = 0;
  phase_ = Phase::kStart;
  return State::kBusy;
}

Result<Job::State> FetchJob::link() {
  if (auto linked = context_.folder.link(context_.commit, file_.name, file_.etag); !linked) {
    return linked.error();
  }
  bytes_done_ = file_.size;
  lock_.release();
  return State::kFinished;
}

}  // namespace lmtp::hub
