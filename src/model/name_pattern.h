// Names of modules, as config.json and adapter_config.json have them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "lmtp/base/result.h"

namespace lmtp::model {

// How often the patterns of one file may take many steps on a name. One thread.
class MatchBudget {
 public:
  // Whether there was one left.
  bool take() { return num_left_-- > 0; }

 private:
  int num_left_ = 64;
};

// A regular expression over the name of a module, in Python's notation. Any thread.
class NamePattern {
 public:
  // The error reads behind the expression: "is no regular expression: ...".
  static Result<NamePattern> compile(const std::string& expression);

  // As Python's re.fullmatch and re.match. The error reads behind the expression, too: it takes too
  // many steps on this name.
  Result<bool> matches(std::string_view name, MatchBudget& budget) const;
  Result<bool> matches_beginning(std::string_view name, MatchBudget& budget) const;
  // What the group has of re.match; empty where it has no part in it. None: no match.
  Result<std::optional<std::string>> group_of(const char* group, std::string_view name,
                                              MatchBudget& budget) const;

 private:
  class Match;
  Result<bool> find(std::string_view name, bool to_end, MatchBudget& budget, Match& match) const;

  std::shared_ptr<const void> code_;
};

// Whether the module has this name, or its last parts are it: "lm_head", "mlp.up_proj".
inline bool is_ending(std::string_view ending, std::string_view module) {
  if (!module.ends_with(ending)) return false;
  return module.size() == ending.size() || module[module.size() - ending.size() - 1] == '.';
}

// Whether `pattern` names the module: an ending; "re:" and a regular expression for
// its beginning, as Python's re.match takes it. A pattern that cannot be compiled, or takes too
// long, names nothing. Any thread.
bool matches_name(const std::string& pattern, std::string_view module);

}  // namespace lmtp::model
