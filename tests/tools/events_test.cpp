// What lmtp-serve's main thread waits for.
#include "lmtp-serve/events.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <latch>
#include <thread>

namespace lmtp::tools {
namespace {

constexpr int kPatienceMs = 10'000;

// As a thread of the CUDA driver is.
class ForeignThread {
 public:
  ForeignThread() { begun_.wait(); }
  ~ForeignThread() { end_.count_down(); }

 private:
  std::latch begun_{1};
  std::latch end_{1};
  std::jthread thread_{[this] {
    sigset_t none;
    sigemptyset(&none);
    pthread_sigmask(SIG_SETMASK, &none, nullptr);
    begun_.count_down();
    end_.wait();
  }};
};

TEST(Events, ASignalComesToTheMainThread) {
  Events events(true);
  kill(getpid(), SIGTERM);
  EXPECT_EQ(events.wait(kPatienceMs), Events::Kind::kSignal);
  kill(getpid(), SIGHUP);
  EXPECT_EQ(events.wait(kPatienceMs), Events::Kind::kReload);
  EXPECT_EQ(events.wait(0), Events::Kind::kTimeout);
}

TEST(Events, AlsoBesideAThreadThatDoesNotBlockIt) {
  Events events(true);
  const ForeignThread foreign;
  for (const int signal : {SIGTERM, SIGINT}) {
    kill(getpid(), signal);
    EXPECT_EQ(events.wait(kPatienceMs), Events::Kind::kSignal) << signal;
  }
  kill(getpid(), SIGHUP);
  EXPECT_EQ(events.wait(kPatienceMs), Events::Kind::kReload);
}

TEST(EventsDeathTest, TheSecondSignalEndsTheProcess) {
  EXPECT_EXIT(
      {
        Events events(false);
        const ForeignThread foreign;
        kill(getpid(), SIGTERM);
        if (events.wait(kPatienceMs) != Events::Kind::kSignal) _exit(1);
        events.stop_catching();
        kill(getpid(), SIGTERM);
        pause();
      },
      ::testing::KilledBySignal(SIGTERM), "");
}

}  // namespace
}  // namespace lmtp::tools
