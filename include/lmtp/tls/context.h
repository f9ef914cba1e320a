// What a TLS connection needs beside its socket: certificates, and whom to trust.
#pragma once

#include <boost/asio/ssl/context.hpp>
#include <memory>
#include <string>

#include "lmtp/base/result.h"

namespace lmtp::tls {

// A connection that has begun keeps what it needs of it.
using Context = boost::asio::ssl::context;

// For a server: TLS 1.2 or later, ALPN http/1.1. `certfile`: PEM, the certificate and behind it
// those between it and the root. `keyfile`: PEM, its private key without a passphrase; empty: it is
// in certfile. Blocks on the disk. The error names the file and the remedy. Any thread.
Result<std::shared_ptr<Context>> server_context(const std::string& certfile,
                                                const std::string& keyfile);

// Whom a client trusts.
struct Trust {
  std::string ca_file;  // PEM; empty: the system's, or SSL_CERT_FILE's
  bool verify = true;   // false: anybody, so that a connection is safe from listeners alone
};

// Blocks on the disk. The error names the file and the remedy. Any thread.
Result<std::shared_ptr<Context>> client_context(const Trust& trust);

}  // namespace lmtp::tls
