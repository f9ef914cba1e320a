// Client: a program over one connection after another, and what it must be answered. It knows the
// protocol (docs/lmtp.md) and the law by which FakeAgent draws tokens, and nothing of the server.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lmtp/line_session.h"
#include "pipe.h"
#include "world.h"

namespace lmtp::simulation {

using Json = nlohmann::json;

// What a client has of one sequence.
struct Sample {
  std::vector<TokenId> tokens;    // the prompt's and those that came
  int num_prompt = 0;             // as the server has it, with what was resumed
  int num_resumed = 0;            // of these
  std::vector<TokenId> expected;  // that follow, the last first
  bool has_ended = false;

  int num_generated() const { return static_cast<int>(tokens.size()) - num_prompt; }
  void resize(std::size_t size) {
    tokens.resize(size);
    const int num_gone = std::max(num_prompt - static_cast<int>(size), 0);
    num_prompt -= num_gone;
    num_resumed = std::max(num_resumed - num_gone, 0);
    expected.clear();
  }
};

struct ClientStream {
  enum class Kind { kGenerate, kScore, kCandidates, kQuestion };

  Kind kind = Kind::kGenerate;
  std::string model;
  std::vector<Sample> samples;
  int max_tokens = 0;
  std::vector<TokenId> scored;                   // of a SCORE, those that have not come
  std::vector<std::vector<TokenId>> candidates;  // of kCandidates
  Clock::time_point heard;                       // when it was last heard of
  bool is_cancelled = false;
  bool has_timeout = false;
  bool wants_notices = false;
  bool has_begun = true;  // false: a fork of which nothing has come
  StreamId fork_of = 0;
  int num_unbegun = 0;            // forks of it
  bool is_edited = false;         // a BACKTRACK that no entry has answered
  std::string buffer;             // that a question is about
  std::vector<TokenId> appended;  // by it, those that have not come

  bool is_running() const {
    return kind == Kind::kGenerate && has_begun && !is_cancelled && samples.size() == 1;
  }
};

// Owner: World::run(). One thread of the simulation.
class Client {
 public:
  Client(World& world, int number);

  // Calls `done` when its program is over, and returns when all that it has begun has ended.
  void run(const std::function<void()>& done);

 private:
  struct Connection {
    std::shared_ptr<Pipe> pipe;
    std::unique_ptr<server::LineSession> session;
    std::shared_ptr<bool> has_ended = std::make_shared<bool>(false);
    std::string received;  // not yet a line
  };

  void act();
  void connect();
  void disconnect();
  bool mend();
  void close();
  void retry_all();
  void listen(std::chrono::microseconds time);
  void stall();
  void check_bounds() const;

  // requests.cpp
  void generate();
  void score();
  void score_candidates();
  void cancel();
  void fork();
  void backtrack();
  void set_buffer();
  void ask();
  void ask_again(StreamId id, ClientStream stream);
  StreamId add(ClientStream stream);
  Json prompt_of(const std::vector<TokenId>& tokens);
  void set_common(Json& message, ClientStream& stream);
  std::vector<TokenId> draw_prompt(int most);
  std::optional<StreamId> find_running();
  void send(const std::string& verb, const Json& message);

  // answers.cpp
  void receive(const std::string& line);
  void take_entry(const Json& entry);
  void take_message(const Json& entry);
  void take_answer(StreamId id, const ClientStream& question, const Json& entry);
  void take_token(StreamId id, ClientStream& stream, const Json& entry);
  void take_candidates(const ClientStream& stream, const Json& entry) const;
  void begin_fork(StreamId id, ClientStream& stream, const Json& entry);
  void take_edit(ClientStream& stream, Sample& sample, const Json& entry) const;
  void take_error(StreamId id, ClientStream& stream, const Json& entry);
  void check_token(const ClientStream& stream, Sample& sample, const Json& entry) const;
  void check_end(const ClientStream& stream, const Sample& sample, const Json& entry) const;
  bool is_expected(const ClientStream& stream, const std::string& code) const;
  void end_sample(StreamId id, ClientStream& stream, Sample& sample);
  void end(StreamId id);
  [[noreturn]] void fail(const std::string& why, const Json& about = {}) const;

  World& world_;
  const std::string name_;
  Random random_;
  Connection connection_;
  std::map<StreamId, ClientStream> live_;
  std::map<StreamId, Sample> ended_;        // parents whose forks have not begun
  std::map<StreamId, std::string> failed_;  // ended with an error of a model, which comes twice
  std::set<StreamId> spent_;                // ids of which something may come after their end
  std::map<std::string, std::vector<TokenId>> buffers_;
  std::map<std::string, StreamId> latest_of_buffer_;
  std::vector<std::vector<TokenId>> prefixes_;  // that its prompts begin with
  StreamId next_id_ = 1;
};

}  // namespace lmtp::simulation
