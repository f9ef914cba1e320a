// ControlledStreams: the streams of an engine that AICI controllers decide on, token by token.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "inbox.h"
#include "lmtp/aici/instance.h"
#include "lmtp/aici/runtime.h"
#include "lmtp/base/ids.h"
#include "lmtp/base/result.h"
#include "lmtp/request/event.h"
#include "lmtp/scheduler/scheduler.h"

namespace lmtp::engine {

// The way of a controlled stream: the scheduler holds it until the controller has answered
// advance(); then it is planned, and the controller says by choose() what may be drawn while the
// forward pass runs; the commit holds it again. So it joins a step only once its decision is there,
// and no other stream waits for it. Its last token is kept back until the answer, which may be that
// it was the last.
// Owner: an Engine; its thread.
class ControlledStreams {
 public:
  // What it asks of the engine.
  class Host {
   public:
    virtual ~Host() = default;
    // For so many streams more beside that one, or none; the error says what is full. For each
    // that is taken begin_fork() follows, or leave_room().
    virtual Result<void> take_room(const StreamKey& parent, std::size_t count) = 0;
    virtual void leave_room(const StreamKey& parent, std::size_t count) = 0;
    virtual void give(const StreamKey& key, StreamEvent event) = 0;
    // End the stream, by its last event or by an error. Where they throw, no end was told.
    virtual void finish(const StreamKey& key, TokenEvent last) = 0;
    virtual void end(const StreamKey& key, const Error& error) = 0;
    // The scheduler has forked the stream; it is to be known under this key.
    virtual void begin_fork(const StreamKey& parent, const StreamKey& child,
                            const ForkBegun& begun) = 0;
  };

  ControlledStreams(Host& host, std::shared_ptr<EngineInstance::Inbox> inbox, int vocab_size)
      : host_(host), inbox_(std::move(inbox)), vocab_size_(vocab_size) {}
  ~ControlledStreams();
  ControlledStreams(const ControlledStreams&) = delete;
  ControlledStreams& operator=(const ControlledStreams&) = delete;

  bool contains(const StreamKey& key) const { return streams_.contains(key); }
  // Gives the sequence its source of masks. It is to be held once it is added.
  void begin(scheduler::Sequence& sequence, aici::Instance& instance);
  // Once it has been added.
  void start(const StreamKey& key, scheduler::Scheduler& scheduler);

  // A token of a stream: true where it is kept until the controller has answered.
  bool keep(const StreamKey& key, TokenEvent& event);
  // A step is committed.
  void committed() { has_choices_ = !streams_.empty(); }
  // Whether a step has held streams since the last take_choices().
  bool has_choices() const { return has_choices_; }
  // Does what the controllers wanted of the streams that steps have held. REQUIRES: no step is in
  // flight, as for apply().
  void take_choices(scheduler::Scheduler& scheduler);
  void apply(ControllerAnswer& answer, scheduler::Scheduler& scheduler);
  // The streams of that one's request, itself and forks.
  std::vector<StreamKey> family(const StreamKey& key) const;
  // The stream has ended.
  void forget(const StreamKey& key) noexcept;

 private:
  class Source;
  struct Controlled {
    std::shared_ptr<aici::Runtime> runtime;
    aici::Sequence id = 0;
    std::shared_ptr<const Source> source;
    std::shared_ptr<int> num_samples;     // of the request, forks that have ended included
    std::optional<TokenEvent> held = {};  // its last token
    bool is_answering = false;            // advance() is under way
    std::optional<TokenId> drawn = {};    // in the step at hand
    std::int64_t num_choices = 0;
  };

  void advance(const StreamKey& key, Controlled& stream, aici::Report report);
  void take_choice(const StreamKey& key, Controlled& stream, scheduler::Scheduler& scheduler);
  void take_branch(const StreamKey& key, Controlled& stream, const aici::Branch& branch,
                   scheduler::Scheduler& scheduler);
  std::optional<Error> put(const StreamKey& key, Controlled& stream, int num_dropped,
                           std::vector<TokenId> tokens, scheduler::Scheduler& scheduler);
  std::optional<Error> fork(const StreamKey& key, std::size_t count,
                            scheduler::Scheduler& scheduler, std::vector<StreamKey>& children);
  void go_on(const StreamKey& key, Controlled& stream, int num_forks,
             scheduler::Scheduler& scheduler);
  void give_held(const StreamKey& key, Controlled& stream);
  void stop(const StreamKey& key, Controlled& stream, scheduler::Scheduler& scheduler);
  void fail(const StreamKey& key, Controlled& stream, const std::string& why);
  void give_log(const StreamKey& key, aici::CallLog& log);

  Host& host_;
  const std::shared_ptr<EngineInstance::Inbox> inbox_;
  const int vocab_size_;
  bool has_choices_ = false;
  std::unordered_map<StreamKey, Controlled, StreamKeyHash> streams_;
};

}  // namespace lmtp::engine
