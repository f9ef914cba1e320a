#include "hub_messages.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <string>
#include <vector>

#include "web_address.h"

namespace lmtp::hub {
namespace {

HubEnvironment hub_with(const std::string& token) {
  HubEnvironment hub;
  hub.endpoint = "https://hub.example";
  hub.origin = "https://hub.example:443";
  hub.token = token;
  hub.token_from = "HF_TOKEN";
  hub.answer_timeout = std::chrono::milliseconds(4500);
  hub.stall_timeout = std::chrono::seconds(10);
  return hub;
}

HttpAnswer with_status(int status, const std::string& code = "", const std::string& text = "") {
  HttpAnswer answer;
  answer.status = status;
  answer.origin = "https://hub.example:443";
  answer.error_code = code;
  answer.error_message = text;
  return answer;
}

HttpAnswer with_transport(Transport transport) {
  HttpAnswer answer = with_status(0);
  answer.transport = transport;
  answer.detail = "the detail";
  return answer;
}

TEST(Explain, EachReasonHasItsOwnRemedy) {
  struct Case {
    HttpAnswer answer;
    std::string token;
    std::string file;
    std::vector<std::string> parts;
  };
  const std::vector<Case> cases = {
      {with_status(401, "RepoNotFound"), "", "", {"no model 'o/n'", "private", "set HF_TOKEN"}},
      {with_status(404, "RepoNotFound"), "t", "", {"no model 'o/n'", "token in HF_TOKEN"}},
      {with_status(401), "", "", {"no model 'o/n'", "hf auth login", "not answer like a hub"}},
      {with_status(401, "", "Invalid credentials"),
       "t",
       "",
       {"does not accept the token in HF_TOKEN", "Invalid credentials", "/settings/tokens"}},
      {with_status(403, "GatedRepo"), "t", "", {"gated", "https://hub.example/o/n", "HF_TOKEN"}},
      {with_status(403, "", "Access to this resource is disabled."), "", "", {"disabled"}},
      {with_status(403, "", "no read scope"),
       "t",
       "a.json",
       {"forbids", "a.json", "no read scope"}},
      {with_status(404, "RevisionNotFound"), "", "", {"no revision 'dev'", "/o/n/tree/main"}},
      {with_status(404, "EntryNotFound"), "", "a.json", {"no file a.json", "'dev'"}},
      {with_status(407), "", "", {"proxy wants a login", "https_proxy"}},
      {with_status(429), "", "", {"limits", "some minutes", "HF_TOKEN"}},
      {with_status(503, "", "maintenance"), "", "", {"trouble", "503", "maintenance", "later"}},
      {with_status(418), "", "", {"no usable answer", "418", "HF_ENDPOINT"}},
      {with_transport(Transport::kNoName),
       "",
       "",
       {"cannot be reached", "https://hub.example ", "resolved", "HF_ENDPOINT", "the detail"}},
      {with_transport(Transport::kNoHost), "", "", {"no connection", "https_proxy"}},
      {with_transport(Transport::kNoProxy), "", "", {"the proxy", "no_proxy"}},
      {with_transport(Transport::kTls), "", "", {"TLS", "REQUESTS_CA_BUNDLE"}},
      {with_transport(Transport::kTimeout), "", "", {"within 4.5 s", "HF_HUB_ETAG_TIMEOUT"}},
      {with_transport(Transport::kRefused), "", "", {"the detail", "not followed"}},
      {with_transport(Transport::kCut), "", "b.bin", {"b.bin of 'o/n'", "broke off", "is kept"}},
  };
  for (const Case& c : cases) {
    const HubEnvironment hub = hub_with(c.token);
    const auto [code, message, wait_ms] = explain(c.answer, {"o/n", "dev", c.file}, hub);
    const bool is_missing =
        c.parts[0].starts_with("no model") || c.parts[0].starts_with("no revision");
    EXPECT_EQ(code, is_missing ? ErrorCode::kNotFound : ErrorCode::kUnavailable) << message;
    EXPECT_EQ(wait_ms, 0);
    for (const std::string& part : c.parts) {
      EXPECT_NE(message.find(part), std::string::npos) << "'" << message << "' lacks " << part;
    }
  }
}

TEST(Explain, WhatPassesIsTriedAgain) {
  for (const int status : {408, 429, 500, 503}) EXPECT_TRUE(is_transient(with_status(status)));
  for (const int status : {400, 401, 403, 404, 416}) {
    EXPECT_FALSE(is_transient(with_status(status)));
  }
  EXPECT_TRUE(is_transient(with_transport(Transport::kCut)));
  EXPECT_FALSE(is_transient(with_transport(Transport::kTls)));
  EXPECT_FALSE(is_transient(with_transport(Transport::kBodyStopped)));
}

TEST(ExplainDisk, NamesTheRemedy) {
  EXPECT_NE(explain_disk("w", "/x", ENOSPC).message.find("full at /x: make room"),
            std::string::npos);
  EXPECT_NE(explain_disk("w", "/x", EACCES).message.find("HF_HUB_CACHE must name"),
            std::string::npos);
  EXPECT_EQ(explain_disk("w", "/x", EIO).message, "w: /x: Input/output error");
}

TEST(WebAddress, OriginsAreCompared) {
  const auto origin = [](const char* url) {
    const auto found = origin_of(url);
    return found.ok() ? *found : "";
  };
  EXPECT_EQ(origin("https://Hub.Example/a?b"), "https://hub.example:443");
  EXPECT_EQ(origin("http://hub.example:443/"), "http://hub.example:443");
  EXPECT_EQ(origin("http://[::1]:80/"), "http://[::1]:80");
  EXPECT_EQ(origin("http://hub.example@evil.example/"), "");
  EXPECT_EQ(origin("file:///etc/passwd"), "");
  EXPECT_EQ(origin("https://hub.example.evil.example/"), "https://hub.example.evil.example:443");
}

TEST(WebAddress, QuotesWhatAPathCannotHold) {
  EXPECT_EQ(quote("refs/pr/1", false), "refs%2Fpr%2F1");
  EXPECT_EQ(quote("a b/c?d#e%f", true), "a%20b/c%3Fd%23e%25f");
  EXPECT_EQ(quote("\xc3\xa9", true), "%C3%A9");
}

}  // namespace
}  // namespace lmtp::hub
