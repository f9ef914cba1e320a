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
#include <utility>
#include <vector>

#include "lmtp/line_session.h"
#include "pipe.h"
#include "world.h"

namespace lmtp::simulation {

using Json = nlohmann::json;

// A BACKTRACK that may change a stream.
struct Edit {
  std::int64_t number = 0;  // of the client's messages
  std::size_t num_dropped = 0;
  std::vector<TokenId> appended;
  std::size_t num_known = 0;  // tokens that the stream had at least
};

// What a client has of one sequence.
struct Sample {
  std::vector<TokenId> tokens;    // the prompt's and those that came
  int num_prompt = 0;             // as the server has it, with what was resumed
  int num_resumed = 0;            // of these
  std::vector<TokenId> expected;  // that follow, the last first
  std::vector<std::string> text;  // that came with the tokens, where any does
  std::vector<TokenId> appended;  // by edits; some may have come
  std::size_t appended_at = 0;    // where the first of them is
  bool has_ended = false;
  Json script;         // of its controller, with the ways that it took; null: it has none
  int num_forked = 0;  // that the next fork of it has given

  int num_generated() const { return static_cast<int>(tokens.size()) - num_prompt; }
  // How many of the appended ones have not come.
  std::size_t num_to_come() const {
    const std::size_t end = appended_at + appended.size();
    return end > tokens.size() ? end - tokens.size() : 0;
  }
  TokenId next_appended() const { return appended.at(tokens.size() - appended_at); }
  void resize(std::size_t size);
  // How many of the tokens that came are gone by it.
  std::size_t apply(const Edit& edit);
};

// Where a stream's notices stand.
struct Notices {
  bool has_token = false;
  bool is_preempted = false;
  bool is_draining = false;
  std::int64_t line = 0;  // of the last one
};

struct ClientStream {
  enum class Kind { kGenerate, kScore, kCandidates, kDecide, kQuestion };

  Kind kind = Kind::kGenerate;
  std::string model;
  std::vector<Sample> samples;
  int max_tokens = 0;
  std::vector<TokenId> scored;                   // of a SCORE, those that have not come
  std::vector<std::vector<TokenId>> candidates;  // of kCandidates
  Json decision;                                 // of kDecide: the message's own fields
  std::vector<TokenId> forbidden;                // by bad_words; sorted
  std::vector<std::string> choices;              // of a grammar: what the text may be
  Json chat;                                     // the message's fields in the place of a prompt
  std::size_t num_chat = 0;                      // tokens of the chat's prompt
  bool calls = false;                            // the choices are calls, which it must make
  bool is_controlled = false;                    // by the scripts of its samples
  bool has_text = false;
  int num_requests = 0;  // that it is for the server, at most
  std::uint64_t seed = 0;
  Clock::time_point sent;
  bool is_early = false;    // no step had been taken then
  Clock::time_point heard;  // when it was last heard of
  std::int64_t heard_at_step = 0;
  std::optional<Clock::time_point> cancelled;
  int timeout_ms = 0;                           // 0: none
  bool is_of_first = false;                     // that is of the first token
  std::optional<Clock::time_point> first_come;  // its first entry
  std::vector<Notices> notices;                 // by sample; empty: it wants none
  bool is_accepted = false;                     // as the notice says, which forks have none of
  int progress = 0;                             // of loading
  std::string buffer;                           // that a question is about
  Json right;                // what its answer has to have, by JSON pointers; may be null
  bool asks_module = false;  // it is a CONTROLLER
  bool is_counted = false;   // of a question: where it is refused, the server counts it
  std::optional<Edit> edit;  // that no entry has answered
  bool is_doubtful = false;  // one of its edits was refused, and which is not known

  // A fork's, until its first entry:
  bool has_begun = true;
  StreamId fork_of = 0;
  std::int64_t fork_number = 0;  // of the FORK among the client's messages
  std::size_t num_least = 0;     // tokens that it begins with
  std::optional<Sample> parent;  // as the FORK found it, where it is another one by now

  // It is answered by one entry, of which the server computes rows.
  bool has_rows() const { return kind == Kind::kCandidates || kind == Kind::kDecide; }
  int num_generated_max(const Sample& sample) const {
    return std::min(max_tokens, testing::kFakeContext - sample.num_prompt);
  }
  bool is_running() const {
    return kind == Kind::kGenerate && has_begun && !cancelled && samples.size() == 1 &&
           !is_controlled;
  }
};

// A FORK or BACKTRACK that may still be refused.
struct Unanswered {
  enum class Kind { kBacktrack, kFork, kNothing };  // kNothing: a BACKTRACK of nothing

  std::int64_t number = 0;
  Kind kind = Kind::kNothing;
  bool must_be_refused = false;
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
  void check_bounds();

  // requests.cpp
  void generate();
  std::vector<TokenId> draw_chat(Json& message, ClientStream& stream);
  void run_controller();
  Json draw_script(int num_generated, int num_steps, int depth);
  void score();
  void score_candidates();
  void decide();
  void cancel();
  void set_buffer();
  void ask();
  void ask_text();
  void ask_module();
  void ask_again(StreamId id, ClientStream stream);
  StreamId add(ClientStream stream, std::optional<StreamId> again = {}, int num_ways = 1);
  Json prompt_of(const std::vector<TokenId>& tokens);
  void set_common(Json& message, ClientStream& stream);
  std::vector<TokenId> draw_prompt(int most);
  void send(const std::string& verb, const Json& message);

  // edits.cpp
  std::optional<StreamId> find_running(bool for_fork);
  static bool is_known_edit(const ClientStream& stream);
  void fork(std::optional<StreamId> of = {});
  void backtrack(std::optional<StreamId> of = {});
  void edit_rest();
  void edit_preempted(StreamId id);
  void edit_wrongly();
  void take_edit(StreamId id, ClientStream& stream, Sample& sample, const Json& entry);
  static void apply_unanswered(const ClientStream& parent, ClientStream& fork, Sample& sample);
  void begin_fork(StreamId id, ClientStream& stream, const Json& entry);
  void take_refusal(StreamId id, const Json& entry);
  void check_refusal(const ClientStream& stream, const Unanswered& edit, const Json& entry) const;
  void forget_edit(StreamId id, std::int64_t number);
  void leave_forks(StreamId id, const ClientStream& stream, const Json& entry);
  std::optional<StreamId> awaited_refusal() const;

  // answers.cpp
  void receive(const std::string& line);
  void take_entry(const Json& entry);
  void take_message(const Json& entry);
  void hear(ClientStream& stream) const;
  void take_notice(ClientStream& stream, const Json& entry);
  void take_answer(StreamId id, const ClientStream& question, const Json& entry);
  void take_token(StreamId id, ClientStream& stream, const Json& entry);
  void take_controlled(StreamId id, ClientStream& stream, const Json& entry);
  void begin_sample(ClientStream& stream, const Json& entry);
  std::vector<TokenId> run_script(const ClientStream& stream, const Sample& sample) const;
  Sample& sample_of(ClientStream& stream, const Json& entry) const;
  void check_entry(StreamId id, ClientStream& stream, Sample& sample, const Json& entry);
  void take_decision(const ClientStream& stream, const Json& entry) const;
  void take_candidates(const ClientStream& stream, const Json& entry) const;
  void take_error(StreamId id, ClientStream& stream, const Json& entry);
  void check_cancelled(const ClientStream& stream, const Json& entry) const;
  void check_token(const ClientStream& stream, Sample& sample, const Json& entry) const;
  void check_end(const ClientStream& stream, const Sample& sample, const Json& entry) const;
  TokenId token_after(const ClientStream& stream, Sample& sample, const Json& entry) const;
  double logprob_after(const ClientStream& stream, const std::vector<TokenId>& tokens,
                       TokenId token) const;
  bool is_expected(const ClientStream& stream, const Json& entry) const;
  void end_sample(StreamId id, ClientStream& stream, Sample& sample, const Json& entry);
  void end(StreamId id, const Json& entry);
  [[noreturn]] void fail(const std::string& why, const Json& about = {}) const;

  // texts.cpp
  static std::string calls_text(const Json& entry);
  void check_text(const ClientStream& stream, const Sample& sample, const Json& entry) const;
  void check_calls(const ClientStream& stream, const Sample& sample, const std::string& text,
                   bool is_whole) const;
  void check_choice(const ClientStream& stream, const Sample& sample, const Json& entry) const;
  std::string bytes_of(const Sample& sample) const;

  World& world_;
  const std::string name_;
  const bool is_newcomer_;  // each of its streams comes by a connection of its own
  Random random_;
  Connection connection_;
  std::int64_t got_at_step_ = 0;       // a token, or when none of its streams gets any
  bool has_rest_ = false;              // an edit was just answered by a part of what it appends
  std::optional<StreamId> preempted_;  // which is to be edited now
  std::int64_t num_lines_ = 0;         // that have come
  std::int64_t num_sent_ = 0;          // messages
  std::map<StreamId, ClientStream> live_;
  std::map<StreamId, std::vector<Unanswered>> edits_;  // by the stream that they name
  std::map<StreamId, int> wrong_edits_;                // that must be refused
  std::int64_t num_appended_ = 0;                      // by all edits
  std::set<StreamId> doubtful_;                        // forks that may not be
  // Those that ended with an error of a model, which comes twice, of each sample.
  std::multiset<std::pair<StreamId, std::string>> failed_;
  std::set<StreamId> spent_;  // ids of which something may come after their end
  std::map<std::string, std::vector<TokenId>> buffers_;
  std::map<std::string, StreamId> latest_of_buffer_;
  std::vector<std::vector<TokenId>> prefixes_;  // that its prompts begin with
  StreamId next_id_ = 1;
};

}  // namespace lmtp::simulation
