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

}  // namespace
}  // namespace lmtp::server
