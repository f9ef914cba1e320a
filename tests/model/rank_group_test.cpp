// Sums over ranks, whatever carries them: their order, and what becomes of the others where one
// fails.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <bit>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "kernels/backend.h"
#include "lmtp/model/local_ranks.h"
#include "rank_transports.h"
#include "run_ranks.h"

namespace lmtp {
namespace {

using model::Communicator;
using model::LocalRanks;
using model::RankError;
using model::RankGroup;
using model::Transport;
using testing::run_ranks;

constexpr std::int64_t kRows = 3;
constexpr std::int64_t kColumns = 37;  // not a multiple of any number of ranks here
constexpr std::int64_t kStride = 41;
constexpr float kBeside = 123.0F;  // in the columns that do not belong to the matrix

// A rank's element in its sum number `round`: large ones and small ones of both signs, so that
// another order of adding gives other bits.
float element(int rank, int round, std::int64_t row, std::int64_t column) {
  const auto number = static_cast<float>(rank * 7 + round * 3 + row * 5 + column);
  return std::sin(number) * std::exp(8.0F * std::cos(3.0F * number));
}

float sum_in_order(int num_ranks, int round, std::int64_t row, std::int64_t column) {
  float sum = element(0, round, row, column);
  for (int rank = 1; rank < num_ranks; ++rank) sum += element(rank, round, row, column);
  return sum;
}

// A rank's matrix, with its stream.
struct RankMatrix {
  explicit RankMatrix(std::int64_t rows = kRows)
      : values(static_cast<std::size_t>(rows * kStride), kBeside),
        matrix{values.data(), rows, kColumns, kStride} {}

  kernels::WorkerPool pool{1};
  kernels::Stream stream{kernels::cpu_backend(), pool};
  std::vector<float> values;
  kernels::Matrix<float> matrix;
};

class RankGroupTest : public ::testing::TestWithParam<std::tuple<Transport, int>> {
 protected:
  static std::unique_ptr<RankGroup> connected() {
    auto made = model::make_rank_group(std::get<0>(GetParam()), std::get<1>(GetParam()));
    if (!made.ok()) throw std::runtime_error(made.error().message);
    return *std::move(made);
  }
};

INSTANTIATE_TEST_SUITE_P(Counts, RankGroupTest,
                         ::testing::Combine(::testing::ValuesIn(testing::rank_transports()),
                                            ::testing::Values(1, 2, 3, 4, 8)),
                         [](const auto& which) {
                           return std::string(model::transport_name(std::get<0>(which.param))) +
                                  "_" + std::to_string(std::get<1>(which.param));
                         });

// Beyond what gloo sends as a whole.
constexpr std::int64_t kManyRows = 300;

TEST_P(RankGroupTest, TheSumIsInTheOrderOfRanksWhicheverComesFirst) {
  constexpr int kRounds = 40;
  const auto ranks = connected();
  const auto errors = run_ranks(*ranks, [&](Communicator& communicator) {
    const int rank = communicator.shard().rank;
    RankMatrix few;
    RankMatrix many(kManyRows);
    for (int round = 0; round < kRounds; ++round) {
      RankMatrix& own = round % 5 == 0 ? many : few;
      for (std::int64_t row = 0; row < own.matrix.rows; ++row) {
        for (std::int64_t i = 0; i < kColumns; ++i) {
          own.matrix.row(row)[i] = element(rank, round, row, i);
        }
      }
      // Another one is late each time.
      const bool is_late = round % ranks->count() == rank;
      if (is_late) std::this_thread::sleep_for(std::chrono::microseconds(50));
      communicator.sum(own.stream, own.matrix);
      for (std::int64_t row = 0; row < own.matrix.rows; ++row) {
        for (std::int64_t i = 0; i < kColumns; ++i) {
          ASSERT_EQ(std::bit_cast<std::uint32_t>(own.matrix.row(row)[i]),
                    std::bit_cast<std::uint32_t>(sum_in_order(ranks->count(), round, row, i)))
              << "rank " << rank << ", round " << round << ", " << row << ", " << i;
        }
        for (std::int64_t i = kColumns; i < kStride; ++i) {
          ASSERT_EQ(own.matrix.row(row)[i], kBeside);
        }
      }
    }
  });
  EXPECT_EQ(errors, std::vector<std::string>(errors.size()));
}

TEST_P(RankGroupTest, AGatherGivesEveryRankTheColumnsOfAll) {
  const auto ranks = connected();
  const auto errors = run_ranks(*ranks, [&](Communicator& communicator) {
    const model::VocabShare share = model::vocab_share(kColumns, communicator.shard());
    RankMatrix own;
    for (int round = 0; round < 20; ++round) {
      for (std::int64_t row = 0; row < kRows; ++row) {
        for (std::int64_t i = share.first; i < share.first + share.count; ++i) {
          own.matrix.row(row)[i] = element(0, round, row, i);
        }
      }
      communicator.gather(own.stream, own.matrix);
      for (std::int64_t row = 0; row < kRows; ++row) {
        for (std::int64_t i = 0; i < kColumns; ++i) {
          ASSERT_EQ(own.matrix.row(row)[i], element(0, round, row, i));
        }
        ASSERT_EQ(own.matrix.row(row)[kColumns], kBeside);
      }
    }
  });
  EXPECT_EQ(errors, std::vector<std::string>(errors.size()));
}

TEST(VocabShareTest, SharesAreWholePanelsWhereTheyAreLargeAndCoverAll) {
  for (const std::int64_t size : {64L, 67L, 2048L, 32000L, 50257L, 151936L}) {
    for (const int count : {1, 2, 3, 4, 8, 64}) {
      std::int64_t next = 0;
      for (int rank = 0; rank < count; ++rank) {
        const model::VocabShare share = model::vocab_share(size, {rank, count});
        EXPECT_EQ(share.first, next);
        EXPECT_GE(share.count, 1);
        EXPECT_LE(share.count, size / count + 33);
        if (size / count >= 1024) {
          EXPECT_EQ(share.first % 32, 0);
        }
        next = share.first + share.count;
      }
      EXPECT_EQ(next, size);
    }
  }
}

TEST(RankGroupOrderTest, TheOrderMatters) {
  int num_different = 0;
  for (std::int64_t i = 0; i < kColumns; ++i) {
    const float backwards = (element(2, 0, 0, i) + element(1, 0, 0, i)) + element(0, 0, 0, i);
    num_different += backwards != sum_in_order(3, 0, 0, i) ? 1 : 0;
  }
  EXPECT_GT(num_different, 3);
}

TEST_P(RankGroupTest, ARankThatFailsEndsTheSumsOfTheOthers) {
  constexpr int kGoodRounds = 5;
  const auto ranks = connected();
  const int failing = ranks->count() - 1;
  const auto errors = run_ranks(*ranks, [&](Communicator& communicator) {
    RankMatrix own;
    for (int round = 0;; ++round) {
      if (round == kGoodRounds && communicator.shard().rank == failing) {
        throw std::runtime_error("no memory");
      }
      communicator.sum(own.stream, own.matrix);
      ASSERT_LT(round, kGoodRounds);
    }
  });
  const std::string reason = "rank " + std::to_string(failing) + " failed: no memory";
  for (int rank = 0; rank < failing; ++rank) {
    EXPECT_EQ(errors[static_cast<std::size_t>(rank)], reason);
  }
  EXPECT_EQ(errors.back(), "no memory");
  // The group stays at its end, with the first reason.
  ranks->abort("another one");
  RankMatrix late;
  try {
    (*ranks)[0].sum(late.stream, late.matrix);
    ADD_FAILURE() << "a sum of a group that has ended";
  } catch (const RankError& error) {
    EXPECT_EQ(error.what(), reason);
  }
}

// SIGSTOP and SIGCONT, as by Ctrl-Z and `fg`: the time in between is nobody's fault.
TEST(LocalRanksTest, AProcessThatWasStoppedForLongerThanTheTimeoutGoesOn) {
  using std::chrono::milliseconds;
  constexpr int kRounds = 40;
  const pid_t stopper = fork();
  ASSERT_GE(stopper, 0);
  if (stopper == 0) {
    constexpr useconds_t kMillisecond = 1000;
    usleep(300 * kMillisecond);
    kill(getppid(), SIGSTOP);
    for (int i = 0; i < 4; ++i) usleep(500 * kMillisecond);
    kill(getppid(), SIGCONT);
    _exit(0);
  }
  LocalRanks ranks(2, milliseconds(800));
  const auto errors = run_ranks(ranks, [&](Communicator& communicator) {
    RankMatrix own;
    for (int round = 0; round < kRounds; ++round) {
      // So that the other one waits, nearly always.
      if (communicator.shard().rank == 1) std::this_thread::sleep_for(milliseconds(20));
      communicator.sum(own.stream, own.matrix);
    }
  });
  EXPECT_EQ(errors, std::vector<std::string>(errors.size()));
  EXPECT_EQ(waitpid(stopper, nullptr, 0), stopper);
}

class RankGroupTimeoutTest : public ::testing::TestWithParam<Transport> {};
INSTANTIATE_TEST_SUITE_P(Transports, RankGroupTimeoutTest,
                         ::testing::ValuesIn(testing::rank_transports()));

TEST_P(RankGroupTimeoutTest, ARankThatDoesNotComeIsNamed) {
  const auto ranks = model::make_rank_group(GetParam(), 3, std::chrono::milliseconds(2000));
  ASSERT_TRUE(ranks.ok()) << ranks.error().message;
  const auto errors = run_ranks(**ranks, [&](Communicator& communicator) {
    if (communicator.shard().rank == 1) return;
    RankMatrix own;
    communicator.sum(own.stream, own.matrix);
  });
  EXPECT_EQ(errors[0], "no sign of rank 1 for 2000 ms");
  EXPECT_EQ(errors[1], "");
  EXPECT_EQ(errors[2], errors[0]);
}

TEST(LocalRanksDeathTest, MatricesOfDifferentShapesAreABug) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        LocalRanks ranks(2);
        run_ranks(ranks, [](Communicator& communicator) {
          RankMatrix own(1 + communicator.shard().rank);
          communicator.sum(own.stream, own.matrix);
        });
      },
      "check failed");
}

TEST(SingleRankTest, TheSumIsTheMatrix) {
  model::SingleRank single;
  EXPECT_EQ(single.shard(), model::Shard{});
  RankMatrix own;
  own.values[1] = -0.0F;
  const std::vector<float> before = own.values;
  single.sum(own.stream, own.matrix);
  EXPECT_EQ(own.values, before);
  EXPECT_TRUE(std::signbit(own.values[1]));
}

}  // namespace
}  // namespace lmtp
