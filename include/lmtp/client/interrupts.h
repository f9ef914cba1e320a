// Catches SIGINT (Ctrl-C), so that a program can poll and wait for it instead of ending.
#pragma once

#include <csignal>

#include <atomic>

#include "lmtp/client/client.h"

namespace lmtp::client {

// While an object lives, SIGINT is counted and wakes waiting calls. At most one lives at a time:
// the signal handler reaches it by a global pointer. Owner: main; its thread.
class Interrupts {
 public:
  Interrupts();
  ~Interrupts();  // SIGINT is then as before
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  // Whether there was a SIGINT since the last call.
  bool take();

  // Readable while take() would be true: for poll().
  int fd() const { return fd_; }

  // The client whose receive() or connect() a SIGINT wakes; null: none. REQUIRES: it is not moved
  // or destroyed before another is set.
  void wakes(Client* client) { client_.store(client); }

 private:
  static void handle(int signal);

  int fd_ = -1;
  std::atomic<Client*> client_ = nullptr;
  struct sigaction old_ = {};
};

}  // namespace lmtp::client
