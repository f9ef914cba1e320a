// A GBNF grammar that has been read.
#pragma once

#include <bitset>
#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "lmtp/base/result.h"

namespace lmtp::constraint::gbnf {

inline constexpr int kNoBound = -1;

// First bytes of characters.
using Bytes = std::bitset<256>;

struct Node {
  enum class Kind { kTerminal, kToken, kRule, kSequence, kChoice, kRepeat };
  Kind kind = Kind::kSequence;
  std::string text = {};  // kTerminal, kToken: in Lark's notation; kRule: its name
  std::vector<Node> children = {};
  int least = 0;  // kRepeat
  int most = kNoBound;
  Bytes first = {};  // kTerminal: of its first character; of an empty one none
  Bytes all = {};    // kTerminal: of all its characters
};

struct Rule {
  Node body;
  std::size_t order = 0;
};

using Rules = std::map<std::string, Rule, std::less<>>;

// Whose rules all exist, `root` among them. The error, kInvalid, names line and column.
Result<Rules> read(std::string_view text);

}  // namespace lmtp::constraint::gbnf
