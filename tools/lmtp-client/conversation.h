// Conversation: what was said so far in a chat.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "lmtp/request/chat.h"

namespace lmtp::tools {

// Owner: the REPL.
class Conversation {
 public:
  // What is said before all else; empty: nothing.
  void set_system(std::string text) { system_ = std::move(text); }
  // The user's words, and what the model said to them.
  void add(std::string user, std::string answer) {
    exchanges_.emplace_back(std::move(user), std::move(answer));
  }
  // Takes the last exchange back; false: there is none.
  bool undo();
  // Forgets all of them.
  void clear() { exchanges_.clear(); }

  // The messages with which the model is asked to answer.
  Chat ask(const std::string& user) const;
  // All that was said, as JSON; empty: nothing.
  std::string said() const;

 private:
  std::string messages() const;

  std::string system_;
  std::vector<std::pair<std::string, std::string>> exchanges_;
};

}  // namespace lmtp::tools
