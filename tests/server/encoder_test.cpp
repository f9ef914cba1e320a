#include "generation/encoder.h"

#include <gtest/gtest.h>

#include <future>
#include <string>

namespace lmtp::server {
namespace {

// One whose thread is busy until the gate opens; `done` has the names of the jobs behind.
struct BusyEncoder {
  BusyEncoder() {
    encoder.start();
    EXPECT_TRUE(encoder.submit(1, [this, opened = gate.get_future().share()] {
      begun.set_value();
      opened.wait();
    }));
    begun.get_future().wait();
  }
  bool submit(ConnectionId connection, const std::string& name = "") {
    return encoder.submit(connection, [this, name] { done += name; });
  }
  // Opens the gate, waits for what has been submitted.
  const std::string& finish() {
    for (int turn = 0; turn < 9; ++turn) EXPECT_TRUE(encoder.submit(99, [] {}));
    EXPECT_TRUE(encoder.submit(99, [this] { last.set_value(); }));
    gate.set_value();
    last.get_future().wait();
    return done;
  }

  std::promise<void> begun;
  std::promise<void> gate;
  std::promise<void> last;
  std::string done;
  Encoder encoder;
};

TEST(Encoder, ConnectionsTakeTurns) {
  BusyEncoder busy;
  for (const char* name : {"a", "b", "c"}) EXPECT_TRUE(busy.submit(1, name));
  for (const char* name : {"x", "y"}) EXPECT_TRUE(busy.submit(2, name));
  EXPECT_TRUE(busy.submit(3, "-"));
  EXPECT_EQ(busy.finish(), "ax-byc");
}

TEST(Encoder, OneConnectionLeavesPlacesForOthers) {
  BusyEncoder busy;
  for (std::size_t i = 0; i < kEncodesOfOneMax; ++i) EXPECT_TRUE(busy.submit(1));
  EXPECT_FALSE(busy.submit(1));
  for (std::size_t i = kEncodesOfOneMax; i < kEncodesMax; ++i) EXPECT_TRUE(busy.submit(2));
  EXPECT_FALSE(busy.submit(3)) << "all places are taken";
  busy.gate.set_value();
}

TEST(Encoder, TakesNothingWhereItDoesNotRun) {
  Encoder encoder;
  EXPECT_FALSE(encoder.submit(1, [] {}));
  encoder.start();
  encoder.stop();
  EXPECT_FALSE(encoder.submit(1, [] {}));
}

}  // namespace
}  // namespace lmtp::server
