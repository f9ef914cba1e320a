// Numbers and sizes as text, and text cut short. Pure functions; any thread.
#pragma once

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace lmtp {

// The shortest decimal that reads back as the same number.
template <typename T>
std::string number_text(T value) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof(text), value).ptr};
}

// "0.3 GiB": always in GiB, for comparing the memory of models.
std::string gib_text(std::int64_t num_bytes);

// "512 MiB", "1.50 GiB": sizes of memory and of messages, as options give them.
std::string size_text(std::int64_t num_bytes);

// "4.4 MB": sizes of files, in powers of 1000 as the hub shows them.
std::string file_size_text(std::int64_t num_bytes);

// The longest prefix of UTF-8 text of at most `max_bytes` that ends with a whole character.
std::string_view utf8_prefix(std::string_view text, std::size_t max_bytes);
// The same, followed by "..." if the text is longer.
std::string shortened(std::string_view text, std::size_t max_bytes);

// Of a model's name in errors, logs and labels: clients make names up, and they may be long.
inline constexpr std::size_t kNameBytesMax = 128;
// The name in quotes, shortened to that.
std::string quoted_name(std::string_view name);

// Whether it has a byte below 0x20, or 0x7F: no name has.
bool has_control_character(std::string_view text);

// Of an address that is a Unix socket: unix:PATH.
inline constexpr std::string_view kUnixScheme = "unix:";
// "host:port"; of a Unix socket the host alone.
std::string address_text(const std::string& host, int port);

// Of a path or a name such as org/model; trailing slashes are ignored.
std::string_view last_component(std::string_view path);

}  // namespace lmtp
