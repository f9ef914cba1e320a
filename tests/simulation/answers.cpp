// What clients are answered, and what must be true of it.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <span>
#include <utility>

#include "client.h"

namespace lmtp::simulation {
namespace {

using testing::FakeAgent;
using testing::kFakeVocabSize;

constexpr std::chrono::milliseconds kMs{1};
// For how long tokens may come of a stream that was cancelled: the steps that run, of which one may
// take 50 times what it would (timed_agent.h), and the way.
constexpr std::chrono::milliseconds kCancelledMax{1500};
constexpr std::chrono::milliseconds kCancelledLateMax{2500};  // where the way may be long

bool is_near(double a, double b) { return std::abs(a - b) < 1e-3; }

}  // namespace

void Client::receive(const std::string& line) {
  world_.log(name_, "< " + line);
  ++num_lines_;
  const bool is_token = line.starts_with("TOKEN ");
  if (!is_token && !line.starts_with("MSG ")) fail("no such verb: " + line);
  const Json entries = Json::parse(line.substr(is_token ? 6 : 4), nullptr, false);
  if (!entries.is_array() || entries.empty()) fail("no entries: " + line);
  for (const Json& entry : entries) is_token ? take_entry(entry) : take_message(entry);
}

// Exactly one end for each id.
void Client::take_entry(const Json& entry) {
  const StreamId id = entry.at("stream_id");
  const bool is_error = entry.contains("error");
  if (doubtful_.contains(id)) {
    if (is_error || !entry.at("finish_reason").is_null()) doubtful_.erase(id);
    return;
  }
  const auto at = live_.find(id);
  if (at == live_.end() && !world_.checks("ends")) return;
  if (at == live_.end()) fail("an entry of a stream that has ended", entry);
  ClientStream& stream = at->second;
  hear(stream);
  if (is_error) return take_error(id, stream, entry);
  if (stream.kind == ClientStream::Kind::kQuestion) fail("a token of no stream", entry);
  if (!stream.has_rows()) return take_token(id, stream, entry);
  const bool decides = stream.kind == ClientStream::Kind::kDecide;
  decides ? take_decision(stream, entry) : take_candidates(stream, entry);
  end(id, entry);
}

void Client::hear(ClientStream& stream) const {
  stream.heard = world_.simulator.now();
  stream.heard_at_step = world_.counts.num_steps;
}

void Client::take_message(const Json& entry) {
  if (!entry.at("stream_id").is_number()) fail("an error of no stream", entry);
  const StreamId id = entry["stream_id"];
  const auto at = live_.find(id);
  if (entry.contains("status")) {
    if (doubtful_.contains(id)) return;
    if (at == live_.end()) fail("a notice of a stream that has ended", entry);
    return take_notice(at->second, entry);
  }
  if (at != live_.end() && at->second.kind == ClientStream::Kind::kQuestion) {
    return take_answer(id, at->second, entry);
  }
  if (entry.contains("controller")) {
    if (!spent_.contains(id)) fail("it has no controller", entry);
    return;
  }
  if (!entry.contains("error")) fail("an answer to no question", entry);
  if (const auto failed = failed_.find({id, entry["code"]}); failed != failed_.end()) {
    return (void)failed_.erase(failed);
  }
  const auto wrong = wrong_edits_.find(id);
  if (wrong == wrong_edits_.end()) return take_refusal(id, entry);
  if (--wrong->second == 0) wrong_edits_.erase(wrong);
}

// They are in an order, and tell nothing that is not so. Notices of a batch of events come before
// its tokens.
void Client::take_notice(ClientStream& stream, const Json& entry) {
  stream.heard = world_.simulator.now();
  const std::string status = entry["status"];
  if (status == "loading") {  // those go to ids that wait
    const int progress = entry.at("progress");
    // A model that was lost, or unloaded for another one, is loaded again.
    const bool goes_back = progress < stream.progress;
    const bool may_go_back =
        world_.features.several_models || world_.has_failed(Fault::kLost, stream.sent);
    if ((goes_back && !may_go_back) || progress > 100) fail("loading goes back", entry);
    stream.progress = progress;
    return;
  }
  const auto index = entry.value("index", std::size_t{0});
  if (index >= stream.notices.size()) fail("a notice that nobody asked for", entry);
  Notices& notices = stream.notices[index];
  notices.line = num_lines_;
  if (!world_.checks("notices")) return;
  if (status == "accepted") {
    if (stream.is_accepted) fail("accepted twice", entry);
    stream.is_accepted = true;
    if (entry.at("model") != stream.model) fail("accepted by another model", entry);
    if (stream.kind != ClientStream::Kind::kGenerate) return;
    if (entry.at("seed") != stream.seed) fail("accepted with another seed", entry);
    const int num_prompt = stream.samples.front().num_prompt;
    if (entry.at("num_prompt") != num_prompt) fail("accepted with another prompt", entry);
    return;
  }
  if (!stream.is_accepted) fail("a notice before it was accepted", entry);
  if (status == "draining") {
    if (!world_.has_stopped() || std::exchange(notices.is_draining, true)) {
      fail("the server does not drain now", entry);
    }
  } else if (status == "preempted") {
    if (notices.is_preempted) fail("preempted twice", entry);
    notices.is_preempted = true;
    if (world_.features.backtrack && random_.one_in(2)) preempted_ = entry["stream_id"];
  } else if (status == "resumed") {
    if (!notices.is_preempted) fail("resumed, and it was not preempted", entry);
    notices.is_preempted = false;
  } else if (status == "queued") {
    const bool generates = stream.kind == ClientStream::Kind::kGenerate;
    const bool runs = generates && notices.has_token && !notices.is_preempted;
    if (runs || entry.at("position") < 1) fail("queued, and it runs", entry);
  } else {
    fail("no such notice", entry);
  }
}

// What needs no model is never refused: its buffer is there.
void Client::take_answer(StreamId id, const ClientStream& question, const Json& entry) {
  const std::string& name = question.buffer;
  if (entry.contains("error")) {
    if (!name.empty() && !question.is_counted) fail("a buffer's question is refused", entry);
    if (!is_expected(question, entry)) fail("an error that nothing has caused", entry);
    if (question.is_counted) ++world_.ends[entry.at("code").get<std::string>()];
    return end(id, entry);
  }
  if (!name.empty()) {
    const bool frees = question.samples.empty();
    const std::size_t length = frees ? 0 : question.samples.front().tokens.size();
    if (entry.at("length") != length) fail("the buffer has another length", entry);
    if (!frees && latest_of_buffer_[name] == id) buffers_[name] = question.samples.front().tokens;
  } else if (!question.samples.empty()) {
    if (entry.at("tokens") != question.samples.front().tokens) fail("other tokens", entry);
  }
  for (const auto& [where, what] : question.right.items()) {
    const Json::json_pointer pointer(where);
    if (!entry.contains(pointer) || entry[pointer] != what) fail("the answer is wrong", entry);
  }
  end(id, entry);
}

void Client::take_token(StreamId id, ClientStream& stream, const Json& entry) {
  if (stream.is_controlled) return take_controlled(id, stream, entry);
  if (entry.contains("fork_of")) begin_fork(id, stream, entry);
  if (!stream.has_begun) fail("a fork's first entry does not say of what", entry);
  Sample& sample = sample_of(stream, entry);
  check_cancelled(stream, entry);
  if (!stream.is_doubtful) check_entry(id, stream, sample, entry);
  if (!stream.first_come) stream.first_come = world_.simulator.now();
  ++world_.counts.num_tokens;
  got_at_step_ = world_.counts.num_steps;
  sample.tokens.push_back(entry.at("token"));
  sample.text.resize(sample.tokens.size());
  if (entry.contains("text") != stream.has_text) fail("text: is wrong", entry);
  if (stream.has_text) sample.text.back() = entry["text"];
  if (entry.contains("calls") && !stream.calls) fail("a call that nobody forced", entry);
  if (stream.calls) sample.text.back() += calls_text(entry);
  if (stream.kind == ClientStream::Kind::kScore) stream.scored.erase(stream.scored.begin());
  if (!stream.is_doubtful) check_end(stream, sample, entry);
  if (entry["finish_reason"].is_null()) return;
  ++world_.ends[entry["finish_reason"].get<std::string>()];
  end_sample(id, stream, sample, entry);
}

Sample& Client::sample_of(ClientStream& stream, const Json& entry) const {
  const bool has_index = entry.contains("index");
  if (has_index != (stream.samples.size() > 1)) fail("index: is wrong", entry);
  const auto index = entry.value("index", std::size_t{0});
  if (index >= stream.samples.size()) fail("no such sample", entry);
  Sample& sample = stream.samples[index];
  if (sample.has_ended) fail("an entry of a sample that has ended", entry);
  return sample;
}

// Nothing more is computed of a stream soon after its CANCEL.
void Client::check_cancelled(const ClientStream& stream, const Json& entry) const {
  if (!stream.cancelled || world_.features.stalls || !world_.checks("time")) return;
  const bool is_far = world_.features.delays || world_.features.late_threads;
  const auto most = is_far ? kCancelledLateMax : kCancelledMax;
  if (world_.simulator.now() - *stream.cancelled > most) {
    fail("a token of a stream that was cancelled long ago", entry);
  }
}

void Client::check_entry(StreamId id, ClientStream& stream, Sample& sample, const Json& entry) {
  if (!stream.notices.empty() && world_.checks("notices")) {
    Notices& notices = stream.notices.at(entry.value("index", std::size_t{0}));
    if (!stream.is_accepted) fail("a token before it was accepted", entry);
    if (notices.is_preempted && num_lines_ > notices.line + 1) {
      fail("a token of a stream that is preempted", entry);
    }
    notices.has_token = true;
  }
  if (stream.kind == ClientStream::Kind::kGenerate) take_edit(id, stream, sample, entry);
  if (!stream.is_doubtful) check_token(stream, sample, entry);
}

void Client::check_token(const ClientStream& stream, Sample& sample, const Json& entry) const {
  const TokenId token = entry.at("token");
  if (!world_.checks("tokens")) return sample.expected.clear();
  if (stream.kind == ClientStream::Kind::kScore) {
    if (stream.scored.empty() || stream.scored.front() != token) fail("not what is scored", entry);
  } else if (entry.value("appended", false) || !stream.choices.empty()) {
    sample.expected.clear();  // take_edit() has seen that it is right, or check_choice() sees it
  } else if (const TokenId right = token_after(stream, sample, entry); right != token) {
    fail("the token is wrong, " + std::to_string(right) + " is right", entry);
  }
  const double logprob = logprob_after(stream, sample.tokens, token);
  if (!is_near(entry.at("logprob"), logprob)) {
    fail("the log probability is wrong, " + std::to_string(logprob) + " is right", entry);
  }
}

// An entry may have no token. In the end the tokens are those that the script gives.
void Client::take_controlled(StreamId id, ClientStream& stream, const Json& entry) {
  got_at_step_ = world_.counts.num_steps;
  if (!stream.first_come) stream.first_come = world_.simulator.now();
  if (entry.contains("fork_of_index")) return begin_sample(stream, entry);
  Sample& sample = sample_of(stream, entry);
  const auto num_gone = entry.value("backtrack", 0);
  if (num_gone > sample.num_generated()) fail("another number of tokens is gone", entry);
  sample.resize(sample.tokens.size() - static_cast<std::size_t>(num_gone));
  if (!entry.at("token").is_null()) {
    const TokenId token = entry["token"];
    const double logprob = logprob_after(stream, sample.tokens, token);
    const bool is_right = !world_.checks("tokens") || is_near(entry.at("logprob"), logprob);
    if (!is_right) fail("the log probability is wrong", entry);
    sample.tokens.push_back(token);
    ++world_.counts.num_tokens;
  }
  if (entry.at("finish_reason").is_null()) return;
  if (entry["finish_reason"] != "stop") fail("the end is not the controller's", entry);
  const bool is_right = !world_.checks("tokens") || sample.tokens == run_script(stream, sample);
  if (!is_right) fail("the tokens are not the controller's", entry);
  ++world_.ends["stop"];
  end_sample(id, stream, sample, entry);
}

// The way that it takes is by its turn among those of its parent, which takes the first.
void Client::begin_sample(ClientStream& stream, const Json& entry) {
  const std::size_t of = entry["fork_of_index"];
  const bool is_next = entry.at("index") == stream.samples.size() && of < stream.samples.size();
  if (!is_next || !entry.at("token").is_null()) fail("no such sample may begin", entry);
  Sample& parent = stream.samples[of];
  const auto fork = std::ranges::find_if(parent.script, [](const Json& one) {
    return one.contains("fork") || one.contains("branches");
  });
  if (parent.has_ended || fork == parent.script.end()) fail("its sample does not fork", entry);
  const Json ways = fork->contains("fork") ? (*fork)["fork"] : (*fork)["branches"];
  Json before = Json::array();
  std::copy(parent.script.begin(), fork, std::back_inserter(before));
  const auto take = [&before](const Json& way) {
    Json script = before;
    script.insert(script.end(), way.begin(), way.end());
    return script;
  };
  Sample sample = parent;
  sample.script = before;
  sample.tokens = run_script(stream, sample);
  const auto num_tokens =
      static_cast<std::size_t>(sample.num_prompt) + entry.at("fork_at").get<std::size_t>();
  if (num_tokens > sample.tokens.size()) fail("a fork of tokens that are not there", entry);
  sample.tokens.resize(num_tokens);
  sample.script = take(ways.at(static_cast<std::size_t>(++parent.num_forked)));
  sample.num_forked = 0;
  if (parent.num_forked + 1 == static_cast<int>(ways.size())) {
    parent.script = take(ways.front());
    parent.num_forked = 0;
  }
  if (!stream.notices.empty()) stream.notices.emplace_back();
  stream.samples.push_back(std::move(sample));
  ++world_.counts.num_streams;
}

std::vector<TokenId> Client::run_script(const ClientStream& stream, const Sample& sample) const {
  std::vector<TokenId> tokens = sample.tokens;
  tokens.resize(static_cast<std::size_t>(sample.num_prompt));
  for (const Json& entry : sample.script) {
    if (entry.contains("ff") || entry.contains("splice")) {
      tokens.resize(tokens.size() - entry.value("drop", std::size_t{0}));
      const Json& more = entry.contains("ff") ? entry["ff"] : entry["splice"];
      for (const Json& token : more) tokens.push_back(token);
      continue;
    }
    TokenId token = FakeAgent::expected_tokens(tokens, 1, kFakeVocabSize, -1,
                                               world_.find_adapter(stream.model))[0];
    const auto is_allowed = [&] {
      return !entry.contains("allow") || std::ranges::count(entry["allow"], Json(token)) > 0;
    };
    while (!is_allowed()) token = (token + 1) % kFakeVocabSize;
    tokens.push_back(token);
  }
  return tokens;
}

// Where a word is forbidden, the next token that is not.
TokenId Client::token_after(const ClientStream& stream, Sample& sample, const Json& entry) const {
  if (sample.expected.empty()) {
    const int num_left = stream.num_generated_max(sample) - sample.num_generated();
    if (num_left <= 0) fail("more tokens than asked for", entry);
    sample.expected = FakeAgent::expected_tokens(sample.tokens, num_left, kFakeVocabSize, -1,
                                                 world_.find_adapter(stream.model));
    std::ranges::reverse(sample.expected);
  }
  TokenId token = sample.expected.back();
  sample.expected.pop_back();
  while (std::ranges::binary_search(stream.forbidden, token)) {
    token = (token + 1) % kFakeVocabSize;
    sample.expected.clear();  // which follow another one
  }
  return token;
}

double Client::logprob_after(const ClientStream& stream, const std::vector<TokenId>& tokens,
                             TokenId token) const {
  return FakeAgent::logprob_after(tokens, token, world_.find_adapter(stream.model));
}

// With the token that came.
void Client::check_end(const ClientStream& stream, const Sample& sample, const Json& entry) const {
  const bool is_last = !entry.at("finish_reason").is_null();
  if (!world_.checks("ends")) return check_text(stream, sample, entry);
  if (stream.kind == ClientStream::Kind::kScore) {
    if (is_last != stream.scored.empty()) fail("the end is not with the last token", entry);
    return;
  }
  const bool is_full = sample.num_generated() >= stream.num_generated_max(sample);
  if (is_last && sample.num_to_come() > 0) fail("it ends before what was appended", entry);
  if (!stream.choices.empty()) {
    check_choice(stream, sample, entry);
  } else if (is_last != is_full) {
    fail("the end is not where it should be", entry);
  }
  check_text(stream, sample, entry);
}

// The same question has the same answer, to the last bit.
void Client::take_decision(const ClientStream& stream, const Json& entry) const {
  const Json& answers = entry.at("answers");
  if (!world_.checks("tokens")) return;
  if (answers.size() != stream.decision["questions"].size()) fail("answers are missing", entry);
  const auto [known, is_new] =
      world_.decisions.emplace(stream.model + stream.decision.dump(), answers.dump());
  if (known->second != answers.dump()) fail("answered before: " + known->second, entry);
}

void Client::take_candidates(const ClientStream& stream, const Json& entry) const {
  const Json& answers = entry.at("candidates");
  if (!world_.checks("tokens")) return;
  if (answers.size() != stream.candidates.size()) fail("so many candidates were not sent", entry);
  for (std::size_t i = 0; i < answers.size(); ++i) {
    std::vector<TokenId> tokens = stream.samples.front().tokens;
    double sum = 0.0;
    for (const TokenId token : stream.candidates[i]) {
      sum += logprob_after(stream, tokens, token);
      tokens.push_back(token);
    }
    if (!is_near(answers[i].at("logprob"), sum)) {
      fail("candidate " + std::to_string(i) + " has " + std::to_string(sum), entry);
    }
  }
}

void Client::take_error(StreamId id, ClientStream& stream, const Json& entry) {
  const std::string code = entry.at("code");
  if (!is_expected(stream, entry)) fail("an error that nothing has caused", entry);
  if (!stream.has_rows()) ++world_.ends[code];
  if (code == "unknown_model" || code == "model_failed" || code == "unavailable") {
    failed_.emplace(id, code);
    spent_.insert(id);
  }
  if (entry.contains("index")) {
    Sample& sample = stream.samples.at(entry["index"].get<std::size_t>());
    if (sample.has_ended && !world_.checks("ends")) return;
    if (sample.has_ended) fail("an error of a sample that has ended", entry);
    return end_sample(id, stream, sample, entry);
  }
  if (!stream.has_begun) forget_edit(stream.fork_of, stream.fork_number);
  ClientStream lost = stream;
  end(id, entry);
  const bool may_retry = entry.value("retryable", false) && code != "shutting_down";
  if (may_retry && !spent_.contains(id) && random_.one_in(2)) ask_again(id, std::move(lost));
}

// Whether something that was done since the stream was sent leads to this error.
bool Client::is_expected(const ClientStream& stream, const Json& entry) const {
  const std::string code = entry.at("code");
  const std::string text = entry.at("error");
  const auto is_of = [&](const char* words, Fault fault) {
    return text.find(words) != std::string::npos && world_.has_failed(fault, stream.sent);
  };
  if (!world_.checks("errors") || world_.has_failed(Fault::kMemory, stream.sent)) return true;
  if (code == "cancelled") return stream.cancelled.has_value();
  if (code == "timeout") {
    // The step that runs may still give a token.
    const bool has_met = stream.is_of_first && stream.first_come;
    const auto time = (has_met ? *stream.first_come : world_.simulator.now()) - stream.sent;
    return stream.timeout_ms > 0 && time >= kMs * stream.timeout_ms;
  }
  if (code == "internal") {
    return is_of("this step fails", Fault::kStep) || is_of("this step fails", Fault::kLost) ||
           is_of("not a number", Fault::kRow);
  }
  if (code == "model_failed" && is_of("device was lost", Fault::kLost)) return true;
  if (is_of("load fails", Fault::kLoad)) return true;
  if (code == "unavailable" && text.find("was unloaded again") != std::string::npos) {
    return world_.features.several_models;
  }
  if (stream.asks_module && code == "unavailable") {  // it waits for no model
    return stream.is_early || world_.features.several_models || world_.features.lost_device;
  }
  if (stream.asks_module && code == "overloaded") {
    const auto asks_module = [](const auto& one) { return one.second.asks_module; };
    return std::ranges::count_if(live_, asks_module) > 8;  // at a time, of a connection
  }
  // Adapters are known once their model is loaded.
  if (code == "unknown_model" && text.find("is not served here") != std::string::npos) {
    return world_.find_adapter(stream.model) != nullptr;
  }
  if (code == "shutting_down") return world_.has_stopped();
  if (code == "constraint" && text.find("cannot fork: overloaded") != std::string::npos) {
    return stream.is_controlled && world_.may_be_overloaded(stream.sent, 0);
  }
  if (code == "overloaded") {
    // Rows take turns beside each other.
    return world_.may_be_overloaded(stream.sent, stream.has_rows() ? stream.num_requests : 0);
  }
  // A fork whose stream ended meanwhile.
  if (code != "invalid_request" || stream.has_begun) return false;
  return !live_.contains(stream.fork_of) && text.find("is not live") != std::string::npos;
}

void Client::end_sample(StreamId id, ClientStream& stream, Sample& sample, const Json& entry) {
  sample.has_ended = true;
  if (std::ranges::all_of(stream.samples, &Sample::has_ended)) end(id, entry);
}

// Its last entry, or what is the answer.
void Client::end(StreamId id, const Json& entry) {
  const ClientStream& stream = live_.at(id);
  leave_forks(id, stream, entry);
  world_.demand.add(world_.simulator.now(), -stream.num_requests);
  live_.erase(id);
}

}  // namespace lmtp::simulation
