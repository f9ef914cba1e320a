#include "line_editor.h"

#include <histedit.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <cwchar>
#include <filesystem>
#include <system_error>
#include <utility>

namespace lmtp::tools {

namespace fs = std::filesystem;

struct LineEditor::Impl {
  std::string prompt;
  std::string history_file;
  client::Interrupts* interrupts = nullptr;
  EditLine* edit = nullptr;
  History* history = nullptr;
  bool interrupted = false;

  static Impl* of(EditLine* edit) {
    void* self = nullptr;
    el_get(edit, EL_CLIENTDATA, &self);
    return static_cast<Impl*>(self);
  }
  static char* prompt_of(EditLine* edit) { return of(edit)->prompt.data(); }
  static int get_char(EditLine* edit, wchar_t* out) { return of(edit)->read_char(out); }

  // 1: a character, 0: the end, -1: Ctrl-C.
  int read_char(wchar_t* out);
  // Waits for a byte of the terminal; the same numbers.
  int read_byte(char* out);
  void remember(const std::string& line);
};

int LineEditor::Impl::read_byte(char* out) {
  for (;;) {
    pollfd waits[] = {{STDIN_FILENO, POLLIN, 0}, {interrupts->fd(), POLLIN, 0}};
    if (poll(waits, 2, -1) < 0 && errno != EINTR) return 0;
    if (interrupts->take()) {
      interrupted = true;
      return -1;
    }
    if (waits[0].revents == 0) continue;
    const ssize_t num_read = ::read(STDIN_FILENO, out, 1);
    if (num_read == 1) return 1;
    if (num_read == 0 || errno != EINTR) return 0;
  }
}

int LineEditor::Impl::read_char(wchar_t* out) {
  std::mbstate_t state = {};
  for (;;) {
    char byte = 0;
    if (const int status = read_byte(&byte); status != 1) return status;
    const std::size_t result = std::mbrtowc(out, &byte, 1, &state);
    if (result == static_cast<std::size_t>(-2)) continue;  // more bytes follow
    if (result == static_cast<std::size_t>(-1)) {
      state = {};
      continue;  // invalid UTF-8: skip this byte
    }
    return 1;
  }
}

void LineEditor::Impl::remember(const std::string& line) {
  HistEvent event;
  ::history(history, &event, H_ENTER, line.c_str());
  if (!history_file.empty()) ::history(history, &event, H_SAVE, history_file.c_str());
}

std::string history_path() {
  const char* state = std::getenv("XDG_STATE_HOME");
  if (state != nullptr && *state != '\0') {
    const fs::path folder = fs::path(state) / "lmtp";
    std::error_code error;
    fs::create_directories(folder, error);
    return error ? "" : (folder / "history").string();
  }
  const char* home = std::getenv("HOME");
  return home == nullptr || *home == '\0' ? "" : std::string(home) + "/.lmtp_history";
}

LineEditor::LineEditor(std::string prompt, std::string history, client::Interrupts& interrupts)
    : impl_(std::make_unique<Impl>()) {
  // libedit takes the characters' encoding from the locale, which must be UTF-8.
  std::setlocale(LC_CTYPE, "");
  if (MB_CUR_MAX == 1) std::setlocale(LC_CTYPE, "C.UTF-8");

  impl_->prompt = std::move(prompt);
  impl_->history_file = std::move(history);
  impl_->interrupts = &interrupts;
  impl_->history = history_init();
  impl_->edit = el_init("lmtp-client", stdin, stdout, stderr);
  el_set(impl_->edit, EL_CLIENTDATA, impl_.get());
  el_set(impl_->edit, EL_PROMPT, &Impl::prompt_of);
  el_set(impl_->edit, EL_EDITOR, "emacs");
  el_set(impl_->edit, EL_HIST, ::history, impl_->history);
  el_set(impl_->edit, EL_BIND, "^R", "em-inc-search-prev", nullptr);
  el_set(impl_->edit, EL_GETCFN, &Impl::get_char);
  HistEvent event;
  ::history(impl_->history, &event, H_SETSIZE, kHistoryEntriesMax);
  ::history(impl_->history, &event, H_SETUNIQUE, 1);
  if (!impl_->history_file.empty()) {
    ::history(impl_->history, &event, H_LOAD, impl_->history_file.c_str());
  }
  el_source(impl_->edit, nullptr);
}

LineEditor::~LineEditor() {
  el_end(impl_->edit);
  history_end(impl_->history);
}

LineStatus LineEditor::read(std::string& line) {
  line.clear();
  impl_->interrupted = false;
  impl_->interrupts->take();  // discards an earlier one
  // Before the prompt is shown: a Ctrl-D typed while the terminal is still in cooked mode would be
  // lost.
  el_set(impl_->edit, EL_PREP_TERM, 1);
  int size = 0;
  const char* text = el_gets(impl_->edit, &size);
  if (impl_->interrupted) {
    const LineInfo* typed = el_line(impl_->edit);
    line.assign(typed->buffer, typed->lastchar);
    el_reset(impl_->edit);
    std::fputs("\n", stdout);
    std::fflush(stdout);
    return LineStatus::kInterrupted;
  }
  if (text == nullptr || size <= 0) return LineStatus::kEnd;
  line.assign(text, static_cast<std::size_t>(size));
  while (!line.empty() && (line.back() == '\n' || line.back() == '\r')) line.pop_back();
  if (line.find_first_not_of(' ') != std::string::npos) impl_->remember(line);
  return LineStatus::kLine;
}

}  // namespace lmtp::tools
