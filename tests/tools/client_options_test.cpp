#include "lmtp-client/client_options.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/split_host.h"

namespace lmtp::tools {
namespace {

// The options of a command line; a failure of the test where there are none.
ClientOptions parsed_options(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "lmtp-client");
  auto result = parse_client_options(static_cast<int>(arguments.size()), arguments.data());
  if (const int* code = std::get_if<int>(&result)) {
    ADD_FAILURE() << "exit code " << *code;
    return {};
  }
  return std::get<ClientOptions>(result);
}

TEST(ClientOptions, HaveDefaults) {
  const ClientOptions options = parsed_options({});
  EXPECT_EQ(options.host, "localhost");
  EXPECT_EQ(options.port, 8080);
  EXPECT_EQ(options.model, "");
  EXPECT_EQ(options.mode, ClientOptions::Mode::kTalk);
  EXPECT_FALSE(options.prompt.has_value());
  EXPECT_FALSE(options.params.bos.has_value());
  EXPECT_EQ(options.retry_attempts, 1);
}

TEST(ClientOptions, RetriesStopsAndText) {
  EXPECT_EQ(parsed_options({"--retry"}).retry_attempts, 3);
  const ClientOptions options = parsed_options(
      {"--retry=7", "--stop", "a b", "--stop", "[", "--text", "--host", "unix:/run/l"});
  EXPECT_EQ(options.retry_attempts, 7);
  EXPECT_EQ(options.params.stop, (std::vector<std::string>{"a b", "["}));
  EXPECT_TRUE(options.text);
  EXPECT_EQ(options.host, "unix:/run/l");
  for (const std::vector<const char*>& wrong : {std::vector<const char*>{"--retry=0"},
                                                {"--text", "--encode"},
                                                {"--text", "--tokenizer", "demo"},
                                                {"--host", "unix:"},
                                                {"--api-key", ""}}) {
    std::vector<const char*> arguments = {"lmtp-client"};
    arguments.insert(arguments.end(), wrong.begin(), wrong.end());
    const auto result = parse_client_options(static_cast<int>(arguments.size()), arguments.data());
    EXPECT_TRUE(std::holds_alternative<int>(result) && std::get<int>(result) == 2) << wrong[0];
  }
}

TEST(ClientOptions, Controllers) {
  const ClientOptions options =
      parsed_options({"--controller", "fork", "--controller-arg", "65 66", "controller_arg=7"});
  EXPECT_EQ(options.params.controller, "fork");
  EXPECT_EQ(options.params.controller_arg, "7") << "words come last";
}

TEST(ClientOptions, TakeParametersAsFlagsAndAsWords) {
  const ClientOptions options =
      parsed_options({"top_k=3", "gpt2", "seed=9", "-p", "Hello there", "-n", "5", "--temperature",
                      "0.5", "--presence-penalty", "-1.5", "--bos", "--raw", "--port", "81"});
  EXPECT_EQ(options.model, "gpt2");
  EXPECT_EQ(options.prompt, "Hello there");
  EXPECT_EQ(options.params.sampling.top_k, 3);
  EXPECT_EQ(options.params.sampling.seed, 9U);
  EXPECT_EQ(options.params.sampling.max_tokens, 5);
  EXPECT_EQ(options.params.sampling.temperature, 0.5F);
  EXPECT_EQ(options.params.sampling.presence_penalty, -1.5F);
  EXPECT_EQ(options.params.bos, true);
  EXPECT_TRUE(options.raw);
  EXPECT_EQ(options.port, 81);
}

TEST(ClientOptions, BosMayBeRefused) {
  EXPECT_EQ(parsed_options({"--no-bos"}).params.bos, false);
  EXPECT_EQ(parsed_options({"bos=false"}).params.bos, false);
}

TEST(ClientOptions, TextsOfLinesMayBeJson) {
  EXPECT_FALSE(parsed_options({"--encode"}).json);
  EXPECT_TRUE(parsed_options({"--decode", "--json"}).json);
}

TEST(ClientOptions, AnEmptyPromptIsAPrompt) {
  EXPECT_EQ(parsed_options({"-p", ""}).prompt, "");
  EXPECT_EQ(parsed_options({"-p", "-dash"}).prompt, "-dash");
}

TEST(SplitHost, TakesAddressesApart) {
  struct Case {
    const char* given;
    const char* host;
    std::optional<std::uint16_t> port = std::nullopt;
    bool is_tls = false;
  };
  for (const Case& c :
       {Case{"example.org", "example.org"}, Case{"10.0.0.1:81", "10.0.0.1", 81},
        Case{"ws://h:82/", "h", 82}, Case{"http://h", "h"}, Case{"[::1]:83", "::1", 83},
        Case{"[::1]", "::1"}, Case{"::1", "::1"}, Case{"fe80::1:2", "fe80::1:2"},
        Case{"wss://h", "h", std::nullopt, true}, Case{"https://[::1]:84/", "::1", 84, true}}) {
    const auto split = split_host(c.given);
    ASSERT_TRUE(split.ok()) << c.given;
    EXPECT_EQ(split->host, c.host) << c.given;
    EXPECT_EQ(split->port, c.port) << c.given;
    EXPECT_EQ(split->is_tls, c.is_tls) << c.given;
  }
  for (const char* wrong :
       {"", "h:", "h:x", "h:65536", "h/path", ":80", "[::1", "[::1]80", "ws://"}) {
    EXPECT_FALSE(split_host(wrong).ok()) << wrong;
  }
}

}  // namespace
}  // namespace lmtp::tools
