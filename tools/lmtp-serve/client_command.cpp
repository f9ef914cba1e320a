#include "client_command.h"

#include <filesystem>
#include <string_view>
#include <system_error>

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

std::string address_words(const ServeOptions& options, std::uint16_t port) {
  if (!options.on_tcp) return " --host " + shell_word("unix:" + absolute(options.unix_path));
  const bool is_default = is_any(options.host) || options.host == ServeOptions().host;
  if (!options.tls_certfile.empty()) {
    // By a name, since few certificates are of an address.
    std::string host = is_default ? "localhost" : options.host;
    if (host.find(':') != std::string::npos) host.insert(0, "[").append("]");
    return " --host " + shell_word("wss://" + host + ":" + std::to_string(port));
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
  const bool is_random = model == "random" || model.starts_with("random:");
  if (!is_random) command += " " + shell_word(model_word(model));
  command += address_words(options, port);
  if (!options.api_keys.empty() || !options.api_key_file.empty()) command += " --api-key KEY";
  return command;
}

std::string client_program() {
  constexpr const char* kName = "lmtp-client";
  std::error_code error;
  const fs::path beside = fs::read_symlink("/proc/self/exe", error).parent_path() / kName;
  return !error && fs::exists(beside, error) ? beside.string() : kName;
}

}  // namespace lmtp::tools
