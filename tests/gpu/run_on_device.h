// main() of the programs that run the tests of the CUDA half on a real device.
#pragma once

namespace lmtp::testing {

// When a launch returns: at once, or when the kernel has ended, as tests of single kernels take it.
enum class Launches { kAsynchronous, kBlocking };

// Ends the process with GoogleTest's exit code, once tests have run. Returns it where they are only
// listed, and 77 where there is no device: nothing was run then, and a line says so.
int run_on_device(int argc, char** argv, Launches launches);

}  // namespace lmtp::testing
