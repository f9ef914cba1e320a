#include "lmtp/tls/context.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/ssl/error.hpp>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>

#include "lmtp/base/log.h"

namespace lmtp::tls {
namespace {

namespace asio = boost::asio;
namespace ssl = boost::asio::ssl;
using boost::system::error_code;

constexpr std::size_t kFileBytesMax = std::size_t{1} << 20;
// TLS 1.2's that have forward secrecy and authenticate what they encrypt; those of TLS 1.3 do.
constexpr const char* kCiphers = "ECDHE+AESGCM:ECDHE+CHACHA20";
constexpr unsigned char kAlpn[] = "\x08http/1.1";

Error invalid(std::string message) { return {lmtp::ErrorCode::kInvalid, std::move(message)}; }

Result<std::string> read_file(const char* option, const std::string& path) {
  const std::string where = std::string(option) + ": '" + path + "' ";
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::string text;
  char piece[4096];
  while (text.size() <= kFileBytesMax && (file.read(piece, sizeof(piece)), file.gcount() > 0)) {
    text.append(piece, static_cast<std::size_t>(file.gcount()));
  }
  if (!file.is_open() || file.bad()) {
    return Error{errno_code(errno), where + "cannot be read: " + std::strerror(errno) +
                                        "; name a PEM file that this user may read"};
  }
  if (text.size() > kFileBytesMax) return invalid(where + "is too long for a PEM file");
  return text;
}

int select_http1(SSL* /*ssl*/, const unsigned char** out, unsigned char* out_length,
                 const unsigned char* offered, unsigned int num_offered, void* /*unused*/) {
  unsigned char* chosen = nullptr;
  const int found =
      SSL_select_next_proto(&chosen, out_length, kAlpn, sizeof(kAlpn) - 1, offered, num_offered);
  *out = chosen;
  return found == OPENSSL_NPN_NEGOTIATED ? SSL_TLSEXT_ERR_OK : SSL_TLSEXT_ERR_ALERT_FATAL;
}

Result<void> use_certificate(Context& context, const std::string& certfile,
                             const std::string& text) {
  error_code error;
  context.use_certificate_chain(asio::buffer(text), error);
  if (!error) return {};
  return invalid("--ssl-certfile: '" + certfile + "' is no certificate that can be served (" +
                 error.message() + "); name a PEM file that begins with the server's certificate");
}

Result<void> use_key(Context& context, const std::string& keyfile, const std::string& text,
                     const std::string& certfile) {
  const std::string where = "--ssl-keyfile: '" + keyfile + "' ";
  bool is_encrypted = false;
  SSL_CTX* const native = context.native_handle();
  SSL_CTX_set_default_passwd_cb_userdata(native, &is_encrypted);
  SSL_CTX_set_default_passwd_cb(native, [](char*, int, int, void* asked) {
    *static_cast<bool*>(asked) = true;
    return -1;
  });
  error_code error;
  context.use_private_key(asio::buffer(text), Context::pem, error);
  SSL_CTX_set_default_passwd_cb(native, nullptr);
  SSL_CTX_set_default_passwd_cb_userdata(native, nullptr);
  if (is_encrypted) {
    return invalid(where +
                   "is encrypted; write the key without its passphrase, readable by this "
                   "user alone: openssl pkey -in ENCRYPTED -out PLAIN");
  }
  const bool is_other = error && ERR_GET_REASON(static_cast<unsigned long>(error.value())) ==
                                     X509_R_KEY_VALUES_MISMATCH;
  if (error && !is_other) {
    return invalid(where + "is no private key in PEM (" + error.message() +
                   "); name the file that begins with -----BEGIN PRIVATE KEY-----");
  }
  if (is_other || SSL_CTX_check_private_key(native) != 1) {
    ERR_clear_error();
    return invalid(where + "is not the key of the certificate in '" + certfile +
                   "'; name the two files that were made together");
  }
  return {};
}

void warn_of_dates(Context& context, const std::string& certfile) {
  const X509* const certificate = SSL_CTX_get0_certificate(context.native_handle());
  if (X509_cmp_current_time(X509_get0_notAfter(certificate)) < 0) {
    log::warning("--ssl-certfile: the certificate in '" + certfile +
                 "' has expired; clients will refuse it");
  } else if (X509_cmp_current_time(X509_get0_notBefore(certificate)) > 0) {
    log::warning("--ssl-certfile: the certificate in '" + certfile +
                 "' is not valid yet; clients will refuse it");
  }
}

}  // namespace

Result<std::shared_ptr<Context>> server_context(const std::string& certfile,
                                                const std::string& keyfile) {
  const auto context = std::make_shared<Context>(Context::tls_server);
  SSL_CTX* const native = context->native_handle();
  SSL_CTX_set_min_proto_version(native, TLS1_2_VERSION);
  SSL_CTX_set_cipher_list(native, kCiphers);
  SSL_CTX_set_options(native, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
  SSL_CTX_set_session_cache_mode(native, SSL_SESS_CACHE_OFF);  // clients keep tickets instead
  SSL_CTX_set_alpn_select_cb(native, select_http1, nullptr);
  const auto certificate = read_file("--ssl-certfile", certfile);
  if (!certificate) return certificate.error();
  if (auto used = use_certificate(*context, certfile, *certificate); !used) return used.error();
  const std::string& key_path = keyfile.empty() ? certfile : keyfile;
  const auto key = read_file("--ssl-keyfile", key_path);
  if (!key) return key.error();
  if (auto used = use_key(*context, key_path, *key, certfile); !used) return used.error();
  warn_of_dates(*context, certfile);
  return context;
}

Result<std::shared_ptr<Context>> client_context(const Trust& trust) {
  const auto context = std::make_shared<Context>(Context::tls_client);
  SSL_CTX_set_min_proto_version(context->native_handle(), TLS1_2_VERSION);
  context->set_verify_mode(trust.verify ? Context::verify_peer : Context::verify_none);
  error_code error;
  if (trust.ca_file.empty()) {
    context->set_default_verify_paths(error);
    return context;  // without any, no server is trusted, and the handshake says so
  }
  const auto authorities = read_file("--cacert", trust.ca_file);
  if (!authorities) return authorities.error();
  context->add_certificate_authority(asio::buffer(*authorities), error);
  if (!error) return context;
  return invalid("--cacert: '" + trust.ca_file + "' has no certificate in PEM (" + error.message() +
                 ")");
}

}  // namespace lmtp::tls
