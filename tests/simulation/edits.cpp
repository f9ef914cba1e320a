// FORK and BACKTRACK: what clients ask for, and what a stream must be by what they are answered.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "client.h"

namespace lmtp::simulation {

using Kind = Unanswered::Kind;

void Sample::resize(std::size_t size) {
  tokens.resize(size);
  text.resize(size);
  const int num_gone = std::max(num_prompt - static_cast<int>(size), 0);
  num_prompt -= num_gone;
  num_resumed = std::max(num_resumed - num_gone, 0);
  expected.clear();
}

// The last tokens are dropped first: those that are to come before those that came.
std::size_t Sample::apply(const Edit& edit) {
  const std::size_t num_ahead = num_to_come();
  const std::size_t num_gone = edit.num_dropped - std::min(edit.num_dropped, num_ahead);
  if (num_gone >= tokens.size()) return num_gone;  // which is wrong
  if (num_gone > 0 || edit.num_dropped == num_ahead) {
    resize(tokens.size() - num_gone);
    appended.clear();
    appended_at = tokens.size();
  } else {
    appended.resize(appended.size() - edit.num_dropped);
  }
  appended.insert(appended.end(), edit.appended.begin(), edit.appended.end());
  return num_gone;
}

// Whether it is known what its edit leaves of it.
bool Client::is_known_edit(const ClientStream& stream) {
  if (!stream.edit) return false;
  const Edit& edit = *stream.edit;
  return edit.appended.empty() && edit.num_dropped > 0 && edit.num_dropped < edit.num_known &&
         stream.samples.front().num_to_come() == 0;
}

// One of those that run, by draw. Who forks a stream that is being edited knows what the edit does.
std::optional<StreamId> Client::find_running(bool for_fork) {
  std::vector<StreamId> running;
  for (const auto& [id, stream] : live_) {
    if (!stream.is_running() || stream.is_doubtful) continue;
    if (stream.timeout_ms > 0 && edits_.contains(id)) continue;
    if (stream.edit && !(for_fork && is_known_edit(stream))) continue;
    running.push_back(id);
  }
  if (running.empty()) return std::nullopt;
  return running[static_cast<std::size_t>(random_.below(static_cast<int>(running.size())))];
}

void Client::fork(std::optional<StreamId> of) {
  if (!of) of = find_running(true);
  if (!of || live_.size() >= 20) return;
  std::vector<StreamId> ids;
  Json message{{"stream_id", *of}};
  int num_more = 0;
  if (random_.one_in(2)) {
    num_more = random_.below(20);
    message["params"] = {{"max_tokens", live_.at(*of).max_tokens + num_more}};
  }
  const int num = random_.between(1, 3);
  for (int i = 0; i < num; ++i) {
    const ClientStream& parent = live_.at(*of);
    ClientStream fork;
    fork.has_begun = false;
    fork.fork_of = *of;
    fork.fork_number = num_sent_ + 1;
    fork.num_least = parent.edit ? 0 : parent.samples.front().tokens.size();
    fork.model = parent.model;
    fork.forbidden = parent.forbidden;
    fork.choices = parent.choices;
    fork.chat = parent.chat;
    fork.num_chat = parent.num_chat;
    fork.calls = parent.calls;
    fork.has_text = parent.has_text;
    fork.max_tokens = parent.max_tokens + num_more;
    if (!parent.notices.empty()) {
      fork.notices.resize(1);
      fork.is_accepted = true;
    }
    fork.samples.resize(1);
    ids.push_back(add(std::move(fork)));
  }
  spent_.insert(*of);
  edits_[*of].push_back({num_sent_ + 1, Kind::kFork});
  message["streams"] = ids;
  send("FORK", message);
}

void Client::backtrack(std::optional<StreamId> of) {
  if (!of && random_.one_in(8)) return edit_wrongly();
  if (!of) of = find_running(false);
  if (!of) return;
  ClientStream& stream = live_.at(*of);
  const Sample& sample = stream.samples.front();
  Edit edit;
  edit.number = num_sent_ + 1;
  edit.num_known = sample.tokens.size() + sample.num_to_come();
  edit.num_dropped = static_cast<std::size_t>(random_.below(random_.one_in(3) ? 80 : 6));
  // More than a step takes, so that it may be edited before all of it has come.
  const int many = world_.features.small_chunks ? 3 : 10;
  int num = random_.one_in(many) ? random_.below(120) : random_.below(4);
  if (!stream.choices.empty()) num = 0;               // a grammar could forbid them
  if (stream.has_text && random_.one_in(2)) num = 0;  // a fork of it can be known
  // Those of two edits differ, so that none is taken for another one's.
  for (int i = 0; i < num; ++i) {
    edit.appended.push_back(static_cast<TokenId>(num_appended_++ % testing::kFakeVocabSize));
  }
  Json message{{"stream_id", *of}, {"drop", edit.num_dropped}};
  if (num > 0) message["append"] = edit.appended;
  const bool is_nothing = num == 0 && edit.num_dropped == 0;
  edits_[*of].push_back({edit.number, is_nothing ? Kind::kNothing : Kind::kBacktrack});
  if (!is_nothing) stream.edit = std::move(edit);
  spent_.insert(*of);
  send("BACKTRACK", message);
  // A fork of what the edit has left, before it is answered.
  if (!world_.features.fork || stream.timeout_ms > 0 || !random_.one_in(2)) return;
  if (is_known_edit(stream)) fork(of);
}

// What was appended comes in parts: an edit may drop some of it.
void Client::edit_rest() {
  for (const auto& [id, stream] : live_) {
    const bool is_edited = stream.edit || edits_.contains(id) || stream.is_doubtful;
    if (!stream.is_running() || is_edited || stream.samples.front().num_to_come() == 0) continue;
    return backtrack(id);
  }
}

void Client::edit_preempted(StreamId id) {
  const auto at = live_.find(id);
  if (world_.is_healed() || at == live_.end() || !at->second.is_running()) return;
  if (at->second.edit || at->second.is_doubtful || edits_.contains(id)) return;
  backtrack(id);
}

// What does not run as one stream of GENERATE can't be edited.
void Client::edit_wrongly() {
  StreamId id = next_id_;
  for (const auto& [of, stream] : live_) {
    const bool scores = stream.kind == ClientStream::Kind::kScore || stream.has_rows();
    if (scores || stream.samples.size() > 1) id = of;
  }
  if (id == next_id_) ++next_id_;
  spent_.insert(id);
  ++wrong_edits_[id];
  if (random_.one_in(2)) return send("BACKTRACK", {{"stream_id", id}, {"drop", 1}});
  send("FORK", {{"stream_id", id}, {"streams", {next_id_++}}});
}

// The first entry that the stream before the edit can't have is the edit's.
void Client::take_edit(StreamId id, ClientStream& stream, Sample& sample, const Json& entry) {
  const auto num_gone = entry.value("backtrack", std::size_t{0});
  const bool is_appended = entry.value("appended", false);
  const TokenId token = entry.at("token");
  // Without the oracle nothing is checked of what was edited.
  if (!world_.checks("edits") && stream.edit) stream.is_doubtful = true;
  if (stream.is_doubtful) return;
  const auto goes_on = [&] {
    if (sample.num_to_come() == 0) return !is_appended;
    return is_appended && token == sample.next_appended();
  };
  if (num_gone == 0 && goes_on()) return;
  if (!stream.edit) fail("nobody has edited this stream so", entry);
  Edit edit = *std::exchange(stream.edit, std::nullopt);
  // A grammar may know tokens ahead, which are dropped first and have not come.
  if (!stream.choices.empty()) edit.num_dropped = std::min(edit.num_dropped, num_gone);
  for (auto& [fork_id, fork] : live_) {
    const bool is_before = fork.fork_number < edit.number;
    if (fork.has_begun || fork.fork_of != id || fork.parent || !is_before) continue;
    fork.parent = sample;
  }
  if (sample.apply(edit) != num_gone) fail("another number of tokens is gone", entry);
  for (auto& [fork_id, fork] : live_) {
    const bool is_after = fork.fork_number > edit.number;
    if (!fork.has_begun && fork.fork_of == id && is_after) fork.num_least = sample.tokens.size();
  }
  if (!goes_on()) fail("this is not what was appended", entry);
  has_rest_ |= sample.num_to_come() > 1;
  forget_edit(id, edit.number);
}

// What an edit before the FORK has left, which no entry of the stream has answered. That of a
// grammar's stream has dropped nothing of what came then, but what was known ahead.
void Client::apply_unanswered(const ClientStream& parent, ClientStream& fork, Sample& sample) {
  if (!parent.edit || parent.edit->number > fork.fork_number || !parent.choices.empty()) return;
  sample.apply(*parent.edit);
  fork.num_least = sample.tokens.size();
}

void Client::begin_fork(StreamId id, ClientStream& stream, const Json& entry) {
  const StreamId of = entry["fork_of"];
  if (stream.has_begun || of != stream.fork_of) fail("no such fork", entry);
  Sample& sample = stream.samples.front();
  if (stream.parent) {
    sample = *std::exchange(stream.parent, std::nullopt);
  } else {
    const auto parent = live_.find(of);
    if (parent == live_.end()) fail("the fork of an unknown stream", entry);
    sample = parent->second.samples.front();
    apply_unanswered(parent->second, stream, sample);
  }
  const auto num_tokens =
      entry.at("fork_prompt").get<std::size_t>() + entry.at("fork_at").get<std::size_t>();
  if (!world_.checks("edits")) stream.is_doubtful = true;
  if (!stream.is_doubtful) {
    if (num_tokens > sample.tokens.size()) fail("a fork of tokens that have not come", entry);
    if (num_tokens < stream.num_least) fail("a fork with fewer tokens than its stream had", entry);
  }
  sample.has_ended = false;
  sample.resize(num_tokens);
  const bool is_right = stream.is_doubtful || entry["fork_prompt"] == sample.num_prompt;
  if (!is_right) fail("the fork's prompt is another one", entry);
  stream.has_begun = true;
  forget_edit(of, stream.fork_number);
  world_.log(name_, "  " + std::to_string(id) + " is a fork");
}

void Client::forget_edit(StreamId id, std::int64_t number) {
  const auto edits = edits_.find(id);
  if (edits == edits_.end()) return;
  std::erase_if(edits->second, [&](const Unanswered& one) { return one.number == number; });
  if (edits->second.empty()) edits_.erase(edits);
}

// The edit was refused, and nothing of it comes.
void Client::take_refusal(StreamId id, const Json& entry) {
  const auto edits = edits_.find(id);
  if (edits == edits_.end()) fail("an error of no edit", entry);
  const std::string text = entry.at("error");
  const bool is_backtrack = text.starts_with("drop: ") || text.starts_with("append: ");
  // What drops and appends nothing has neither refused.
  const auto is_of = [&](Kind kind) {
    return std::ranges::find(edits->second, kind, &Unanswered::kind);
  };
  auto refused = is_backtrack ? is_of(Kind::kBacktrack) : edits->second.begin();
  if (refused == edits->second.end()) refused = is_of(Kind::kNothing);  // which may be any
  if (refused == edits->second.end()) fail("an error of no such edit", entry);
  const auto at = live_.find(id);
  const bool is_doubtful = !is_backtrack && edits->second.size() > 1;
  if (at != live_.end()) {
    check_refusal(at->second, *refused, entry);
    at->second.is_doubtful |= is_doubtful;
    at->second.edit.reset();
  }
  const std::int64_t number = refused->number;
  int num_forks = 0;
  std::erase_if(live_, [&](const auto& one) {
    const ClientStream& fork = one.second;
    if (fork.has_begun || fork.fork_of != id) return false;
    if (!is_doubtful && fork.fork_number != number) return false;
    if (is_doubtful) {
      doubtful_.insert(one.first);
      spent_.insert(one.first);
    }
    world_.demand.lose(world_.simulator.now(), fork.num_requests);
    ++num_forks;
    return true;
  });
  world_.num_refused_forks[entry.at("code").get<std::string>()] += num_forks;
  if (is_doubtful) {
    world_.is_doubtful = true;
    for (Unanswered& one : edits->second) one = {one.number, Kind::kNothing};
  }
  forget_edit(id, number);
}

// The stream has not ended.
void Client::check_refusal(const ClientStream& stream, const Unanswered& edit,
                           const Json& entry) const {
  const std::string text = entry.at("error");
  const std::string code = entry.at("code");
  const auto says = [&](const char* words) { return text.find(words) != std::string::npos; };
  if (!world_.checks("errors") || world_.has_failed(Fault::kMemory, stream.sent)) return;
  if (stream.is_doubtful) return;
  if (code == "shutting_down" && world_.has_stopped()) return;
  if (code == "overloaded" && world_.may_be_overloaded(stream.sent, 0)) return;
  if (text.starts_with("drop: ") && stream.edit) {
    if (stream.edit->num_dropped >= stream.edit->num_known) return;
  }
  if (text.starts_with("append: ") && stream.edit) {
    // The more tokens there are, the fewer may be appended.
    const Sample& sample = stream.samples.front();
    const int length = static_cast<int>(sample.tokens.size() + sample.num_to_come());
    const int num_dropped = static_cast<int>(stream.edit->num_dropped);
    const int num_kept = std::max(0, length - sample.num_prompt - num_dropped);
    const int num_prompt = std::min(sample.num_prompt, length - num_dropped);
    const int room = std::min(stream.max_tokens, world_.context_length - num_prompt) - num_kept;
    if (static_cast<int>(stream.edit->appended.size()) >= room) return;
  }
  if (says("is not live") && !stream.first_come) return;
  if (says("is not live")) {
    if (stream.cancelled || stream.timeout_ms > 0) return;
    if (world_.has_failed(Fault::kLost, stream.sent)) return;
  }
  if (says("has not begun") && !stream.first_come) return;
  if (says("device was lost") && world_.has_failed(Fault::kLost, stream.sent)) return;
  (void)edit;
  fail("a refusal that nothing has caused", entry);
}

// As its stream ends: forks begin with what it had.
void Client::leave_forks(StreamId id, const ClientStream& stream, const Json& entry) {
  if (stream.kind != ClientStream::Kind::kGenerate || stream.samples.size() != 1) return;
  for (auto& [fork_id, fork] : live_) {
    if (fork.has_begun || fork.fork_of != id || fork.parent) continue;
    fork.parent = stream.samples.front();
    apply_unanswered(stream, fork, *fork.parent);
  }
  // What came after its last token was refused.
  const auto edits = edits_.find(id);
  if (edits == edits_.end() || entry.contains("error")) return;
  if (world_.has_failed(Fault::kMemory, stream.sent)) return;
  // Where there is a grammar, it may have dropped what was known ahead alone, which shows nowhere.
  if (!stream.choices.empty()) return;
  for (Unanswered& one : edits->second) one.must_be_refused = one.kind == Kind::kBacktrack;
}

// The stream of an edit that must be refused and has not been.
std::optional<StreamId> Client::awaited_refusal() const {
  if (!wrong_edits_.empty()) return wrong_edits_.begin()->first;
  for (const auto& [id, edits] : edits_) {
    if (std::ranges::any_of(edits, &Unanswered::must_be_refused)) return id;
  }
  return std::nullopt;
}

}  // namespace lmtp::simulation
