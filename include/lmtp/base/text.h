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

// "0.3 GiB": of memory, where models are compared.
std::string gib_text(std::int64_t num_bytes);

// "512 MiB", "1.50 GiB": sizes of memory and of messages, as options give them.
std::string size_text(std::int64_t num_bytes);

// "4.4 MB": sizes of files, in powers of 1000 as the hub shows them.
std::string file_size_text(std::int64_t num_bytes);

// The beginning of UTF-8 text: `max_bytes` or a little less, no character cut in two.
std::string_view utf8_prefix(std::string_view text, std::size_t max_bytes);
// The same with "..." behind it where something is left out.
std::string shortened(std::string_view text, std::size_t max_bytes);

// Of a model's name in errors, logs and labels: clients make names up, and they may be long.
inline constexpr std::size_t kNameBytesMax = 128;
// The name in quotes, shortened to that.
std::string quoted_name(std::string_view name);

// Of a path or of a name like org/model; slashes at its end do not count.
std::string_view last_component(std::string_view path);

}  // namespace lmtp
