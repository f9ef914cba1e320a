// JSON off the hot path: configuration files, HTTP answers, reports; as Python's json module writes
// and reads it. LMTP messages are parsed and written by lmtp/protocol/codec.h.
//
// NaN, Infinity and -Infinity outside strings, and numbers that no double holds, are read as null
// unless they are refused; half a surrogate pair as U+FFFD; whole numbers that do not fit into 64
// bits as doubles; of a duplicate key the last value counts. Large or hot JSON is parsed by
// simdjson instead.
// Users of values include <nlohmann/json.hpp>, and check types by get_ptr() and is_...(), which do
// not throw. Any thread; no state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "lmtp/base/result.h"

namespace lmtp {

using Json = nlohmann::json;
// Its keys keep their order; look-ups are linear in their number.
using OrderedJson = nlohmann::ordered_json;

// Longer texts, and texts with more values or deeper nesting, are refused before they are parsed.
inline constexpr std::size_t kJsonBytesMax = std::size_t{64} << 20;
inline constexpr std::size_t kJsonValuesMax = std::size_t{4} << 20;
inline constexpr std::size_t kJsonDepthMax = 64;
// Look-ups in ordered objects are linear: all of a text's together may take what those of one
// object with so many keys do.
inline constexpr std::size_t kOrderedJsonKeysMax = std::size_t{16} << 10;

// What NaN, infinities and numbers that no double holds are.
enum class NonFinite { kNull, kRefused };

// Errors name `origin`, line, column and what is wrong there.
Result<Json> parse_json(std::string_view text, const std::string& origin,
                        NonFinite non_finite = NonFinite::kNull);
Result<OrderedJson> parse_ordered_json(std::string_view text, const std::string& origin);
Result<Json> read_json_file(const std::string& path, std::size_t bytes_max = kJsonBytesMax);

// The same; a text whose root is no object is an error.
Result<Json> parse_json_object(std::string_view text, const std::string& origin,
                               NonFinite non_finite = NonFinite::kNull);
Result<Json> read_json_object(const std::string& path, std::size_t bytes_max = kJsonBytesMax);

// The text of a member of the root object as it stands there, but for what reading it changes; of a
// duplicate key the last. Empty: there is none. REQUIRES: parse_json_object() takes the text.
std::string json_member(std::string_view text, std::string_view key);

// The value of an optional key; nullptr if it is missing or null, or `object` is no object. Lives
// as long as `object`.
const Json* find_json(const Json& object, std::string_view key);

// The value of a required key; the error names `origin` and the key.
Result<const Json*> need_json(const Json& object, std::string_view key, const std::string& origin);

// As find_json; also empty (nullptr) if the value is of another type. A number without a fraction
// is an integer however it is written (4096.0); it must fit.
const std::string* find_json_text(const Json& object, std::string_view key);
std::optional<bool> find_json_bool(const Json& object, std::string_view key);
std::optional<std::int64_t> json_integer(const Json& value);

// Whether it is "", [] or {}: what programs write that write out every field.
bool is_empty_json(const Json& value);
bool is_empty_json(const OrderedJson& value);

// On one line, so that it may be a message of a transport of lines, separated as by Python's
// json.dumps: {"a": [1, 2]}. Numbers are written in the shortest form, 1.0 as 1; NaN and infinities
// as null; strings as by append_json_string.
std::string json_text(const OrderedJson& value);

// Appends `text` as a JSON string, quotes included. If `text` is not UTF-8, each of its bytes
// beyond ASCII becomes U+FFFD.
void append_json_string(std::string_view text, std::string& out);

}  // namespace lmtp
