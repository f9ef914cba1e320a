#include "lmtp/wasm/wasm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>

#include "module_info.h"

namespace lmtp::wasm {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

constexpr milliseconds kTime{1000};

// Adds its arguments and what data() points to; fails at 100, and throws at 101.
Result<void> host(Instance& instance, std::span<std::int64_t> args) {
  if (args[0] == 100) return Error{ErrorCode::kInvalid, "a hundred"};
  if (args[0] == 101) throw std::runtime_error("thrown");
  args[0] += args[1] + *static_cast<int*>(instance.data());
  return {};
}

class WasmTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (std::string(LMTP_WASM_MODULES).empty()) {
      GTEST_SKIP() << "clang or wasm-ld was not found: run tools/setup --tests";
    }
    std::ifstream file(std::string(LMTP_WASM_MODULES) + "/probe.wasm", std::ios::binary);
    std::ostringstream bytes;
    bytes << file.rdbuf();
    bytes_ = std::move(bytes).str();
    auto engine = Engine::make();
    ASSERT_TRUE(engine.ok()) << engine.error().message;
    engine_ = *engine;
    const std::array functions = {HostFunction{"env", "host", "ii", true, host}};
    imports_ = *Imports::make(engine_, functions);
    auto module = engine_->compile(bytes_);
    ASSERT_TRUE(module.ok()) << module.error().message;
    module_ = *module;
    instance_ = make();
  }
  std::unique_ptr<Instance> make(InstanceLimits limits = {}) {
    return std::move(*Instance::make(imports_, module_, limits, &data_));
  }
  static Result<std::uint32_t> call(Instance& instance, const char* name,
                                    std::vector<std::uint32_t> args, bool has_result = true,
                                    milliseconds time = kTime) {
    const auto function = instance.find(name, static_cast<int>(args.size()), has_result);
    if (!function) return function.error();
    return instance.call(*function, args, time);
  }

  int data_ = 1000;
  std::string bytes_;
  std::shared_ptr<Engine> engine_;
  std::shared_ptr<const Imports> imports_;
  std::shared_ptr<const Module> module_;
  std::unique_ptr<Instance> instance_;
};

TEST_F(WasmTest, CallsBothWays) {
  EXPECT_EQ(*call(*instance_, "add", {2, 3}), 5U);
  EXPECT_EQ(*call(*instance_, "add", {0xFFFFFFFF, 1}), 0U);
  EXPECT_EQ(*call(*instance_, "ask", {2, 3}), 1006U);
}

TEST_F(WasmTest, HostFunctionsThatFailTrap) {
  EXPECT_THAT(call(*instance_, "ask", {100, 0}).error().message, HasSubstr("a hundred"));
  EXPECT_THAT(call(*instance_, "ask", {101, 0}).error().message, HasSubstr("thrown"));
  EXPECT_EQ(*call(*instance_, "ask", {0, 0}), 1001U);
}

TEST_F(WasmTest, TrapsAreErrors) {
  EXPECT_EQ(call(*instance_, "trap", {}, false).error().code, ErrorCode::kInvalid);
  EXPECT_FALSE(call(*instance_, "peek", {0xFFFFFFFF}).ok());
  EXPECT_FALSE(call(*instance_, "deep", {10'000'000}).ok());
  EXPECT_EQ(*call(*instance_, "add", {2, 3}), 5U);
}

TEST_F(WasmTest, TimeIsLimited) {
  const Result<std::uint32_t> late = call(*instance_, "spin", {}, false, milliseconds(20));
  EXPECT_EQ(late.error().code, ErrorCode::kTimeout);
  EXPECT_THAT(late.error().message, HasSubstr("20 ms"));
  EXPECT_EQ(*call(*instance_, "add", {2, 3}), 5U);
}

TEST_F(WasmTest, MemoryIsLimited) {
  const auto small = make({.memory_bytes = 4 << 20});
  EXPECT_EQ(*call(*small, "grow", {100}), 0xFFFFFFFFU);
  EXPECT_NE(*call(*small, "grow", {1}), 0xFFFFFFFFU);
  const auto made = Instance::make(imports_, module_, {.memory_bytes = 1 << 10}, &data_);
  EXPECT_FALSE(made.ok());
}

TEST_F(WasmTest, FunctionsAreCheckedBeforeTheyAreCalled) {
  EXPECT_EQ(instance_->find("none", 0, false).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(instance_->find("memory", 0, false).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(instance_->find("add", 1, true).error().code, ErrorCode::kInvalid);
  EXPECT_EQ(instance_->find("add", 2, false).error().code, ErrorCode::kInvalid);
  EXPECT_EQ(instance_->find("wide", 0, true).error().code, ErrorCode::kInvalid);
}

TEST_F(WasmTest, MemoryIsSeenWithinItsBounds) {
  const auto size = static_cast<std::uint32_t>(instance_->memory().size());
  EXPECT_TRUE(instance_->memory(0, size).ok());
  EXPECT_TRUE(instance_->memory(size, 0).ok());
  EXPECT_FALSE(instance_->memory(1, size).ok());
  EXPECT_FALSE(instance_->memory(0xFFFFFFFF, 0xFFFFFFFF).ok());
}

TEST_F(WasmTest, CopiesGoTheirOwnWays) {
  EXPECT_EQ(*call(*instance_, "next", {}), 1U);
  ASSERT_NE(*call(*instance_, "grow", {3}), 0xFFFFFFFFU);
  const auto last = static_cast<std::uint32_t>(instance_->memory().size() - 1);
  ASSERT_TRUE(call(*instance_, "poke", {last, 7}, false).ok());
  int other_data = 5000;
  auto copied = instance_->copy(&other_data);
  ASSERT_TRUE(copied.ok()) << copied.error().message;
  EXPECT_EQ(*call(**copied, "next", {}), 2U);
  EXPECT_EQ(*call(**copied, "next", {}), 3U);
  EXPECT_EQ(*call(*instance_, "next", {}), 2U);
  EXPECT_EQ(*call(**copied, "peek", {last}), 7U);
  EXPECT_EQ((*copied)->memory().size(), instance_->memory().size());
  EXPECT_EQ(*call(**copied, "ask", {0, 0}), 5001U);
}

TEST_F(WasmTest, CompiledModulesAreReadAgain) {
  const Result<std::string> compiled = module_->serialize();
  ASSERT_TRUE(compiled.ok());
  module_ = *engine_->deserialize(bytes_, *compiled);
  EXPECT_EQ(*call(*make(), "add", {2, 3}), 5U);
  EXPECT_TRUE(module_->exports("add"));
  EXPECT_FALSE(module_->exports("none"));
  EXPECT_EQ(module_->copy_obstacle(), "");
  EXPECT_FALSE(engine_->deserialize(bytes_, "nothing of the kind").ok());
}

TEST_F(WasmTest, WhatIsNoModuleIsRefused) {
  EXPECT_EQ(engine_->compile("").error().code, ErrorCode::kInvalid);
  EXPECT_EQ(engine_->compile(bytes_.substr(0, bytes_.size() / 2)).error().code,
            ErrorCode::kInvalid);
  EXPECT_FALSE(engine_->compile(std::string(kModuleBytesMax + 1, '\0')).ok());
}

TEST_F(WasmTest, UnknownImportsAreErrors) {
  const auto none = *Imports::make(engine_, {});
  const auto made = Instance::make(none, module_, {}, &data_);
  ASSERT_FALSE(made.ok());
  EXPECT_THAT(made.error().message, HasSubstr("host"));
}

// ---- what is read of a module's bytes; these are put together by hand ----

std::string module_of(const std::string& sections) {
  return std::string("\0asm\1\0\0\0", 8) + sections;
}
std::string section(char id, const std::string& content) {
  return std::string(1, id) + static_cast<char>(content.size()) + content;
}

TEST(ModuleInfoTest, OneMutableGlobalIsTheStacksPointer) {
  const std::string mutable_global("\x7F\x01\x41\x80\x80\x04\x0B", 7);        // i32.const 65536
  const std::string constant_global("\x7C\x00\x44\0\0\0\0\0\0\0\0\x0B", 12);  // f64.const 0
  EXPECT_EQ(module_info(module_of("")).copy_obstacle, "");
  EXPECT_EQ(
      module_info(module_of(section(6, "\x02" + constant_global + mutable_global))).copy_obstacle,
      "");
  EXPECT_THAT(
      module_info(module_of(section(6, "\x03" + mutable_global + constant_global + mutable_global)))
          .copy_obstacle,
      HasSubstr("2 mutable globals"));
  // One that is imported counts as well: (import "e" "g" (global (mut i32))).
  const std::string imported("\x01\x01\x65\x01\x67\x03\x7F\x01", 8);
  EXPECT_THAT(module_info(module_of(section(2, imported) + section(6, "\x01" + mutable_global)))
                  .copy_obstacle,
              HasSubstr("2 mutable globals"));
}

TEST(ModuleInfoTest, TablesThatAreWrittenAreAnObstacle) {
  const std::string active("\x01\x00\x41\x01\x0B\x02\x00\x01", 8);  // at 1: functions 0 and 1
  const std::string passive("\x01\x01\x00\x01\x00", 5);
  EXPECT_EQ(module_info(module_of(section(9, active))).copy_obstacle, "");
  EXPECT_THAT(module_info(module_of(section(9, passive))).copy_obstacle, HasSubstr("tables"));
  EXPECT_THAT(module_info(module_of(section(10, std::string("\xFC\x0E\0\0", 4)))).copy_obstacle,
              HasSubstr("tables"));
  EXPECT_EQ(module_info(module_of(section(10, std::string("\xFC\x0A\0\0", 4)))).copy_obstacle, "");
}

TEST(ModuleInfoTest, CutOnesAreReadToTheirEnd) {
  const std::string whole = module_of(section(7, std::string("\x01\x03"
                                                             "add\x00\x00",
                                                             7)) +
                                      section(6, "\x7F\x7F"));
  EXPECT_TRUE(module_info(whole).exports.contains("add"));
  for (std::size_t size = 0; size < whole.size(); ++size) module_info(whole.substr(0, size));
}

}  // namespace
}  // namespace lmtp::wasm
