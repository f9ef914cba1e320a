// What a machine that stands still for a moment may undo.
#pragma once

namespace lmtp::testing {

// Whether a try succeeds, of three at most: a defect that fails nine of ten is seen. Only for what
// hangs on a timeout that must be short; all else is made certain.
template <typename Try>
[[nodiscard]] bool in_three_tries(Try attempt) {
  return attempt() || attempt() || attempt();
}

}  // namespace lmtp::testing
