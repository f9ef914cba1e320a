// The result of one HTTP exchange with the hub, independent of the HTTP library.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace lmtp::hub {

// kOk, or why there is no answer.
enum class Transport {
  kOk,
  kNoName,      // the host's name could not be resolved
  kNoHost,      // no connection
  kNoProxy,     // the proxy's name or connection
  kHandshake,   // the TLS handshake failed
  kTls,         // the certificate is not trusted
  kTimeout,     // no connection, no answer or no further bytes in time
  kCut,         // the connection broke off
  kRefused,     // a redirect to a forbidden place
  kBodyStopped  // the receiver of the body stopped it
};

struct HttpAnswer {
  Transport transport = Transport::kOk;
  std::string detail;  // where transport is not kOk: what the network library says
  int status = 0;      // of the last hop; 0: no answer
  std::string origin;  // of the last hop
  // Headers of the last hop, but for `commit`, which any hop may have given.
  std::string commit;                // X-Repo-Commit
  std::string etag;                  // X-Linked-Etag, else ETag, without quotes and W/
  std::optional<std::int64_t> size;  // X-Linked-Size, else Content-Length
  std::string content_range;
  std::string error_code;     // X-Error-Code, printable
  std::string error_message;  // X-Error-Message, printable
  std::optional<int> retry_after_s;

  bool ok() const { return transport == Transport::kOk && status >= 200 && status < 300; }
};

// Whether a retry a little later may succeed.
bool is_transient(const HttpAnswer& answer);

}  // namespace lmtp::hub
