// What TLS adds: who gets in, with which certificate, and what becomes of those who do not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "http_client.h"
#include "running_server.h"
#include "ws_client.h"

namespace lmtp::server {
namespace {

using lmtp::testing::Certificate;
using lmtp::testing::eventually;
using lmtp::testing::generate;
using lmtp::testing::http_exchange;
using lmtp::testing::http_request;
using lmtp::testing::HttpClient;
using lmtp::testing::no_timeouts;
using lmtp::testing::Running;
using lmtp::testing::WsClient;
using ::testing::HasSubstr;

class TlsServer : public ::testing::Test {
 protected:
  TlsServer() { testing::over_tls() = true; }
  ~TlsServer() override { testing::over_tls() = false; }
};

// A connection of this process that speaks no TLS, or not yet.
std::unique_ptr<HttpClient> plain_client(const Running& running) {
  testing::over_tls() = false;
  auto client = std::make_unique<HttpClient>(running.server.port());
  testing::over_tls() = true;
  return client;
}

TEST_F(TlsServer, WhoSpeaksPlainHttpIsToldSo) {
  const Running running;
  const auto client = plain_client(running);
  client->send(http_request("GET /health"));
  const HttpClient::Answer answer = client->read_answer();
  EXPECT_EQ(answer.status, 400);
  EXPECT_THAT(answer.body, HasSubstr("This port speaks TLS: write https:// or wss://."));
  const auto other = plain_client(running);
  other->send("\x80\x01 no protocol at all\r\n\r\n");
  EXPECT_EQ(other->read_answer().status, 400);
}

TEST_F(TlsServer, HandshakesThatDoNotEndAreCut) {
  ServerOptions options;
  options.timeouts = no_timeouts();
  options.timeouts.handshake = std::chrono::milliseconds(100);
  const Running running({}, options);
  std::vector<std::unique_ptr<HttpClient>> clients;
  const std::string hello("\x16\x03\x01\x01\x00\x01\x00\x00\xfc", 9);
  for (const std::size_t num_sent : {0U, 1U, 4U, 9U}) {
    clients.push_back(plain_client(running));
    clients.back()->send(hello.substr(0, num_sent));
  }
  for (const auto& client : clients) EXPECT_EQ(client->read_all(), "");
  EXPECT_TRUE(eventually([&] {  // a slow machine may need more than one try
    HttpClient other(running.server.port());
    other.send(http_request("GET /health"));
    return other.read_answer().status == 200;
  }));
}

TEST_F(TlsServer, ConnectionsBeyondTheLimitAreToldSo) {
  ServerOptions options;
  options.max_connections = 2;
  const Running running({}, options);
  const auto shaking_hands = plain_client(running);
  shaking_hands->send("\x16");
  HttpClient client(running.server.port());
  client.send(http_request("GET /version"));
  EXPECT_EQ(client.read_answer().status, 200);
  HttpClient other(running.server.port());
  other.send(http_request("GET /version"));
  EXPECT_EQ(other.read_answer().status, 503);
}

// The certificate that a new connection gets, by its serial number.
std::string served(const Running& running) {
  HttpClient client(running.server.port());
  return client.serial_number();
}

TEST_F(TlsServer, AReloadIsForNewConnectionsAndABadOneChangesNothing) {
  const Certificate first;
  const Certificate second;
  const Certificate shown;
  const auto copy = [&](const std::string& from, const std::string& to) {
    std::filesystem::copy_file(from, to, std::filesystem::copy_options::overwrite_existing);
  };
  copy(first.certfile(), shown.certfile());
  copy(first.keyfile(), shown.keyfile());
  ServerOptions options;
  options.tls_certfile = shown.certfile();
  options.tls_keyfile = shown.keyfile();
  Running running({}, options);
  testing::client_tls().load_verify_file(first.certfile());
  testing::client_tls().load_verify_file(second.certfile());
  const std::string before = served(running);
  EXPECT_EQ(before, first.serial_number());
  WsClient client(running.server.port());

  copy(second.certfile(), shown.certfile());
  const Result<void> half = running.server.reload();
  ASSERT_FALSE(half.ok());
  EXPECT_THAT(half.error().message, HasSubstr("is not the key of the certificate"));
  EXPECT_EQ(served(running), before);

  copy(second.keyfile(), shown.keyfile());
  EXPECT_TRUE(running.server.reload().ok());
  EXPECT_EQ(served(running), second.serial_number());
  client.send(generate(1, 5));
  EXPECT_EQ(client.collect(1).tokens.size(), 5U) << "connections go on";
}

TEST_F(TlsServer, ABadCertificateIsRefusedAtTheStart) {
  ServerOptions options;
  options.tls_certfile = "/nowhere/cert.pem";
  const auto models = testing::make_fake_models();
  Server server(options, *models);
  const Result<void> started = server.start();
  ASSERT_FALSE(started.ok());
  EXPECT_THAT(started.error().message, HasSubstr("--ssl-certfile: '/nowhere/cert.pem'"));
}

}  // namespace
}  // namespace lmtp::server
