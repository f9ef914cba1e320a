// The functions that a chat offers, and how the model is to call them.
#pragma once

#include <string>
#include <vector>

namespace lmtp::server {

struct OfferedFunction {
  std::string name;  // letters, digits, _, - and what else a format can tell from its marks
  // A schema of an object, with its keys in order: as with_fixed_spaces() gives it, which is called
  // where tools are read, and nowhere else.
  std::string parameters;
  bool is_strict = false;  // a schema that cannot be compiled is refused
  bool is_loose = false;   // it cannot be: the arguments are any object
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
