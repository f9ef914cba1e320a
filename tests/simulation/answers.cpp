// What clients are answered, and what must be true of it.
#include <algorithm>
#include <cmath>
#include <utility>

#include "client.h"

namespace lmtp::simulation {
namespace {

using testing::FakeAgent;
using testing::kFakeVocabSize;

bool is_near(double a, double b) { return std::abs(a - b) < 1e-3; }

int num_generated_max(const ClientStream& stream, const Sample& sample) {
  return std::min(stream.max_tokens, testing::kFakeContext - sample.num_prompt);
}

}  // namespace

void Client::receive(const std::string& line) {
  world_.log(name_, "< " + line);
  const bool is_token = line.starts_with("TOKEN ");
  if (!is_token && !line.starts_with("MSG ")) fail("no such verb: " + line);
  const Json entries = Json::parse(line.substr(is_token ? 6 : 4), nullptr, false);
  if (!entries.is_array() || entries.empty()) fail("no entries: " + line);
  for (const Json& entry : entries) is_token ? take_entry(entry) : take_message(entry);
}

// Exactly one end for each id.
void Client::take_entry(const Json& entry) {
  const StreamId id = entry.at("stream_id");
  const auto at = live_.find(id);
  if (at == live_.end()) fail("an entry of a stream that has ended", entry);
  ClientStream& stream = at->second;
  stream.heard = world_.simulator.now();
  if (entry.contains("error")) return take_error(id, stream, entry);
  if (stream.kind == ClientStream::Kind::kQuestion) fail("a token of no stream", entry);
  if (stream.kind != ClientStream::Kind::kCandidates) return take_token(id, stream, entry);
  take_candidates(stream, entry);
  end(id);
}

void Client::take_message(const Json& entry) {
  if (!entry.at("stream_id").is_number()) fail("an error of no stream", entry);
  const StreamId id = entry["stream_id"];
  const auto at = live_.find(id);
  if (entry.contains("status")) {
    // Those of loading go to ids that wait.
    if (at == live_.end()) fail("a notice of a stream that has ended", entry);
    at->second.heard = world_.simulator.now();
    const bool is_loading = entry["status"] == "loading";
    if (!is_loading && !at->second.wants_notices) fail("a notice that nobody asked for", entry);
    return;
  }
  if (at != live_.end() && at->second.kind == ClientStream::Kind::kQuestion) {
    return take_answer(id, at->second, entry);
  }
  if (!entry.contains("error")) fail("an answer to no question", entry);
  if (failed_.contains(id) && failed_[id] == entry["code"]) return (void)failed_.erase(id);
  if (!world_.features.fork && !world_.features.backtrack) fail("an error of no edit", entry);
  // The edit was refused, and nothing of it comes.
  if (at != live_.end()) {
    at->second.is_edited = false;
    at->second.appended.clear();
  }
  std::erase_if(live_,
                [&](const auto& one) { return one.second.fork_of == id && !one.second.has_begun; });
  if (at != live_.end()) at->second.num_unbegun = 0;
  ended_.erase(id);
}

void Client::take_answer(StreamId id, const ClientStream& question, const Json& entry) {
  const std::string& name = question.buffer;
  if (!name.empty() && !question.samples.empty() && !entry.contains("error")) {
    const std::vector<TokenId>& tokens = question.samples.front().tokens;
    if (entry.at("length") != tokens.size()) fail("the buffer has another length", entry);
    if (latest_of_buffer_[name] == id) buffers_[name] = tokens;
  }
  end(id);
}

void Client::take_token(StreamId id, ClientStream& stream, const Json& entry) {
  if (entry.contains("fork_of")) begin_fork(id, stream, entry);
  if (!stream.has_begun) fail("a fork's first entry does not say of what", entry);
  const bool has_index = entry.contains("index");
  if (has_index != (stream.samples.size() > 1)) fail("index: is wrong", entry);
  const auto index = entry.value("index", std::size_t{0});
  if (index >= stream.samples.size()) fail("no such sample", entry);
  Sample& sample = stream.samples[index];
  if (sample.has_ended) fail("an entry of a sample that has ended", entry);
  if (stream.kind == ClientStream::Kind::kGenerate) take_edit(stream, sample, entry);
  check_token(stream, sample, entry);
  ++world_.counts.num_tokens;
  const TokenId token = entry.at("token");
  sample.tokens.push_back(token);
  if (stream.kind == ClientStream::Kind::kScore) stream.scored.erase(stream.scored.begin());
  if (entry.value("appended", false)) stream.appended.erase(stream.appended.begin());
  check_end(stream, sample, entry);
  if (entry["finish_reason"].is_null()) return;
  ++world_.counts.num_finished;
  end_sample(id, stream, sample);
}

void Client::check_token(const ClientStream& stream, Sample& sample, const Json& entry) const {
  const TokenId token = entry.at("token");
  if (stream.kind == ClientStream::Kind::kScore) {
    if (stream.scored.empty() || stream.scored.front() != token) fail("not what is scored", entry);
  } else if (entry.value("appended", false)) {
    if (stream.appended.empty() || stream.appended.front() != token) fail("not appended", entry);
    sample.expected.clear();
  } else {
    if (sample.expected.empty()) {
      const int num_left = num_generated_max(stream, sample) - sample.num_generated();
      if (num_left <= 0) fail("more tokens than asked for", entry);
      sample.expected = FakeAgent::expected_tokens(sample.tokens, num_left, kFakeVocabSize);
      std::ranges::reverse(sample.expected);
    }
    if (sample.expected.back() != token) {
      fail("the token is wrong, " + std::to_string(sample.expected.back()) + " is right", entry);
    }
    sample.expected.pop_back();
  }
  const double logprob = FakeAgent::logprob_after(sample.tokens, token);
  if (!is_near(entry.at("logprob"), logprob)) {
    fail("the log probability is wrong, " + std::to_string(logprob) + " is right", entry);
  }
}

// With the token that came.
void Client::check_end(const ClientStream& stream, const Sample& sample, const Json& entry) const {
  const bool is_last = !entry.at("finish_reason").is_null();
  if (stream.kind == ClientStream::Kind::kScore) {
    if (is_last != stream.scored.empty()) fail("the end is not with the last token", entry);
    return;
  }
  const bool is_full = sample.num_generated() >= num_generated_max(stream, sample);
  if (is_last != is_full) fail("the end is not where it should be", entry);
}

void Client::take_edit(ClientStream& stream, Sample& sample, const Json& entry) const {
  const bool is_answer = entry.contains("backtrack") || entry.value("appended", false);
  if (!is_answer) return;
  if (!stream.is_edited && stream.appended.empty()) fail("nobody has edited this stream", entry);
  stream.is_edited = false;
  const auto num_gone = entry.value("backtrack", std::size_t{0});
  if (num_gone >= sample.tokens.size()) fail("more tokens are gone than it had", entry);
  sample.resize(sample.tokens.size() - num_gone);
}

void Client::begin_fork(StreamId id, ClientStream& stream, const Json& entry) {
  const StreamId of = entry["fork_of"];
  if (stream.has_begun || of != stream.fork_of) fail("no such fork", entry);
  const auto parent = live_.find(of);
  const auto ended = ended_.find(of);
  if (parent == live_.end() && ended == ended_.end()) fail("the fork of an unknown stream", entry);
  const Sample& shared = parent != live_.end() ? parent->second.samples.front() : ended->second;
  const auto num_tokens =
      entry.at("fork_prompt").get<std::size_t>() + entry.at("fork_at").get<std::size_t>();
  if (num_tokens > shared.tokens.size()) fail("a fork of tokens that have not come", entry);
  Sample& sample = stream.samples.front();
  sample = shared;
  sample.has_ended = false;
  sample.resize(num_tokens);
  if (entry["fork_prompt"] != sample.num_prompt) fail("the fork's prompt is another one", entry);
  stream.has_begun = true;
  if (parent != live_.end()) --parent->second.num_unbegun;
  world_.log(name_, "  " + std::to_string(id) + " is a fork");
}

void Client::take_candidates(const ClientStream& stream, const Json& entry) const {
  const Json& answers = entry.at("candidates");
  if (answers.size() != stream.candidates.size()) fail("so many candidates were not sent", entry);
  for (std::size_t i = 0; i < answers.size(); ++i) {
    std::vector<TokenId> tokens = stream.samples.front().tokens;
    double sum = 0.0;
    for (const TokenId token : stream.candidates[i]) {
      sum += static_cast<double>(FakeAgent::logprob_after(tokens, token));
      tokens.push_back(token);
    }
    if (!is_near(answers[i].at("logprob"), sum)) {
      fail("candidate " + std::to_string(i) + " has " + std::to_string(sum), entry);
    }
  }
}

void Client::take_error(StreamId id, ClientStream& stream, const Json& entry) {
  const std::string code = entry.at("code");
  if (!is_expected(stream, code)) fail("an error that nothing has caused", entry);
  if (code == "unknown_model" || code == "model_failed" || code == "unavailable") {
    failed_[id] = code;
    spent_.insert(id);
  }
  if (entry.contains("index")) {
    Sample& sample = stream.samples.at(entry["index"].get<std::size_t>());
    if (sample.has_ended) fail("an error of a sample that has ended", entry);
    return end_sample(id, stream, sample);
  }
  ClientStream lost = stream;
  end(id);
  const bool may_retry = entry.value("retryable", false) && code != "shutting_down";
  if (may_retry && !spent_.contains(id) && random_.one_in(2)) ask_again(id, std::move(lost));
}

bool Client::is_expected(const ClientStream& stream, const std::string& code) const {
  const Features& on = world_.features;
  if (code == "cancelled") return stream.is_cancelled;
  if (code == "timeout") return stream.has_timeout;
  if (code == "internal") return on.failed_steps || on.failed_rows || on.lost_device;
  if (code == "model_failed") return on.lost_device || on.failed_loads;
  if (code == "unavailable") return on.failed_loads || on.several_models;
  if (code == "shutting_down") return world_.has_stopped();
  if (code == "overloaded") return on.few_requests || on.several_models;
  // A fork whose stream ended meanwhile; a prompt of a buffer that was not made.
  if (code == "invalid_request") return !stream.has_begun || on.buffers;
  return false;
}

void Client::end_sample(StreamId id, ClientStream& stream, Sample& sample) {
  sample.has_ended = true;
  if (std::ranges::all_of(stream.samples, &Sample::has_ended)) end(id);
}

void Client::end(StreamId id) {
  const ClientStream& stream = live_.at(id);
  if (stream.num_unbegun > 0) ended_[id] = stream.samples.front();
  if (!stream.has_begun) {
    const auto parent = live_.find(stream.fork_of);
    if (parent != live_.end()) --parent->second.num_unbegun;
  }
  live_.erase(id);
}

}  // namespace lmtp::simulation
