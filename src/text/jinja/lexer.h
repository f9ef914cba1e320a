// A template's text as tokens, as Jinja2 cuts it with trim_blocks and lstrip_blocks.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text.h"
#include "value.h"

namespace lmtp::jinja {

struct Token {
  enum class Kind {
    kData,  // what stands outside of tags
    kBlockBegin,
    kBlockEnd,
    kVariableBegin,
    kVariableEnd,
    kName,
    kString,
    kNumber,
    kOperator,
    kEnd,
  };
  Kind kind = Kind::kEnd;
  std::string text = {};  // of names and operators
  Value value = {};       // of data, strings and numbers
  int line = 1;

  bool is(Kind wanted, std::string_view wanted_text) const {
    return kind == wanted && text == wanted_text;
  }
};

// Ends with kEnd. Throws TemplateError.
std::vector<Token> tokenize(std::string_view source);

}  // namespace lmtp::jinja
