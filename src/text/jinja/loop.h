// The variable `loop` of a for statement.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "value.h"

namespace lmtp::jinja {

struct Loop {
  std::vector<Value> items;
  std::size_t index0 = 0;
  std::size_t depth0 = 0;
  std::optional<std::vector<Value>> last_changed;
  Value recurse = Undefined{};  // a function, where the loop is recursive
};

// loop.NAME; nullopt: it has none of this name.
std::optional<Value> loop_attribute(const std::shared_ptr<Loop>& loop, std::string_view name);

}  // namespace lmtp::jinja
