// The functions that a chat offers, and how the model is to call them.
#pragma once

#include <atomic>
#include <cstddef>
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
  // Not empty: the only argument is a text, `input`, of this grammar in Lark's notation; as it is,
  // and within JSON, where empty `parameters` say as much.
  std::string input_lark = {};
  std::string input_lark_in_json = {};
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

// The functions with arguments that the grammar takes and their schemas do not: known when a reader
// is at them. Shared by what finds the grammar and what reads by it. Any thread.
class LooseFunctions {
 public:
  explicit LooseFunctions(const OfferedTools& tools) : are_loose_(tools.functions.size()) {}

  void add(std::size_t number) { are_loose_[number] = true; }
  void add_all() {
    for (std::atomic<bool>& one : are_loose_) one = true;
  }
  bool contains(std::size_t number) const { return are_loose_[number]; }

 private:
  std::vector<std::atomic<bool>> are_loose_;
};

}  // namespace lmtp::server
