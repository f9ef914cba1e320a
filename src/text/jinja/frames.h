// What the server and the program of templates send each other over a socket: frames, a length of
// four bytes and as many bytes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace lmtp::text {

// A chat of clients has less; JSON takes many times its size when it is read.
inline constexpr std::size_t kFrameBytesMax = std::size_t{8} << 20;
inline constexpr std::size_t kRenderedBytesMax = std::size_t{1} << 20;
// Of processor time: to read a template, and to render a chat of this many bytes. Templates that
// look back from each message take long for long chats; beyond 1 MiB none has a text that fits.
inline constexpr int kCompileMsMax = 1000;
constexpr int render_ms_max(std::size_t frame_bytes) {
  return 100 + 2 * static_cast<int>(std::min(frame_bytes, kRenderedBytesMax) >> 10);
}

// The first byte of an answer; behind it comes the text of the error, or what follows.
enum class AnswerKind : char {
  kDone = 'd',         // of a template nothing; of a chat num_ranges, ranges, the text
  kBadMessages = 'b',  // the client's fault
  kRaised = 'r',       // the template's own raise_exception
  kFailed = 'f',
  kNoMemory = 'm',  // of this process, which templates before this chat may have filled
};

// A number in the machine's own order.
inline void append_number(std::uint32_t number, std::string& out) {
  out.append(reinterpret_cast<const char*>(&number), sizeof(number));
}

}  // namespace lmtp::text
