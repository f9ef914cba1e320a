// The arguments of a call, and where they end if their own end is missing.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "argument_readers.h"
#include "lmtp/request/event.h"
#include "lmtp/text/reply_layout.h"
#include "tool_schema.h"

namespace lmtp::server {

// What closes a call, or all of them, but for these before it. Empty: the form has nothing of the
// kind.
inline constexpr std::string_view kBeforeClosing = "}]) \n";
std::string_view closing_of(const text::CallLayout& layout);

// Arguments that are none end with what closes a call: at once where they cannot end before, else
// where they do not. Where nothing closes calls, what opens another one ends them.
//
// That mark may stand within a text of the arguments as well. What they are from there on is
// withheld until they have ended; where they do not, they are over with the mark.
//
// Owner: a reader of a reply, which appends to what is held, and changes it in no other way.
class MarkedArguments {
 public:
  using State = ArgumentReader::State;

  // REQUIRES: the layout and the parameters outlive it.
  MarkedArguments(const text::CallLayout& layout, const Parameters& parameters, bool may_be_any);
  MarkedArguments(const MarkedArguments& other);
  MarkedArguments& operator=(const MarkedArguments&) = delete;
  ~MarkedArguments() = default;

  // ArgumentReader's, until it does not give kMore. ends: kNone while text may follow. kWrong:
  // nothing tells where they end.
  State read(std::string& held, std::string& json, FinishReason ends);

 private:
  std::size_t find_mark(std::string_view held, FinishReason ends) const;
  State read_withheld(std::string& held, std::string& json, FinishReason ends);
  State break_off(std::string& held);
  State skip(std::string& held, FinishReason ends);

  std::unique_ptr<ArgumentReader> reader_;
  std::string_view closing_;
  std::string_view mark_;
  std::size_t num_searched_ = 0;    // of what is held: the mark is not there
  std::string withheld_ = {};       // the text from a mark on; empty: there is none
  std::string withheld_json_ = {};  // what it is, if they end
  bool was_wrong_ = false;          // they were none before that mark
  bool is_skipping_ = false;        // up to what closes the call
};

}  // namespace lmtp::server
