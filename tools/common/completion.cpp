#include "common/completion.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <utility>

namespace lmtp::tools {
namespace {

constexpr std::size_t kTextMax = 80;  // of a description, in bytes

// An option as shells know it.
struct Completed {
  std::vector<std::string> names;  // with their dashes
  std::string text;                // one line
  bool takes_value = false;
  bool takes_file = false;
  std::vector<std::string> values;  // all there are, where they are few
};

std::string joined(const std::vector<std::string>& parts, std::string_view between) {
  std::string out;
  for (const std::string& part : parts) out += (out.empty() ? "" : std::string(between)) + part;
  return out;
}

// Each `from` as `to`.
std::string replaced(std::string text, std::string_view from, std::string_view to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) {
    text.replace(at, from.size(), to);
  }
  return text;
}

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == at) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

// The first part of a sentence.
std::string first_words(std::string text) {
  for (const std::string_view end : {"; ", ". ", " ("}) {
    text.resize(std::min(text.find(end), text.size()));
  }
  if (text.size() > kTextMax) text.resize(text.rfind(' ', kTextMax));
  return text;
}

// Those in "true|false" and in CLI11's "TEXT:{a,b}"; empty for anything else.
std::vector<std::string> values_of(const std::string& type) {
  const std::size_t begin = type.find('{');
  const std::size_t end = type.find('}');
  if (begin != std::string::npos && end != std::string::npos) {
    return split(type.substr(begin + 1, end - begin - 1), ',');
  }
  return type.find('|') != std::string::npos ? split(type, '|') : std::vector<std::string>();
}

std::vector<Completed> options_of(const CLI::App& app) {
  std::vector<Completed> all;
  for (const CLI::Option* const option : app.get_options()) {
    Completed one;
    for (const std::string& name : option->get_snames()) one.names.push_back("-" + name);
    for (const std::string& name : option->get_lnames()) one.names.push_back("--" + name);
    if (one.names.empty()) continue;
    one.text = first_words(option->get_description());
    one.takes_value = option->get_expected_min() > 0;
    const std::string type = option->get_type_name();
    one.takes_file = type.starts_with("FILE") || type.starts_with("DIR");
    if (one.takes_value) one.values = values_of(type);
    all.push_back(std::move(one));
  }
  return all;
}

std::string function_of(const std::string& program) { return "_" + replaced(program, "-", "_"); }

constexpr std::string_view kBash = R"(# bash completion of @program@
@function@() {
  local word=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} words=''
  COMPREPLY=()
  case $previous in
@cases@  esac
  if [ -z "$words" ]; then
    case $word in
      -*) words='@names@' ;;
      *)
        compopt -o filenames 2>/dev/null
        COMPREPLY=($(compgen -W '@words@' -- "$word") $(compgen -f -- "$word"))
        return
        ;;
    esac
  fi
  COMPREPLY=($(compgen -W "$words" -- "$word"))
}
complete -F @function@ @program@
)";

std::string bash(const std::string& program, const std::vector<Completed>& options,
                 const std::vector<std::string>& words) {
  std::vector<std::string> names;
  std::vector<std::string> with_file;
  std::vector<std::string> with_value;
  std::string cases;
  for (const Completed& option : options) {
    names.insert(names.end(), option.names.begin(), option.names.end());
    if (!option.values.empty()) {
      cases += "    " + joined(option.names, " | ") + ") words='" + joined(option.values, " ") +
               "' ;;\n";
    } else if (option.takes_value) {
      auto& those = option.takes_file ? with_file : with_value;
      those.insert(those.end(), option.names.begin(), option.names.end());
    }
  }
  if (!with_file.empty()) {
    cases += "    " + joined(with_file, " | ") +
             ")\n      compopt -o filenames 2>/dev/null\n"
             "      COMPREPLY=($(compgen -f -- \"$word\"))\n      return\n      ;;\n";
  }
  if (!with_value.empty()) cases += "    " + joined(with_value, " | ") + ") return ;;\n";
  std::string script = replaced(std::string(kBash), "@cases@", cases);
  script = replaced(script, "@names@", joined(names, " "));
  script = replaced(script, "@words@", joined(words, " "));
  return replaced(replaced(script, "@function@", function_of(program)), "@program@", program);
}

// Within single quotes.
std::string quoted(const std::string& text) { return "'" + replaced(text, "'", "'\\''") + "'"; }

std::string zsh(const std::string& program, const std::vector<Completed>& options,
                const std::vector<std::string>& words) {
  const std::string function = function_of(program);
  std::string script = "#compdef " + program + "\n" + function + "() {\n  _arguments -s";
  for (const Completed& option : options) {
    std::string text = replaced(option.text, "[", "\\[");
    text = "[" + replaced(text, "]", "\\]") + "]";
    std::string value;
    if (option.takes_file) {
      value = ":file:_files";
    } else if (!option.values.empty()) {
      value = ":value:(" + joined(option.values, " ") + ")";
    } else if (option.takes_value) {
      value = ":value: ";
    }
    for (const std::string& name : option.names) {
      script += " \\\n    " + quoted("*" + name + (option.takes_value ? "=" : "") + text + value);
    }
  }
  script += " \\\n    " + quoted("*:word:{_alternative \"words:word:(" + joined(words, " ") +
                                 ")\" \"files:file:_files\"}");
  return script + "\n}\nif [ \"$funcstack[1]\" = _" + program + " ]; then\n  " + function +
         " \"$@\"\nelse\n  compdef " + function + " " + program + "\nfi\n";
}

std::string fish(const std::string& program, const std::vector<Completed>& options,
                 const std::vector<std::string>& words) {
  std::string script = "# fish completion of " + program + "\n";
  for (const Completed& option : options) {
    script += "complete -c " + program;
    for (const std::string& name : option.names) {
      script += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
    }
    if (option.takes_value) script += option.takes_file ? " -rF" : " -x";
    if (!option.values.empty()) script += " -a '" + joined(option.values, " ") + "'";
    script += " -d '" + replaced(replaced(option.text, "\\", "\\\\"), "'", "\\'") + "'\n";
  }
  if (!words.empty()) script += "complete -c " + program + " -a '" + joined(words, " ") + "'\n";
  return script;
}

}  // namespace

std::string completion(const CLI::App& app, std::string_view shell,
                       const std::vector<std::string>& words) {
  const auto make = shell == "bash" ? bash : shell == "zsh" ? zsh : fish;
  return make(app.get_name(), options_of(app), words);
}

void add_completion(CLI::App& app, std::vector<std::string> words) {
  app.add_option_function<std::string>(
         "--completion",
         [&app, words = std::move(words)](const std::string& shell) {
           std::fputs(completion(app, shell, words).c_str(), stdout);
           std::fflush(stdout);
           throw CLI::Success();
         },
         "Print the script by which a shell completes these options, and exit: bash, zsh or fish")
      ->check(CLI::IsMember({"bash", "zsh", "fish"}))
      ->configurable(false);
}

}  // namespace lmtp::tools
