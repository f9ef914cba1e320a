#include "run_on_device.h"

int main(int argc, char** argv) {
  return lmtp::testing::run_on_device(argc, argv, lmtp::testing::Launches::kAsynchronous);
}
