// One connection's part of a load: starts programs when they are due, sends their requests, and
// measures the answers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "lmtp/client/client.h"
#include "load_options.h"
#include "load_stats.h"
#include "request_text.h"
#include "schedule.h"

namespace lmtp::tools {

// Owner: the connection's thread. Arguments of the constructor must outlive it.
class LoadWorker {
 public:
  // `num_programs_max`: its share of the concurrency.
  LoadWorker(const LoadOptions& options, const RequestText& text, client::Client& client,
             Schedule& schedule, int num_programs_max)
      : options_(options),
        text_(text),
        client_(client),
        schedule_(schedule),
        num_programs_max_(static_cast<std::size_t>(num_programs_max)) {}

  // Runs until the schedule is empty and all requests are answered, its time has ended, or the
  // connection breaks. Does not busy-wait.
  LoadStats run();

 private:
  struct Running {
    std::uint64_t index = 0;
    std::unique_ptr<Program> program;
    std::vector<Answer> answers;  // of the step
    std::size_t num_open = 0;     // of them, not finished
    bool failed = false;
    Clock::time_point began;
  };
  struct Stream {
    Running* running = nullptr;
    std::size_t slot = 0;  // in its answers
    Clock::time_point sent;
    Clock::time_point first;  // its first message
    Clock::time_point last;   // its latest; `sent` before that
    int num_prompt_tokens = 0;
    int num_tokens = 0;
    int num_new = 0;  // in the current message
    bool score = false;
    bool failed = false;
    std::string outcome;  // not empty: it has ended, by this finish_reason or error
  };
  using StreamMap = std::unordered_map<StreamId, Stream>;

  // Each returns false if the load has ended on this connection, as recorded by fail_all.
  bool start_due();
  bool run_step(Running& running);
  bool receive();
  bool take_message(const client::ReceivedMessage& message);
  bool end_stream(StreamMap::iterator found, Clock::time_point arrived);

  int ms_to_wait() const;
  void take_entry(protocol::ServerEntry& entry);
  void take_stray(const protocol::ServerEntry& entry);
  void measure(Stream& stream, Clock::time_point arrived);
  void end_program(Running& running);
  void fail_all(const std::string& reason);
  void cut_off();
  void forget_streams();
  void record(const Stream& stream, const std::string& outcome, Clock::time_point now);

  const LoadOptions& options_;
  const RequestText& text_;
  client::Client& client_;
  Schedule& schedule_;
  const std::size_t num_programs_max_;

  std::optional<Schedule::Start> pending_;
  StreamId next_id_ = 1;
  std::unordered_map<std::uint64_t, Running> running_;  // by the program's number
  StreamMap streams_;
  std::unordered_set<StreamId> failed_ids_;  // a server may name an error twice
  std::vector<StreamId> touched_;            // by the current message
  Clock::time_point last_message_;           // its arrival, or when the wait for one began
  LoadStats stats_;
};

}  // namespace lmtp::tools
