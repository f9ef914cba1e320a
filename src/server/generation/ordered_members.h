// Members of objects that were sent, as base/json.h has them of Json.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "lmtp/base/json.h"

namespace lmtp::server {

// Null: `object` is none, or has no such member, or null for it. Valid while `object` lives.
inline const OrderedJson* find_ordered(const OrderedJson& object, std::string_view key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

// The same of a string; null also where it is something else.
inline const std::string* find_ordered_text(const OrderedJson& object, std::string_view key) {
  const OrderedJson* const value = find_ordered(object, key);
  return value == nullptr ? nullptr : value->get_ptr<const std::string*>();
}

}  // namespace lmtp::server
