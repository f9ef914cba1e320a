#include "run_on_device.h"

// Kernels are launched here by themselves, and what they wrote is looked at right after.
int main(int argc, char** argv) {
  return lmtp::testing::run_on_device(argc, argv, lmtp::testing::Launches::kBlocking);
}
