// The arguments of a call, as a model writes them, become JSON.
#pragma once

#include <memory>
#include <string>

#include "lmtp/text/reply_layout.h"
#include "tool_schema.h"

namespace lmtp::server {

// Owner: a reader of a reply.
class ArgumentReader {
 public:
  enum class State {
    kMore,    // they go on, as far as `held` tells
    kDone,    // `held` begins with what follows them
    kBroken,  // the same, but they are none
    kWrong,   // they are none, and it is not known where they end
  };

  virtual ~ArgumentReader() = default;
  // Takes from the front of `held` what is certain, and appends its JSON, which is an object once
  // it is done.
  virtual State read(std::string& held, std::string& json) = 0;
  // While there are more: whether they are none, whatever follows.
  virtual bool is_wrong() const { return false; }
  // Then: whether their end can be told all the same.
  virtual bool may_end() const { return false; }
  virtual std::unique_ptr<ArgumentReader> clone() const = 0;
};

// `parameters`: the function's; they outlive it. may_be_any: what is written may be other than they
// say.
std::unique_ptr<ArgumentReader> make_argument_reader(const text::CallLayout& layout,
                                                     const Parameters& parameters, bool may_be_any);

}  // namespace lmtp::server
