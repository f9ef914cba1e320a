// How the named model's texts are read and written.
#include <CLI/CLI.hpp>
#include <fstream>
#include <iterator>
#include <string>

#include "lmtp/base/text.h"
#include "lmtp/base/utf8.h"
#include "lmtp/text/decision_config.h"
#include "lmtp/text/find_reply_layout.h"
#include "option_values.h"
#include "raw_options.h"

namespace lmtp::tools {
namespace {

// Empty: the file is UTF-8.
std::string not_utf8(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  return is_utf8(text) ? std::string() : path + " is not UTF-8";
}

std::string tool_call_format_mistake(const std::string& name) {
  if (text::is_tool_call_format(name)) return "";
  return quoted_name(name) + " is no format that is known here; those are none, " +
         text::tool_call_format_names();
}

}  // namespace

void add_text_options(CLI::App& app, ServeOptions& options) {
  app.add_option("--chat-template,--chat-template-file", options.chat_template_file,
                 "The chat template (Jinja) of the named MODEL, in the place of its own")
      ->check(CLI::ExistingFile)
      ->check(not_utf8, "")
      ->type_name("FILE");
  app.add_option("--decision-template", options.decisions.chat_template_file,
                 "The template (Jinja) by which the named MODEL is asked for decisions, in the "
                 "place of its decision_template.jinja [its own, or docs/decisions.md's layout]")
      ->check(CLI::ExistingFile)
      ->check(not_utf8, "")
      ->type_name("FILE");
  app.add_option_function<std::string>(
         "--decision-temperature",
         [&options](const std::string& text) {
           const auto temperature = text::parse_decision_temperature(text);
           if (!temperature) {
             throw CLI::ValidationError("--decision-temperature", temperature.error().message);
           }
           options.decisions.temperature = *temperature;
         },
         "What divides the log probabilities of a decision's options, of all kinds of questions "
         "or by kind (noul=1.2,choice=0.8) [decision.json's, or 1]")
      ->type_name("T");
  app.add_option("--tool-call-format", options.tool_call_format,
                 "How the named MODEL writes calls of functions: " +
                     text::tool_call_format_names() + "; none: they stay text [by its template]")
      ->check(&tool_call_format_mistake, "")
      ->type_name("NAME");
}

}  // namespace lmtp::tools
