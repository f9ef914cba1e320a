// LiveRequest: a request's sequences, their controllers and their variables.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "controller.h"
#include "lmtp/aici/runtime.h"
#include "strands.h"
#include "variables.h"

namespace lmtp::aici {

// Owner: an embedded runtime. All but the constructor runs on the request's strand, so that its
// sequences share variables, and are copied, without a lock.
class LiveRequest : public std::enable_shared_from_this<LiveRequest> {
 public:
  LiveRequest(Strands& strands, ConnectionId share, std::shared_ptr<const World> world)
      : strands_(strands),
        strand_(std::make_shared<Strands::Strand>(share)),
        world_(std::move(world)),
        variables_(world_->limits.variable_bytes) {}

  const std::shared_ptr<Strands::Strand>& strand() const { return strand_; }

  Result<Instantiated> start(const std::shared_ptr<const wasm::Module>& module,
                             InstantiateRequest request);
  void bind(Sequence sequence);
  void advance(Sequence sequence, const Report& report, const Runtime::Done<Advance>& done);
  void choose(Sequence sequence, const std::vector<Sequence>& fork_group,
              const Runtime::Done<Choice>& done);
  void fork(Sequence parent, const std::vector<Sequence>& children);
  void free(Sequence sequence);
  // Answers the sequences that wait.
  void stop();

 private:
  struct Live {
    std::unique_ptr<Controller> controller;  // null where it could not be made: see error
    std::string error;
    bool is_suspended = false;
    Runtime::Done<Advance> waiting;  // of an advance() that has no answer yet
  };

  Live* find(Sequence sequence);
  template <typename T>
  void check_forks(T& answer, int num_forks) const;
  void wait(Live& live, const Runtime::Done<Advance>& done);
  bool ask_again(Live& live);
  void ask_all_again();
  void on_time();
  void fail_waiting(const char* error);
  void on_variables();

  Strands& strands_;
  const std::shared_ptr<Strands::Strand> strand_;
  const std::shared_ptr<const World> world_;
  Variables variables_;               // outlive the controllers
  std::unique_ptr<Controller> root_;  // until it is bound
  std::map<Sequence, Live> live_;
  std::uint64_t num_writes_seen_ = 0;  // by those that wait
  int num_rounds_ = 0;                 // of asking while all wait and nothing changes
  bool is_timed_ = false;              // on_time() is to come
};

}  // namespace lmtp::aici
