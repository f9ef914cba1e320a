#include "client_options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <utility>
#include <vector>

#include "common/checks.h"
#include "common/completion.h"
#include "common/help_format.h"
#include "common/split_host.h"
#include "lmtp/base/version.h"
#include "lmtp/request/sampling_table.h"

namespace lmtp::tools {
namespace {

constexpr int kExitUsage = 2;

constexpr const char* kDescription =
    "Talks to an LMTP server: lmtp-serve, or LMQL's `lmql serve-model`.\n"
    "At a terminal a prompt, in a pipe one prompt a line, with -p one prompt alone.";

constexpr const char* kFooter =
    "A prompt line may end with parameters: Hello there temperature=1.2 max_tokens=5\n"
    "A logit_bias is written {TOKEN:VALUE,...} without spaces: {50256:-100,11:2.5}\n"
    "BOS goes in front of a prompt where the tokenizer's own files say so (Llama's, not GPT-2's);\n"
    "--bos or --no-bos (bos=true, bos=false on a line) decide otherwise. LMQL's queries always "
    "have\n"
    "it in front. An empty prompt is BOS alone.\n"
    "In a pipe and with -p only the new text is printed (--echo: the prompt too).\n"
    "The exit code is 0, 1 after an error, 2 for a wrong option, 130 after Ctrl-C.";

using Words = std::vector<std::pair<std::string, std::string>>;

std::string flag_of(const SamplingParam& param) {
  std::string flag = "--" + std::string(param.name);
  std::ranges::replace(flag, '_', '-');
  return flag == "--max-tokens" ? "-n," + flag : flag;
}

// The positional arguments: MODEL, and key=value before or after it.
Result<void> take_positionals(const std::vector<std::string>& positionals, ClientOptions& options,
                              Words& params) {
  for (const std::string& word : positionals) {
    if (is_param(word)) {
      const std::size_t equals = word.find('=');
      params.emplace_back(word.substr(0, equals), word.substr(equals + 1));
    } else if (options.model.empty()) {
      options.model = word;
    } else {
      return Error{ErrorCode::kInvalid, "'" + word +
                                            "' is neither an option nor key=value (MODEL is '" +
                                            options.model + "'; a prompt follows -p)"};
    }
  }
  return {};
}

constexpr int kMaxAttempts = 1000;

Result<void> check(const ClientOptions& options, bool encode, bool decode) {
  if (options.retry_attempts < 1 || options.retry_attempts > kMaxAttempts) {
    return Error{ErrorCode::kInvalid,
                 "--retry: allowed are 1 to " + std::to_string(kMaxAttempts) + " attempts"};
  }
  if ((options.text || options.chat) && (encode || decode || !options.tokenizer.empty())) {
    return Error{ErrorCode::kInvalid,
                 std::string(options.chat ? "--chat" : "--text") +
                     " needs no tokenizer here: leave --tokenizer, --encode and --decode out"};
  }
  if (!options.system.empty() && !options.chat) {
    return Error{ErrorCode::kInvalid, "--system goes with --chat"};
  }
  if (options.chat && options.score) {
    return Error{ErrorCode::kInvalid, "--chat and --score exclude each other"};
  }
  if (encode && decode) {
    return Error{ErrorCode::kInvalid, "--encode and --decode exclude each other"};
  }
  if ((encode || decode) && (options.prompt || options.score)) {
    return Error{ErrorCode::kInvalid,
                 "--encode and --decode read standard input: leave -p and --score out"};
  }
  if (options.json && !encode && !decode) {
    return Error{ErrorCode::kInvalid, "--json goes with --encode or --decode"};
  }
  return {};
}

int usage_error(const std::string& message) {
  std::fprintf(stderr, "lmtp-client: %s (--help shows the options)\n", message.c_str());
  return kExitUsage;
}

// `options` and `params` outlive the parsing.
void add_param_options(CLI::App& app, ClientOptions& options, Words& params) {
  for (const SamplingParam& param : kSamplingTable) {
    if (std::holds_alternative<bool SamplingParams::*>(param.member)) {
      app.add_flag_callback(
          flag_of(param), [&params, &param] { params.emplace_back(param.name, "true"); },
          std::string(param.help));
      continue;
    }
    app.add_option_function<std::string>(
        flag_of(param),
        [&params, &param](const std::string& value) { params.emplace_back(param.name, value); },
        std::string(param.help) + " (" + param_text({}, param) + ")");
  }
  app.add_flag_callback(
      "--bos", [&options] { options.params.bos = true; }, "put BOS in front of each prompt");
  app.add_flag_callback(
      "--no-bos", [&options] { options.params.bos = false; },
      "do not, whatever the tokenizer says");
  app.add_option("--stop", options.params.stop,
                 "end the text before this; may be given several times")
      ->allow_extra_args(false);
  app.add_option("--controller", options.params.controller,
                 "the AICI controller that decides on the tokens: a tag, or a module's id");
  app.add_option("--controller-arg", options.params.controller_arg, "its argument");
  app.add_flag_function(
      "--retry{3}", [&options](std::int64_t attempts) { options.retry_attempts = attempts; },
      "go on exactly with what is lost with its connection, or fails by an error that may "
      "pass: so many tries in a row without a new token (3)");
}

void add_server_options(CLI::App& app, ClientOptions& options, std::string& host,
                        client::SecurityOptions& security) {
  app.add_option("--host", host,
                 "where the server is (localhost); host:port, ws://, wss:// (TLS) and unix:PATH "
                 "will do");
  app.add_option("--port", options.port, "its port (8080; of wss:// 443)");
  app.add_option("--api-key", security.api_key, "the key that the server asks for")
      ->envname("LMTP_API_KEY")
      ->check(not_empty, "");
  app.add_option("--cacert", security.ca_file,
                 "with wss://: PEM file of who signed the server's certificate (the system's)");
  app.add_flag("--insecure", security.insecure, "with wss://: take any certificate");
}

}  // namespace

std::variant<ClientOptions, int> parse_client_options(int argc, const char* const* argv) {
  ClientOptions options;
  CLI::App app(kDescription, "lmtp-client");
  app.formatter(std::make_shared<HelpFormat>());
  app.footer(kFooter);
  app.set_version_flag("--version", "lmtp-client " + std::string(kVersion));
  std::vector<std::string> positionals;
  std::string host;
  client::SecurityOptions security;
  bool encode = false;
  bool decode = false;
  Words params;
  app.add_option(
      "MODEL", positionals,
      "the model's name or folder, for the tokenizer and for the server (without: the "
      "model that the server has, which encodes and decodes); also key=value parameters");
  add_server_options(app, options, host, security);
  app.add_option(
      "--tokenizer", options.tokenizer,
      "take the tokenizer from this name or folder; MODEL is then the server's name alone");
  app.add_option("-p,--prompt", options.prompt, "one prompt, taken as it stands; then end");
  app.add_option("--score", options.score,
                 "log probability of each token of this text after the prompt (-p, else nothing)");
  add_param_options(app, options, params);
  app.add_flag("--text", options.text,
               "have the server encode and decode; no tokenizer is needed here");
  app.add_flag("--chat", options.chat,
               "prompts are the user's messages of one chat, which the server writes as the "
               "model's chat template says; no tokenizer is needed here");
  app.add_option("--system", options.system, "with --chat: the system message of the chat");
  app.add_flag("--raw", options.raw,
               "print the token entries, with their top_logprobs, as LMQL's client does");
  app.add_flag("--echo", options.echo, "print the prompt in front of the answer");
  app.add_flag("--encode", encode, "text lines on standard input to JSON arrays of token ids");
  app.add_flag("--decode", decode, "and back");
  app.add_flag("--json", options.json,
               "with --encode and --decode: each text is a JSON string, so that it may hold line "
               "ends");
  add_completion(app, {"demo"});
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);
    return usage_error(error.what());
  }
  if (auto taken = take_positionals(positionals, options, params); !taken) {
    return usage_error(taken.error().message);
  }
  for (const auto& [key, value] : params) {
    if (auto set = set_param(options.params, key, value); !set) {
      return usage_error(set.error().message);
    }
  }
  if (!host.empty()) {
    auto split = split_host(host);
    if (!split) return usage_error(split.error().message);
    options.host = std::move(split->host);
    security.tls = split->is_tls;
    if (split->is_tls && app.count("--port") == 0) options.port = kHttpsPort;
    options.port = split->port.value_or(options.port);
  }
  auto secured = client::make_security(security);
  if (!secured) return usage_error(secured.error().message);
  options.security = *std::move(secured);
  if (auto good = check(options, encode, decode); !good) return usage_error(good.error().message);
  if (encode) options.mode = ClientOptions::Mode::kEncode;
  if (decode) options.mode = ClientOptions::Mode::kDecode;
  return options;
}

}  // namespace lmtp::tools
