#include "environment_options.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "children.h"
#include "common/edit_distance.h"

namespace lmtp::tools {
namespace {

// As llama.cpp's LLAMA_ARG_. Not LMTP_ alone: for a service that is called lmtp, Kubernetes sets
// LMTP_PORT to a URL.
constexpr std::string_view kArgPrefix = "LMTP_ARG_";

std::string variable_named(std::string name) {
  std::ranges::transform(name, name.begin(), [](char c) {
    if (c == '-') return '_';
    return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  });
  return std::string(kArgPrefix) + name;
}

// Empty for what has none: MODEL, and what only the command line has.
std::string variable_of(const CLI::Option& option) {
  if (option.get_lnames().empty() || !option.get_configurable()) return "";
  const std::string& name = option.get_lnames().front();
  return name == "help" || name == "version" ? "" : variable_named(name);
}

// Which variable is meant: that of the option with such a name, else the nearest.
std::string meant(const CLI::App& app, std::string_view wrong,
                  const std::vector<std::string>& known) {
  for (const CLI::Option* const option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      const std::string variable = variable_of(*option);
      if (!variable.empty() && variable_named(name) == wrong) return "write " + variable;
    }
  }
  return "the nearest is " + *std::ranges::min_element(known, {}, [&](const std::string& one) {
           return edit_distance(wrong, one);
         });
}

// What Kubernetes sets for a service whose name begins with lmtp-arg.
bool is_of_service(std::string_view name) {
  return name.find("_SERVICE_") != std::string_view::npos ||
         name.find("_PORT_") != std::string_view::npos || name.ends_with("_PORT");
}

}  // namespace

void read_environment(CLI::App& app) {
  if (std::getenv(kChildVariable) != nullptr) return;
  std::vector<std::string> known;
  for (CLI::Option* const option : app.get_options([](CLI::Option*) { return true; })) {
    std::string variable = variable_of(*option);
    if (variable.empty()) continue;
    option->envname(variable);
    known.push_back(std::move(variable));
  }
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::string_view name = text.substr(0, text.find('='));
    if (!name.starts_with(kArgPrefix) || std::ranges::find(known, name) != known.end()) continue;
    if (is_of_service(name)) continue;
    throw CLI::ParseError(
        std::string(name) + " in the environment is no option's; " + meant(app, name, known),
        CLI::ExitCodes::ExtrasError);
  }
}

std::string with_variable(const CLI::App& app, const std::string& message, int argc,
                          const char* const* argv) {
  for (const CLI::Option* const option : app.get_options()) {
    const std::string& variable = option->get_envname();
    if (variable.empty() || std::getenv(variable.c_str()) == nullptr) continue;
    const std::string name = "--" + option->get_lnames().front();
    const bool is_named = message.starts_with(name + ":") || message.starts_with(name + " ");
    const bool is_given = std::any_of(argv + 1, argv + argc, [&](std::string_view word) {
      return option->check_name(std::string(word.substr(0, word.find('='))));
    });
    if (is_named && !is_given) return message + " (" + name + " is " + variable + "'s)";
  }
  return message;
}

}  // namespace lmtp::tools
