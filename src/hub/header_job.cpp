#include "header_job.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <utility>

#include "lmtp/base/little_endian.h"
#include "lmtp/base/text.h"

namespace lmtp::hub {
namespace {

// Enough for most files: one request each.
constexpr std::int64_t kFirstBytes = 64 << 10;
constexpr std::int64_t kLengthBytes = 8;

// The header's length by the first eight bytes (little endian), these included; at most the file's
// size.
std::int64_t bytes_needed(const std::string& bytes, std::int64_t file_size) {
  const std::uint64_t length = little_endian(std::string_view(bytes).substr(0, kLengthBytes));
  const auto rest = static_cast<std::uint64_t>(file_size - kLengthBytes);
  return kLengthBytes + static_cast<std::int64_t>(std::min(length, rest));
}

}  // namespace

Result<WeightHeader> read_header(const std::string& path, const std::string& name) {
  WeightHeader header{.file = name, .bytes = {}, .file_size = size_of(path)};
  std::ifstream file(path, std::ios::binary);
  const auto read = [&](std::int64_t end) {
    const auto begin = static_cast<std::int64_t>(header.bytes.size());
    header.bytes.resize(static_cast<std::size_t>(end));
    return static_cast<bool>(file.read(header.bytes.data() + begin, end - begin));
  };
  if (header.file_size >= 0 && read(std::min(kLengthBytes, header.file_size))) {
    if (header.file_size < kLengthBytes) return header;
    const std::int64_t needed = bytes_needed(header.bytes, header.file_size);
    if (needed <= kHeaderBytesMax && read(needed)) return header;
  }
  return Error{ErrorCode::kUnavailable, path + ": its header cannot be read"};
}

HeaderJob::HeaderJob(const DownloadContext& context, WeightHeader& header, std::int64_t& budget)
    : context_(context),
      header_(header),
      budget_(budget),
      wanted_(std::min(kFirstBytes, header.file_size)),
      exchange_(context.client),
      retry_(context.retry_pause) {}

Error HeaderJob::broken(const std::string& what) const {
  return Error{ErrorCode::kUnavailable, header_.file + " of '" + context_.repo + "': " + what};
}

Result<Job::State> HeaderJob::step(Clock::time_point now) {
  if (phase_ == Phase::kPause && now < retry_.at()) return State::kWaiting;
  if (phase_ != Phase::kTransfer) {
    start();
    return State::kWaiting;
  }
  if (exchange_.active()) return State::kWaiting;
  const auto num_bytes = static_cast<std::int64_t>(header_.bytes.size());
  if (num_bytes < wanted_) {
    const HttpAnswer& answer = exchange_.answer();
    if ((answer.ok() || is_transient(answer)) && retry_.again(now, answer.retry_after_s)) {
      phase_ = Phase::kPause;
      return State::kWaiting;
    }
    if (answer.ok() || answer.transport == Transport::kBodyStopped) {
      return broken("another part of it comes than was asked for: check the proxy");
    }
    return explain(answer, context_.subject(header_.file), context_.client.hub());
  }
  if (num_bytes < kLengthBytes) return State::kFinished;
  const std::int64_t needed = bytes_needed(header_.bytes, header_.file_size);
  if (needed > kHeaderBytesMax || needed > budget_) {
    return broken("not a safetensors file: its header claims " + file_size_text(needed));
  }
  header_.bytes.resize(static_cast<std::size_t>(std::min(num_bytes, needed)));
  if (num_bytes < needed) {
    wanted_ = needed;
    phase_ = Phase::kStart;
    return State::kBusy;
  }
  budget_ -= needed;
  return State::kFinished;
}

void HeaderJob::start() {
  HubRequest request;
  request.url = context_.url_of(header_.file);
  request.range_from = static_cast<std::int64_t>(header_.bytes.size());
  request.range_size = wanted_ - request.range_from;
  request.answer_timeout = context_.client.hub().stall_timeout;
  request.on_start = [this](const HttpAnswer& answer) { return on_start(answer); };
  request.on_body = [this](std::string_view piece) { return on_body(piece); };
  phase_ = Phase::kTransfer;
  exchange_.start(std::move(request));
}

bool HeaderJob::on_start(const HttpAnswer& answer) {
  // The server may send the whole file despite the requested range: take only what is wanted.
  if (answer.status == 200) header_.bytes.clear();
  return answer.status == 200 ||
         begins_at(answer.content_range, static_cast<std::int64_t>(header_.bytes.size()));
}

bool HeaderJob::on_body(std::string_view piece) {
  const std::size_t missing = static_cast<std::size_t>(wanted_) - header_.bytes.size();
  header_.bytes += piece.substr(0, missing);
  return piece.size() <= missing;
}

}  // namespace lmtp::hub
