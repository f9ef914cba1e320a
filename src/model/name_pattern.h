// Names of modules, as config.json and adapter_config.json have them.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "lmtp/base/result.h"

namespace lmtp::model {

// A regular expression over the name of a module, in Python's notation. Any thread.
class NamePattern {
 public:
  // The error reads behind the expression: "is no regular expression: ...".
  static Result<NamePattern> compile(const std::string& expression);

  // As Python's re.fullmatch and re.match. A name on which it takes too long does not match.
  bool matches(std::string_view name) const { return finds(name, true); }
  bool matches_beginning(std::string_view name) const { return finds(name, false); }

 private:
  bool finds(std::string_view name, bool to_end) const;

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
