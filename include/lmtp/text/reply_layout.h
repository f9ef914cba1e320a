// How a model writes what is not plain text in its replies: calls of functions, and reasoning.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace lmtp::text {

// One way to write calls. A reply has them as
//   section_begin call (separator call)* section_end
// with each call as
//   call_begin NAME [index_begin DIGITS] name_end ARGUMENTS call_end
// All texts are exactly as the model writes them, white space included.
struct CallLayout {
  enum class Arguments {
    kJson,    // one JSON object
    kTagged,  // each argument: argument_begin NAME argument_name_end VALUE argument_end
    kPython,  // keyword arguments: a=1, b="x", c=[True, None]
    kLoose,   // JSON with names that have no quotes, and strings between `string_quote`
  };

  // The literal that tells that calls follow: section_begin + call_begin starts with it. Empty:
  // nothing does; then calls count at the start of a reply alone, and only once the text up to
  // `name_end` (its first character suffices) has the whole name of a function that was offered.
  std::string opening;
  std::string section_begin;
  std::string separator;
  std::string section_end;
  std::string call_begin;
  std::string index_begin;  // not empty: the number of the call follows the name (Kimi's ":0")
  std::string name_end;
  std::string call_end;

  Arguments arguments = Arguments::kJson;
  // Of kTagged. The value of a string is written as it is, up to argument_end; any other as JSON.
  std::string argument_begin;
  std::string argument_name_end;
  std::string
      string_name_end;  // in the place of argument_name_end before a string; empty: the same
  std::string argument_separator;
  std::string argument_end;
  std::string string_quote;  // of kLoose

  bool operator==(const CallLayout&) const = default;
};

struct ReasoningLayout {
  std::string begin;  // "<think>"
  std::string end;    // "</think>"

  bool operator==(const ReasoningLayout&) const = default;
};

struct ReplyLayout {
  std::vector<CallLayout> calls;  // any of these; empty: it is not known how the model writes them
  std::optional<ReasoningLayout> reasoning;
  std::vector<std::string> dropped;  // texts between the parts, which are no content (harmony's)
  // Where `calls` come from: the format's name ("hermes"), "probed", "none"; and what told it:
  // "option", "response_template", "table", "probe".
  std::string name = "none";
  std::string source = {};

  bool operator==(const ReplyLayout&) const = default;
};

}  // namespace lmtp::text
