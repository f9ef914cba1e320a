#include "rendered_chat.h"

#include <cstdint>
#include <vector>

#include "lmtp/base/utf8.h"

namespace lmtp::text {
namespace {

struct Range {
  std::uint32_t begin, end;
};

// The next `count` of a type without pointers; fewer where the bytes end.
template <typename T>
std::vector<T> take(std::size_t count, std::string_view& bytes) {
  if (count > bytes.size() / sizeof(T)) return {};
  std::vector<T> taken(count);
  bytes.copy(reinterpret_cast<char*>(taken.data()), count * sizeof(T));
  bytes.remove_prefix(count * sizeof(T));
  return taken;
}

}  // namespace

std::optional<RenderedChat> read_rendered(std::string_view answer) {
  const auto num_ranges = take<std::uint32_t>(1, answer);
  if (num_ranges.empty()) return std::nullopt;
  const auto ranges = take<Range>(num_ranges[0], answer);
  if (ranges.size() != num_ranges[0]) return std::nullopt;
  RenderedChat rendered;
  std::size_t done = 0;
  const auto append_to = [&](std::size_t end) {
    append_valid_utf8(answer.substr(done, end - done), rendered.text);
    done = end;
    return rendered.text.size();
  };
  for (const Range& range : ranges) {
    if (range.begin < done || range.end < range.begin || range.end > answer.size()) {
      return std::nullopt;
    }
    const std::size_t begin = append_to(range.begin);
    rendered.plain.push_back({begin, append_to(range.end)});
  }
  append_to(answer.size());
  return rendered;
}

}  // namespace lmtp::text
