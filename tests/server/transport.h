// What a test's servers and clients speak: the cases of OverBoth run over plain TCP and over TLS.
#pragma once

#include <gtest/gtest.h>

#include <boost/asio/ssl/context.hpp>
#include <csignal>
#include <string>

#include "certificates.h"
#include "lmtp/server/server.h"

namespace lmtp::testing {

// Of the case that runs.
inline bool& over_tls() {
  static bool is_on = false;
  return is_on;
}

inline const Certificate& test_certificate() {
  static const Certificate certificate;
  return certificate;
}

inline void set_transport(server::ServerOptions& options) {
  if (!over_tls() || !options.tls_certfile.empty()) return;
  options.tls_certfile = test_certificate().certfile();
  options.tls_keyfile = test_certificate().keyfile();
}

// Of the clients: it trusts that certificate.
inline boost::asio::ssl::context& client_tls() {
  static boost::asio::ssl::context context = [] {
    std::signal(SIGPIPE, SIG_IGN);  // OpenSSL writes to sockets as to files
    boost::asio::ssl::context made(boost::asio::ssl::context::tls_client);
    made.load_verify_file(test_certificate().certfile());
    made.set_verify_mode(boost::asio::ssl::context::verify_peer);
    return made;
  }();
  return context;
}

class OverBoth : public ::testing::TestWithParam<bool> {
 protected:
  OverBoth() { over_tls() = GetParam(); }
  ~OverBoth() override { over_tls() = false; }
};

inline std::string transport_name(const ::testing::TestParamInfo<bool>& info) {
  return info.param ? "Tls" : "Plain";
}

}  // namespace lmtp::testing
