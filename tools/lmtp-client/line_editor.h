// LineEditor: reads lines from a terminal, by libedit.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "lmtp/client/interrupts.h"

namespace lmtp::tools {

inline constexpr int kHistoryEntriesMax = 1000;

// Where the history is kept: $XDG_STATE_HOME/lmtp/history, else ~/.lmtp_history; empty: nowhere.
std::string history_path();

enum class LineStatus { kLine, kInterrupted, kEnd };

// Owner: the REPL; its thread. Keys: Emacs style, arrows, Ctrl-R; ~/.editrc is read.
class LineEditor {
 public:
  // Prints `prompt` before each line. An empty `history` path keeps none.
  LineEditor(std::string prompt, std::string history, client::Interrupts& interrupts);
  ~LineEditor();
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  // kInterrupted: Ctrl-C; `line` then holds what was typed so far. kEnd: Ctrl-D on an empty line,
  // or the terminal is gone.
  LineStatus read(std::string& line);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lmtp::tools
