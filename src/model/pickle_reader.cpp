// The opcodes: https://github.com/python/cpython/blob/main/Lib/pickletools.py
#include "pickle_reader.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <initializer_list>
#include <map>
#include <optional>
#include <set>
#include <unordered_set>
#include <utility>

#include "lmtp/base/little_endian.h"
#include "zip_directory.h"

namespace lmtp::model {
namespace {

// A tensor takes about fifty opcodes; each allocates a hundred bytes at most.
constexpr int kOpcodesMax = 1 << 21;

enum class Kind { kOther, kInteger, kString, kGlobal, kTuple, kList, kDict, kStorage, kTensor };

// A value on the stack of the pickle's program. Containers are held by index, so that the memo
// refers to the container itself; reading a tensor follows only its own parts.
struct Value {
  Kind kind = Kind::kOther;  // None, a bool, a float: not a part of tensors
  std::int64_t number = 0;   // an integer, or the index of a container, storage or tensor
  std::string_view text;     // a string, or a global's name in its module
  std::string_view module;   // of a global
};

struct Storage {
  std::string_view type;
  std::string_view name;
};

struct Known {
  std::string_view module;
  std::string_view name;
  std::string_view type;  // of elements, if given
};

// The globals that a pickle may name.
constexpr Known kTypes[] = {
    {"torch", "FloatStorage", "F32"},        {"torch", "HalfStorage", "F16"},
    {"torch", "BFloat16Storage", "BF16"},    {"torch", "DoubleStorage", "F64"},
    {"torch", "LongStorage", "I64"},         {"torch", "IntStorage", "I32"},
    {"torch", "ShortStorage", "I16"},        {"torch", "CharStorage", "I8"},
    {"torch", "ByteStorage", "U8"},          {"torch", "BoolStorage", "BOOL"},
    {"torch", "ComplexFloatStorage", "C64"}, {"torch.storage", "UntypedStorage", ""},
    {"torch", "float8_e4m3fn", "F8_E4M3"},   {"torch", "float8_e5m2", "F8_E5M2"},
};
constexpr Known kFunctions[] = {
    {"collections", "OrderedDict", ""},
    {"torch._utils", "_rebuild_tensor", ""},
    {"torch._utils", "_rebuild_tensor_v2", ""},
    {"torch._utils", "_rebuild_tensor_v3", ""},
    {"torch._utils", "_rebuild_parameter", ""},
    {"torch._utils", "_rebuild_parameter_with_state", ""},
    {"torch", "Size", ""},
};
// Keys under which training loops store a state dict.
constexpr std::string_view kStateDicts[] = {"state_dict", "model_state_dict", "model", "module"};

const Known* find_known(const Value& global) {
  const auto is_it = [&](const Known& known) {
    return known.module == global.module && known.name == global.text;
  };
  for (const Known& known : kTypes) {
    if (is_it(known)) return &known;
  }
  for (const Known& known : kFunctions) {
    if (is_it(known)) return &known;
  }
  return nullptr;
}

class PickleReader {
 public:
  explicit PickleReader(std::string_view pickle) : rest_(pickle) {}

  Result<std::vector<PickledTensor>> read() {
    int num_opcodes = 0;
    while (!error_.has_value() && !stopped_) {
      const std::uint64_t opcode = number(1);
      if (++num_opcodes > kOpcodesMax) {
        fail("it has more steps than any checkpoint");
      } else if (!error_.has_value()) {
        step(static_cast<unsigned char>(opcode));
      }
    }
    const Value root = pop();
    if (error_.has_value()) return *error_;
    return tensors_of(state_dict(root));
  }

 private:
  void fail(std::string what) {
    if (!error_.has_value()) error_ = Error{ErrorCode::kInvalid, std::move(what)};
  }

  // ---- the bytes ----

  std::string_view bytes(std::uint64_t count) {
    if (count > rest_.size()) {
      fail("it ends in the middle");
      rest_ = {};
      return {};
    }
    const std::string_view taken = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return taken;
  }

  std::uint64_t number(std::size_t size) { return little_endian(bytes(size)); }

  std::string_view line() {
    const std::size_t end = std::min(rest_.find('\n'), rest_.size());
    const std::string_view text = bytes(end);
    bytes(1);
    return text;
  }

  // ---- the stack ----

  void push(Value value) { stack_.push_back(value); }
  void push_integer(std::int64_t value) { push({Kind::kInteger, value, {}, {}}); }
  void push_string(std::string_view text) { push({Kind::kString, 0, text, {}}); }
  void push_index(Kind kind, std::size_t index) {
    push({kind, static_cast<std::int64_t>(index), {}, {}});
  }

  // A value that is not a part of tensors.
  void skip(std::uint64_t count) {
    bytes(count);
    push({});
  }

  void push_container(Kind kind, std::vector<Value> values) {
    push_index(kind, containers_.size());
    containers_.push_back(std::move(values));
  }

  // Values below the last mark stay.
  Value pop() {
    if (stack_.size() <= (marks_.empty() ? 0 : marks_.back())) {
      fail("it takes more than it has made");
      return {};
    }
    const Value value = stack_.back();
    stack_.pop_back();
    return value;
  }

  std::vector<Value> pop_to_mark() {
    if (marks_.empty()) {
      fail("it takes more than it has made");
      return {};
    }
    const auto first = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
    std::vector<Value> values(first, stack_.end());
    stack_.erase(first, stack_.end());
    marks_.pop_back();
    return values;
  }

  std::vector<Value>& items(const Value& container) {
    return containers_[static_cast<std::size_t>(container.number)];
  }

  std::vector<Value> pop(std::size_t count) {
    std::vector<Value> values(count);
    for (std::size_t i = count; i-- > 0;) values[i] = pop();
    return values;
  }

  // Adds the values to the list, or the keys and values to the dictionary, below them.
  void extend(Kind kind, const std::vector<Value>& values) {
    const Value target = pop();
    if (target.kind != kind || (kind == Kind::kDict && values.size() % 2 != 0)) {
      return fail("it adds to what is no container");
    }
    items(target).insert(items(target).end(), values.begin(), values.end());
    push(target);
  }

  void memoize(std::uint64_t index) {
    const Value top = pop();
    push(top);
    memo_[index] = top;
  }

  void recall(std::uint64_t index) {
    const auto found = memo_.find(index);
    if (found == memo_.end()) return fail("it recalls what it has not noted");
    push(found->second);
  }

  // ---- the opcodes ----

  void step(unsigned char opcode) {
    switch (opcode) {
      case 'N':   // NONE
      case 0x88:  // NEWTRUE
      case 0x89:  // NEWFALSE
      case 0x8F:  // EMPTY_SET
        return push({});
      case 'G':  // BINFLOAT
        return skip(8);
      case 'C':  // SHORT_BINBYTES
        return skip(number(1));
      case 'B':  // BINBYTES
        return skip(number(4));
      case 'K':  // BININT1
        return push_integer(static_cast<std::int64_t>(number(1)));
      case 'M':  // BININT2
        return push_integer(static_cast<std::int64_t>(number(2)));
      case 'J':  // BININT
        return push_integer(static_cast<std::int32_t>(number(4)));
      case 0x8A:  // LONG1
        return push_long(number(1));
      case 0x8C:  // SHORT_BINUNICODE
        return push_string(bytes(number(1)));
      case 'X':  // BINUNICODE
        return push_string(bytes(number(4)));
      case 0x8D:  // BINUNICODE8
        return push_string(bytes(number(8)));
      default:
        return step_of_container(opcode);
    }
  }

  void step_of_container(unsigned char opcode) {
    switch (opcode) {
      case ')':  // EMPTY_TUPLE
        return push_container(Kind::kTuple, {});
      case ']':  // EMPTY_LIST
        return push_container(Kind::kList, {});
      case '}':  // EMPTY_DICT
        return push_container(Kind::kDict, {});
      case '(':  // MARK
        return marks_.push_back(stack_.size());
      case 't':  // TUPLE
        return push_container(Kind::kTuple, pop_to_mark());
      case 0x85:  // TUPLE1
      case 0x86:  // TUPLE2
      case 0x87:  // TUPLE3
        return push_container(Kind::kTuple, pop(opcode - 0x84U));
      case 'a':  // APPEND
        return extend(Kind::kList, pop(1));
      case 'e':  // APPENDS
        return extend(Kind::kList, pop_to_mark());
      case 's':  // SETITEM
        return extend(Kind::kDict, pop(2));
      case 'u':  // SETITEMS
        return extend(Kind::kDict, pop_to_mark());
      case 0x90:  // ADDITEMS
        return (void)pop_to_mark();
      default:
        return step_of_reference(opcode);
    }
  }

  void step_of_reference(unsigned char opcode) {
    switch (opcode) {
      case 'q':  // BINPUT
        return memoize(number(1));
      case 'r':  // LONG_BINPUT
        return memoize(number(4));
      case 0x94:  // MEMOIZE
        return memoize(memo_.size());
      case 'h':  // BINGET
        return recall(number(1));
      case 'j':  // LONG_BINGET
        return recall(number(4));
      case 'c':  // GLOBAL
        return push_line_global();
      case 0x93:  // STACK_GLOBAL
        return push_stack_global();
      case 'Q':  // BINPERSID
        return push_storage(pop());
      case 'R':  // REDUCE
        return reduce();
      case 'b':  // BUILD: attributes, which are ignored
        return (void)pop();
      case 0x80:  // PROTO
        return check_protocol(number(1));
      case 0x95:  // FRAME
        return (void)bytes(8);
      case '.':  // STOP
        stopped_ = true;
        return;
      default:
        fail("it has an opcode, " + std::to_string(opcode) + ", that no state dict needs");
    }
  }

  void check_protocol(std::uint64_t protocol) {
    if (protocol < 2 || protocol > 5) {
      fail("it is of pickle protocol " + std::to_string(protocol) + ", and 2 to 5 are read");
    }
  }

  void push_long(std::uint64_t size) {
    if (size > 8) return skip(size);  // larger than any size
    std::uint64_t value = number(size);
    if (size > 0 && size < 8 && ((value >> (8 * size - 1)) & 1) != 0) {
      value |= ~std::uint64_t{0} << (8 * size);
    }
    push_integer(static_cast<std::int64_t>(value));
  }

  void push_line_global() {
    const std::string_view module = line();
    push_global(module, line());
  }

  void push_stack_global() {
    const Value name = pop();
    const Value module = pop();
    if (name.kind != Kind::kString || module.kind != Kind::kString) {
      return fail("it asks for something without a name");
    }
    push_global(module.text, name.text);
  }

  void push_global(std::string_view module, std::string_view name) {
    const Value global{.kind = Kind::kGlobal, .number = 0, .text = name, .module = module};
    if (find_known(global) == nullptr) {
      return fail("it asks for " + shown(std::string(module) + "." + std::string(name)) +
                  ", and nothing but a state dict's tensors is read");
    }
    push(global);
  }

  // ---- tensors ----

  // ('storage', its class, the record's name, where it was, elements)
  void push_storage(const Value& id) {
    if (id.kind != Kind::kTuple || items(id).size() < 3 || items(id)[1].kind != Kind::kGlobal ||
        items(id)[2].kind != Kind::kString) {
      return fail("it has a storage that is not as torch.save writes one");
    }
    push_index(Kind::kStorage, storages_.size());
    storages_.push_back({.type = find_known(items(id)[1])->type, .name = items(id)[2].text});
  }

  // The calls that torch.save writes for a tensor: interpreted here, nothing is executed.
  void reduce() {
    const Value arguments = pop();
    const Value function = pop();
    if (arguments.kind != Kind::kTuple || function.kind != Kind::kGlobal) {
      return fail("it calls what it has not named");
    }
    const std::vector<Value>& values = items(arguments);
    if (function.text == "OrderedDict" && values.empty()) {
      push_container(Kind::kDict, {});
    } else if (function.text == "Size") {
      push({});
    } else if (function.text.starts_with("_rebuild_tensor")) {
      push_tensor(values);
    } else if (function.text.starts_with("_rebuild_parameter") && !values.empty() &&
               values[0].kind == Kind::kTensor) {
      push(values[0]);
    } else {
      fail("it calls " + shown(function.text) + " in another way than torch.save does");
    }
  }

  // The integers of a tuple.
  std::optional<std::vector<std::int64_t>> integers(const Value& tuple) {
    if (tuple.kind != Kind::kTuple || items(tuple).size() > kPickleDimensionsMax) {
      return std::nullopt;
    }
    std::vector<std::int64_t> numbers;
    for (const Value& value : items(tuple)) {
      if (value.kind != Kind::kInteger || value.number < 0) return std::nullopt;
      numbers.push_back(value.number);
    }
    return numbers;
  }

  // (storage, offset, shape, strides, ...), in the third version with the type as the seventh.
  void push_tensor(const std::vector<Value>& values) {
    if (values.size() < 4 || values[0].kind != Kind::kStorage || values[1].kind != Kind::kInteger ||
        values[1].number < 0) {
      return fail("it has a tensor that is not as torch.save writes one");
    }
    auto shape = integers(values[2]);
    auto strides = integers(values[3]);
    if (!shape.has_value() || !strides.has_value() || shape->size() != strides->size()) {
      return fail("it has a tensor whose shape is not a list of up to " +
                  std::to_string(kPickleDimensionsMax) + " sizes");
    }
    const Storage& storage = storages_[static_cast<std::size_t>(values[0].number)];
    const bool typed = values.size() > 6 && values[6].kind == Kind::kGlobal;
    push_index(Kind::kTensor, tensors_.size());
    tensors_.push_back({.name = {},
                        .type = typed ? find_known(values[6])->type : storage.type,
                        .storage = storage.name,
                        .offset = values[1].number,
                        .shape = std::move(*shape),
                        .strides = std::move(*strides)});
  }

  // ---- the result ----

  bool has_tensors(const Value& dict) {
    const auto is_tensor = [](const Value& value) { return value.kind == Kind::kTensor; };
    return dict.kind == Kind::kDict && std::ranges::any_of(items(dict), is_tensor);
  }

  // The dictionary of tensors that the root holds, or the root itself.
  Value state_dict(const Value& root) {
    if (root.kind != Kind::kDict) return root;
    const std::vector<Value>& entries = items(root);
    std::set<std::int64_t> looked_at;  // once, however often a hostile file names it
    for (std::size_t i = 0; i + 1 < entries.size(); i += 2) {
      const Value& dict = entries[i + 1];
      if (entries[i].kind == Kind::kString && dict.kind == Kind::kDict &&
          std::ranges::find(kStateDicts, entries[i].text) != std::end(kStateDicts) &&
          looked_at.insert(dict.number).second && has_tensors(dict)) {
        return dict;
      }
    }
    return root;
  }

  Result<std::vector<PickledTensor>> tensors_of(const Value& dict) {
    if (!has_tensors(dict)) {
      return Error{ErrorCode::kInvalid, "it holds no dictionary of tensors by name"};
    }
    std::vector<PickledTensor> result;
    std::unordered_set<std::string_view> names;
    const std::vector<Value>& entries = items(dict);
    for (std::size_t i = 0; i + 1 < entries.size(); i += 2) {
      if (entries[i].kind != Kind::kString || entries[i + 1].kind != Kind::kTensor) {
        continue;  // a number beside the tensors
      }
      if (!names.insert(entries[i].text).second) {
        return Error{ErrorCode::kInvalid, "it has " + shown(entries[i].text) + " twice"};
      }
      result.push_back(tensors_[static_cast<std::size_t>(entries[i + 1].number)]);
      result.back().name = entries[i].text;
    }
    return result;
  }

  std::string_view rest_;
  std::vector<Value> stack_;
  std::vector<std::size_t> marks_;       // sizes that the stack had
  std::map<std::uint64_t, Value> memo_;  // a hash of numbers from a file could be made slow
  std::vector<std::vector<Value>> containers_;
  std::vector<Storage> storages_;
  std::vector<PickledTensor> tensors_;
  std::optional<Error> error_;
  bool stopped_ = false;
};

}  // namespace

Result<std::vector<PickledTensor>> read_pickle(std::string_view pickle) {
  return PickleReader(pickle).read();
}

}  // namespace lmtp::model
