// RankThreads: a thread for each rank of a model that is divided, which all run the same tasks.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "lmtp/base/result.h"

namespace lmtp::agent {

// Owner: the agent that leads the ranks; one thread.
class RankThreads {
 public:
  // What a rank does. What it refers to must be kept alive by it: a thread may be left behind.
  using Task = std::function<Result<void>(int rank)>;
  struct Hooks {
    // The first that a rank's thread does.
    std::function<void(int rank)> on_start;
    // Called on the thread of a rank that fails, with the reason: the others must not wait for it.
    std::function<void(const std::string& reason)> on_failure;
    // The last that a rank's thread does.
    std::function<void(int rank)> on_end;
  };

  // patience: how long the others have to return once a rank has failed, and all to end.
  RankThreads(int count, std::chrono::milliseconds patience, Hooks hooks);
  // A thread that does not end in time is left behind.
  ~RankThreads();
  RankThreads(const RankThreads&) = delete;
  RankThreads& operator=(const RankThreads&) = delete;

  int count() const { return static_cast<int>(threads_.size()); }

  // Runs the task once for each rank and returns when all are done, with the error of the one that
  // failed first.
  Result<void> run_to_end(Task task);
  // The same, but that error says which rank it was; and a rank that does not return in time after
  // a failure is given up. After that every call is an error at once.
  Result<void> run(Task task);

 private:
  struct Shared;

  bool begin(Task task, bool names_rank);
  void close();

  const std::chrono::milliseconds patience_;
  std::shared_ptr<Shared> shared_;
  std::vector<std::thread> threads_;
};

}  // namespace lmtp::agent
