// Ranks on threads of their own.
#pragma once

#include <gtest/gtest.h>

#include <exception>
#include <string>
#include <thread>
#include <vector>

#include "lmtp/model/rank_group.h"

namespace lmtp::testing {

// Calls body(communicator) for every rank, each on a thread. One that throws, or fails an ASSERT,
// ends the group. Returns what each rank threw, "" if nothing, when all have ended.
template <typename Body>
std::vector<std::string> run_ranks(model::RankGroup& ranks, const Body& body) {
  std::vector<std::string> errors(static_cast<std::size_t>(ranks.count()));
  std::vector<std::thread> threads;
  threads.reserve(errors.size());
  for (int rank = 0; rank < ranks.count(); ++rank) {
    threads.emplace_back([&, rank] {
      try {
        body(ranks[rank]);
        if (::testing::Test::HasFatalFailure()) ranks.abort("a check of the test failed");
      } catch (const std::exception& exception) {
        errors[static_cast<std::size_t>(rank)] = exception.what();
        ranks.abort("rank " + std::to_string(rank) + " failed: " + exception.what());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

}  // namespace lmtp::testing
