// WebAssembly in this process, by wasmtime: programs of others, with limits of time and memory.
// They reach nothing but their own memory and the functions that they are given.
//
// Left out: threads, tail calls, reference types, several memories, 64-bit memories, WASI.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "lmtp/base/result.h"

namespace lmtp::wasm {

inline constexpr std::size_t kModuleBytesMax = std::size_t{128} << 20;
// Of wasmtime: what was serialized by another cannot be read.
inline constexpr const char* kVersion = "50.0.1";
// The program that compiles a module by itself, `PROGRAM MODULE COMPILED` (two files), and what it
// says where it has done so; else what is wrong with the module, or, with kUnavailable in front,
// with something else.
inline constexpr const char* kCompiler = "lib/lmtp/lmtp-wasm";
inline constexpr const char* kCompiled = "compiled";
inline constexpr char kUnavailable = '!';

class Instance;

// A function that modules import. It gives its result in args[0]; its error traps.
using HostCall = Result<void> (*)(Instance& instance, std::span<std::int64_t> args);

struct HostFunction {
  const char* module;
  const char* name;
  const char* params;  // a letter each: i is i32, I is i64
  bool has_result;     // an i32
  HostCall call;
};

// Compiled code. Immutable; any thread.
class Module {
 public:
  ~Module();
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  // What Engine::deserialize reads.
  Result<std::string> serialize() const;
  bool exports(std::string_view name) const;
  // Why Instance::copy refuses; empty: it does not.
  const std::string& copy_obstacle() const;

 private:
  friend class Engine;
  friend class Instance;
  struct Impl;
  explicit Module(std::unique_ptr<const Impl> impl);

  std::unique_ptr<const Impl> impl_;
};

// Any thread.
class Engine {
 public:
  // Loads wasmtime on the first call.
  static Result<std::shared_ptr<Engine>> make();
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Takes from milliseconds to seconds of one thread, and cannot be ended. The error, kInvalid,
  // says what is wrong with the module.
  Result<std::shared_ptr<const Module>> compile(std::string_view wasm);
  // wasm: of which `serialized` was made. REQUIRES: `serialized` comes from Module::serialize,
  // since it is run as it is; what another version wrote is an error.
  Result<std::shared_ptr<const Module>> deserialize(std::string_view wasm,
                                                    std::string_view serialized);

 private:
  friend class Imports;
  friend class Instance;
  struct Impl;
  explicit Engine(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

// The functions that modules may import. Immutable; any thread.
class Imports {
 public:
  static Result<std::shared_ptr<const Imports>> make(std::shared_ptr<Engine> engine,
                                                     std::span<const HostFunction> functions);
  ~Imports();
  Imports(const Imports&) = delete;
  Imports& operator=(const Imports&) = delete;

 private:
  friend class Instance;
  struct Impl;
  explicit Imports(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

struct InstanceLimits {
  std::size_t memory_bytes = std::size_t{64} << 20;
  std::chrono::milliseconds start_time{1000};  // of the module's start function
};

// A module's memory and globals. Owner: one thread at a time.
class Instance {
 public:
  // data: for host functions, see data(). The error, kInvalid: an import that is none, a memory or
  // table beyond the limits, no exported memory, or a start function that fails.
  static Result<std::unique_ptr<Instance>> make(std::shared_ptr<const Imports> imports,
                                                std::shared_ptr<const Module> module,
                                                InstanceLimits limits, void* data);
  ~Instance();
  Instance(const Instance&) = delete;
  Instance& operator=(const Instance&) = delete;

  // Another instance with this one's memory. The error says what else the module has that changes.
  // REQUIRES: not within a call.
  Result<std::unique_ptr<Instance>> copy(void* data) const;

  // An exported function from `num_params` i32 to an i32 or nothing.
  struct Function {
    std::uint64_t words[2] = {};
    bool has_result = false;
  };
  // The error, kNotFound or kInvalid, names the function.
  Result<Function> find(std::string_view name, int num_params, bool has_result) const;

  // Gives the function's result, or 0. time_max: of the processor; it may become two kTick more.
  // Errors: kTimeout; kInvalid for a trap, with its text. After an error the instance's state is
  // whatever the call left.
  Result<std::uint32_t> call(const Function& function, std::span<const std::uint32_t> args,
                             std::chrono::milliseconds time_max);
  static constexpr std::chrono::milliseconds kTick{5};

  // The memory. The view ends with the next call, or within a host function with its return.
  std::span<std::uint8_t> memory() const;
  // Bytes [first, first + size) of it; the error says that there are not so many.
  Result<std::span<std::uint8_t>> memory(std::uint32_t first, std::uint32_t size) const;
  void* data() const { return data_; }

 private:
  struct Impl;
  explicit Instance(std::unique_ptr<Impl> impl, void* data);

  std::unique_ptr<Impl> impl_;
  void* data_;
};

}  // namespace lmtp::wasm
