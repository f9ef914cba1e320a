// RemoteStream: a request that a worker runs, and what came of it. No sockets.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lmtp/base/result.h"
#include "lmtp/client/resumable.h"
#include "lmtp/engine/stream_record.h"
#include "lmtp/protocol/message.h"
#include "lmtp/request/request.h"

namespace lmtp::balance {

struct Lane;

// The wire's code as an Error's; what is unknown is kInternal.
ErrorCode code_of(const std::string& lmtp_code);
// Of an entry with an error, whose text clients get: no more than so many bytes of it. Sets
// no_model as StreamError has it.
inline constexpr std::size_t kWorkerErrorBytesMax = 1000;
StreamError error_of(const protocol::ServerEntry& entry, const StreamKey& key);

// Owner: the pool, under its lock.
class RemoteStream {
 public:
  using Clock = std::chrono::steady_clock;

  // `seed`: of a Generate that has none. The prompt goes into the message.
  RemoteStream(Request request, std::uint64_t seed);

  const Request& request() const { return request_; }
  const StreamKey& key() const { return request_.key; }
  // It waits for a worker and has no message.
  bool is_model_wait() const { return !resumable_; }

  // The message for what is still to come, under that id.
  protocol::ClientMessage ask(StreamId id);
  // Of what it will have computed at most: the prompt's tokens, and those to come.
  std::int64_t num_prompt() const { return num_prompt_; }
  std::int64_t num_to_come() const { return num_tokens_max_ - std::ssize(tokens_); }
  const std::vector<TokenId>& tokens() const { return tokens_; }
  std::vector<std::uint64_t> chain(int tokens_max) const;

  // The event of an entry of the stream that has a token or a finish_reason; an error where no
  // worker of this model can have sent it. Whether it has ended is in the event.
  Result<TokenEvent> take(protocol::ServerEntry& entry, int vocab_size);

  // What concerns its place; the pool's.
  engine::StreamRecord record;
  Lane* lane = nullptr;                 // null: it waits for one
  StreamId id = 0;                      // there
  std::int64_t num_counted = 0;         // tokens that its worker has it for
  std::optional<std::string> numerics;  // of the worker that what came is from
  std::vector<std::size_t> refused_by;  // workers, since it waited or something came
  bool was_lost = false;                // since it was last sent
  int failed_moves = 0;                 // lost workers since something came
  Clock::time_point deadline;           // while it waits

 private:
  Request request_;
  std::int64_t num_prompt_ = 0;
  std::int64_t num_tokens_max_ = 0;
  std::vector<TokenId> prompt_begin_;  // for chain()
  std::vector<TokenId> tokens_;        // that came
  std::optional<client::Resumable> resumable_;
};

}  // namespace lmtp::balance
