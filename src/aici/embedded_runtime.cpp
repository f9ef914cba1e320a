#include "lmtp/aici/embedded_runtime.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "guest.h"
#include "live_request.h"
#include "lmtp/base/guarded.h"
#include "lmtp/base/text.h"
#include "lmtp/base/turn_worker.h"
#include "module_store.h"
#include "strands.h"

namespace lmtp::aici {

namespace {

// Lists, tags and modules that wait, in all and of one share; and the bytes of uploads.
constexpr std::size_t kSideJobsMax = 64;
constexpr std::size_t kSideJobsOfOneMax = 48;
constexpr std::size_t kUploadBytesMax = std::size_t{256} << 20;

Error stopping() { return {ErrorCode::kStopping, "controller: the server shuts down"}; }

class EmbeddedRuntime : public Runtime {
 public:
  EmbeddedRuntime(std::shared_ptr<const World> world, const EmbeddedOptions& options)
      : world_(std::move(world)),
        store_(world_->engine, options.cache_folder, options.limits.compile_time),
        strands_(std::make_unique<Strands>(options.num_threads)),
        side_(kSideJobsMax, kSideJobsOfOneMax) {
    side_.start();
  }

  ~EmbeddedRuntime() override {
    stops_ = true;
    for (const TurnWorker::Job& dropped : side_.stop()) dropped();  // each is answered
    {
      const std::lock_guard lock(mutex_);
      for (const auto& entry : sequences_) {
        strands_->post(entry.second->strand(), [request = entry.second] { request->stop(); });
      }
    }
    strands_.reset();
  }

  void upload(std::string wasm, Auth auth, Done<Result<ModuleInfo>> done) override {
    const std::size_t num_bytes = wasm.size();
    if (num_upload_bytes_.fetch_add(num_bytes) + num_bytes > kUploadBytesMax) {
      num_upload_bytes_ -= num_bytes;
      done(Error{ErrorCode::kOverloaded, "controller: others are being uploaded; allowed are " +
                                             std::to_string(kUploadBytesMax >> 20) +
                                             " MiB at a time; try again later"});
      return;
    }
    const std::shared_ptr<void> counted(
        nullptr, [this, num_bytes](void*) { num_upload_bytes_ -= num_bytes; });
    side<ModuleInfo>(auth.share, std::move(done),
                     [this, counted, wasm = std::move(wasm)] { return store_.upload(wasm); });
  }

  void set_tags(std::string module_id, std::vector<std::string> tags, Auth auth,
                Done<Result<std::vector<TagInfo>>> done) override {
    side<std::vector<TagInfo>>(auth.share, std::move(done),
                               [this, module_id = std::move(module_id), tags = std::move(tags),
                                auth] { return store_.set_tags(module_id, tags, auth); });
  }

  void remove_tags(std::vector<std::string> tags, Auth auth,
                   Done<Result<std::vector<TagInfo>>> done) override {
    side<std::vector<TagInfo>>(auth.share, std::move(done), [this, tags = std::move(tags), auth] {
      return store_.remove_tags(tags, auth);
    });
  }

  void get_tags(Auth auth, Done<Result<std::vector<TagInfo>>> done) override {
    side<std::vector<TagInfo>>(auth.share, std::move(done),
                               [this, auth] { return store_.get_tags(auth); });
  }

  void instantiate(InstantiateRequest request, Done<Result<Instantiated>> done) override {
    const ConnectionId share = request.auth.share;
    Result<std::shared_ptr<LiveRequest>> live = add_request(request.request_id, share);
    if (!live) {
      done(live.error());
      return;
    }
    // What is loaded does not wait for what is to be compiled.
    if (Module module = store_.find_loaded(request.controller)) {
      return begin(*live, std::move(module), std::move(request), std::move(done));
    }
    const std::string controller = request.controller;
    side<Module>(
        share,
        [this, live = *live, request = std::move(request),
         done = std::move(done)](Result<Module> module) mutable {
          if (module) return begin(live, std::move(*module), std::move(request), std::move(done));
          remove_request(request.request_id);
          done(module.error());
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
      request = found->second;
    }
    strands_->post(request->strand(), [request, sequence] { request->free(sequence); });
    const std::lock_guard lock(mutex_);  // once nothing fails any more
    sequences_.erase(sequence);
  }

 private:
  static constexpr const char* kUnknown = "controller: no such sequence";

  using Module = std::shared_ptr<const wasm::Module>;

  // The request's own calls begin.
  void begin(const std::shared_ptr<LiveRequest>& live, Module module, InstantiateRequest request,
             Done<Result<Instantiated>> done) {
    strands_->post(live->strand(), [this, live, module = std::move(module),
                                    request = std::move(request), done = std::move(done)] {
      Result<Instantiated> started = stops_ ? stopping() : live->start(module, request);
      if (!started) remove_request(request.request_id);
      done(std::move(started));
    });
  }

  // Calls done(job()) on the thread for what takes long.
  template <typename T>
  void side(ConnectionId share, Done<Result<T>> done, std::function<Result<T>()> job) {
    const auto told = std::make_shared<Done<Result<T>>>(std::move(done));
    if (side_.submit(share, [this, told, job = std::move(job)] {
          (*told)(stops_ ? Result<T>(stopping()) : guarded(job));
        })) {
      return;
    }
    if (stops_) return (*told)(stopping());
    (*told)(Error{ErrorCode::kOverloaded,
                  "controller: too many others are being loaded; try again later"});
  }

  // One share leaves places to others.
  Result<void> count_request(ConnectionId share) {
    const std::lock_guard lock(mutex_);
    const int all = world_->limits.requests_max;
    const int of_one = std::max(1, all - all / 4);
    int& num_own = num_requests_of_[share];
    if (num_requests_ >= all || num_own >= of_one) {
      const int num = num_requests_ >= all ? all : of_one;
      if (num_own == 0) num_requests_of_.erase(share);
      return Error{ErrorCode::kOverloaded,
                   "controller: " + std::to_string(num) + " requests have one; try again later"};
    }
    ++num_requests_;
    ++num_own;
    return {};
  }
  void uncount_request(ConnectionId share) {
    const std::lock_guard lock(mutex_);
    --num_requests_;
    if (--num_requests_of_[share] == 0) num_requests_of_.erase(share);
  }

  Result<std::shared_ptr<LiveRequest>> add_request(const std::string& id, ConnectionId share) {
    if (const Result<void> counted = count_request(share); !counted) return counted.error();
    std::shared_ptr<LiveRequest> live(new LiveRequest(*strands_, share, world_),
                                      [this, share](LiveRequest* ended) {
                                        delete ended;
                                        uncount_request(share);
                                      });
    std::unique_lock lock(mutex_);
    if (!requests_.emplace(id, live).second) {
      lock.unlock();  // its end takes it
      return Error{ErrorCode::kInvalid, "request_id: " + quoted_name(id) + " is there already"};
    }
    return live;
  }

  void remove_request(const std::string& id) {
    std::shared_ptr<LiveRequest> ended;  // outlives the lock, which its end takes
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
  std::atomic<std::size_t> num_upload_bytes_ = 0;  // of what waits, and is compiled
  std::mutex mutex_;                               // guards what follows, but the threads
  int num_requests_ = 0;
  std::map<ConnectionId, int> num_requests_of_;                   // by their shares
  std::map<std::string, std::shared_ptr<LiveRequest>> requests_;  // not bound yet
  std::map<Sequence, std::shared_ptr<LiveRequest>> sequences_;
  std::unique_ptr<Strands> strands_;  // calls of controllers
  TurnWorker side_;                   // modules and tags
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
