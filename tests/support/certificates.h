// Certificates for tests, made by the program openssl as their users make them.
#pragma once

#include <gtest/gtest.h>
#include <openssl/bn.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "temp_folder.h"

namespace lmtp::testing {

// In decimal.
inline std::string serial_number(const X509* certificate) {
  BIGNUM* const number = ASN1_INTEGER_to_BN(X509_get0_serialNumber(certificate), nullptr);
  char* const text = BN_bn2dec(number);
  std::string out = text;
  OPENSSL_free(text);
  BN_free(number);
  return out;
}

// Runs `openssl ARGUMENTS` in `folder`.
inline void openssl(const std::string& folder, const std::string& arguments) {
  const std::string command =
      "cd '" + folder + "' && openssl " + arguments + " 2> openssl.log > /dev/null";
  const int code = std::system(command.c_str());  // NOLINT(bugprone-command-processor): of a test
  ASSERT_EQ(code, 0) << command;
}

// A folder with a certificate for localhost and 127.0.0.1 that is its own authority, and its key.
class Certificate {
 public:
  Certificate() {
    openssl(folder_.path(),
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout key.pem "
            "-out cert.pem -days 2 -subj /CN=localhost "
            "-addext subjectAltName=DNS:localhost,IP:127.0.0.1");
  }

  std::string path(const std::string& name) const { return folder_.path() + "/" + name; }
  std::string certfile() const { return path("cert.pem"); }
  std::string keyfile() const { return path("key.pem"); }
  std::string serial_number() const {
    std::FILE* const file = std::fopen(certfile().c_str(), "r");
    X509* const read = PEM_read_X509(file, nullptr, nullptr, nullptr);
    const std::string number = testing::serial_number(read);
    X509_free(read);
    std::fclose(file);
    return number;
  }
  void run(const std::string& arguments) const { openssl(folder_.path(), arguments); }

 private:
  TempFolder folder_;
};

}  // namespace lmtp::testing
