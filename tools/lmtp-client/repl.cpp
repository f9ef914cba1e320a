#include "repl.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "common/json_text.h"
#include "lmtp/base/json.h"
#include "lmtp/base/version.h"
#include "repl_text.h"

namespace lmtp::tools {
namespace {

using protocol::ServerEntry;

constexpr std::size_t kLineBytesMax = std::size_t{16} << 20;

constexpr const char* kHelp =
    "PROMPT [key=value ...]     generate; the parameters are those of /set\n"
    "/score PROMPT ||| TEXT     log probability of each token of TEXT after PROMPT\n"
    "                           (a space after ||| belongs to TEXT)\n"
    "/score PROMPT ||| TEXT ||| TEXT ...\n"
    "                           log probability of each whole TEXT after PROMPT\n"
    "/decide QUESTION ||| OPTION ||| OPTION ...\n"
    "                           how probable each answer is, by the chat so far; outside of a\n"
    "                           chat by the next line; without options yes and no\n"
    "/set [key=value ...]       change the parameters of all later prompts, or show them;\n"
    "                           top_logprobs=3 shows what else each token might have been\n"
    "/chat [off]                prompts are messages of a new chat from now on, or no longer\n"
    "/system [TEXT]             the chat's system message\n"
    "/undo                      take the last prompt of the chat and its answer back\n"
    "/controller NAME [ARG]     streams are decided on by this controller (a tag or an id) from "
    "now\n"
    "                           on, with this argument; /controller off; /controller list\n"
    "/controller upload FILE.wasm [TAG]\n"
    "                           bring one, and name it\n"
    "/info                      what the server says of its model\n"
    "/help                      this\n"
    "/quit                      end; so does Ctrl-D\n"
    "Ctrl-C ends the stream that is running, or clears the line.\n"
    "A prompt that begins with / is written with a space in front of it.\n";

// Reads one line of `input` without its line end. False at the end of the input.
bool read_line(std::FILE* input, std::string& line, bool& too_long) {
  line.clear();
  too_long = false;
  for (int c = std::getc(input); c != EOF; c = std::getc(input)) {
    if (c == '\n') return true;
    if (line.size() < kLineBytesMax) {
      line.push_back(static_cast<char>(c));
    } else {
      too_long = true;
    }
  }
  return !line.empty();
}

}  // namespace

Repl::Repl(ReplOptions options, const tokenizer::Tokenizer* tokenizer, ServerLink& link,
           client::Interrupts& interrupts)
    : options_(std::move(options)), tokenizer_(tokenizer), link_(link), interrupts_(interrupts) {
  conversation_.set_system(options_.system);
}

int Repl::run_interactive(LineEditor& editor) {
  std::printf("lmtp-client %s, %s; /help lists the commands\n", std::string(kVersion).c_str(),
              link_.address().c_str());
  if (const auto connected = link_.connect(); !connected) {
    std::fprintf(stderr, "note: %s (the next prompt tries again)\n",
                 one_line(connected.error().message).c_str());
  }
  is_interactive_ = true;
  int interrupts_in_a_row = 0;
  for (;;) {
    std::string line;
    switch (editor.read(line)) {
      case LineStatus::kEnd:
        print("\n");
        return 0;
      case LineStatus::kInterrupted:
        if (++interrupts_in_a_row >= 2) print("(Ctrl-D or /quit ends the program)\n");
        continue;
      case LineStatus::kLine:
        interrupts_in_a_row = 0;
        break;
    }
    if (run_line(line) == Status::kQuit) return 0;
  }
}

int Repl::run_pipe(std::FILE* input) {
  int code = 0;
  std::string line;
  bool too_long = false;
  while (read_line(input, line, too_long)) {
    Status status = Status::kOk;
    if (too_long) {
      status = fail("a line of more than " + std::to_string(kLineBytesMax >> 20) + " MiB");
    } else {
      status = run_line(line);
    }
    if (status == Status::kQuit) return code;
    if (status == Status::kCancelled) return kExitInterrupted;
    if (status == Status::kFailed) code = 1;
  }
  return interrupts_.take() ? kExitInterrupted : code;
}

int Repl::run_prompt(const std::string& prompt) {
  return exit_code(generate(prompt, options_.params));
}

int Repl::run_score(const std::string& prompt, const std::string& text) {
  return exit_code(score(prompt, text));
}

int Repl::exit_code(Status status) const {
  if (status == Status::kCancelled) return kExitInterrupted;
  return status == Status::kFailed ? 1 : 0;
}

Repl::Status Repl::fail(const std::string& message) const {
  std::fprintf(stderr, "%s\n", wrapped("error: " + one_line(message), STDERR_FILENO).c_str());
  return Status::kFailed;
}

Repl::Status Repl::run_line(const std::string& line) {
  if (trimmed(line).empty()) return Status::kOk;
  if (auto asked = std::exchange(asked_, std::nullopt); asked && line.front() != '/') {
    append_json_string(line, asked->message.state);
    return decide(std::move(*asked));
  }
  if (line.front() == '/') return run_command(line);
  const auto parsed = parse_prompt_line(line, options_.params);
  if (!parsed) return fail(parsed.error().message);
  return generate(parsed->prompt, parsed->params);
}

Repl::Status Repl::run_command(std::string_view line) {
  const std::size_t space = std::min(line.find(' '), line.size());
  const std::string_view command = line.substr(0, space);
  const std::string_view rest = line.substr(std::min(space + 1, line.size()));
  if (command == "/quit" || command == "/exit") return Status::kQuit;
  if (command == "/help") {
    print(kHelp);
    return Status::kOk;
  }
  if (command == "/info") return show_info();
  if (command == "/set") return set(rest);
  if (command == "/score") return score_line(rest);
  if (command == "/decide") return decide_line(rest);
  if (command == "/chat") return chat(trimmed(rest));
  if (command == "/system") return set_system(trimmed(rest));
  if (command == "/undo") return undo();
  if (command == "/controller") return controller(trimmed(rest));
  return fail("unknown command " + std::string(command) +
              "; /help lists them (a prompt that begins with / needs a space in front)");
}

Repl::Status Repl::show_info() {
  const auto info = link_.ask_info();
  if (!info) return fail(info.error().message);
  print(indented(info->json) + "\n");
  const auto fits = check_tokenizer();
  return fits ? Status::kOk : fail(fits.error().message);
}

Repl::Status Repl::set(std::string_view words) {
  words = trimmed(words);
  if (words.empty()) {
    print(describe_params(options_.params));
    return Status::kOk;
  }
  ReplParams changed = options_.params;
  while (!words.empty()) {
    std::string word(take_word(words));
    const bool is_name = word.find('=') == std::string::npos && is_param(word + "=1");
    if (is_name && !words.empty()) word += "=" + std::string(take_word(words));
    const std::size_t equals = word.find('=');
    if (equals == std::string_view::npos) {
      return fail("'" + word + "' is not key=value; known keys are " + param_names());
    }
    const std::string_view pair = word;
    const auto done = set_param(changed, pair.substr(0, equals), pair.substr(equals + 1));
    if (!done) return fail(done.error().message);
  }
  options_.params = std::move(changed);
  return Status::kOk;
}

Repl::Status Repl::score_line(std::string_view words) {
  std::vector<std::string> texts = separated(words);
  if (texts.size() == 1) return fail("write /score PROMPT ||| TEXT");
  if (texts.size() == 2) return score(texts[0], texts[1]);
  const std::string prompt = std::move(texts.front());
  texts.erase(texts.begin());
  return score_each(prompt, texts);
}

Repl::Status Repl::chat(std::string_view words) {
  if (!words.empty() && words != "off") return fail("write /chat or /chat off");
  options_.chat = words.empty();
  conversation_.clear();
  return Status::kOk;
}

Repl::Status Repl::set_system(std::string_view text) {
  if (!options_.chat) return fail("there is no chat; /chat begins one");
  conversation_.set_system(std::string(text));
  return Status::kOk;
}

Repl::Status Repl::undo() {
  if (!options_.chat) return fail("there is no chat; /chat begins one");
  return conversation_.undo() ? Status::kOk : fail("nothing has been said in this chat");
}

Result<std::vector<TokenId>> Repl::encode_prompt(const std::string& prompt,
                                                 std::optional<bool> bos) const {
  auto ids = tokenizer_->encode(prompt);
  if (!ids) return ids;
  const TokenId bos_id = tokenizer_->bos_id();
  if (bos.value_or(false) && bos_id < 0) {
    return Error{ErrorCode::kInvalid, "bos: this tokenizer has no BOS token"};
  }
  // No second BOS if the prompt's text begins with one.
  const bool begins_so = !ids->empty() && ids->front() == bos_id;
  if (bos.value_or(tokenizer_->adds_bos() && !begins_so)) ids->insert(ids->begin(), bos_id);
  return ids;
}

template <typename Message>
Result<void> Repl::set_prompt(Message& message, const std::string& prompt,
                              std::optional<bool> bos) {
  if (tokenizer_ == nullptr) {
    message.options.prompt_parts = {prompt};
    message.options.add_special_tokens = bos.value_or(true);
    message.options.text = true;
    return {};
  }
  if (auto fits = check_tokenizer(); !fits) return fits.error();
  auto ids = encode_prompt(prompt, bos);
  if (!ids) return ids.error();
  message.prompt = std::move(*ids);
  return {};
}

// What the token adds to the text that is printed.
std::string Repl::piece_of(const ServerEntry& entry, bool at_start,
                           tokenizer::StreamDecoder& decoder) const {
  if (entry.text || tokenizer_ == nullptr) return entry.text.value_or("");
  if (!entry.token || tokenizer_->is_special(*entry.token)) return "";
  return decoder.push(at_start ? tokenizer_->first_token_bytes(*entry.token)
                               : tokenizer_->token_bytes(*entry.token));
}

Repl::Status Repl::generate(const std::string& prompt, const ReplParams& params) {
  // An empty prompt would be refused: send BOS alone.
  const bool needs_bos = prompt.empty() && tokenizer_ != nullptr && tokenizer_->bos_id() >= 0;
  protocol::GenerateMessage message;
  if (options_.chat) {
    message.chat = conversation_.ask(prompt);
  } else if (auto set = set_prompt(message, prompt, needs_bos ? true : params.bos); !set) {
    return fail(set.error().message);
  }
  message.params = params.sampling;
  message.stop = params.stop;
  message.grammar = params.grammar;
  if (!params.stop.empty()) message.options.text = true;  // which ends where they begin
  if (!params.controller.empty()) {
    message.controller = params.controller;
    message.controller_arg = params.controller_arg;
    return generate_controlled(std::move(message), prompt);
  }

  tokenizer::StreamDecoder decoder;
  std::vector<TokenId> ids = message.prompt;
  std::string text = prompt;  // where the server decodes
  std::string answer;         // of a chat
  std::string alternatives;
  bool in_a_line = options_.echo && !options_.raw && !options_.chat;
  bool at_start = prompt.empty();
  if (in_a_line) print(prompt);
  ServerLink::Handler handler;
  handler.on_loading = [this](const ServerEntry& entry) { show_loading(entry); };
  handler.on_token = [&](const ServerEntry& entry) {
    end_loading();
    answer += entry.text.value_or("");
    if (options_.raw) {
      print(python_repr(entry.raw_json) + "\n");
      ids.push_back(*entry.token);
      text += entry.text.value_or("");
      return;
    }
    print(piece_of(entry, at_start, decoder));
    if (is_interactive_ && entry.top_logprobs.size() > 1) alternatives += alternatives_of(entry);
    if (tokenizer_ != nullptr && tokenizer_->is_special(*entry.token)) return;
    at_start = false;
    in_a_line = true;
  };
  const auto outcome = link_.run(std::move(message), handler);
  end_loading();
  if (options_.raw) {
    if (tokenizer_ != nullptr) text = tokenizer_->decode(ids);
    if (outcome) print(options_.color ? "\033[32m" + text + "\033[0m\n" : text + "\n");
  } else if (outcome || in_a_line) {
    print(decoder.finish() + "\n" + alternatives);
  }
  if (options_.chat && outcome) conversation_.add(prompt, answer);
  return status_of(outcome);
}

// A line: the token that was taken, and the best with their log probabilities.
std::string Repl::alternatives_of(const ServerEntry& entry) const {
  const auto shown = [&](TokenId id) {
    if (tokenizer_ != nullptr) return quoted_token(tokenizer_->token_bytes(id));
    return id == entry.token ? quoted_token(entry.text.value_or("")) : std::to_string(id);
  };
  const auto number = [](float logprob) {
    char text[32];
    std::snprintf(text, sizeof text, "%.4f", static_cast<double>(logprob));
    return std::string(text);
  };
  std::string line = "  " + shown(*entry.token) + " " + number(entry.logprob) + "  of";
  for (const TokenLogprob& one : entry.top_logprobs) {
    line += "  " + shown(one.token) + " " + number(one.logprob);
  }
  return line + "\n";
}

Repl::Status Repl::score(const std::string& prompt, const std::string& text) {
  if (text.empty()) return fail("there is no text to score");
  protocol::ScoreMessage message;
  if (auto set = set_prompt(message, prompt, options_.params.bos); !set) {
    return fail(set.error().message);
  }
  if (tokenizer_ == nullptr) {
    message.scored_text = text;
  } else {
    auto scored = prompt.empty() ? tokenizer_->encode(text) : tokenizer_->encode_continuation(text);
    if (!scored) return fail(scored.error().message);
    message.scored = std::move(*scored);
    if (message.scored.empty()) return fail("there is no text to score");
  }

  double sum = 0.0;
  int num_tokens = 0;
  ServerLink::Handler handler;
  handler.on_loading = [this](const ServerEntry& entry) { show_loading(entry); };
  handler.on_token = [&](const ServerEntry& entry) {
    end_loading();
    sum += static_cast<double>(entry.logprob);
    ++num_tokens;
    if (options_.raw) return print(python_repr(entry.raw_json) + "\n");
    std::printf("%10.4f  %s\n", static_cast<double>(entry.logprob),
                quoted_token(tokenizer_ != nullptr ? tokenizer_->token_bytes(*entry.token)
                                                   : entry.text.value_or(""))
                    .c_str());
    std::fflush(stdout);
  };
  const auto outcome = link_.run(std::move(message), handler);
  end_loading();
  if (outcome && *outcome == ServerLink::Outcome::kFinished && !options_.raw) {
    std::printf("%10.4f  in all, %.4f a token, %d token%s\n", sum, sum / num_tokens, num_tokens,
                num_tokens == 1 ? "" : "s");
    std::fflush(stdout);
  }
  return status_of(outcome);
}

Repl::Status Repl::score_each(const std::string& prompt, const std::vector<std::string>& texts) {
  protocol::ScoreMessage message;
  if (auto set = set_prompt(message, prompt, options_.params.bos); !set) {
    return fail(set.error().message);
  }
  for (const std::string& text : texts) {
    if (tokenizer_ == nullptr) {
      message.candidates.emplace_back(text);
      continue;
    }
    auto ids = tokenizer_->encode_continuation(text);
    if (!ids) return fail(ids.error().message);
    message.candidates.emplace_back(std::move(*ids));
  }
  ServerLink::Handler handler;
  handler.on_loading = [this](const ServerEntry& entry) { show_loading(entry); };
  handler.on_token = [&](const ServerEntry& entry) {
    end_loading();
    if (options_.raw) return print(python_repr(entry.raw_json) + "\n");
    for (std::size_t i = 0; i < std::min(texts.size(), entry.candidates.size()); ++i) {
      const CandidateLogprob& one = entry.candidates[i];
      std::printf("%10.4f  %s, %d token%s\n", one.logprob, quoted_token(texts[i]).c_str(),
                  one.num_tokens, one.num_tokens == 1 ? "" : "s");
    }
    std::fflush(stdout);
  };
  const auto outcome = link_.run(std::move(message), handler);
  end_loading();
  return status_of(outcome);
}

Repl::Status Repl::status_of(const Result<ServerLink::Outcome>& outcome) const {
  if (!outcome) return fail(outcome.error().message);
  if (*outcome == ServerLink::Outcome::kFinished) return Status::kOk;
  std::fputs("[cancelled]\n", stderr);
  return Status::kCancelled;
}

void Repl::show_loading(const ServerEntry& entry) {
  if (!options_.progress) return;
  std::fprintf(stderr, "\rloading: %d %%", entry.progress_percent);
  loading_shown_ = true;
}

void Repl::end_loading() {
  if (!loading_shown_) return;
  std::fputs("\r\033[K", stderr);
  loading_shown_ = false;
}

Result<void> Repl::check_tokenizer() {
  if (is_checked_ || tokenizer_ == nullptr) return {};
  const auto info = link_.ask_info();
  if (!info || info->vocab_size == 0) return {};  // the request says what is wrong, if anything is
  const std::int64_t of_model = info->vocab_size;
  const std::int64_t of_tokenizer = tokenizer_->vocab_size();
  // A model's vocabulary is often padded, and lacks a few tokens that were added; the demo's is as
  // its tokenizer.
  constexpr std::int64_t kAddedMax = 64;
  is_checked_ =
      options_.own_model ? of_model + kAddedMax >= of_tokenizer : of_model == of_tokenizer;
  if (is_checked_) return {};
  if (has_random_weights(*info)) {  // whose answers mean nothing by any tokenizer
    is_checked_ = true;
    std::fprintf(stderr, "note: the tokenizer has %lld tokens, the server's random model %lld\n",
                 static_cast<long long>(of_tokenizer), static_cast<long long>(of_model));
    return {};
  }
  return Error{ErrorCode::kInvalid,
               "the tokenizer has " + std::to_string(of_tokenizer) +
                   " tokens, the server's model '" + info->model + "' " + std::to_string(of_model) +
                   ": start lmtp-client with that model's name or folder, or with --text"};
}

}  // namespace lmtp::tools
