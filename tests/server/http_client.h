// An HTTP client for tests that sends exactly the given bytes; every wait has a limit.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <charconv>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "transport.h"

namespace lmtp::testing {

class HttpClient {
 public:
  explicit HttpClient(std::uint16_t port, int receive_buffer_bytes = 0)
      : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    if (receive_buffer_bytes > 0) {
      ::setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &receive_buffer_bytes, sizeof(int));
    }
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    if (over_tls()) start_tls();
  }
  ~HttpClient() { close(); }
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  void send(std::string_view bytes) {
    while (!bytes.empty()) {
      const auto num_sent =
          tls_ ? static_cast<ssize_t>(SSL_write(tls_.get(), bytes.data(), size_of(bytes)))
               : ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (num_sent <= 0) return;  // what is answered says why
      bytes.remove_prefix(static_cast<std::size_t>(num_sent));
    }
  }
  void half_close() { ::shutdown(socket_, SHUT_WR); }
  void close() {
    if (socket_ >= 0) ::close(socket_);
    socket_ = -1;
  }
  // Without a goodbye.
  void reset() {
    const linger now{1, 0};
    ::setsockopt(socket_, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
    close();
  }

  // What comes up to `end` and with it; all that comes where the server closes before.
  std::string read_until(std::string_view end) {
    std::size_t found = 0;
    while ((found = buffer_.find(end)) == std::string::npos && receive()) {
    }
    return take(found == std::string::npos ? buffer_.size() : found + end.size());
  }
  std::string read_all() {
    while (receive()) {
    }
    return take(buffer_.size());
  }

  // Of the server's certificate. REQUIRES: TLS.
  std::string serial_number() const {
    return testing::serial_number(SSL_get0_peer_certificate(tls_.get()));
  }

  struct Answer {
    int status = 0;
    std::string head;
    std::string body;
    bool is_whole = false;
  };

  // The next answer, whose body has a length or chunks; without either it is what comes until the
  // server closes.
  Answer read_answer() {
    Answer answer;
    answer.head = read_until("\r\n\r\n");
    const std::string_view head = answer.head;
    if (head.starts_with("HTTP/1.1 ")) number(head.substr(9, 3), 10, answer.status);
    const std::size_t length = head.find("Content-Length: ");
    if (answer.status == 101) {
      answer.is_whole = true;  // another protocol's bytes follow
    } else if (length != std::string_view::npos) {
      std::size_t num_bytes = 0;
      number(head.substr(length + 16), 10, num_bytes);
      while (buffer_.size() < num_bytes && receive()) {
      }
      answer.is_whole = buffer_.size() >= num_bytes;
      answer.body = take(std::min(num_bytes, buffer_.size()));
    } else if (head.find("Transfer-Encoding: chunked") != std::string_view::npos) {
      answer.is_whole = read_chunks(answer.body);
    } else {
      answer.body = read_all();
      answer.is_whole = true;
    }
    return answer;
  }

 private:
  template <typename Number>
  static void number(std::string_view text, int base, Number& out) {
    std::from_chars(text.data(), text.data() + text.size(), out, base);
  }

  // Up to the last, empty one; false: it did not come.
  bool read_chunks(std::string& body) {
    while (true) {
      const std::string line = read_until("\r\n");
      if (line.empty()) return false;  // over TLS no more comes, and nothing says so twice
      std::size_t num_bytes = 0;
      number(line, 16, num_bytes);
      while (buffer_.size() < num_bytes + 2 && receive()) {
      }
      if (buffer_.size() < num_bytes + 2) return false;
      body += take(num_bytes);
      EXPECT_EQ(take(2), "\r\n");
      if (num_bytes == 0) return true;
    }
  }

  std::string take(std::size_t num_bytes) {
    std::string out = buffer_.substr(0, num_bytes);
    buffer_.erase(0, num_bytes);
    return out;
  }

  void start_tls() {
    tls_.reset(SSL_new(client_tls().native_handle()));
    SSL_clear_mode(tls_.get(), SSL_MODE_AUTO_RETRY);  // what is no data is no answer
    SSL_set_fd(tls_.get(), socket_);
    SSL_connect(tls_.get());  // what is answered says whether it succeeded
  }
  static int size_of(std::string_view bytes) { return static_cast<int>(bytes.size()); }

  // False: the server has closed.
  bool receive() {
    if (tls_ && SSL_pending(tls_.get()) > 0) return receive_now();
    pollfd waiting{socket_, POLLIN, 0};
    if (::poll(&waiting, 1, 60'000) != 1) {
      ADD_FAILURE() << "nothing within a minute";
      return false;
    }
    return receive_now();
  }
  bool receive_now() {
    char bytes[16384];
    const ssize_t num_received = tls_ ? SSL_read(tls_.get(), bytes, sizeof(bytes))
                                      : ::recv(socket_, bytes, sizeof(bytes), 0);
    if (num_received > 0) buffer_.append(bytes, static_cast<std::size_t>(num_received));
    return num_received > 0 || (tls_ && SSL_get_error(tls_.get(), static_cast<int>(num_received)) ==
                                            SSL_ERROR_WANT_READ);
  }

  struct FreeTls {
    void operator()(SSL* tls) const { SSL_free(tls); }
  };

  int socket_;
  std::unique_ptr<SSL, FreeTls> tls_;  // null: plain
  std::string buffer_;
};

// The head of a request of HTTP/1.1 and the body behind it.
inline std::string http_request(std::string_view line, std::string_view body = {},
                                std::string_view fields = {}) {
  std::string out = std::string(line) + " HTTP/1.1\r\nHost: localhost\r\n" + std::string(fields);
  if (!body.empty()) out += "Content-Length: " + std::to_string(body.size()) + "\r\n";
  return out.append("\r\n").append(body);
}

inline constexpr std::string_view kJsonType = "Content-Type: application/json\r\n";

// The answer to one request on a connection of its own.
inline HttpClient::Answer http_post(std::uint16_t port, std::string_view path,
                                    std::string_view body, std::string_view fields = kJsonType) {
  HttpClient client(port);
  client.send(http_request("POST " + std::string(path), body, fields));
  return client.read_answer();
}

}  // namespace lmtp::testing
