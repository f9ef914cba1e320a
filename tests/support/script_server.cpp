#include "script_server.h"

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/buffers_to_string.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/websocket.hpp>
#include <chrono>
#include <exception>
#include <thread>

namespace lmtp::testing {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace websocket = boost::beast::websocket;
using Tcp = asio::ip::tcp;
using TcpScript = std::function<void(Tcp::socket&)>;

class BeastSocket final : public ScriptServer::Socket {
 public:
  explicit BeastSocket(Tcp::socket tcp) : socket_(std::move(tcp)) {
    socket_.read_message_max(0);
    socket_.accept();
  }

  std::string read() override {
    beast::flat_buffer buffer;
    socket_.read(buffer);
    return beast::buffers_to_string(buffer.data());
  }
  void write(const std::string& text) override {
    socket_.text(true);
    socket_.write(asio::buffer(text));
  }
  void close(std::uint16_t code, const std::string& reason) override {
    socket_.close({static_cast<websocket::close_code>(code), reason});
  }
  std::string ping(const std::string& text) override {
    std::string pong;
    socket_.control_callback([&](websocket::frame_type type, beast::string_view received) {
      if (type != websocket::frame_type::pong) return;
      pong = std::string(received);
      socket_.next_layer().close();
    });
    socket_.ping(websocket::ping_data(text));
    // A read receives the pong; it ends when the callback has closed the socket.
    beast::flat_buffer buffer;
    beast::error_code ignored;
    socket_.read(buffer, ignored);
    socket_.control_callback();
    return pong;
  }
  void fix_receive_buffer() override {
    socket_.next_layer().set_option(asio::socket_base::receive_buffer_size(64 << 10));
  }

 private:
  websocket::stream<Tcp::socket> socket_;
};

class TcpSocket final : public ScriptServer::RawSocket {
 public:
  explicit TcpSocket(Tcp::socket& tcp) : tcp_(tcp) {}

  std::string read_some() override {
    std::string bytes(4096, '\0');
    bytes.resize(tcp_.read_some(asio::buffer(bytes)));
    return bytes;
  }
  void write(const std::string& bytes) override { asio::write(tcp_, asio::buffer(bytes)); }

 private:
  Tcp::socket& tcp_;
};

std::vector<TcpScript> on_websockets(std::vector<ScriptServer::Script> scripts) {
  std::vector<TcpScript> wrapped;
  for (ScriptServer::Script& script : scripts) {
    wrapped.emplace_back([script = std::move(script)](Tcp::socket& tcp) {
      BeastSocket socket(std::move(tcp));
      script(socket);
    });
  }
  return wrapped;
}

}  // namespace

class ScriptServer::Impl {
 public:
  explicit Impl(std::vector<TcpScript> scripts)
      : acceptor_(io_, Tcp::endpoint(asio::ip::address_v4::loopback(), 0)),
        port_(acceptor_.local_endpoint().port()),
        thread_([this, scripts = std::move(scripts)] { run(scripts); }) {}

  std::uint16_t port() const { return port_; }

  void join() {
    if (!thread_.joinable()) return;
    // Makes the connections that the test did not make, so that the thread ends.
    boost::system::error_code ignored;
    while (!done_) {
      asio::io_context io;
      Tcp::socket socket(io);
      socket.connect({asio::ip::address_v4::loopback(), port_}, ignored);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    thread_.join();
  }

 private:
  void run(const std::vector<TcpScript>& scripts) {
    for (const TcpScript& script : scripts) {
      try {
        Tcp::socket tcp = acceptor_.accept();
        tcp.set_option(Tcp::no_delay(true));
        script(tcp);
      } catch (const std::exception&) {
        continue;
      }
    }
    boost::system::error_code ignored;
    acceptor_.close(ignored);  // later connections are refused, as by a server that is gone
    done_ = true;
  }

  asio::io_context io_;
  Tcp::acceptor acceptor_;
  const std::uint16_t port_;
  std::atomic<bool> done_ = false;
  std::thread thread_;
};

ScriptServer::ScriptServer(std::vector<Script> scripts)
    : impl_(std::make_unique<Impl>(on_websockets(std::move(scripts)))) {}

ScriptServer::ScriptServer(RawScript script, int)
    : impl_(std::make_unique<Impl>(
          std::vector<TcpScript>{[script = std::move(script)](Tcp::socket& tcp) {
            TcpSocket socket(tcp);
            script(socket);
          }})) {}

ScriptServer::~ScriptServer() { join(); }

std::uint16_t ScriptServer::port() const { return impl_->port(); }

void ScriptServer::join() { impl_->join(); }

}  // namespace lmtp::testing
