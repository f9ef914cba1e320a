#include "regular_lark.h"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string_view>

namespace lmtp::server {
namespace {

constexpr std::string_view kPrefix = "R_";  // of the terminals that were rules

bool is_of_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

bool is_rule(std::string_view name) {
  const std::size_t letter = name.find_first_not_of('_');
  return letter != std::string_view::npos &&
         std::islower(static_cast<unsigned char>(name[letter])) != 0;
}

std::string terminal_of(std::string_view rule) {
  std::string name(kPrefix);
  for (const char c : rule) name += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return name;
}

class Rewriter {
 public:
  explicit Rewriter(std::string_view lark) : rest_(lark) {}

  std::optional<std::string> rewrite() && {
    while (!rest_.empty() && !failed_) step();
    if (failed_ || ends_alternative() || !uses_.contains("start")) return std::nullopt;
    std::map<std::string_view, std::size_t> sizes;
    for (const auto& [rule, used] : uses_) {
      if (size_of(rule, sizes) > kExpandedMax) return std::nullopt;
    }
    return "start: " + terminal_of("start") + "\n" + out_;
  }

 private:
  // Alternatives that are empty are those of rules alone.
  bool ends_alternative() const { return std::string_view(":|(").find(last_) != std::string::npos; }

  void copy(std::size_t length) {
    out_ += rest_.substr(0, length);
    rest_.remove_prefix(std::min(length, rest_.size()));
  }

  void step() {
    const char c = rest_.front();
    if (c == '\n') is_line_start_ = true;
    if (std::isspace(static_cast<unsigned char>(c)) != 0) return copy(1);
    const bool begins_line = is_line_start_;
    is_line_start_ = false;
    if (begins_line && (c == '?' || c == '!')) {  // of the tree alone
      rest_.remove_prefix(1);
      is_line_start_ = true;
      return;
    }
    if (is_of_name(c)) return begins_line ? define() : use();
    if (rest_.starts_with("//")) {  // a comment
      failed_ = true;
      return;
    }
    if (c == '"' || c == '/') return copy_quoted();
    if (rest_.starts_with("->")) return drop_alias();
    if (rest_.starts_with("%import ")) return copy(rest_.find('\n'));
    if (std::string_view("()|?*+").find(c) == std::string_view::npos) {
      failed_ = true;
      return;
    }
    failed_ = (c == '|' || c == ')') && ends_alternative();
    last_ = c;
    copy(1);
  }

  std::string_view take_name() {
    const auto* const end = std::ranges::find_if_not(rest_, is_of_name);
    const std::string_view name = rest_.substr(0, static_cast<std::size_t>(end - rest_.begin()));
    rest_.remove_prefix(name.size());
    failed_ = failed_ || name.starts_with(kPrefix);
    return name;
  }

  void define() {
    if (!rule_.empty() && ends_alternative()) failed_ = true;
    const std::string_view name = take_name();
    if (rest_.starts_with('.')) rest_.remove_prefix(std::min(rest_.size(), rest_.find(':')));
    rest_.remove_prefix(std::min(rest_.size(), rest_.find_first_not_of(" \t")));
    if (!rest_.starts_with(':')) {
      failed_ = true;
      return;
    }
    rule_ = name;
    if (is_rule(name)) failed_ = failed_ || !uses_.try_emplace(std::string(name)).second;
    out_ += is_rule(name) ? terminal_of(name) : std::string(name);
    last_ = ':';
    copy(1);
  }

  void use() {
    const std::string_view name = take_name();
    if (is_rule(name) && !is_rule(rule_)) failed_ = true;
    if (is_rule(name) && !failed_) ++uses_[std::string(rule_)][std::string(name)];
    out_ += is_rule(name) ? terminal_of(name) : std::string(name);
    last_ = 'n';
  }

  void copy_quoted() {
    std::size_t end = 1;
    while (end < rest_.size() && rest_[end] != rest_.front()) end += rest_[end] == '\\' ? 2 : 1;
    copy(end + 1);
    if (rest_.starts_with('i')) copy(1);
    last_ = '"';
  }

  void drop_alias() {
    rest_.remove_prefix(2);
    rest_.remove_prefix(std::min(rest_.size(), rest_.find_first_not_of(" \t")));
    take_name();
  }

  // How many rules it has once each stands where it is used; more than kExpandedMax: so many, or it
  // is not known, or leads to itself. `sizes`: those that are known.
  std::size_t size_of(std::string_view rule, std::map<std::string_view, std::size_t>& sizes) {
    if (const auto known = sizes.find(rule); known != sizes.end()) return known->second;
    const auto found = uses_.find(rule);
    if (found == uses_.end() || !open_.insert(rule).second) return kExpandedMax + 1;
    std::size_t size = 1;
    for (const auto& [used, count] : found->second) {
      if (open_.size() > kDepthMax || size > kExpandedMax) return kExpandedMax + 1;
      size += count * size_of(used, sizes);
    }
    open_.erase(rule);
    sizes.emplace(rule, size);
    return size;
  }

  static constexpr std::size_t kDepthMax = 1000;
  static constexpr std::size_t kExpandedMax = 10'000;

  std::string_view rest_;
  std::string out_;
  std::string_view rule_;  // that is being defined, or a terminal
  // By rule, how often each is used in it.
  std::map<std::string, std::map<std::string, std::size_t>, std::less<>> uses_;
  std::set<std::string_view> open_;
  char last_ = '\0';  // which mattered: one of ":|()?*+", or another one of a name, or a text
  bool is_line_start_ = true;
  bool failed_ = false;
};

}  // namespace

std::string regular_lark(const std::string& lark) {
  return Rewriter(lark).rewrite().value_or(lark);
}

}  // namespace lmtp::server
