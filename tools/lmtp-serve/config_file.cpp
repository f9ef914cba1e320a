#include "config_file.h"

#include <toml++/toml.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>
#include <utility>

#include "common/edit_distance.h"
#include "lmtp/base/text.h"

namespace lmtp::tools {
namespace {

constexpr std::string_view kSecrets[] = {"api-key", "worker-api-key"};

bool is_secret(std::string_view name) {
  return std::ranges::find(kSecrets, name) != std::end(kSecrets);
}

bool is_flag(const CLI::Option& option) { return option.get_expected_min() == 0; }

bool takes_list(const CLI::Option& option) {
  return option.get_multi_option_policy() == CLI::MultiOptionPolicy::TakeAll ||
         option.get_items_expected_max() > 1;
}

// Not one that may have values, as --allow-download=PATTERN.
bool is_plain_flag(const CLI::Option& option) { return is_flag(option) && !takes_list(option); }

// Of the file; empty for what only the command line has.
std::string key_of(const CLI::Option& option) {
  if (!option.get_configurable()) return "";
  return option.get_positional() ? kModelKey : option.get_lnames().front();
}

// All that a file may have, by their keys.
std::vector<std::pair<std::string, const CLI::Option*>> options_of(const CLI::App& app) {
  std::vector<std::pair<std::string, const CLI::Option*>> all;
  for (const CLI::Option* const option : app.get_options()) {
    if (std::string key = key_of(*option); !key.empty()) all.emplace_back(std::move(key), option);
  }
  return all;
}

Error mistake(const std::string& path, const toml::source_region& where, const std::string& what) {
  return Error{ErrorCode::kInvalid, path + ":" + std::to_string(where.begin.line) + ": " + what};
}

std::string unknown_option(const CLI::App& app, std::string_view key) {
  const auto all = options_of(app);
  const auto nearest = std::ranges::min_element(
      all, {}, [&](const auto& known) { return edit_distance(key, known.first); });
  return "unknown option '" + std::string(key) + "'; the nearest is " + nearest->first;
}

// As the command line has it; none for what is no single value.
std::optional<std::string> text_of(const toml::node& node) {
  if (const auto* const text = node.as_string()) return text->get();
  if (const auto* const number = node.as_integer()) return number_text(number->get());
  if (const auto* const number = node.as_floating_point()) return number_text(number->get());
  if (const auto* const flag = node.as_boolean()) return flag->get() ? "true" : "false";
  return std::nullopt;
}

// Why `node` cannot be a value of the option; empty where it can.
std::string wrong_kind(const CLI::Option& option, const toml::node& node) {
  if (node.is_boolean()) return is_flag(option) ? "" : "is no flag; give it a value";
  if (is_plain_flag(option)) return "is a flag; write true or false";
  const std::optional<std::string> text = text_of(node);
  if (!text) return "takes a text or a number";
  return text->empty() ? "is empty; leave it out" : "";
}

// Appends the arguments of one key; or says why not.
std::string add_arguments(const CLI::Option& option, const std::string& key,
                          const toml::node& value, std::vector<std::string>& arguments) {
  const auto add = [&](const toml::node& node) -> std::string {
    if (std::string wrong = wrong_kind(option, node); !wrong.empty()) return wrong;
    std::string text = *text_of(node);
    // A flag that is not set is one that is not given.
    if (node.is_boolean() && text == "false") return "";
    arguments.push_back(option.get_positional() ? std::move(text) : "--" + key + "=" + text);
    return "";
  };
  const toml::array* const list = value.as_array();
  if (list == nullptr) return add(value);
  if (!takes_list(option)) return "takes one value, no list";
  if (list->empty()) return "is an empty list; leave it out";
  for (const toml::node& item : *list) {
    if (std::string wrong = add(item); !wrong.empty()) return wrong;
  }
  return "";
}

template <typename Number>
bool is_written(const std::string& text) {
  Number number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && number_text(number) == text;
}

// In quotes, unless it is a number that is read back as the same text.
std::string toml_text(const std::string& text) {
  const bool is_whole = text.find('.') == std::string::npos;
  if (is_whole ? is_written<std::int64_t>(text) : is_written<double>(text)) return text;
  std::ostringstream out;
  out << toml::value<std::string>(text);
  return out.str();
}

std::string value_text(const CLI::Option& option, const std::vector<std::string>& values) {
  if (!takes_list(option)) return toml_text(values.back());
  std::string list;
  for (const std::string& value : values) list += (list.empty() ? "" : ", ") + toml_text(value);
  return "[" + list + "]";
}

}  // namespace

Result<std::vector<std::string>> config_arguments(const std::string& path, const CLI::App& given) {
  // Its own parse_file takes a folder for an empty file, and no pipe.
  std::ifstream stream(path);
  std::ostringstream text;
  if (!stream || std::filesystem::is_directory(path) || !(text << stream.rdbuf())) {
    return Error{ErrorCode::kInvalid, "--config: '" + path + "' cannot be read, or is empty"};
  }
  toml::table file;
  try {
    file = toml::parse(text.str());
  } catch (const toml::parse_error& error) {
    return mistake(path, error.source(), std::string(error.description()));
  }
  const auto known = options_of(given);
  std::vector<std::string> arguments;
  for (const auto& [name, value] : file) {
    const std::string key(name.str());
    const auto found = std::ranges::find(known, key, [](const auto& one) { return one.first; });
    if (value.is_table()) {
      return mistake(path, value.source(), "[" + key + "]: the file has no sections");
    }
    if (found == known.end()) return mistake(path, name.source(), unknown_option(given, key));
    const CLI::Option& option = *found->second;
    std::vector<std::string> added;
    if (const std::string wrong = add_arguments(option, key, value, added); !wrong.empty()) {
      return mistake(path, value.source(), key + " " + wrong);
    }
    // --cuda is a value of --device.
    const bool overridden = option.count() > 0 || (key == "cuda" && given.count("--device") > 0) ||
                            (key == "device" && given.count("--cuda") > 0);
    if (!overridden) arguments.insert(arguments.end(), added.begin(), added.end());
  }
  return arguments;
}

void print_config(const CLI::App& app, std::ostream& out) {
  for (const auto& [key, option] : options_of(app)) {
    const bool given = option->count() > 0;
    out << (given && !is_secret(key) ? "" : "# ") << key << " =";
    if (given && is_secret(key)) {
      out << " (given, and not shown)";
    } else if (is_plain_flag(*option)) {
      out << (given && option->results().back() == "true" ? " true" : " false");
    } else if (given) {
      out << " " << value_text(*option, option->results());
    } else if (!option->get_default_str().empty()) {
      out << " " << toml_text(option->get_default_str());
    }
    out << "\n";
  }
}

}  // namespace lmtp::tools
