// The arguments of a call, as Python or Gemma write them, become JSON.
#pragma once

#include <memory>

#include "argument_readers.h"
#include "lmtp/text/reply_layout.h"

namespace lmtp::server {

// REQUIRES: the layout's arguments are kPython, or kLoose with a quote.
std::unique_ptr<ArgumentReader> make_named_reader(const text::CallLayout& layout);

}  // namespace lmtp::server
