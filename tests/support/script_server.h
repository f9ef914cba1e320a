// A scripted WebSocket server, one connection after the other, for behaviour that lmtp-serve never
// shows. Beast is included only in the source: its templates take half a minute to compile.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace lmtp::testing {

class ScriptServer {
 public:
  // The server's end of a connection; for the script's thread. Everything throws a std::exception
  // where the client has left.
  class Socket {
   public:
    virtual ~Socket() = default;
    virtual std::string read() = 0;
    virtual void write(const std::string& text) = 0;
    virtual void close(std::uint16_t code, const std::string& reason) = 0;
    // Returns the pong's payload; then drops the connection without a close frame.
    virtual std::string ping(const std::string& text) = 0;
    // A small receive buffer, so that a client's large message blocks until it is read.
    virtual void fix_receive_buffer() = 0;
  };
  // The same before any WebSocket handshake.
  class RawSocket {
   public:
    virtual ~RawSocket() = default;
    virtual std::string read_some() = 0;
    virtual void write(const std::string& bytes) = 0;
  };
  using Script = std::function<void(Socket&)>;
  using RawScript = std::function<void(RawSocket&)>;

  static constexpr std::uint16_t kNormal = 1000;  // codes of close (RFC 6455, section 7.4.1)
  static constexpr std::uint16_t kGoingAway = 1001;
  static constexpr std::uint16_t kTooBig = 1009;

  // Each script has its own connection, in the order they are made; exceptions of a script (the
  // client left) end it.
  explicit ScriptServer(std::vector<Script> scripts);
  static ScriptServer raw(RawScript script) { return {std::move(script), 0}; }

  ~ScriptServer();
  ScriptServer(const ScriptServer&) = delete;
  ScriptServer& operator=(const ScriptServer&) = delete;

  std::uint16_t port() const;

  // Waits for the end of all scripts; variables that they wrote may be read then.
  void join();

 private:
  class Impl;

  ScriptServer(RawScript script, int);

  const std::unique_ptr<Impl> impl_;
};

}  // namespace lmtp::testing
