// How lmtp-serve says that it is reached.
#include "lmtp-serve/client_command.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

namespace lmtp::tools {
namespace {

std::string words(const ServeOptions& options, const std::string& model = "demo") {
  return client_command(options, "c", model, options.port);
}

TEST(ClientCommand, SaysNoMoreThanTheClientDoesNotKnow) {
  ServeOptions options;
  EXPECT_EQ(words(options), "c demo");
  EXPECT_EQ(words(options, "org/name@v2"), "c org/name@v2");
  EXPECT_EQ(words(options, "random:gpt2"), "c");
  options.host = "0.0.0.0";
  EXPECT_EQ(words(options), "c demo");
  options.port = 9000;
  EXPECT_EQ(words(options), "c demo --port 9000");
  EXPECT_EQ(client_command(options, "c", "demo", 8080), "c demo");  // that which was opened
}

TEST(ClientCommand, NamesTheAddress) {
  ServeOptions options;
  options.host = "10.0.0.7";
  options.port = 9000;
  EXPECT_EQ(words(options), "c demo --host 10.0.0.7 --port 9000");
  options.host = "::1";
  EXPECT_EQ(words(options), "c demo --host ::1 --port 9000");
  options.tls_certfile = "cert.pem";
  EXPECT_EQ(words(options), "c demo --host 'wss://[::1]:9000'");
  options.host = "::";
  EXPECT_EQ(words(options), "c demo --host wss://localhost:9000");
  options.on_tcp = false;
  options.unix_path = "/run/a b";
  EXPECT_EQ(words(options), "c demo --host 'unix:/run/a b'");
}

TEST(ClientCommand, AsksForAKeyWhereOneIsNeeded) {
  ServeOptions options;
  options.api_key_file = "keys.json";
  EXPECT_EQ(words(options), "c demo --api-key KEY");
}

TEST(HttpCommand, AsksForACompletion) {
  ServeOptions options;
  options.model = "demo";
  EXPECT_EQ(http_command(options, 9000),
            "http://127.0.0.1:9000/v1, as in: curl http://127.0.0.1:9000/v1/completions "
            "-H 'Content-Type: application/json' -d "
            R"('{"model": "demo", "prompt": "Once upon a time", "max_tokens": 16}')");
  options.served_names = {R"(it's "it")"};
  options.host = "::";
  options.tls_certfile = "cert.pem";
  options.api_keys = {"k"};
  EXPECT_EQ(http_command(options, 8080),
            "https://localhost:8080/v1, as in: curl -H 'Authorization: Bearer KEY' "
            "https://localhost:8080/v1/completions -H 'Content-Type: application/json' -d "
            R"('{"model": "it'\''s \"it\"", "prompt": "Once upon a time", "max_tokens": 16}')");
}

TEST(HttpCommand, AsksForModelsWhereNoneAnswersTexts) {
  ServeOptions options;
  options.host = "fe80::1";
  EXPECT_EQ(http_command(options, 80),
            "http://[fe80::1]:80/v1, as in: curl 'http://[fe80::1]:80/v1/models'");
  options.model = "random:gpt2";
  options.on_tcp = false;
  options.unix_path = "/run/lmtp";
  EXPECT_EQ(http_command(options, 80),
            "http://localhost/v1, as in: curl --unix-socket /run/lmtp http://localhost/v1/models");
}

TEST(ClientCommand, IsTakenByAShellFromAnyFolder) {
  const std::filesystem::path folder = std::filesystem::path(::testing::TempDir()) / "it's mine";
  std::filesystem::create_directories(folder);
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(folder.parent_path());
  const std::string command = client_command({}, "/a b/c", "it's mine", 8080);
  std::filesystem::current_path(before);
  const std::string parent = std::filesystem::canonical(folder.parent_path()).string();
  EXPECT_EQ(command, "'/a b/c' '" + parent + "/it'\\''s mine'");
}

}  // namespace
}  // namespace lmtp::tools
