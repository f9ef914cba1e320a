// Whose requests are answered, by Host and Origin.
#include "http/origin.h"

#include <gtest/gtest.h>

namespace lmtp::server {
namespace {

int status(const ServerOptions& options, const char* host, const char* origin = nullptr,
           bool on_loopback = true) {
  HttpRequest request;
  if (*host != '\0') request.fields.push_back({"host", host});
  if (origin != nullptr) request.fields.push_back({"ORIGIN", origin});
  const auto refusal = refuse_foreign(request, options, on_loopback);
  return refusal ? refusal->status : 200;
}

TEST(Origin, OnLoopbackTheServerHasItsOwnNamesOnly) {
  const ServerOptions options;
  for (const char* host : {"localhost", "localhost:9000", "LocalHost:1", "127.0.0.1:8080",
                           "127.9.9.9", "[::1]:8080", "[::1]", ""}) {
    EXPECT_EQ(status(options, host), 200) << host;
  }
  for (const char* host : {"attacker.example", "attacker.example:8080",
                           "localhost.attacker.example", "127.0.0.1.attacker.example", "10.0.0.1",
                           "[2001:db8::1]:80", ":8080", "[", "127.0.0.1@attacker.example"}) {
    EXPECT_EQ(status(options, host), 421) << host;
    EXPECT_EQ(status(options, host, nullptr, false), 200) << "beyond loopback: " << host;
  }
}

TEST(Origin, ItGoesByTheNamesItWasGiven) {
  ServerOptions options;
  options.host = "Box";
  EXPECT_EQ(status(options, "box:8080"), 200);
  options.host = "::1";
  EXPECT_EQ(status(options, "[::1]:8080"), 200);
  options.allowed_hosts = {"lm.example.org", "other.example:443"};
  EXPECT_EQ(status(options, "LM.example.org"), 200);
  EXPECT_EQ(status(options, "other.example:8443"), 200);
  EXPECT_EQ(status(options, "example.org"), 421);
  EXPECT_EQ(status(options, "example.org", nullptr, false), 421) << "given any, names matter";
  EXPECT_EQ(status(options, "localhost", nullptr, false), 200);
}

TEST(Origin, OnlyItsOwnPagesAndThoseListedMayConnect) {
  ServerOptions options;
  EXPECT_EQ(status(options, "localhost:8080", "http://localhost:8080"), 200);
  EXPECT_EQ(status(options, "LOCALHOST:8080", "http://localhost:8080"), 200);
  EXPECT_EQ(status(options, "localhost", "https://localhost"), 200) << "a proxy with TLS";
  EXPECT_EQ(status(options, "localhost:443", "https://localhost"), 200);
  for (const char* origin :
       {"null", "", "http://attacker.example", "http://localhost", "http://localhost:3000",
        "http://127.0.0.1:8080", "localhost:8080", "http://localhost:8080.attacker.example",
        "http://attacker.example/http://localhost:8080"}) {
    EXPECT_EQ(status(options, "localhost:8080", origin), 403) << origin;
    EXPECT_EQ(status(options, "localhost:8080", origin, false), 403) << origin;
  }
  options.allowed_origins = {"http://localhost:3000", "https://Page.example:443"};
  EXPECT_EQ(status(options, "localhost:8080", "http://localhost:3000"), 200);
  EXPECT_EQ(status(options, "localhost:8080", "https://page.example"), 200);
  EXPECT_EQ(status(options, "localhost:8080", "http://page.example"), 403);
}

TEST(Origin, AHostMayHaveAnyPort) {
  ServerOptions options;
  options.allowed_origins = {"http://LocalHost:*", "https://[::1]:*"};
  for (const char* origin : {"http://localhost", "http://localhost:3000", "http://localhost:1",
                             "https://[::1]:5173", "https://[::1]"}) {
    EXPECT_EQ(status(options, "127.0.0.1:8080", origin), 200) << origin;
  }
  for (const char* origin : {"http://localhost.evil", "http://localhost:3000.evil",
                             "http://localhost:", "http://localhost:*", "http://localhost:30/x",
                             "https://localhost:3000", "null", "http://localhost@evil",
                             "http://evil/http://localhost:3000", "https://[::1].evil"}) {
    EXPECT_EQ(status(options, "127.0.0.1:8080", origin), 403) << origin;
  }
}

TEST(Origin, PagesFromFilesAndAnyPageAreLetInOnRequest) {
  ServerOptions options;
  options.allowed_origins = {"null"};
  EXPECT_EQ(status(options, "localhost:8080", "null"), 200);
  EXPECT_EQ(status(options, "localhost:8080", "http://null"), 403);
  const auto by_any = [&](const char* origin) {
    HttpRequest request;
    request.fields = {{"Host", "localhost:8080"}};
    if (origin != nullptr) request.fields.push_back({"Origin", origin});
    return is_of_any_page(request, options);
  };
  EXPECT_TRUE(by_any("null")) << "any page can make itself a frame of it";
  options.allowed_origins = {"*", "https://page.example"};
  for (const char* origin : {"null", "http://any.example", "file://", "app://obsidian.md"}) {
    EXPECT_EQ(status(options, "localhost:8080", origin), 200) << origin;
  }
  EXPECT_EQ(status(options, "any.example", "http://any.example"), 421) << "rebinding stays out";
  EXPECT_TRUE(by_any("http://any.example"));
  EXPECT_TRUE(by_any("null"));
  EXPECT_FALSE(by_any(nullptr));
  EXPECT_FALSE(by_any("https://page.example"));
  EXPECT_FALSE(by_any("http://localhost:8080"));
}

TEST(Origin, ARefusalNamesThePageAndTheOption) {
  const auto sentence = [](const std::string& origin) {
    HttpRequest request;
    request.fields = {{"Host", "localhost"}, {"Origin", origin}};
    return refuse_foreign(request, {}, true)->body;
  };
  const std::string said = sentence("https://Page.example");
  EXPECT_NE(said.find("'https://Page.example'"), std::string::npos) << said;
  EXPECT_NE(said.find("--allow-origin SCHEME://HOST[:PORT]"), std::string::npos) << said;
  EXPECT_NE(sentence("null").find("--allow-origin null"), std::string::npos);
  const std::string odd = sentence("a\x1b[2J\xff" + std::string(10'000, 'x'));
  EXPECT_NE(odd.find("'a?[2J?x"), std::string::npos) << odd;
  EXPECT_LT(odd.size(), 400U);
}

}  // namespace
}  // namespace lmtp::server
