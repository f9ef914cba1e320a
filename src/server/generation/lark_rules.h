// Rules of a grammar in Lark's notation.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "lmtp/tokenizer/tokenizer.h"

namespace lmtp::server {

// What the schemas of a request's functions may take, all of them and in all forms of calls
// together.
struct SchemaBudget {
  std::size_t num_schemas = 200'000;              // that may still be looked at
  std::size_t num_bytes = std::size_t{3} << 20U;  // of rules; compilers take 4 MiB of a text

  bool is_used_up() const { return num_schemas == 0 || num_bytes == 0; }
};

// Each of its bodies, names and texts begins with a space, as one stands within a rule. Owner: who
// writes one grammar.
class LarkRules {
 public:
  // tokenizer: of special tokens in texts; null: there are none.
  explicit LarkRules(const tokenizer::Tokenizer* tokenizer) : tokenizer_(tokenizer) {}

  // A rule by its body: there is one of each.
  std::string rule(const std::string& body, const std::string& attributes = "");
  // The name of one whose body is to be added.
  std::string unique_name() { return " u" + std::to_string(num_unique_++); }
  void add(std::string_view name, const std::string& body);
  // Once for each name.
  bool is_new(const std::string& name) { return names_.try_emplace(name).second; }

  std::string literal(const std::string& text);
  // Any text up to this one, and this one. A special token ends it by itself: none of its bytes is
  // text. other_than: what the text does not begin with; empty: anything.
  std::string text_before(const std::string& end, const std::string& other_than = "");
  // Whether a special token of the tokenizer is in it.
  bool has_special(const std::string& text) const;
  const std::string& text() const { return rules_; }
  // Each rule takes its bytes from it.
  SchemaBudget& budget() { return budget_; }

 private:
  const tokenizer::Tokenizer* const tokenizer_;
  std::string rules_;
  SchemaBudget budget_;
  std::unordered_map<std::string, std::string> names_;     // of rules, by what they are
  std::unordered_map<std::string, std::string> literals_;  // by their texts
  int num_unique_ = 0;
};

// A text within a rule, in quotes.
std::string lark_quoted(std::string_view text);
// A text, of whose tokens the special ones are named by their ids: no byte of theirs is text.
std::string lark_literal(const tokenizer::Tokenizer& tokenizer, std::string_view text);
inline std::string lark_json(const std::string& schema) { return " %json " + schema; }
// Another grammar of this notation, with rules of its own: all of a rule's body.
inline std::string lark_within(const std::string& lark) { return " %lark {\n" + lark + "\n}"; }
// One of them, each once. REQUIRES: there is one.
std::string lark_any_of(const std::vector<std::string>& bodies);

}  // namespace lmtp::server
