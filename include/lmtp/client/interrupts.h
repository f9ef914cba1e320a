// Ctrl-C as something one can ask for and wait for, instead of the program's end.
#pragma once

#include <csignal>

#include <atomic>

#include "lmtp/client/client.h"

namespace lmtp::client {

// While one lives, SIGINT is counted and wakes whoever waits. At most one lives at a time, which is
// the one that the signal handler, a plain function, knows of.
// Owner: main; its thread.
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

  // The client whose receive() or connect() a SIGINT wakes; null: none. REQUIRES: it stays where it
  // is until another is set.
  void wakes(Client* client) { client_.store(client); }

 private:
  static void handle(int signal);

  int fd_ = -1;
  std::atomic<Client*> client_ = nullptr;
  struct sigaction old_ = {};
};

}  // namespace lmtp::client
