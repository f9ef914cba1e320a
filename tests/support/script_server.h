// A WebSocket server that does what a test says, one connection after the other: for the ways of a
// server that ours never shows.
#pragma once

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/buffers_to_string.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/websocket.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace lmtp::testing {

class ScriptServer {
 public:
  using Tcp = boost::asio::ip::tcp;
  using Socket = boost::beast::websocket::stream<Tcp::socket>;
  using Script = std::function<void(Socket&)>;
  using RawScript = std::function<void(Tcp::socket&)>;

  // Each script has its own connection, in the order they are made; exceptions of a script (the
  // client left) end it.
  explicit ScriptServer(std::vector<Script> scripts)
      : ScriptServer(wrapped(std::move(scripts)), 0) {}

  // As above, but before any WebSocket handshake.
  static ScriptServer raw(RawScript script) { return ScriptServer({std::move(script)}, 0); }

  ~ScriptServer() { join(); }
  ScriptServer(const ScriptServer&) = delete;
  ScriptServer& operator=(const ScriptServer&) = delete;

  std::uint16_t port() const { return port_; }

  // Waits for the end of all scripts; what they wrote may be read then.
  void join() {
    if (!thread_.joinable()) return;
    // Connections that the test did not make are made here, so that the thread ends.
    boost::system::error_code ignored;
    while (!done_) {
      boost::asio::io_context io;
      Tcp::socket socket(io);
      socket.connect({boost::asio::ip::address_v4::loopback(), port_}, ignored);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    thread_.join();
  }

  static std::string read(Socket& socket) {
    boost::beast::flat_buffer buffer;
    socket.read(buffer);
    return boost::beast::buffers_to_string(buffer.data());
  }
  // So that a client's large message waits until it is read.
  static void fix_receive_buffer(Socket& socket) {
    socket.next_layer().set_option(boost::asio::socket_base::receive_buffer_size(64 << 10));
  }
  static void write(Socket& socket, const std::string& text) {
    socket.text(true);
    socket.write(boost::asio::buffer(text));
  }

 private:
  ScriptServer(std::vector<RawScript> scripts, int)
      : acceptor_(io_, Tcp::endpoint(boost::asio::ip::address_v4::loopback(), 0)),
        port_(acceptor_.local_endpoint().port()),
        thread_([this, scripts = std::move(scripts)] { run(scripts); }) {}

  static std::vector<RawScript> wrapped(std::vector<Script> scripts) {
    std::vector<RawScript> raws;
    for (Script& script : scripts) {
      raws.emplace_back([script = std::move(script)](Tcp::socket& tcp) {
        Socket socket(std::move(tcp));
        socket.read_message_max(0);
        socket.accept();
        script(socket);
      });
    }
    return raws;
  }

  void run(const std::vector<RawScript>& scripts) {
    for (const RawScript& script : scripts) {
      try {
        Tcp::socket tcp = acceptor_.accept();
        tcp.set_option(Tcp::no_delay(true));
        script(tcp);
      } catch (const boost::system::system_error&) {
        continue;
      }
    }
    boost::system::error_code ignored;
    acceptor_.close(ignored);  // who comes later is refused, as by a server that is gone
    done_ = true;
  }

  boost::asio::io_context io_;
  Tcp::acceptor acceptor_;
  const std::uint16_t port_;
  std::atomic<bool> done_ = false;
  std::thread thread_;
};

}  // namespace lmtp::testing
