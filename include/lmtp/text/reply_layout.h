// How a model writes what is not plain text in its replies: calls of functions, and reasoning.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lmtp::text {

// One way to write calls. A reply has them as
//   section_begin call (separator call)* section_end
// with each call as
//   call_begin [ID name_begin] NAME [index_begin DIGITS] [id_begin ID] name_end ARGUMENTS call_end
// where ID is what the model calls this call: letters, digits, "-" and "_". All texts are exactly
// as the model writes them, white space included. What closes the last call may be a token that
// ends the reply (harmony's <|call|>); then the text may lack it.
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
  std::string opening = {};
  std::string section_begin = {};
  std::string separator = {};
  std::string section_end = {};
  std::string call_begin = {};
  std::string name_begin = {};   // not empty: an id stands before the name
  std::string index_begin = {};  // not empty: the number of the call follows the name (Kimi's ":0")
  std::string id_begin = {};     // not empty: an id follows the name
  std::string name_end = {};     // empty where ARGUMENTS begin with what no name has
  std::string call_end = {};

  Arguments arguments = Arguments::kJson;
  // For kTagged. The value of a string is written as it is, up to argument_end; any other as JSON.
  std::string argument_begin = {};
  std::string argument_name_end = {};
  // In the place of argument_name_end before a string; empty: the same.
  std::string string_name_end = {};
  // Not empty: a string may stand between these two.
  std::string text_begin = {};
  std::string text_end = {};
  std::string argument_separator = {};
  std::string argument_end = {};
  std::string string_quote = {};  // for kLoose

  bool operator==(const CallLayout&) const = default;
};

struct ReasoningLayout {
  std::string begin;  // "<think>"
  std::string end;    // "</think>"

  bool operator==(const ReasoningLayout&) const = default;
};

struct ReplyLayout {
  // Any of these. Empty: it is not known how the model writes calls.
  std::vector<CallLayout> calls = {};
  std::optional<ReasoningLayout> reasoning = {};
  std::vector<std::string> dropped = {};  // texts around the parts, no content (harmony's)
  std::string message_begin = {};  // follows reasoning, where a message of its own comes then
  std::string content_begin = {};  // the model writes it before content, of which it is no part
  // Where `calls` come from: a format's name, "probed", "described" (by response_template), "none";
  // and what told it: "option", "response_template", "table", "probe".
  std::string name = "none";
  std::string source = {};

  bool operator==(const ReplyLayout&) const = default;
};

// What is known of a model without a chat template. Never null.
inline std::shared_ptr<const ReplyLayout> no_reply_layout() {
  static const auto none = std::make_shared<const ReplyLayout>();
  return none;
}

}  // namespace lmtp::text
