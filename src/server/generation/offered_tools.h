// The functions that a chat offers, and how the model is to call them.
#pragma once

#include <string>
#include <vector>

namespace lmtp::server {

struct OfferedFunction {
  std::string name;        // letters, digits, _, - and what else a format can tell from its marks
  std::string parameters;  // a schema, of an object, with its keys in order
  bool is_strict = false;  // a schema that cannot be compiled is refused
  bool is_loose = false;   // it cannot: the arguments are any object
};

struct OfferedTools {
  enum class Choice {
    kAuto,      // text, calls, or both
    kRequired,  // one call or more
    kNamed,     // of the only function here
  };

  std::vector<OfferedFunction> functions;
  Choice choice = Choice::kAuto;
  bool calls_several = true;  // in one reply

  bool is_forced() const { return choice != Choice::kAuto; }
};

}  // namespace lmtp::server
