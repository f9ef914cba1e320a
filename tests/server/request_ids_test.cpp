// What is taken over of a client's X-Request-Id and traceparent.
#include "http/request_ids.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace lmtp::server {
namespace {

using ::testing::MatchesRegex;

constexpr const char* kTrace = "4bf92f3577b34da6a3ce929d0e0e4736";

std::unique_ptr<Caller> caller_of(std::vector<HttpField> fields) {
  HttpRequest request;
  request.fields = std::move(fields);
  auto caller = std::make_unique<Caller>();
  set_ids(request, *caller);
  return caller;
}

TEST(RequestIds, AreTheClientsWhereTheyAreVisibleAscii) {
  for (const std::string& id :
       {std::string("a"), std::string("req-1:{\"x\"}~!"), std::string(128, 'x')}) {
    const auto caller = caller_of({{"x-request-id", id}, {"X-Request-Id", "second"}});
    EXPECT_EQ(caller->request_id, id);
    EXPECT_EQ(ids_text(*caller), ", id " + id);
    caller->answer_id = "cmpl-7";
    EXPECT_EQ(ids_text(*caller), ", id " + id + " (cmpl-7)");
  }
  for (const std::string& id :
       {std::string(), std::string(129, 'x'), std::string("a b"), std::string("a\nb"),
        std::string("a\x7f"), std::string("caf\xc3\xa9"), std::string("a\0b", 3)}) {
    const auto caller = caller_of({{"X-Request-Id", id}});
    EXPECT_THAT(caller->request_id, MatchesRegex("req-[0-9a-f]{32}")) << id;
  }
  const auto one = caller_of({});
  const auto two = caller_of({});
  EXPECT_NE(one->request_id, two->request_id);
  EXPECT_EQ(ids_text(*one), ", id " + one->request_id);
  EXPECT_EQ(ids_text(Caller()), "") << "of LMTP";
}

TEST(RequestIds, ATraceIsOneOfTheW3C) {
  const std::string trace = kTrace;
  const std::string rest = "-00f067aa0ba902b7-01";
  for (const std::string& good :
       {"00-" + trace + rest, "cc-" + trace + rest, "01-" + trace + rest + "-what-comes-later"}) {
    const auto caller = caller_of({{"traceparent", good}});
    EXPECT_EQ(caller->trace_id, trace) << good;
    EXPECT_EQ(ids_text(*caller), ", id " + caller->request_id + ", trace " + trace);
  }
  const std::string zeros(32, '0');
  const std::string upper = "4BF92F3577B34DA6A3CE929D0E0E4736";
  for (const std::string& bad :
       {std::string(), std::string("00"), "00-" + trace, "00-" + trace + "-00f067aa0ba902b7",
        "ff-" + trace + rest, "00-" + trace + rest + "-more", "00-" + trace + rest + " ",
        "01-" + trace + rest + "x", "00-" + zeros + rest, "00-" + upper + rest,
        "0g-" + trace + rest, "00-" + trace + "-0000000000000000-01",
        "00-" + trace + "-00f067aa0ba902b7-0x", "00_" + trace + rest,
        "00-" + trace + "_00f067aa0ba902b7-01", "00-" + trace + "-00f067aa0ba902b7_01"}) {
    EXPECT_EQ(caller_of({{"traceparent", bad}})->trace_id, "") << bad;
  }
}

TEST(RequestIds, GoBackWithTheAnswer) {
  const std::string parent = std::string("00-") + kTrace + "-00f067aa0ba902b7-01";
  HttpRequest request;
  request.fields = {{"Traceparent", parent}, {"X-Request-Id", "mine"}};
  Caller caller;
  set_ids(request, caller);
  const std::vector<HttpField> fields = id_fields(request, caller);
  ASSERT_EQ(fields.size(), 2U);
  EXPECT_EQ(fields[0].name + ": " + fields[0].value, "X-Request-Id: mine");
  EXPECT_EQ(fields[1].name + ": " + fields[1].value, "traceparent: " + parent);
}

}  // namespace
}  // namespace lmtp::server
