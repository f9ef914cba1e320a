// Repl: processes lmtp-client's input lines, from a terminal, a pipe or the command line.
#pragma once

#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "conversation.h"
#include "line_editor.h"
#include "lmtp/base/result.h"
#include "lmtp/client/interrupts.h"
#include "lmtp/tokenizer/tokenizer.h"
#include "repl_params.h"
#include "server_link.h"

namespace lmtp::tools {

inline constexpr int kExitInterrupted = 130;  // as a shell reports SIGINT

struct ReplOptions {
  ReplParams params;
  bool chat = false;       // prompts are messages of one chat
  std::string system;      // its first message; empty: none
  bool raw = false;        // token entries as LMQL's client prints them, then the whole text
  bool echo = false;       // the prompt in front of what follows
  bool color = false;      // of --raw's text
  bool progress = false;   // loading notices on stderr
  bool own_model = false;  // MODEL was given, so its tokenizer is assumed to be right
};

// Owner: main; its thread. Text goes to stdout; errors and notes to stderr, one line each.
class Repl {
 public:
  // All outlive the Repl.
  // `tokenizer`: null where the server encodes and decodes.
  Repl(ReplOptions options, const tokenizer::Tokenizer* tokenizer, ServerLink& link,
       client::Interrupts& interrupts);

  // Each returns the program's exit code.
  int run_interactive(LineEditor& editor);
  int run_pipe(std::FILE* input);
  int run_prompt(const std::string& prompt);
  int run_score(const std::string& prompt, const std::string& text);

 private:
  enum class Status { kOk, kFailed, kCancelled, kQuit };

  Status run_line(const std::string& line);
  Status run_command(std::string_view line);
  Status show_info();
  Status set(std::string_view words);
  Status score_line(std::string_view words);
  // repl_decide.cpp
  struct Decision {
    protocol::DecideMessage message;
    std::vector<std::string> options;  // none: yes and no
  };
  Status decide_line(std::string_view words);
  Status decide(Decision asked);
  Status chat(std::string_view words);
  Status set_system(std::string_view text);
  Status undo();
  Status controller(std::string_view words);
  Status upload_controller(std::string_view words);
  Status generate(const std::string& prompt, const ReplParams& params);
  Status generate_controlled(protocol::GenerateMessage message, const std::string& prompt);
  Status score(const std::string& prompt, const std::string& text);
  Status score_each(const std::string& prompt, const std::vector<std::string>& texts);
  Status fail(const std::string& message) const;
  Status status_of(const Result<ServerLink::Outcome>& outcome) const;
  int exit_code(Status status) const;

  // The prompt's ids, with BOS if requested, or by default if the tokenizer's files say so.
  Result<std::vector<TokenId>> encode_prompt(const std::string& prompt,
                                             std::optional<bool> bos) const;
  template <typename Message>
  Result<void> set_prompt(Message& message, const std::string& prompt, std::optional<bool> bos);
  std::string piece_of(const protocol::ServerEntry& entry, bool at_start,
                       tokenizer::StreamDecoder& decoder) const;
  std::string alternatives_of(const protocol::ServerEntry& entry) const;
  void show_loading(const protocol::ServerEntry& entry);
  void end_loading();
  // The error where the tokenizer obviously is not the model's, asked until the server knows.
  Result<void> check_tokenizer();

  ReplOptions options_;
  const tokenizer::Tokenizer* const tokenizer_;
  ServerLink& link_;
  client::Interrupts& interrupts_;
  Conversation conversation_;
  std::optional<Decision> asked_;  // of which the next line is the state
  bool loading_shown_ = false;
  bool is_interactive_ = false;
  bool is_checked_ = false;  // the tokenizer fits
};

}  // namespace lmtp::tools
