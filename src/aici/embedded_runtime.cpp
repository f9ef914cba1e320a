#include "lmtp/aici/embedded_runtime.h"

#include <atomic>
#include <map>
#include <mutex>
#include <utility>

#include "guest.h"
#include "live_request.h"
#include "lmtp/base/guarded.h"
#include "lmtp/base/text.h"
#include "module_store.h"
#include "strands.h"

namespace lmtp::aici {

namespace {

constexpr int kSideJobsMax = 64;

Error stopping() { return {ErrorCode::kStopping, "controller: the server shuts down"}; }

class EmbeddedRuntime : public Runtime {
 public:
  EmbeddedRuntime(std::shared_ptr<const World> world, const EmbeddedOptions& options)
      : world_(std::move(world)),
        store_(world_->engine, options.cache_folder, options.limits.compile_time),
        strands_(std::make_unique<Strands>(options.num_threads)),
        side_(std::make_unique<Strands>(1)) {}

  ~EmbeddedRuntime() override {
    stops_ = true;
    side_.reset();
    {
      const std::lock_guard lock(mutex_);
      for (const auto& entry : sequences_) {
        strands_->post(entry.second->strand(), [request = entry.second] { request->stop(); });
      }
    }
    strands_.reset();
  }

  void upload(std::string wasm, Auth /*auth*/, Done<Result<ModuleInfo>> done) override {
    side<ModuleInfo>(std::move(done),
                     [this, wasm = std::move(wasm)] { return store_.upload(wasm); });
  }

  void set_tags(std::string module_id, std::vector<std::string> tags, Auth auth,
                Done<Result<std::vector<TagInfo>>> done) override {
    side<std::vector<TagInfo>>(std::move(done), [this, module_id = std::move(module_id),
                                                 tags = std::move(tags), auth = std::move(auth)] {
      return store_.set_tags(module_id, tags, auth);
    });
  }

  void remove_tags(std::vector<std::string> tags, Auth auth,
                   Done<Result<std::vector<TagInfo>>> done) override {
    side<std::vector<TagInfo>>(std::move(done),
                               [this, tags = std::move(tags), auth = std::move(auth)] {
                                 return store_.remove_tags(tags, auth);
                               });
  }

  void get_tags(Auth auth, Done<Result<std::vector<TagInfo>>> done) override {
    side<std::vector<TagInfo>>(std::move(done),
                               [this, auth = std::move(auth)] { return store_.get_tags(auth); });
  }

  void instantiate(InstantiateRequest request, Done<Result<Instantiated>> done) override {
    const std::string id = request.request_id;
    Result<std::shared_ptr<LiveRequest>> live = add_request(id);
    if (!live) {
      done(live.error());
      return;
    }
    using Module = std::shared_ptr<const wasm::Module>;
    const std::string controller = request.controller;
    side<Module>(
        [this, id, live = *live, request = std::move(request),
         done = std::move(done)](Result<Module> module) mutable {
          if (!module) {
            remove_request(id);
            done(module.error());
            return;
          }
          strands_->post(live->strand(), [this, id, live, module = std::move(*module),
                                          request = std::move(request), done = std::move(done)] {
            Result<Instantiated> started = stops_ ? stopping() : live->start(module, request);
            if (!started) remove_request(id);
            done(std::move(started));
          });
        },
        [this, controller] { return store_.find(controller); });
  }

  void bind(const std::string& request_id, Sequence sequence) override {
    std::shared_ptr<LiveRequest> request;
    {
      const std::lock_guard lock(mutex_);
      const auto found = requests_.find(request_id);
      if (found == requests_.end()) return;  // its calls say that there is no such sequence
      request = std::move(found->second);
      requests_.erase(found);
      sequences_[sequence] = request;
    }
    strands_->post(request->strand(), [request, sequence] { request->bind(sequence); });
  }

  void discard(const std::string& request_id) override { remove_request(request_id); }

  void advance(Sequence sequence, Report report, Done<Advance> done) override {
    const std::shared_ptr<LiveRequest> request = find(sequence);
    if (request == nullptr) {
      done({.kind = Advance::Kind::kFail, .error = kUnknown});
      return;
    }
    strands_->post(request->strand(),
                   [this, request, sequence, report = std::move(report), done = std::move(done)] {
                     if (stops_) {
                       done({.kind = Advance::Kind::kFail, .error = stopping().message});
                     } else {
                       request->advance(sequence, report, done);
                     }
                   });
  }

  void choose(Sequence sequence, std::vector<Sequence> fork_group, Done<Choice> done) override {
    const std::shared_ptr<LiveRequest> request = find(sequence);
    if (request == nullptr) {
      done({.kind = Choice::Kind::kFail, .error = kUnknown});
      return;
    }
    strands_->post(request->strand(), [this, request, sequence, group = std::move(fork_group),
                                       done = std::move(done)] {
      if (stops_) {
        done({.kind = Choice::Kind::kFail, .error = stopping().message});
      } else {
        request->choose(sequence, group, done);
      }
    });
  }

  void fork(Sequence parent, std::vector<Sequence> children) override {
    const std::shared_ptr<LiveRequest> request = find(parent);
    if (request == nullptr) return;
    {
      const std::lock_guard lock(mutex_);
      for (const Sequence child : children) sequences_[child] = request;
    }
    strands_->post(request->strand(), [request, parent, children = std::move(children)] {
      request->fork(parent, children);
    });
  }

  void free(Sequence sequence) override {
    std::shared_ptr<LiveRequest> request;
    {
      const std::lock_guard lock(mutex_);
      const auto found = sequences_.find(sequence);
      if (found == sequences_.end()) return;
      request = std::move(found->second);
      sequences_.erase(found);
    }
    strands_->post(request->strand(), [request, sequence] { request->free(sequence); });
  }

 private:
  static constexpr const char* kUnknown = "controller: no such sequence";

  // Calls done(job()) on the thread for what takes long.
  template <typename T>
  void side(Done<Result<T>> done, std::function<Result<T>()> job) {
    if (stops_) {
      done(stopping());
      return;
    }
    if (num_side_jobs_.fetch_add(1) >= kSideJobsMax) {
      --num_side_jobs_;
      done(Error{ErrorCode::kOverloaded, "controller: " + std::to_string(kSideJobsMax) +
                                             " others are being loaded; try again later"});
      return;
    }
    side_->post(side_strand_, [this, done = std::move(done), job = std::move(job)] {
      Result<T> made = stops_ ? stopping() : guarded(job);
      --num_side_jobs_;
      done(std::move(made));
    });
  }

  Result<std::shared_ptr<LiveRequest>> add_request(const std::string& id) {
    if (num_requests_.fetch_add(1) >= world_->limits.requests_max) {
      --num_requests_;
      return Error{ErrorCode::kOverloaded,
                   "controller: " + std::to_string(world_->limits.requests_max) +
                       " requests have one; try again later"};
    }
    const std::shared_ptr<LiveRequest> live(new LiveRequest(*strands_, world_),
                                            [this](LiveRequest* ended) {
                                              delete ended;
                                              --num_requests_;
                                            });
    const std::lock_guard lock(mutex_);
    if (!requests_.emplace(id, live).second) {
      return Error{ErrorCode::kInvalid, "request_id: " + quoted_name(id) + " is there already"};
    }
    return live;
  }

  void remove_request(const std::string& id) {
    std::shared_ptr<LiveRequest> ended;
    const std::lock_guard lock(mutex_);
    const auto found = requests_.find(id);
    if (found == requests_.end()) return;
    ended = std::move(found->second);
    requests_.erase(found);
  }

  std::shared_ptr<LiveRequest> find(Sequence sequence) {
    const std::lock_guard lock(mutex_);
    const auto found = sequences_.find(sequence);
    return found == sequences_.end() ? nullptr : found->second;
  }

  const std::shared_ptr<const World> world_;
  ModuleStore store_;  // of the side thread
  std::atomic<bool> stops_ = false;
  std::atomic<int> num_side_jobs_ = 0;
  std::atomic<int> num_requests_ = 0;
  const std::shared_ptr<Strands::Strand> side_strand_ = std::make_shared<Strands::Strand>();
  std::mutex mutex_;                                              // guards these two
  std::map<std::string, std::shared_ptr<LiveRequest>> requests_;  // not bound yet
  std::map<Sequence, std::shared_ptr<LiveRequest>> sequences_;
  std::unique_ptr<Strands> strands_;  // calls of controllers
  std::unique_ptr<Strands> side_;     // modules
};

}  // namespace

Result<void> embedded_support() {
  const Result<std::shared_ptr<wasm::Engine>> engine = wasm::Engine::make();
  return engine ? Result<void>() : engine.error();
}

Result<std::unique_ptr<Runtime>> make_embedded_runtime(const EmbeddedOptions& options) {
  Result<std::shared_ptr<const World>> world = World::make(options);
  if (!world) return world.error();
  return std::unique_ptr<Runtime>(std::make_unique<EmbeddedRuntime>(std::move(*world), options));
}

}  // namespace lmtp::aici
