#include "client_command.h"

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "children.h"
#include "lmtp/base/json.h"

namespace lmtp::tools {
namespace {

namespace fs = std::filesystem;

constexpr std::uint16_t kClientPort = 8080;  // without --port

// In quotes where the shell would take it for more than a word.
std::string shell_word(const std::string& text) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-";
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string::npos) return text;
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

std::string absolute(const std::string& path) {
  std::error_code error;
  const fs::path whole = fs::canonical(path, error);
  return error ? fs::absolute(path, error).string() : whole.string();
}

// A name stays as it is.
std::string model_word(const std::string& model) {
  std::error_code error;
  return model != "demo" && fs::exists(model, error) ? absolute(model) : model;
}

// Every address: this machine's own is among them.
bool is_any(const std::string& host) { return host == "0.0.0.0" || host == "::"; }

bool is_random(const std::string& model) {
  return model == "random" || model.starts_with("random:");
}

bool needs_key(const ServeOptions& options) {
  return !options.api_keys.empty() || !options.api_key_file.empty();
}

// A name of this server, or of this machine, for URLs.
std::string url_host(const ServeOptions& options) {
  if (!options.on_tcp) return "localhost";
  const bool is_default = is_any(options.host) || options.host == ServeOptions().host;
  // TLS by a name, since few certificates are of an address.
  if (is_default) return options.tls_certfile.empty() ? "127.0.0.1" : "localhost";
  return options.host.find(':') == std::string::npos ? options.host : "[" + options.host + "]";
}

std::string address_words(const ServeOptions& options, std::uint16_t port) {
  if (!options.on_tcp) return " --host " + shell_word("unix:" + absolute(options.unix_path));
  const bool is_default = is_any(options.host) || options.host == ServeOptions().host;
  if (!options.tls_certfile.empty()) {
    return " --host " + shell_word("wss://" + url_host(options) + ":" + std::to_string(port));
  }
  std::string words = is_default ? "" : " --host " + shell_word(options.host);
  if (port != kClientPort) words += " --port " + std::to_string(port);
  return words;
}

}  // namespace

std::string client_command(const ServeOptions& options, const std::string& program,
                           const std::string& model, std::uint16_t port) {
  std::string command = shell_word(program);
  // Random weights have no tokenizer: the demo's will do.
  if (!is_random(model)) command += " " + shell_word(model_word(model));
  command += address_words(options, port);
  if (needs_key(options)) command += " --api-key KEY";
  return command;
}

std::string http_command(const ServeOptions& options, std::uint16_t port) {
  const std::string scheme = options.on_tcp && !options.tls_certfile.empty() ? "https" : "http";
  std::string url = scheme + "://" + url_host(options);
  if (options.on_tcp) url += ":" + std::to_string(port);
  url += "/v1";
  std::string command = url + ", as in: curl";
  if (!options.on_tcp) command += " --unix-socket " + shell_word(absolute(options.unix_path));
  if (needs_key(options)) command += " -H 'Authorization: Bearer KEY'";
  if (options.is_auto() || is_random(options.model)) {
    return command + " " + shell_word(url + "/models");
  }
  std::string body = "{\"model\": ";
  append_json_string(options.shown_name(), body);
  body += ", \"prompt\": \"Once upon a time\", \"max_tokens\": 16}";
  return command + " " + shell_word(url + "/completions") +
         " -H 'Content-Type: application/json' -d " + shell_word(body);
}

void print_reached(const ServeOptions& options, const std::string& model, std::uint16_t port) {
  if (!options.on_stdio && std::getenv(kChildVariable) == nullptr) {
    const std::string command = client_command(options, client_program(), model, port);
    std::printf("lmtp-serve: OpenAI's API: %s\n", http_command(options, port).c_str());
    std::printf("lmtp-serve: to talk to it: %s\n", command.c_str());
  }
  std::fflush(stdout);
}

std::string client_program() {
  constexpr const char* kName = "lmtp-client";
  std::error_code error;
  const fs::path beside = fs::read_symlink("/proc/self/exe", error).parent_path() / kName;
  return !error && fs::exists(beside, error) ? beside.string() : kName;
}

}  // namespace lmtp::tools
