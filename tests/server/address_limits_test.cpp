// What one address may have: by itself at times of the test's choosing, and over sockets.
#include "net/address_limits.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "http_client.h"
#include "running_server.h"
#include "ws_client.h"

namespace lmtp::server {
namespace {

using lmtp::testing::eventually;
using lmtp::testing::generate;
using lmtp::testing::http_request;
using lmtp::testing::HttpClient;
using lmtp::testing::Running;
using lmtp::testing::WsClient;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

std::optional<std::uint64_t> key_of(const std::string& address) {
  const boost::asio::ip::tcp::endpoint endpoint(boost::asio::ip::make_address(address), 80);
  return address_key(endpoint);
}

TEST(AddressKey, IsAnAddressOfIpv4AndANetworkOfIpv6) {
  EXPECT_EQ(key_of("10.0.0.1"), key_of("::ffff:10.0.0.1"));
  EXPECT_NE(key_of("10.0.0.1"), key_of("10.0.0.2"));
  EXPECT_EQ(key_of("2001:db8:1:2::1"), key_of("2001:db8:1:2:ffff:ffff:ffff:ffff"));
  EXPECT_NE(key_of("2001:db8:1:2::1"), key_of("2001:db8:1:3::1"));
  EXPECT_EQ(address_key(boost::asio::local::stream_protocol::endpoint("/tmp/x")), std::nullopt);
}

TEST(AddressLimits, CountConnectionsWhileTheyLast) {
  AddressLimits limits(2, 0);
  std::vector<AddressLimits::Admission> one;
  for (const int wait_s : {0, 0, 1}) {
    one.push_back(limits.admit(1));
    EXPECT_EQ(one.back().retry_after_s, wait_s);
  }
  EXPECT_EQ(limits.admit(2).retry_after_s, 0) << "another address";
  EXPECT_EQ(limits.admit(std::nullopt).retry_after_s, 0) << "a Unix socket";
  one.clear();
  EXPECT_EQ(limits.admit(1).retry_after_s, 0);
}

TEST(AddressLimits, CountRequestsByTheSecond) {
  AddressLimits limits(0, 0.5);
  AddressLimits::Clock::time_point now{seconds(1)};
  const AddressLimits::Admission admission = limits.admit(1, now);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(admission.seat.take_request(now), 0) << i;
  EXPECT_EQ(admission.seat.take_request(now), 2) << "five in ten seconds";
  EXPECT_EQ(admission.seat.take_request(now + milliseconds(1500)), 1);
  EXPECT_EQ(admission.seat.take_request(now + seconds(2)), 0);
  EXPECT_EQ(admission.seat.take_request(now + seconds(2)), 2);
  EXPECT_EQ(limits.admit(2, now).retry_after_s, 0);
  now += seconds(3600);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(admission.seat.take_request(now), 0) << i;
  EXPECT_GT(admission.seat.take_request(now), 0) << "an hour saves no more than ten seconds do";
}

TEST(AddressLimits, AnswerAFloodNowAndThen) {
  AddressLimits limits(0, 1);
  const AddressLimits::Clock::time_point now{seconds(1)};
  int num_let_in = 0;
  int num_answered = 0;
  for (int i = 0; i < 1000; ++i) {
    const AddressLimits::Admission admission = limits.admit(1, now);
    num_let_in += admission.retry_after_s == 0 ? 1 : 0;
    num_answered += admission.retry_after_s > 0 && admission.is_answered ? 1 : 0;
  }
  EXPECT_EQ(num_let_in, 10);
  EXPECT_EQ(num_answered, 10);
}

TEST(AddressLimits, RememberABoundedNumberOfAddresses) {
  AddressLimits limits(1, 1);
  const AddressLimits::Admission held = limits.admit(0);
  for (std::uint64_t key = 1; key < 3 * AddressLimits::kAddressesMax; ++key) limits.admit(key);
  EXPECT_LE(limits.num_addresses(), AddressLimits::kAddressesMax);
  EXPECT_EQ(limits.admit(0).retry_after_s, 1) << "whose connection is open is remembered";
}

class AddressLimitsOverSockets : public testing::OverBoth {};

INSTANTIATE_TEST_SUITE_P(, AddressLimitsOverSockets, ::testing::Bool(), testing::transport_name);

TEST_P(AddressLimitsOverSockets, OneConnectionTooManyIsToldToComeAgain) {
  ServerOptions options;
  options.max_connections_per_address = 1;
  const Running running({}, options);
  {
    WsClient first(running.server.port());
    HttpClient second(running.server.port());
    second.send(http_request("GET /health"));
    const HttpClient::Answer answer = second.read_answer();
    EXPECT_EQ(answer.status, 429);
    EXPECT_THAT(answer.head, HasSubstr("Retry-After: 1\r\n"));
    EXPECT_THAT(answer.body, HasSubstr("--max-connections-per-address"));
    first.send(generate(1, 3));
    EXPECT_EQ(first.collect(1).tokens.size(), 3U);
    first.close();
  }
  // Once the server has seen both ends; of many refusals some are closed without a word (0).
  EXPECT_TRUE(eventually([&] {
    HttpClient again(running.server.port());
    again.send(http_request("GET /health"));
    const int status = again.read_answer().status;
    EXPECT_TRUE(status == 200 || status == 429 || status == 0) << status;
    return status == 200;
  }));
}

TEST_P(AddressLimitsOverSockets, RequestsOnOneConnectionCount) {
  ServerOptions options;
  options.max_request_rate_per_address = 0.3;  // three at once
  const Running running({}, options);
  HttpClient client(running.server.port());
  int num_answered = 0;
  EXPECT_TRUE(eventually([&] {  // a slow machine gets more of them
    client.send(http_request("GET /nowhere"));
    const HttpClient::Answer answer = client.read_answer();
    if (answer.status == 404) ++num_answered;
    const bool is_refused = answer.head.find("Retry-After: ") != std::string::npos;
    EXPECT_EQ(answer.status, is_refused ? 429 : 404);
    return is_refused;
  }));
  EXPECT_GE(num_answered, 3);
}

}  // namespace
}  // namespace lmtp::server
