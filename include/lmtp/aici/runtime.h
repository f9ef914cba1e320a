// Runtime: runs AICI controllers, programs in WebAssembly that say token by token how a stream goes
// on. In this process (embedded_runtime.h), or behind the shared memory of an aicirt.
//
// The way of a request: instantiate() runs its controller up to the prompt; bind() makes it the
// first sequence; then, step by step,
//
//   advance(report of the last step) -> what goes before the next one: forced tokens, forks, a wait
//   choose()                         -> what may be drawn, while the forward pass runs
//
// and at last free(). Both dialects of controllers have this shape: A (pre_, mid_ and
// post_process) and C (mid_process alone, which decides on splices and forks). The caller asks in
// the same way and does what the answer says; it does not know which dialect a controller speaks.
//
// A controller that has failed answers every later call with its error; its sequence is still to be
// freed. So is one that has stopped.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lmtp/base/ids.h"
#include "lmtp/base/result.h"

namespace lmtp::aici {

// A sequence of tokens under a controller: 1, 2, 3 ... as the caller counts them for a Runtime;
// never 0, never reused. A request has several where its controller forks.
using Sequence = std::uint32_t;

// Who asks. Tags of one who is no admin are "USER.NAME", with no dot in NAME: what stands before
// the last dot says whose they are, be there dots in the names of users too.
struct Auth {
  std::string user = "localhost";
  bool is_admin = false;
  ConnectionId share = 0;  // whose turn its jobs take: share_of()
};

// A controller that was uploaded.
struct ModuleInfo {
  std::string module_id;  // SHA-256 of the Wasm, in hex
  std::int64_t wasm_size = 0;
  std::int64_t compiled_size = 0;
  std::int64_t compile_ms = 0;
};

// A name for one.
struct TagInfo {
  std::string tag;
  std::string module_id;
  std::int64_t updated_at = 0;  // seconds since 1970
  std::string updated_by;
  std::int64_t wasm_size = 0;
  std::int64_t compiled_size = 0;
  std::string owner = {};  // who has made it; empty: updated_by
};

inline const std::string& owner_of(const TagInfo& tag) {
  return tag.owner.empty() ? tag.updated_by : tag.owner;
}
// Whether it may be told of: a tag that begins with its owner's name is the owner's and admins'.
inline bool may_see(const Auth& auth, const TagInfo& tag) {
  return auth.is_admin || owner_of(tag) == auth.user || !tag.tag.starts_with(owner_of(tag) + ".");
}

// A variable that a controller has written. All sequences of a request share its variables.
struct VariableWrite {
  enum class Op { kSet, kAppend };

  std::string name;
  std::string value;  // bytes
  Op op = Op::kSet;
  std::optional<std::int64_t> when_version_is = {};  // it was to be written only then
};

// What a call leaves for the request's client, whatever its outcome.
struct CallLog {
  std::string logs;  // UTF-8
  std::vector<VariableWrite> storage;
  std::int64_t micros = 0;  // that the controller ran
};

struct InstantiateRequest {
  std::string request_id;  // of the caller's choice; unique among the Runtime's live requests
  std::vector<TokenId> prompt;
  std::string controller;  // a tag, or a module_id
  std::string arg;         // for the controller, as it is
  Auth auth = {};
};

struct Instantiated {
  std::optional<std::vector<TokenId>> prompt = {};  // in place of the request's
  std::vector<TokenId> appended = {};               // behind the prompt; no report names them
  CallLog log = {};
};

// What became of a sequence since its last advance(). Its tokens were cut by num_dropped, and then
// `appended` came behind them: the token that was drawn, where it stays, and those of the splice.
struct Report {
  std::optional<TokenId> sampled = {};  // what was drawn, whether it stays or not
  int num_dropped = 0;
  std::vector<TokenId> appended = {};
};

struct Advance {
  enum class Kind {
    kGoOn,     // choose() is next, of this sequence and its forks
    kSuspend,  // it waits for others of its request: advance() is next, at once, with no report
    kStop,     // the controller has ended it
    kFail,     // the same, by `error`
  };

  Kind kind = Kind::kGoOn;
  std::vector<TokenId> appended = {};  // kGoOn, kSuspend: put these behind the sequence; no report
                                       // names them
  int num_forks = 1;                   // kGoOn: of so many is the sequence to be one; see fork()
  std::string error = {};
  CallLog log = {};
};

// What a sequence does in place of, or after, the draw of a token.
struct Splice {
  std::vector<TokenId> when_sampled = {};  // empty: whatever was drawn
  bool keeps_sampled = false;              // the token that was drawn stays; num_dropped is 0 then
  int num_dropped = 0;                     // tokens of the sequence, the drawn one not counted
  std::vector<TokenId> appended = {};
};

// One way on. Where nothing is drawn there is exactly one splice. Else the first splice that fits
// the token that was drawn is done; where none does, the token is appended.
struct Branch {
  bool samples = true;
  // Empty: any token. Else token i may be drawn if bit i % 32 of word i / 32 is set; some bit is
  // set, and none beyond the vocabulary.
  std::vector<std::uint32_t> mask = {};
  std::optional<float> temperature = {};
  std::vector<Splice> splices = {};
};

struct Choice {
  enum class Kind {
    kBranches,
    kSuspend,  // as Advance::kSuspend; the forward pass was for nothing
    kStop,
    kFail,
  };

  Kind kind = Kind::kBranches;
  // At least one of kBranches. The sequence goes on by the first; for each other one fork() makes a
  // sequence, from the tokens before the first was done and with the same logits.
  std::vector<Branch> branches = {};
  std::string error = {};
  CallLog log = {};
};

// Owner: a model. Any thread. No call waits: the answer comes by `done`, called once, on a thread
// of the runtime that it must not block, perhaps before the call returns. `done` may call the
// Runtime. Answers of different sequences come in any order.
//
// REQUIRES, of the calls of a sequence: one after the other, free() excepted.
class Runtime {
 public:
  // Answers what is still under way with errors, and waits for it.
  virtual ~Runtime() = default;

  // A number that no sequence has had.
  Sequence new_sequence() { return ++last_sequence_; }

  template <typename T>
  using Done = std::function<void(T)>;

  // Errors: kInvalid "controller: ..." for a binary that is none or too long; others where the
  // runtime is at fault. The same binary again is no error.
  virtual void upload(std::string wasm, Auth auth, Done<Result<ModuleInfo>> done) = 0;
  // Gives the tags that were set.
  virtual void set_tags(std::string module_id, std::vector<std::string> tags, Auth auth,
                        Done<Result<std::vector<TagInfo>>> done) = 0;
  // Gives those that were removed. Errors: kInvalid for one that is not the caller's, and then none
  // is removed; the same where the runtime cannot remove any.
  virtual void remove_tags(std::vector<std::string> tags, Auth auth,
                           Done<Result<std::vector<TagInfo>>> done);
  // The newest first; those that `auth` may not see as well, where the runtime does not know it.
  virtual void get_tags(Auth auth, Done<Result<std::vector<TagInfo>>> done) = 0;

  // Errors: kNotFound "controller: ..." where no such module is; kInvalid "controller: ..." with
  // the controller's logs where it fails. After an error there is nothing to bind or to discard.
  virtual void instantiate(InstantiateRequest request, Done<Result<Instantiated>> done) = 0;
  // The request's controller becomes that of `sequence`. An unknown request is the error of the
  // sequence's calls. REQUIRES: instantiate() has given its value.
  virtual void bind(const std::string& request_id, Sequence sequence) = 0;
  // Its client has gone, before bind(). May come while instantiate() is under way, which is
  // answered all the same.
  virtual void discard(const std::string& request_id) = 0;

  // The first report of a sequence is empty, but for one that a Choice has forked. After kSuspend
  // the answer comes when the sequence goes on, stops, fails or has logged something; where all
  // sequences of a request wait for each other it fails, with the error kDeadlock.
  virtual void advance(Sequence sequence, Report report, Done<Advance> done) = 0;

  // fork_group: the sequence and its forks, in order, where fork() was called since the last
  // choose(); else the sequence alone. All members of a group are asked, with the same group: the
  // runtime may hold back their answers until they are.
  virtual void choose(Sequence sequence, std::vector<Sequence> fork_group, Done<Choice> done) = 0;

  // Makes `children` of the parent, which share its request and variables: after an Advance with
  // num_forks n, n - 1, before choose(), which is the next call of parent and children; after a
  // Choice with n branches, n - 1 as well, of which child i does branch i + 1, before the next
  // advance(), in which parent and children report what each did. Where it cannot be done (too many
  // forks, a module that cannot be copied) the next answer of each child is kFail.
  virtual void fork(Sequence parent, std::vector<Sequence> children) = 0;

  // Its last call, at any time. A call under way is answered all the same.
  virtual void free(Sequence sequence) = 0;

 private:
  std::atomic<Sequence> last_sequence_ = 0;
};

// NOLINTBEGIN(performance-unnecessary-value-param): what overrides it moves them
inline void Runtime::remove_tags(std::vector<std::string> /*tags*/, Auth /*auth*/,
                                 Done<Result<std::vector<TagInfo>>> done) {
  done(Error{ErrorCode::kInvalid,
             "tags: this runtime removes none; allowed is to set them to another module"});
}
// NOLINTEND(performance-unnecessary-value-param)

inline constexpr const char* kDeadlock = "deadlock";

}  // namespace lmtp::aici
