// What clients ask for.
#include <algorithm>
#include <utility>

#include "client.h"

namespace lmtp::simulation {
namespace {

// A byte is a token of the tests' tokenizer.
std::vector<std::string> words_of(const std::vector<TokenId>& bytes) {
  std::vector<std::string> words;
  for (const TokenId byte : bytes) words.emplace_back(1, static_cast<char>(byte));
  return words;
}

void set_text(Json& message) {
  message["text"] = true;
  message["skip_special_tokens"] = false;
}

const Json* ways_of(const Json& entry) {
  for (const char* const name : {"fork", "branches"}) {
    if (entry.contains(name)) return &entry[name];
  }
  return nullptr;
}

// How many sequences its script has in the end.
int num_ways_of(const Json& script) {
  const Json* const ways = script.empty() ? nullptr : ways_of(script.back());
  if (ways == nullptr) return 1;
  int num = 0;
  for (const Json& way : *ways) num += num_ways_of(way);
  return num;
}

void set_choices(Json& message, const std::vector<std::string>& choices) {
  message["grammar"] = {{"type", "choice"}, {"value", choices}};
}

}  // namespace

void Client::send(const std::string& verb, const Json& message) {
  const std::string line = verb + " " + message.dump();
  world_.log(name_, "> " + line);
  ++num_sent_;
  ++world_.counts.num_operations;
  world_.counts.num_bytes += static_cast<std::int64_t>(line.size()) + 1;
  connection_.pipe->send(line + "\n");
}

// An id of a stream that has ended comes again now and then.
StreamId Client::add(ClientStream stream, std::optional<StreamId> again, int num_ways) {
  StreamId id = again.value_or(next_id_);
  if (!again && next_id_ > 1 && random_.one_in(8)) {
    const StreamId used = random_.between(1, static_cast<int>(next_id_) - 1);
    if (!live_.contains(used) && !spent_.contains(used)) id = used;
  }
  next_id_ = std::max(next_id_, id + 1);
  stream.sent = world_.simulator.now();
  stream.is_early = world_.counts.num_steps == 0;
  hear(stream);
  ++world_.counts.num_streams;
  if (stream.kind == ClientStream::Kind::kCandidates) {
    stream.num_requests = static_cast<int>(stream.candidates.size());
  } else if (stream.kind == ClientStream::Kind::kDecide) {
    stream.num_requests = 16;  // more than there are rows
  } else if (stream.kind != ClientStream::Kind::kQuestion) {
    stream.num_requests = static_cast<int>(stream.samples.size()) * num_ways;
  }
  world_.demand.add(stream.sent, stream.num_requests);
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
  const bool needs_name = world_.features.several_models || stream.model != "m0";
  if (needs_name || random_.one_in(2)) message["model"] = stream.model;
  if (world_.features.notices && random_.one_in(2)) {
    stream.notices.resize(1);
    message["notices"] = true;
  }
  if (!world_.features.timeouts || !random_.one_in(4)) return;
  stream.is_of_first = random_.one_in(2);
  stream.timeout_ms = random_.between(1, 3000);
  message[stream.is_of_first ? "first_token_timeout_ms" : "timeout_ms"] = stream.timeout_ms;
}

void Client::generate() {
  ClientStream stream;
  Json message;
  set_common(message, stream);
  std::vector<TokenId> prompt = draw_prompt(300);
  const bool is_chat = world_.features.chats && random_.one_in(3);
  if (is_chat) {
    prompt = draw_chat(message, stream);
  } else if (random_.one_in(6)) {  // the context ends it before max_tokens
    prompt.resize(static_cast<std::size_t>(world_.context_length - random_.between(1, 50)), 1);
  }
  // Where blocks are few, more of those that need more than they began with.
  const bool is_long = random_.one_in(world_.features.small_cache ? 2 : 4);
  stream.max_tokens = random_.between(1, is_long ? 200 : 30);
  const int num_samples = world_.features.samples && random_.one_in(3) ? random_.between(2, 5) : 1;
  Sample sample;
  sample.num_prompt = static_cast<int>(prompt.size());
  sample.tokens = prompt;
  stream.samples.assign(static_cast<std::size_t>(num_samples), sample);
  if (!stream.notices.empty()) stream.notices.resize(stream.samples.size());
  stream.seed = static_cast<std::uint64_t>(random_.below(1000));
  if (!is_chat) message["prompt"] = prompt_of(prompt);
  message["max_tokens"] = stream.max_tokens;
  message["seed"] = stream.seed;
  if (num_samples > 1) message["n"] = num_samples;
  stream.has_text = is_chat || (world_.features.text && random_.one_in(2));
  if (stream.has_text) set_text(message);
  if (stream.calls) {
    // which are its choices
  } else if (!is_chat && world_.features.grammars && random_.one_in(2)) {
    stream.choices = {"Es war", "Es war einmal", "5 \u20ac",
                      "M\u00e4dchen " + std::to_string(random_.below(9))};
    set_choices(message, stream.choices);
  } else if (world_.features.bad_words && random_.one_in(2)) {
    const int num_words = random_.between(1, 60);
    for (int i = 0; i < num_words; ++i) stream.forbidden.push_back(random_.between('!', '~'));
    std::ranges::sort(stream.forbidden);
    message["bad_words"] = words_of(stream.forbidden);
  }
  if (random_.one_in(2)) message["temperature"] = 0.5;
  if (random_.one_in(2)) message["top_logprobs"] = random_.below(3);
  message["stream_id"] = add(std::move(stream));
  send("GENERATE", message);
}

// Where it has tools its reply is read. A call that is forced is one of few.
std::vector<TokenId> Client::draw_chat(Json& message, ClientStream& stream) {
  std::string prompt;
  Json messages = Json::array();
  for (int left = random_.between(1, 3); left > 0; --left) {
    const std::string content = "Es war " + std::to_string(random_.below(20));
    messages.push_back({{"role", left % 2 == 0 ? "assistant" : "user"}, {"content", content}});
    prompt += std::string("[") + (left % 2 == 0 ? "assistant" : "user") + "]" + content + "\n";
  }
  stream.chat["messages"] = std::move(messages);
  if (random_.one_in(2)) {
    Json tools = Json::array();
    for (const std::string name : {"go", "go_on"}) {
      const Json to{{"type", "string"}, {"enum", {"Ulm", "Köln", "Es war"}}};
      const Json parameters{{"type", "object"}, {"properties", {{"to", to}}}, {"required", {"to"}}};
      tools.push_back(
          {{"type", "function"}, {"function", {{"name", name}, {"parameters", parameters}}}});
      prompt += "(" + name + ")";
    }
    stream.chat["tools"] = std::move(tools);
    stream.chat["parsed"] = true;
    stream.calls = random_.one_in(2);
  }
  if (stream.calls) {
    const bool names_one = random_.one_in(2);
    stream.chat["parallel_tool_calls"] = false;
    stream.chat["tool_choice"] = "required";
    if (names_one) {
      stream.chat["tool_choice"] = {{"type", "function"}, {"function", {{"name", "go"}}}};
    }
    for (const std::string name : {"go", "go_on"}) {
      if (names_one && name != "go") continue;
      for (const std::string to : {"Ulm", "Köln", "Es war"}) {
        stream.choices.push_back("<tool_call>\n{\"name\": \"" + name +
                                 "\", \"arguments\": {\"to\": \"" + to + "\"}}\n</tool_call>");
      }
    }
  }
  message.update(stream.chat);
  prompt += "[assistant]";
  std::vector<TokenId> tokens;
  for (const char c : prompt) tokens.push_back(static_cast<unsigned char>(c));
  stream.num_chat = tokens.size();
  return tokens;
}

// A script of tests/support/scripted_runtime.h, of a sequence that has generated so many tokens.
// What it forks into comes last.
Json Client::draw_script(int num_generated, int num_steps, int depth) {
  Json script = Json::array();
  const auto ids = [this](int most) {
    std::vector<TokenId> drawn(static_cast<std::size_t>(random_.between(1, most)));
    for (TokenId& id : drawn) id = random_.below(testing::kFakeVocabSize);
    return drawn;
  };
  for (int left = random_.below(num_steps); left > 0; --left) {
    const int kind = random_.below(4);
    if (kind == 0) {
      script.push_back({{"ff", ids(20)}});
      num_generated += static_cast<int>(script.back()["ff"].size());
    } else if (kind == 1) {
      const int num_dropped = random_.below(std::min(num_generated, 3) + 1);
      script.push_back({{"splice", ids(3)}, {"drop", num_dropped}});
      num_generated -= num_dropped;
      num_generated += static_cast<int>(script.back()["splice"].size());
    } else {
      script.push_back(kind == 2 ? Json{{"any", true}} : Json{{"allow", ids(3)}});
      ++num_generated;
    }
  }
  // What is put there before its end is not.
  if (!script.empty()) script.push_back({{"any", true}});
  if (depth > 1 || !random_.one_in(2)) return script;
  // Each way begins with what it draws; where it is no branch, it may be to end.
  const bool branches = random_.one_in(2);
  Json ways = Json::array();
  for (int left = random_.between(2, 3); left > 0; --left) {
    Json way = draw_script(num_generated, 4, depth + 1);
    if (branches || !way.empty()) way.insert(way.begin(), Json{{"allow", ids(2)}});
    ways.push_back(std::move(way));
  }
  script.push_back({{branches ? "branches" : "fork", std::move(ways)}});
  return script;
}

void Client::run_controller() {
  ClientStream stream;
  Json message;
  set_common(message, stream);
  Sample sample;
  sample.tokens = draw_prompt(300);
  sample.num_prompt = static_cast<int>(sample.tokens.size());
  sample.script = draw_script(0, 8, 0);
  stream.is_controlled = true;
  stream.max_tokens = 200;
  stream.seed = static_cast<std::uint64_t>(random_.below(1000));
  message["prompt"] = prompt_of(sample.tokens);
  message["controller"] = "script";
  message["controller_arg"] = sample.script;
  message["max_tokens"] = stream.max_tokens;
  message["seed"] = stream.seed;
  const int num_ways = num_ways_of(sample.script);
  stream.samples.push_back(std::move(sample));
  const StreamId id = add(std::move(stream), {}, num_ways);
  spent_.insert(id);  // what it logs may come after its end
  message["stream_id"] = id;
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

// Few of them, so that they come again.
void Client::decide() {
  ClientStream stream;
  Json message;
  set_common(message, stream);
  stream.kind = ClientStream::Kind::kDecide;
  Json questions;
  questions["paid"] = {{"type", "noul"}, {"instructions", "Is it?"}};
  if (random_.one_in(2)) {
    questions["team"] = {{"type", "choice"}, {"criteria", {{"pay", nullptr}, {"ship", "goods"}}}};
  }
  if (random_.one_in(2)) {
    questions["age"] = {{"type", "score"}, {"criteria", {"old", "new", "newer"}}};
  }
  stream.decision["state"] = random_.one_in(2) ? "I was charged twice." : "It never came.";
  stream.decision["questions"] = questions;
  stream.samples.resize(1);
  message.update(stream.decision);
  message["stream_id"] = add(std::move(stream));
  send("DECIDE", message);
}

// From where it is; what has no tokens is asked for as a whole.
void Client::ask_again(StreamId id, ClientStream stream) {
  using Kind = ClientStream::Kind;
  if (stream.kind == Kind::kQuestion || stream.cancelled || stream.is_doubtful) return;
  if (random_.one_in(4)) return;
  Json message;
  const bool needs_name = world_.features.several_models || stream.model != "m0";
  if (needs_name) message["model"] = stream.model;
  stream.timeout_ms = stream.progress = 0;
  stream.notices.clear();
  stream.edit.reset();
  stream.first_come.reset();
  for (Sample& sample : stream.samples) sample.appended.clear();
  if (stream.kind == Kind::kScore) {
    // What came of it is the end of its prompt now.
    message["prompt"] = stream.samples.front().tokens;
    message["scored"] = stream.scored;
  } else if (stream.is_controlled) {
    return;  // it can't be continued
  } else if (stream.kind == Kind::kDecide) {
    message.update(stream.decision);
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
    const auto num_chat = sample.tokens.size() - static_cast<std::size_t>(sample.num_resumed);
    if (!stream.chat.empty() && num_chat != stream.num_chat) return;  // an edit has cut the chat
    sample.num_prompt = static_cast<int>(sample.tokens.size());
    if (stream.chat.empty()) {
      message["prompt"] = prompt_of(sample.tokens);
    } else {
      message.update(stream.chat);
    }
    if (!stream.chat.empty() && sample.num_resumed > 0) {
      message["prompt"] =
          std::vector(sample.tokens.end() - sample.num_resumed, sample.tokens.end());
    }
    message["resumed"] = sample.num_resumed;
    message["max_tokens"] = stream.max_tokens;
    if (stream.has_text) set_text(message);
    if (!stream.choices.empty() && !stream.calls) set_choices(message, stream.choices);
    if (!stream.forbidden.empty()) message["bad_words"] = words_of(stream.forbidden);
  }
  const Kind kind = stream.kind;
  message["stream_id"] = add(std::move(stream), id);
  const char* const verb = kind == Kind::kDecide     ? "DECIDE"
                           : kind == Kind::kGenerate ? "GENERATE"
                                                     : "SCORE";
  send(verb, message);
}

void Client::cancel() {
  std::vector<StreamId> ids{next_id_};  // which is not live, and ignored
  for (const auto& [id, stream] : live_) {
    const bool is_question = stream.kind == ClientStream::Kind::kQuestion;
    // A BUFFER of a text may wait, and others for it.
    if (!is_question || (stream.is_counted && !stream.buffer.empty())) ids.push_back(id);
  }
  const StreamId id = ids[static_cast<std::size_t>(random_.below(static_cast<int>(ids.size())))];
  if (const auto at = live_.find(id); at != live_.end()) {
    if (!at->second.cancelled) at->second.cancelled = world_.simulator.now();
  }
  send("CANCEL", {{"stream_id", id}});
}

void Client::set_buffer() {
  const std::string name(1, static_cast<char>('a' + random_.below(3)));
  const bool frees = buffers_.contains(name) && random_.one_in(3);
  const int which = random_.below(4);
  const std::vector<TokenId>& prefix = prefixes_[static_cast<std::size_t>(which)];
  const bool is_text = !frees && which == 0;
  ClientStream question;
  question.kind = ClientStream::Kind::kQuestion;
  question.buffer = name;
  question.is_counted = is_text;  // which needs a model
  question.samples.resize(frees ? 0 : 1);
  if (!frees) question.samples.front().tokens = prefix;
  const StreamId id = add(std::move(question));
  buffers_.erase(name);  // until it is answered
  latest_of_buffer_[name] = id;
  if (frees) return send("FREE", {{"stream_id", id}, {"buffer", name}});
  Json message{{"stream_id", id}, {"buffer", name}};
  if (is_text) {
    message["text"] = std::string(prefix.begin(), prefix.end());
    message["add_special_tokens"] = false;
  } else {
    message["tokens"] = prefix;
  }
  const std::string model = is_text ? world_.model_name(random_) : "m0";
  if (world_.features.several_models) message["model"] = model;
  send("BUFFER", message);
}

void Client::ask_text() {
  const std::vector<TokenId>& tokens = prefixes_[static_cast<std::size_t>(random_.below(4))];
  ClientStream question;
  question.kind = ClientStream::Kind::kQuestion;
  question.is_counted = true;
  question.right["/text"] = world_.tokenizer.decode(tokens);
  Json message{
      {"stream_id", add(std::move(question))}, {"tokens", tokens}, {"skip_special_tokens", false}};
  if (world_.features.several_models) message["model"] = world_.model_name(random_);
  send("DETOKENIZE", message);
}

// ScriptedRuntime names a module by its size.
void Client::ask_module() {
  constexpr const char* kModules[] = {"AA==", "AAA=", "AAAA"};
  const int size = random_.between(1, 3);
  const std::string id = "aa" + std::to_string(size);
  const std::string name = "tag-" + std::to_string(random_.below(3));
  ClientStream question;
  question.kind = ClientStream::Kind::kQuestion;
  question.asks_module = true;
  Json message;
  switch (random_.below(4)) {
    case 0:
      message = {{"op", "upload"}, {"binary", kModules[size - 1]}};
      question.right["/controller/module_id"] = id;
      question.right["/controller/wasm_size"] = size;
      break;
    case 1:
      message = {{"op", "tag"}, {"module_id", id}, {"tags", {name}}};
      question.right["/controller/tags/0/tag"] = name;
      question.right["/controller/tags/0/module_id"] = id;
      break;
    case 2:
      message = {{"op", "untag"}, {"tags", {name}}};
      question.right["/controller/tags"] = Json::array();
      break;
    default:
      message = {{"op", "list"}};
      question.right["/controller/tags/0/tag"] = "script";
  }
  message["stream_id"] = add(std::move(question));
  if (world_.features.several_models) message["model"] = world_.model_name(random_);
  send("CONTROLLER", message);
}

void Client::ask() {
  if (world_.features.detokenize && random_.one_in(3)) return ask_text();
  if (world_.features.modules && world_.features.controllers && random_.one_in(2)) {
    return ask_module();
  }
  const bool is_info = random_.one_in(2);
  const std::string text = "Es war einmal";
  ClientStream question;
  question.kind = ClientStream::Kind::kQuestion;
  question.is_counted = !is_info;
  question.samples.resize(is_info ? 0 : 1);
  if (!is_info) question.samples.front().tokens.assign(text.begin(), text.end());
  Json message{{"stream_id", add(std::move(question))}};
  if (world_.features.several_models) message["model"] = world_.model_name(random_);
  if (is_info) return send("MODEL_INFO", message);
  message["text"] = text;
  message["add_special_tokens"] = false;
  send("TOKENIZE", message);
}

}  // namespace lmtp::simulation
