#include "client.h"

#include <algorithm>
#include <utility>

namespace lmtp::simulation {
namespace {

using std::chrono::microseconds;

constexpr microseconds kMs{1000};
constexpr microseconds kSecond{1'000'000};
// While faults are on: how long a stream may hear nothing.
constexpr microseconds kSilenceMax = 300 * kSecond;
// And once there are none any more.
constexpr microseconds kHealedMax = 120 * kSecond;
// How long a stream may go on that was cancelled, or is beyond its timeout.
constexpr microseconds kEndMax = 30 * kSecond;
// Steps of the model in which a stream gets nothing; and a connection, for all of its streams.
constexpr std::int64_t kStepsMax = 8'000;
constexpr std::int64_t kStepsOfAllMax = 1'000;
constexpr std::size_t kLiveMax = 12;
constexpr std::size_t kLiveFewMax = 3;  // where there are few places

}  // namespace

Client::Client(World& world, int number)
    : world_(world),
      name_("client-" + std::to_string(number)),
      is_newcomer_(world.features.newcomers &&
                   (world.features.few_places ? number % 4 != 0 : number % 2 == 1)),
      random_(world.options.seed * 1000 + static_cast<std::uint64_t>(number) + 1) {
  // The same for all clients, so that they share blocks.
  Random shared(world.options.seed ^ 0x50F1);
  for (int i = 0; i < 4; ++i) {
    std::vector<TokenId> prefix(static_cast<std::size_t>(shared.between(1, 120)));
    // The first is a text.
    for (TokenId& id : prefix) {
      id = i == 0 ? shared.between('a', 'z') : shared.below(testing::kFakeVocabSize);
    }
    prefixes_.push_back(std::move(prefix));
  }
}

void Client::run(const std::function<void()>& done) {
  connect();
  const bool is_of_crowd = is_newcomer_ && world_.features.few_places;
  for (int left = random_.between(20, 120) * (is_of_crowd ? 4 : 1); left > 0; --left) {
    const std::int64_t until = world_.options.until_us;
    if (until > 0 && world_.simulator.now_us() >= until) break;
    act();
    const bool is_long = random_.one_in(10);
    listen(is_long ? microseconds(random_.below(400'000)) : microseconds(random_.below(20'000)));
  }
  done();
  while (!world_.is_healed()) {
    mend();
    listen(50 * kMs);
  }
  const Clock::time_point due = world_.simulator.now() + kHealedMax;
  while (!live_.empty() || awaited_refusal()) {
    if (world_.simulator.now() > due) {
      if (!world_.checks("time")) break;
      if (live_.empty()) {
        fail("an edit of stream " + std::to_string(*awaited_refusal()) +
             " is neither done nor refused");
      }
      fail("stream " + std::to_string(live_.begin()->first) + " does not end");
    }
    mend();
    listen(50 * kMs);
  }
  close();
}

// Who does not read loses the connection, and makes another one.
bool Client::mend() {
  if (!*connection_.has_ended) return false;
  if (!world_.features.stalls) fail("the session ended by itself");
  disconnect();
  return true;
}

void Client::act() {
  if (mend()) return;
  if (is_newcomer_) {
    if (!live_.empty()) return;
    disconnect();
    return generate();
  }
  const Features& on = world_.features;
  const int what = random_.below(100);
  if (what < 8 && on.cancel) return cancel();
  if (what < 16 && on.fork) return fork();
  if (what < 24 && on.backtrack) return backtrack();
  if (what < 28 && on.buffers) return set_buffer();
  if (what < 34 && on.questions) return ask();
  if (what < 36 && on.disconnects) return disconnect();
  if (what < 38 && on.stalls) return stall();
  if (live_.size() >= (on.few_places ? kLiveFewMax : kLiveMax)) return;
  if (what < 52 && on.score) return score();
  if (what < 58 && on.candidates) return score_candidates();
  if (what < 62 && on.decide) return decide();
  if (what < 68 && on.controllers) return run_controller();
  generate();
}

void Client::connect() {
  PipeFaults faults{.fragments = world_.features.fragments, .delays = world_.features.delays};
  if (world_.features.stalls) faults.capacity = 4096;
  connection_ = {};
  connection_.pipe = std::make_shared<Pipe>(world_.simulator, random_.bits(), faults);
  server::LineOptions options;
  options.end_timeout = std::chrono::hours(1);
  options.on_end = [has_ended = connection_.has_ended](const Result<void>&) { *has_ended = true; };
  connection_.session =
      std::make_unique<server::LineSession>(*world_.context, std::move(options), connection_.pipe);
  connection_.session->start();
  buffers_.clear();
  spent_.clear();
  failed_.clear();
  edits_.clear();
  wrong_edits_.clear();
  doubtful_.clear();
  world_.log(name_, "connects");
}

// What ran is asked for again, by an exact retry.
void Client::disconnect() {
  world_.log(name_, "is cut off");
  ++world_.counts.num_faults;
  connection_.pipe->reset();
  connection_.session->stop(world_.simulator.now());
  connection_.session.reset();
  connect();
  retry_all();
}

void Client::close() {
  const Clock::time_point due = world_.simulator.now() + 60 * kSecond;
  connection_.pipe->half_close();
  while (!*connection_.has_ended) {
    if (world_.simulator.now() > due && !world_.checks("time")) break;
    if (world_.simulator.now() > due) fail("the session does not end after its input");
    listen(20 * kMs);
  }
  connection_.session->stop(world_.simulator.now() + kSecond);
  connection_.session.reset();
  world_.log(name_, "closes");
}

void Client::retry_all() {
  std::map<StreamId, ClientStream> lost = std::exchange(live_, {});
  for (auto& [id, stream] : lost) {
    world_.demand.lose(world_.simulator.now(), stream.num_requests);
    ask_again(id, std::move(stream));
  }
}

// What has come meanwhile is still to be read, so the steps of this time tell nothing.
void Client::stall() {
  world_.simulator.pass(microseconds(random_.below(5'000'000)));
  got_at_step_ = world_.counts.num_steps;
  for (auto& [id, stream] : live_) stream.heard_at_step = got_at_step_;
}

void Client::listen(microseconds time) {
  const Clock::time_point until = world_.simulator.now() + time;
  do {
    const std::string bytes = connection_.pipe->receive(until);
    world_.counts.num_bytes += static_cast<std::int64_t>(bytes.size());
    connection_.received += bytes;
    std::size_t begin = 0;
    for (;;) {
      const std::size_t end = connection_.received.find('\n', begin);
      if (end == std::string::npos) break;
      receive(connection_.received.substr(begin, end - begin));
      begin = end + 1;
    }
    connection_.received.erase(0, begin);
    if (std::exchange(has_rest_, false) && !world_.is_healed() && random_.one_in(2)) edit_rest();
    if (const auto id = std::exchange(preempted_, std::nullopt)) edit_preempted(*id);
  } while (world_.simulator.now() < until && !*connection_.has_ended);
  if (*connection_.has_ended && world_.simulator.now() < until) {
    world_.simulator.pass(std::chrono::ceil<microseconds>(until - world_.simulator.now()));
  }
  check_bounds();
}

void Client::check_bounds() {
  if (*connection_.has_ended) return;
  const Clock::time_point now = world_.simulator.now();
  Counts& counts = world_.counts;
  const auto gets_tokens = [](const auto& one) {
    return one.second.kind == ClientStream::Kind::kGenerate ||
           one.second.kind == ClientStream::Kind::kScore;
  };
  if (std::ranges::none_of(live_, gets_tokens)) got_at_step_ = counts.num_steps;
  if (!world_.checks("time")) return;
  for (const auto& [id, stream] : live_) {
    const std::string name = "stream " + std::to_string(id);
    if (now - stream.heard > kSilenceMax) fail("nothing comes of " + name);
    if (stream.cancelled && now - *stream.cancelled > kEndMax) fail(name + " was cancelled");
    const auto due = stream.sent + kMs * stream.timeout_ms + kEndMax;
    const bool has_timeout = stream.timeout_ms > 0 && !(stream.is_of_first && stream.first_come);
    if (has_timeout && now > due) fail(name + " is beyond its timeout");
    if (world_.features.several_models || world_.features.lost_device) continue;
    const std::int64_t num_steps = counts.num_steps - stream.heard_at_step;
    const std::int64_t num_of_all = counts.num_steps - got_at_step_;
    counts.num_steps_waited = std::max(counts.num_steps_waited, num_steps);
    counts.num_steps_of_all = std::max(counts.num_steps_of_all, num_of_all);
    if (num_steps > kStepsMax || num_of_all > kStepsOfAllMax) fail(name + " is left behind");
  }
}

void Client::fail(const std::string& why, const Json& about) const {
  world_.fail(name_ + ": " + why + (about.is_null() ? "" : ": " + about.dump()));
}

}  // namespace lmtp::simulation
