// What clients ask for.
#include <algorithm>
#include <utility>

#include "client.h"

namespace lmtp::simulation {

void Client::send(const std::string& verb, const Json& message) {
  const std::string line = verb + " " + message.dump();
  world_.log(name_, "> " + line);
  ++world_.counts.num_operations;
  world_.counts.num_bytes += static_cast<std::int64_t>(line.size()) + 1;
  connection_.pipe->send(line + "\n");
}

// An id of a stream that has ended comes again now and then.
StreamId Client::add(ClientStream stream) {
  StreamId id = next_id_;
  if (random_.one_in(8) && next_id_ > 1) id = random_.between(1, static_cast<int>(next_id_) - 1);
  if (live_.contains(id) || spent_.contains(id)) id = next_id_;
  next_id_ = std::max(next_id_, id + 1);
  stream.heard = world_.simulator.now();
  ++world_.counts.num_streams;
  live_.emplace(id, std::move(stream));
  return id;
}

std::vector<TokenId> Client::draw_prompt(int most) {
  std::vector<TokenId> prompt;
  if (!random_.one_in(4)) prompt = prefixes_[static_cast<std::size_t>(random_.below(4))];
  const int size = std::min(most, static_cast<int>(prompt.size()) + random_.between(1, 40));
  prompt.resize(std::min(prompt.size(), static_cast<std::size_t>(std::max(size - 1, 0))));
  while (static_cast<int>(prompt.size()) < size) {
    prompt.push_back(random_.below(random_.one_in(2) ? 3 : testing::kFakeVocabSize));
  }
  return prompt;
}

// By ids, or by a buffer that it begins with.
Json Client::prompt_of(const std::vector<TokenId>& tokens) {
  for (const auto& [name, kept] : buffers_) {
    const auto [at, end] = std::ranges::mismatch(tokens, kept);
    const auto upto = at - tokens.begin();
    if (upto == 0 || upto == static_cast<std::ptrdiff_t>(tokens.size())) continue;
    return Json::array({{{"buffer", name}, {"upto", upto}}, std::vector(at, tokens.end())});
  }
  return tokens;
}

void Client::set_common(Json& message, ClientStream& stream) {
  stream.model = world_.model_name(random_);
  if (world_.features.several_models || random_.one_in(2)) message["model"] = stream.model;
  stream.wants_notices = world_.features.notices && random_.one_in(2);
  if (stream.wants_notices) message["notices"] = true;
  stream.has_timeout = world_.features.timeouts && random_.one_in(4);
  if (stream.has_timeout) {
    message[random_.one_in(2) ? "timeout_ms" : "first_token_timeout_ms"] = random_.between(1, 3000);
  }
}

void Client::generate() {
  ClientStream stream;
  Json message;
  set_common(message, stream);
  std::vector<TokenId> prompt = draw_prompt(300);
  if (random_.one_in(6)) {  // the context ends it before max_tokens
    prompt.resize(static_cast<std::size_t>(world_.context_length - random_.between(1, 50)), 1);
  }
  stream.max_tokens = random_.one_in(4) ? random_.between(1, 200) : random_.between(1, 30);
  const int num_samples = world_.features.samples && random_.one_in(3) ? random_.between(2, 5) : 1;
  Sample sample;
  sample.num_prompt = static_cast<int>(prompt.size());
  sample.tokens = prompt;
  stream.samples.assign(static_cast<std::size_t>(num_samples), sample);
  message["prompt"] = prompt_of(prompt);
  message["max_tokens"] = stream.max_tokens;
  message["seed"] = random_.below(1000);
  if (num_samples > 1) message["n"] = num_samples;
  if (random_.one_in(2)) message["temperature"] = 0.5;
  if (random_.one_in(2)) message["top_logprobs"] = random_.below(3);
  message["stream_id"] = add(std::move(stream));
  send("GENERATE", message);
}

void Client::score() {
  ClientStream stream;
  Json message;
  set_common(message, stream);
  stream.kind = ClientStream::Kind::kScore;
  Sample sample;
  sample.tokens = draw_prompt(200);
  sample.num_prompt = static_cast<int>(sample.tokens.size());
  // The same again at times, which may be known.
  const int num_scored = random_.between(1, 60);
  Random text(world_.options.seed ^ static_cast<std::uint64_t>(random_.below(8)));
  for (int i = 0; i < num_scored; ++i) stream.scored.push_back(text.below(testing::kFakeVocabSize));
  message["prompt"] = prompt_of(sample.tokens);
  message["scored"] = stream.scored;
  stream.samples.push_back(std::move(sample));
  message["stream_id"] = add(std::move(stream));
  send("SCORE", message);
}

void Client::score_candidates() {
  ClientStream stream;
  Json message;
  set_common(message, stream);
  stream.kind = ClientStream::Kind::kCandidates;
  Sample sample;
  sample.tokens = draw_prompt(200);
  sample.num_prompt = static_cast<int>(sample.tokens.size());
  const int num = random_.between(1, 20);
  for (int i = 0; i < num; ++i) {
    std::vector<TokenId> candidate{i};  // so that they differ
    const int size = random_.below(6);
    for (int j = 0; j < size; ++j) candidate.push_back(random_.below(3));
    if (random_.one_in(2)) candidate.insert(candidate.begin(), 500);
    stream.candidates.push_back(std::move(candidate));
  }
  message["prompt"] = prompt_of(sample.tokens);
  message["candidates"] = stream.candidates;
  stream.samples.push_back(std::move(sample));
  message["stream_id"] = add(std::move(stream));
  send("SCORE", message);
}

// From where it is; what has no tokens is asked for as a whole.
void Client::ask_again(StreamId id, ClientStream stream) {
  using Kind = ClientStream::Kind;
  if (stream.is_cancelled || stream.kind == Kind::kQuestion || random_.one_in(4)) return;
  Json message;
  if (world_.features.several_models) message["model"] = stream.model;
  stream.has_timeout = stream.wants_notices = stream.is_edited = false;
  stream.num_unbegun = 0;
  stream.appended.clear();
  if (stream.kind == Kind::kScore) {
    // What came of it is the end of its prompt now.
    message["prompt"] = stream.samples.front().tokens;
    message["scored"] = stream.scored;
  } else if (stream.kind == Kind::kCandidates) {
    message["prompt"] = stream.samples.front().tokens;
    message["candidates"] = stream.candidates;
  } else {
    const auto live = std::ranges::find(stream.samples, false, &Sample::has_ended);
    if (!stream.has_begun || live == stream.samples.end()) return;
    stream.samples = {*live};
    Sample& sample = stream.samples.front();
    stream.max_tokens -= sample.num_generated();
    sample.num_resumed += sample.num_generated();
    sample.num_prompt = static_cast<int>(sample.tokens.size());
    message["prompt"] = prompt_of(sample.tokens);
    message["resumed"] = sample.num_resumed;
    message["max_tokens"] = stream.max_tokens;
  }
  stream.heard = world_.simulator.now();
  const bool scores = stream.kind != Kind::kGenerate;
  message["stream_id"] = id;
  live_.emplace(id, std::move(stream));
  send(scores ? "SCORE" : "GENERATE", message);
}

// One of those that run, by draw.
std::optional<StreamId> Client::find_running() {
  std::vector<StreamId> running;
  for (const auto& [id, stream] : live_) {
    if (stream.is_running() && !stream.is_edited && stream.num_unbegun == 0) running.push_back(id);
  }
  if (running.empty()) return std::nullopt;
  return running[static_cast<std::size_t>(random_.below(static_cast<int>(running.size())))];
}

void Client::cancel() {
  std::vector<StreamId> ids{next_id_};  // which is not live, and ignored
  for (const auto& [id, stream] : live_) {
    if (stream.kind != ClientStream::Kind::kQuestion) ids.push_back(id);
  }
  const StreamId id = ids[static_cast<std::size_t>(random_.below(static_cast<int>(ids.size())))];
  if (const auto at = live_.find(id); at != live_.end()) at->second.is_cancelled = true;
  send("CANCEL", {{"stream_id", id}});
}

void Client::fork() {
  const std::optional<StreamId> of = find_running();
  if (!of || live_.size() >= 20) return;
  std::vector<StreamId> ids;
  const int num = random_.between(1, 3);
  for (int i = 0; i < num; ++i) {
    ClientStream fork;
    fork.has_begun = false;
    fork.fork_of = *of;
    fork.model = live_.at(*of).model;
    fork.max_tokens = live_.at(*of).max_tokens;
    fork.wants_notices = live_.at(*of).wants_notices;
    fork.samples.resize(1);
    ids.push_back(add(std::move(fork)));
  }
  live_.at(*of).num_unbegun += num;
  spent_.insert(*of);
  send("FORK", {{"stream_id", *of}, {"streams", ids}});
}

void Client::backtrack() {
  const std::optional<StreamId> of = find_running();
  if (!of) return;
  ClientStream& stream = live_.at(*of);
  Json message{{"stream_id", *of}, {"drop", random_.below(random_.one_in(3) ? 80 : 12)}};
  const int num = random_.below(4);
  for (int i = 0; i < num; ++i) stream.appended.push_back(random_.below(testing::kFakeVocabSize));
  if (num > 0) message["append"] = stream.appended;
  stream.is_edited = true;
  spent_.insert(*of);
  send("BACKTRACK", message);
}

void Client::set_buffer() {
  const std::string name(1, static_cast<char>('a' + random_.below(3)));
  const bool frees = buffers_.contains(name) && random_.one_in(3);
  const std::vector<TokenId>& prefix = prefixes_[static_cast<std::size_t>(random_.below(4))];
  ClientStream question;
  question.kind = ClientStream::Kind::kQuestion;
  question.buffer = name;
  question.samples.resize(frees ? 0 : 1);
  if (!frees) question.samples.front().tokens = prefix;
  const StreamId id = add(std::move(question));
  buffers_.erase(name);  // until it is answered
  latest_of_buffer_[name] = id;
  if (frees) return send("FREE", {{"stream_id", id}, {"buffer", name}});
  Json message{{"stream_id", id}, {"buffer", name}, {"tokens", prefix}};
  if (world_.features.several_models) message["model"] = "m0";
  send("BUFFER", message);
}

void Client::ask() {
  ClientStream question;
  question.kind = ClientStream::Kind::kQuestion;
  Json message{{"stream_id", add(std::move(question))}};
  if (world_.features.several_models) message["model"] = world_.model_name(random_);
  if (random_.one_in(2)) return send("MODEL_INFO", message);
  message["text"] = "Es war einmal";
  send("TOKENIZE", message);
}

}  // namespace lmtp::simulation
