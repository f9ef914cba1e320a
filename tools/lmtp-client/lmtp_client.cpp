// lmtp-client: a REPL, a filter and a one-shot client for LMTP servers.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <variant>

#include "client_options.h"
#include "common/json_text.h"
#include "common/progress_bar.h"
#include "common/server_info.h"
#include "line_editor.h"
#include "lmtp/base/json.h"
#include "lmtp/client/interrupts.h"
#include "lmtp/hub/fetch.h"
#include "lmtp/tokenizer/tokenizer.h"
#include "repl.h"
#include "server_link.h"

namespace lmtp::tools {
namespace {

int fail(const std::string& message) {
  std::fprintf(stderr, "lmtp-client: %s\n", message.c_str());
  return 1;
}

// Downloads the tokenizer files (only) of a hub name that is not in the cache. Ctrl-C ends the
// program; a later download resumes.
Result<ModelSource> find_model(const std::string& model) {
  ProgressBar bar("fetching " + model);
  hub::FetchOptions options;
  options.purpose = hub::Purpose::kTokenizer;
  options.progress = [&bar](const hub::FetchProgress& progress) {
    bar.show_bytes(progress.bytes_done, progress.bytes_total);
    return true;
  };
  return hub::fetch_model(model, options);
}

Result<std::unique_ptr<tokenizer::Tokenizer>> load_tokenizer_of(const ClientOptions& options) {
  const std::string& asked = options.tokenizer.empty() ? options.model : options.tokenizer;
  const auto source = find_model(asked.empty() ? "demo" : asked);
  if (!source) {
    return Error{
        source.error().code,
        source.error().message + (options.tokenizer.empty()
                                      ? "; or give --tokenizer FOLDER (MODEL is then the server's "
                                        "name for it alone)"
                                      : "")};
  }
  if (source->kind == SourceKind::kRandom) {
    return Error{ErrorCode::kInvalid,
                 "random weights have no tokenizer: give --tokenizer with a name or folder whose "
                 "vocabulary fits"};
  }
  return tokenizer::load_tokenizer(source->folder);
}

// The server has another working folder, so a relative path is made absolute, which is one of the
// model's names. A plain name is sent unchanged.
std::string name_for_server(const std::string& model) {
  std::error_code error;
  if (model.find('/') == std::string::npos || !std::filesystem::is_directory(model, error)) {
    return model;
  }
  const std::filesystem::path absolute = std::filesystem::canonical(model, error);
  return error ? model : absolute.string();
}

int fail_line(int number, const std::string& message) {
  return fail("line " + std::to_string(number) + " of standard input: " + message);
}

// Converts lines of text (with --json: of JSON strings) to lines of JSON arrays.
int encode_lines(const tokenizer::Tokenizer& tokenizer, const ClientOptions& options) {
  const bool bos = options.params.bos.value_or(false) && tokenizer.bos_id() >= 0;
  std::string line;
  for (int number = 1; std::getline(std::cin, line); ++number) {
    if (options.json) {
      const auto text = parse_json(line, "");
      if (!text || !text->is_string()) {
        return fail_line(number, "not a JSON string like \"Once upon a time\"");
      }
      line = text->get<std::string>();
    }
    const auto ids = tokenizer.encode(line);
    if (!ids) return fail_line(number, ids.error().message);
    OrderedJson all = *ids;
    if (bos) all.insert(all.begin(), tokenizer.bos_id());
    const std::string out = json_text(all) + "\n";
    std::fwrite(out.data(), 1, out.size(), stdout);
  }
  return 0;
}

int decode_lines(const tokenizer::Tokenizer& tokenizer, const ClientOptions& options) {
  std::string line;
  for (int number = 1; std::getline(std::cin, line); ++number) {
    const auto ids = parse_ids(line);
    if (!ids) return fail_line(number, ids.error().message);
    for (const TokenId id : *ids) {
      if (id < tokenizer.vocab_size()) continue;
      return fail_line(number, "there is no token " + std::to_string(id) + ", the last is " +
                                   std::to_string(tokenizer.vocab_size() - 1));
    }
    const std::string text = tokenizer.decode(*ids);
    const std::string out = (options.json ? json_text(text) : text) + "\n";
    std::fwrite(out.data(), 1, out.size(), stdout);
  }
  return 0;
}

// `tokenizer`: null where the server encodes and decodes; where it does not, and there is a reason
// `why` none is here, that is the error.
int talk(const ClientOptions& options, const tokenizer::Tokenizer* tokenizer,
         const std::string& why) {
  const bool at_terminal = isatty(STDIN_FILENO) != 0 && isatty(STDOUT_FILENO) != 0;
  const bool interactive = at_terminal && !options.prompt && !options.score;
  ReplOptions repl_options;
  repl_options.params = options.params;
  repl_options.chat = options.chat;
  repl_options.system = options.system;
  repl_options.raw = options.raw;
  repl_options.echo = options.echo || interactive;
  repl_options.color = isatty(STDOUT_FILENO) != 0 && std::getenv("NO_COLOR") == nullptr;
  repl_options.progress = isatty(STDERR_FILENO) != 0;
  repl_options.own_model = !options.model.empty() || !options.tokenizer.empty();

  client::Interrupts interrupts;
  client::RetryOptions retry;
  retry.attempts = static_cast<int>(options.retry_attempts);
  ServerLink link(
      {options.host, options.port, name_for_server(options.model), retry, options.security},
      interrupts);
  if (!options.text && !options.chat && (tokenizer == nullptr || !repl_options.own_model)) {
    const auto info = link.ask_info();
    const bool knows_text = info && info->knows_text && !has_random_weights(*info);
    // Without MODEL it is the demo's, whose server that may be.
    const bool fits = tokenizer != nullptr && info && info->vocab_size == tokenizer->vocab_size();
    if (knows_text && !fits) tokenizer = nullptr;
    if (tokenizer == nullptr && !knows_text) return fail(why);
    if (!why.empty()) {
      std::fprintf(stderr, "note: no tokenizer here, so the server encodes and decodes (%s)\n",
                   why.c_str());
    }
  }
  Repl repl(std::move(repl_options), tokenizer, link, interrupts);
  if (options.score) return repl.run_score(options.prompt.value_or(""), *options.score);
  if (options.prompt) return repl.run_prompt(*options.prompt);
  if (!interactive) return repl.run_pipe(stdin);
  LineEditor editor(">>>> ", history_path(), interrupts);
  return repl.run_interactive(editor);
}

int run(int argc, const char* const* argv) {
  const auto parsed = parse_client_options(argc, argv);
  if (const int* code = std::get_if<int>(&parsed)) return *code;
  const auto& options = std::get<ClientOptions>(parsed);
  std::ios::sync_with_stdio(false);
  if (options.text || options.chat) return talk(options, nullptr, "");
  const auto tokenizer = load_tokenizer_of(options);
  if (!tokenizer) {
    const std::string& why = tokenizer.error().message;
    return options.mode == ClientOptions::Mode::kTalk ? talk(options, nullptr, why) : fail(why);
  }
  switch (options.mode) {
    case ClientOptions::Mode::kEncode:
      return encode_lines(**tokenizer, options);
    case ClientOptions::Mode::kDecode:
      return decode_lines(**tokenizer, options);
    case ClientOptions::Mode::kTalk:
      break;
  }
  return talk(options, tokenizer->get(), "");
}

}  // namespace
}  // namespace lmtp::tools

int main(int argc, char** argv) { return lmtp::tools::run(argc, argv); }
