// What controllers import: AICI's functions, and of WASI, which compilers' libraries need, what
// lets a program write its log and start; the rest of it says that there is no such file.
#include <algorithm>
#include <cstring>
#include <string>

#include "guest.h"

namespace lmtp::aici {

namespace {

using Args = std::span<std::int64_t>;

constexpr std::int64_t kBadFile = 8;  // WASI's errno
constexpr std::uint32_t kTextBytesMax = 1 << 20;
constexpr std::uint32_t kIoVectorsMax = 1024;

Guest& guest_of(wasm::Instance& instance) { return *static_cast<Guest*>(instance.data()); }

std::uint32_t u32(std::int64_t value) { return static_cast<std::uint32_t>(value); }

// Bytes [first, first + size) of the controller's memory.
Result<std::string_view> text_at(wasm::Instance& instance, std::int64_t first, std::int64_t size) {
  const Result<std::span<std::uint8_t>> bytes = instance.memory(u32(first), u32(size));
  if (!bytes) return bytes.error();
  return std::string_view(reinterpret_cast<const char*>(bytes->data()), bytes->size());
}

// The same, of what the host copies.
Result<std::string_view> short_text_at(wasm::Instance& instance, std::int64_t first,
                                       std::int64_t size) {
  if (u32(size) > kTextBytesMax) {
    return Error{ErrorCode::kInvalid, "a text of " + std::to_string(u32(size)) +
                                          " bytes is given to the host; allowed are " +
                                          std::to_string(kTextBytesMax)};
  }
  return text_at(instance, first, size);
}

Result<void> zero(wasm::Instance& instance, std::int64_t first, std::int64_t size) {
  const Result<std::span<std::uint8_t>> bytes = instance.memory(u32(first), u32(size));
  if (!bytes) return bytes.error();
  std::ranges::fill(*bytes, std::uint8_t{0});
  return {};
}

Result<void> put_u32(wasm::Instance& instance, std::int64_t first, std::uint32_t value) {
  const Result<std::span<std::uint8_t>> bytes = instance.memory(u32(first), sizeof(value));
  if (!bytes) return bytes.error();
  std::memcpy(bytes->data(), &value, sizeof(value));
  return {};
}

template <std::int64_t value>
Result<void> give(wasm::Instance& /*instance*/, Args args) {
  args[0] = value;
  return {};
}

// (blob, to, size) -> its size, of which no more than `size` bytes are written
Result<void> read_blob(wasm::Instance& instance, Args args) {
  const Result<std::string_view> blob = guest_of(instance).blob(u32(args[0]));
  if (!blob) return blob.error();
  const std::size_t size = std::min<std::size_t>(u32(args[2]), blob->size());
  if (size > 0) {
    const Result<std::span<std::uint8_t>> to =
        instance.memory(u32(args[1]), static_cast<std::uint32_t>(size));
    if (!to) return to.error();
    std::memcpy(to->data(), blob->data(), size);
  }
  args[0] = static_cast<std::int64_t>(blob->size());
  return {};
}

// (text, size) -> a blob of u32 ids
Result<void> tokenize(wasm::Instance& instance, Args args) {
  const Result<std::string_view> text = short_text_at(instance, args[0], args[1]);
  if (!text) return text.error();
  Guest& guest = guest_of(instance);
  const Result<std::vector<TokenId>> ids = guest.world().tokenizer->encode_continuation(*text);
  std::string bytes;
  if (ids) {
    bytes.assign(reinterpret_cast<const char*>(ids->data()), ids->size() * sizeof(TokenId));
  } else {
    guest.write_log("warning: tokenize error: " + ids.error().message + "\n");
  }
  guest.set_blob(kTokenize, std::move(bytes));
  args[0] = kTokenize;
  return {};
}

// (words); in dialect C -> the mask's number
Result<void> return_logit_bias(wasm::Instance& instance, Args args) {
  Guest& guest = guest_of(instance);
  const Result<std::span<std::uint8_t>> words = instance.memory(
      u32(args[0]), static_cast<std::uint32_t>(guest.world().num_words() * sizeof(std::uint32_t)));
  if (!words) return words.error();
  const Result<std::uint32_t> number = guest.add_mask(*words);
  if (!number) return number.error();
  args[0] = *number;
  return {};
}

Result<void> return_process_result(wasm::Instance& instance, Args args) {
  const Result<std::string_view> text = short_text_at(instance, args[0], args[1]);
  if (!text) return text.error();
  guest_of(instance).set_result(*text);
  return {};
}

Result<void> storage_cmd(wasm::Instance& instance, Args args) {
  const Result<std::string_view> text = short_text_at(instance, args[0], args[1]);
  if (!text) return text.error();
  if (Result<void> done = guest_of(instance).run_storage(*text); !done) return done.error();
  args[0] = kStorageResult;
  return {};
}

Result<void> self_seq_id(wasm::Instance& instance, Args args) {
  args[0] = guest_of(instance).sequence();
  return {};
}

Result<void> eos_token(wasm::Instance& instance, Args args) {
  args[0] = std::max<TokenId>(guest_of(instance).world().eos_id, 0);
  return {};
}

// (name, size) -> whether the server can do that
Result<void> get_config(wasm::Instance& instance, Args args) {
  const Result<std::string_view> name = short_text_at(instance, args[0], args[1]);
  if (!name) return name.error();
  args[0] = *name == "fork" || *name == "backtrack" || *name == "ff_tokens" ? 1 : 0;
  return {};
}

Result<void> stop(wasm::Instance& /*instance*/, Args /*args*/) {
  return Error{ErrorCode::kInvalid, "*** aici_host_stop()"};
}

Result<void> proc_exit(wasm::Instance& /*instance*/, Args args) {
  return Error{ErrorCode::kInvalid,
               "proc_exit: " + std::to_string(static_cast<std::int32_t>(args[0]))};
}

// (file, vectors, number of them, to: bytes written)
Result<void> fd_write(wasm::Instance& instance, Args args) {
  const std::int64_t file = args[0];
  const std::uint32_t num_vectors = u32(args[2]);
  const bool is_log = file == 1 || file == 2;
  args[0] = kBadFile;
  if (!is_log || num_vectors > kIoVectorsMax) return {};
  std::uint32_t num_written = 0;
  for (std::uint32_t i = 0; i < num_vectors; ++i) {
    const Result<std::span<std::uint8_t>> vector = instance.memory(u32(args[1]) + 8 * i, 8);
    if (!vector) return vector.error();
    std::uint32_t place[2] = {};
    std::memcpy(place, vector->data(), sizeof(place));
    const Result<std::string_view> text = text_at(instance, place[0], place[1]);
    if (!text) return text.error();
    guest_of(instance).write_log(*text);
    num_written += place[1];
  }
  args[0] = 0;
  return u32(args[3]) == 0 ? Result<void>() : put_u32(instance, args[3], num_written);
}

// Standard files are terminals, so that what is written comes at once.
Result<void> fd_fdstat_get(wasm::Instance& instance, Args args) {
  constexpr std::int64_t kStatBytes = 24;
  constexpr std::uint32_t kCharacterDevice = 2;
  const std::int64_t file = args[0];
  args[0] = kBadFile;
  if (file < 0 || file > 2) return {};
  if (Result<void> done = zero(instance, args[1], kStatBytes); !done) return done;
  args[0] = 0;
  return put_u32(instance, args[1], kCharacterDevice);
}

// Zeros, so that a controller does the same again.
Result<void> random_get(wasm::Instance& instance, Args args) {
  const Result<void> done = zero(instance, args[0], args[1]);
  args[0] = 0;
  return done;
}

// Neither arguments nor an environment.
Result<void> two_zeros(wasm::Instance& instance, Args args) {
  if (Result<void> done = put_u32(instance, args[0], 0); !done) return done;
  const Result<void> done = put_u32(instance, args[1], 0);
  args[0] = 0;
  return done;
}

constexpr const char* kEnv = "env";
constexpr const char* kWasi = "wasi_snapshot_preview1";

constexpr std::array kAici = {
    wasm::HostFunction{kEnv, "aici_host_read_blob", "iii", true, read_blob},
    wasm::HostFunction{kEnv, "aici_host_module_arg", "", true, give<kModuleArg>},
    wasm::HostFunction{kEnv, "aici_host_process_arg", "", true, give<kProcessArg>},
    wasm::HostFunction{kEnv, "aici_host_token_trie", "", true, give<kTrie>},
    wasm::HostFunction{kEnv, "aici_host_tokens", "", true, give<kTokens>},
    wasm::HostFunction{kEnv, "aici_host_tokenize", "ii", true, tokenize},
    wasm::HostFunction{kEnv, "aici_host_return_process_result", "ii", false, return_process_result},
    wasm::HostFunction{kEnv, "aici_host_storage_cmd", "ii", true, storage_cmd},
    wasm::HostFunction{kEnv, "aici_host_self_seq_id", "", true, self_seq_id},
    wasm::HostFunction{kEnv, "aici_host_eos_token", "", true, eos_token},
    wasm::HostFunction{kEnv, "aici_host_get_config", "ii", true, get_config},
    wasm::HostFunction{kEnv, "aici_host_stop", "", false, stop},
};

constexpr std::array kWasiFunctions = {
    wasm::HostFunction{kWasi, "fd_write", "iiii", true, fd_write},
    wasm::HostFunction{kWasi, "fd_fdstat_get", "ii", true, fd_fdstat_get},
    wasm::HostFunction{kWasi, "random_get", "ii", true, random_get},
    wasm::HostFunction{kWasi, "args_sizes_get", "ii", true, two_zeros},
    wasm::HostFunction{kWasi, "environ_sizes_get", "ii", true, two_zeros},
    wasm::HostFunction{kWasi, "args_get", "ii", true, give<0>},
    wasm::HostFunction{kWasi, "sched_yield", "", true, give<0>},
    wasm::HostFunction{kWasi, "fd_sync", "i", true, give<0>},
    wasm::HostFunction{kWasi, "proc_exit", "i", false, proc_exit},
    wasm::HostFunction{kWasi, "environ_get", "ii", true, give<kBadFile>},
    wasm::HostFunction{kWasi, "clock_time_get", "iIi", true, give<kBadFile>},
    wasm::HostFunction{kWasi, "fd_close", "i", true, give<kBadFile>},
    wasm::HostFunction{kWasi, "fd_filestat_get", "ii", true, give<kBadFile>},
    wasm::HostFunction{kWasi, "fd_filestat_set_size", "iI", true, give<kBadFile>},
    wasm::HostFunction{kWasi, "fd_prestat_dir_name", "iii", true, give<kBadFile>},
    wasm::HostFunction{kWasi, "fd_prestat_get", "ii", true, give<kBadFile>},
    wasm::HostFunction{kWasi, "fd_read", "iiii", true, give<kBadFile>},
    wasm::HostFunction{kWasi, "fd_readdir", "iiiIi", true, give<kBadFile>},
    wasm::HostFunction{kWasi, "fd_seek", "iIii", true, give<kBadFile>},
    wasm::HostFunction{kWasi, "path_create_directory", "iii", true, give<kBadFile>},
    wasm::HostFunction{kWasi, "path_filestat_get", "iiiii", true, give<kBadFile>},
    wasm::HostFunction{kWasi, "path_filestat_set_times", "iiiiIIi", true, give<kBadFile>},
    wasm::HostFunction{kWasi, "path_link", "iiiiiii", true, give<kBadFile>},
    wasm::HostFunction{kWasi, "path_open", "iiiiiIIii", true, give<kBadFile>},
    wasm::HostFunction{kWasi, "path_readlink", "iiiiii", true, give<kBadFile>},
    wasm::HostFunction{kWasi, "path_remove_directory", "iii", true, give<kBadFile>},
    wasm::HostFunction{kWasi, "path_rename", "iiiiii", true, give<kBadFile>},
    wasm::HostFunction{kWasi, "path_unlink_file", "iii", true, give<kBadFile>},
    wasm::HostFunction{kWasi, "poll_oneoff", "iiii", true, give<kBadFile>},
};

}  // namespace

std::vector<wasm::HostFunction> host_functions(ModuleDialect dialect) {
  std::vector<wasm::HostFunction> functions(kAici.begin(), kAici.end());
  functions.insert(functions.end(), kWasiFunctions.begin(), kWasiFunctions.end());
  functions.push_back(
      {kEnv, "aici_host_return_logit_bias", "i", dialect == ModuleDialect::kC, return_logit_bias});
  return functions;
}

}  // namespace lmtp::aici
