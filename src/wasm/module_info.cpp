#include "module_info.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace lmtp::wasm {

namespace {

constexpr std::size_t kHeaderBytes = 8;
constexpr std::uint8_t kImports = 2;
constexpr std::uint8_t kGlobals = 6;
constexpr std::uint8_t kExports = 7;
constexpr std::uint8_t kElements = 9;
constexpr std::uint8_t kCode = 10;
constexpr int kMutableGlobalsMax = 1;

// Reads on; past the end it gives zeros.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}

  bool at_end() const { return position_ >= bytes_.size(); }
  std::uint8_t byte() { return at_end() ? 0 : static_cast<std::uint8_t>(bytes_[position_++]); }
  std::uint64_t number() {  // LEB128
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const std::uint8_t next = byte();
      value |= static_cast<std::uint64_t>(next & 0x7F) << shift;
      if ((next & 0x80) == 0) break;
    }
    return value;
  }
  std::string_view take(std::uint64_t size) {
    const std::size_t first = std::min(position_, bytes_.size());
    const std::string_view taken = bytes_.substr(first, size);
    position_ = first + taken.size();
    return taken;
  }
  // A constant expression with its end.
  void skip_constant() {
    constexpr std::uint8_t kEnd = 0x0B;
    constexpr std::uint8_t kI32 = 0x41;
    constexpr std::uint8_t kI64 = 0x42;
    constexpr std::uint8_t kF32 = 0x43;
    constexpr std::uint8_t kF64 = 0x44;
    constexpr std::uint8_t kGlobalGet = 0x23;
    constexpr std::uint8_t kRefNull = 0xD0;
    constexpr std::uint8_t kRefFunc = 0xD2;
    constexpr std::uint8_t kSimd = 0xFD;
    while (!at_end()) {
      const std::uint8_t op = byte();
      if (op == kEnd) return;
      if (op == kI32 || op == kI64 || op == kGlobalGet) number();
      if (op == kRefNull || op == kRefFunc) number();
      if (op == kF32) take(4);
      if (op == kF64) take(8);
      if (op == kSimd) {  // v128.const is the only one
        number();
        take(16);
      }
    }
  }

 private:
  std::string_view bytes_;
  std::size_t position_ = 0;
};

int num_mutable(Reader section) {
  int num = 0;
  for (std::uint64_t left = section.number(); left > 0 && !section.at_end(); --left) {
    section.byte();  // its type
    if (section.byte() != 0) ++num;
    section.skip_constant();
  }
  return num;
}

int num_mutable_imported(Reader section) {
  int num = 0;
  for (std::uint64_t left = section.number(); left > 0 && !section.at_end(); --left) {
    section.take(section.number());
    section.take(section.number());
    const std::uint8_t kind = section.byte();
    if (kind == 0) section.number();  // a function
    if (kind == 1) section.byte();    // a table: the type of its elements
    if (kind == 1 || kind == 2) {
      const bool has_most = (section.byte() & 1) != 0;
      section.number();
      if (has_most) section.number();
    }
    if (kind == 3) {
      section.byte();
      if (section.byte() != 0) ++num;
    }
  }
  return num;
}

// Only from such a segment can table.init read.
bool has_passive_segment(Reader elements) {
  constexpr std::uint64_t kPassive = 1;
  constexpr std::uint64_t kNamesTable = 2;
  constexpr std::uint64_t kExpressions = 4;
  for (std::uint64_t left = elements.number(); left > 0 && !elements.at_end(); --left) {
    const std::uint64_t flags = elements.number();
    if ((flags & kPassive) != 0) return true;
    if ((flags & kNamesTable) != 0) elements.number();
    elements.skip_constant();
    if ((flags & kNamesTable) != 0) elements.byte();
    for (std::uint64_t num = elements.number(); num > 0 && !elements.at_end(); --num) {
      if ((flags & kExpressions) != 0) {
        elements.skip_constant();
      } else {
        elements.number();
      }
    }
  }
  return false;
}

// Reference types are off, so that only table.init and table.copy write tables. The bytes of
// table.copy 0 0 may be part of a constant as well: then a module is refused for nothing, but that
// is rare.
bool writes_tables(std::string_view elements, std::string_view code) {
  return has_passive_segment(Reader(elements)) ||
         code.find(std::string_view("\xFC\x0E\x00\x00", 4)) != std::string_view::npos;
}

std::set<std::string, std::less<>> names_of(Reader exports) {
  std::set<std::string, std::less<>> names;
  for (std::uint64_t left = exports.number(); left > 0 && !exports.at_end(); --left) {
    names.emplace(exports.take(exports.number()));
    exports.byte();  // what it is
    exports.number();
  }
  return names;
}

std::string obstacle_of(int num_globals, std::string_view elements, std::string_view code) {
  if (num_globals > kMutableGlobalsMax) {
    return "the module has " + std::to_string(num_globals) +
           " mutable globals; allowed is one, the stack's pointer";
  }
  return writes_tables(elements, code) ? "the module may write its tables" : "";
}

}  // namespace

ModuleInfo module_info(std::string_view wasm) {
  Reader reader(wasm);
  reader.take(kHeaderBytes);
  ModuleInfo info;
  int num_globals = 0;
  std::string_view elements;
  std::string_view code;
  while (!reader.at_end()) {
    const std::uint8_t id = reader.byte();
    const std::string_view section = reader.take(reader.number());
    if (id == kImports) num_globals += num_mutable_imported(Reader(section));
    if (id == kGlobals) num_globals += num_mutable(Reader(section));
    if (id == kExports) info.exports = names_of(Reader(section));
    if (id == kElements) elements = section;
    if (id == kCode) code = section;
  }
  info.copy_obstacle = obstacle_of(num_globals, elements, code);
  return info;
}

}  // namespace lmtp::wasm
