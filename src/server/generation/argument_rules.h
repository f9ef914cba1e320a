// The grammar of a function's arguments in forms that write them one by one.
#pragma once

#include <string>

#include "lark_rules.h"
#include "lmtp/text/reply_layout.h"
#include "offered_tools.h"

namespace lmtp::server {

struct ArgumentRules {
  std::string body;
  bool is_kept = true;  // they let no others through than the function's schema
  bool is_cut = false;  // the schema was more than is looked at, and what is left is any value
};

// Where the function is loose, or the request's budget is used up, the schema is not looked at, and
// any arguments are taken. `id`: of the layout, in the names of rules. Any thread. REQUIRES: the
// arguments are no JSON.
ArgumentRules argument_rules(LarkRules& rules, const text::CallLayout& layout,
                             const std::string& id, const OfferedFunction& function);

}  // namespace lmtp::server
