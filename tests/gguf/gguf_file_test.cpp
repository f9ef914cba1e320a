#include "lmtp/gguf/gguf_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <map>
#include <optional>

#include "gguf_assembler.h"
#include "temp_folder.h"

namespace lmtp::gguf {
namespace {

using lmtp::testing::GgufAssembler;
using lmtp::testing::TempFolder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::uint32_t kF32 = 0;
constexpr std::uint32_t kQ4K = 12;
constexpr std::uint32_t kIq2Xs = 17;

Result<GgufFile> parse(const std::string& bytes) {
  return GgufFile::parse("x.gguf", bytes.size(),
                         [&](std::uint64_t first, std::size_t count, char* to) {
                           if (first + count > bytes.size()) return false;
                           std::memcpy(to, bytes.data() + first, count);
                           return true;
                         });
}

GgufAssembler small_file() {
  GgufAssembler file;
  file.key("general.architecture", "llama");
  file.key("llama.block_count", 2);
  file.tensor("a", {8, 3}, kF32, 0);
  file.tensor("b", {256}, kQ4K, 96);
  file.data_bytes = 96 + 144;
  return file;
}

std::string error_of(const std::string& bytes) {
  const auto file = parse(bytes);
  return file ? "no error" : file.error().message;
}

std::string error_of(const std::function<void(GgufAssembler&)>& spoil) {
  GgufAssembler file = small_file();
  spoil(file);
  return error_of(file.bytes());
}

TEST(GgufFileTest, ReadsMetadataAndTensors) {
  GgufAssembler assembler = small_file();
  const auto number = [](auto value) { return GgufAssembler::number(value); };
  assembler.key("eight", 1, number(std::int8_t{-5}));
  assembler.key("wide", 10, number(std::uint64_t{1} << 40));
  assembler.key("half", 6, number(0.5F));
  assembler.key("whole", 12, number(3.0));
  assembler.key("yes", 7, number(std::uint8_t{1}));
  assembler.key("one", 1);
  assembler.key("words", std::vector<std::string>{"one", "", "three"});
  assembler.key("sizes", 9,
                number(std::uint32_t{5}) + number(std::uint64_t{2}) + number(std::int32_t{7}) +
                    number(std::int32_t{-1}));
  const auto file = parse(assembler.bytes());
  ASSERT_TRUE(file) << file.error().message;
  std::optional<Error> error;
  EXPECT_EQ(file->text("general.architecture", error), "llama");
  EXPECT_EQ(file->integer("llama.block_count", error), 2);
  EXPECT_EQ(file->integer("eight", error), -5);
  EXPECT_EQ(file->integer("wide", error), std::int64_t{1} << 40);
  EXPECT_EQ(file->integer("whole", error), 3);
  EXPECT_EQ(file->number("half", error), 0.5);
  EXPECT_EQ(file->number("whole", error), 3.0);
  EXPECT_EQ(file->boolean("yes", error), true);
  EXPECT_EQ(file->boolean("one", error), true);
  EXPECT_THAT(*file->texts("words", error), ElementsAre("one", "", "three"));
  EXPECT_THAT(*file->numbers("sizes", error), ElementsAre(7.0, -1.0));
  EXPECT_EQ(file->number("none", error), std::nullopt);
  EXPECT_EQ(file->texts("none", error), std::nullopt);
  EXPECT_FALSE(error);

  ASSERT_EQ(file->tensors().size(), 2U);
  const Tensor* a = file->find_tensor("a");
  ASSERT_NE(a, nullptr);
  EXPECT_THAT(a->shape, ElementsAre(3, 8));
  EXPECT_EQ(a->begin % 32, 0U);
  const Tensor* b = file->find_tensor("b");
  EXPECT_EQ(b->type->name, "Q4_K");
  EXPECT_EQ(b->num_bytes, 144U);
  EXPECT_EQ(b->begin, a->begin + 96);
  EXPECT_EQ(b->begin + b->num_bytes, file->file_bytes());
}

// Which is not taken for an absent one.
TEST(GgufFileTest, NamesAKeyOfAnotherType) {
  GgufAssembler assembler;
  assembler.key("text", "false");
  assembler.key("half", 6, GgufAssembler::number(0.5F));
  assembler.key("flag", 7, GgufAssembler::number(std::uint8_t{1}));
  assembler.key("two", 2);
  assembler.key("huge", 10, GgufAssembler::number(std::uint64_t{1} << 63));
  assembler.key("words", std::vector<std::string>{"one"});
  const auto file = parse(assembler.bytes());
  ASSERT_TRUE(file) << file.error().message;
  const auto message = [&](auto read, std::string_view key) {
    std::optional<Error> error;
    EXPECT_FALSE(((*file).*read)(key, error).has_value()) << key;
    return error ? error->message : "no error";
  };
  EXPECT_EQ(message(&GgufFile::boolean, "text"),
            "x.gguf: 'text' has the type string, and a bool is needed");
  EXPECT_THAT(message(&GgufFile::boolean, "two"), HasSubstr("has the type u32"));
  EXPECT_THAT(message(&GgufFile::integer, "half"), HasSubstr("f32, and a whole number"));
  EXPECT_THAT(message(&GgufFile::integer, "huge"), HasSubstr("at most 63 bits"));
  EXPECT_THAT(message(&GgufFile::integer, "flag"), HasSubstr("has the type bool"));
  EXPECT_THAT(message(&GgufFile::number, "flag"), HasSubstr("a number is needed"));
  EXPECT_THAT(message(&GgufFile::number, "words"), HasSubstr("array of string"));
  EXPECT_THAT(message(&GgufFile::text, "two"), HasSubstr("a string is needed"));
  EXPECT_THAT(message(&GgufFile::texts, "text"), HasSubstr("an array of string is needed"));
  EXPECT_THAT(message(&GgufFile::numbers, "words"), HasSubstr("an array of numbers is needed"));
}

TEST(GgufFileTest, OpensFiles) {
  const TempFolder folder;
  folder.write("right.gguf", small_file().bytes());
  folder.write("cut.gguf", small_file().bytes().substr(0, 300));
  EXPECT_TRUE(GgufFile::open(folder.path() + "/right.gguf"));
  EXPECT_FALSE(GgufFile::open(folder.path() + "/cut.gguf"));
  EXPECT_FALSE(GgufFile::open(folder.path() + "/none.gguf"));
  EXPECT_FALSE(GgufFile::open(folder.path()));
}

// Wherever a file ends too early, that is an error; a header that a limit cuts, too.
TEST(GgufFileTest, RefusesTruncatedFiles) {
  const std::string bytes = small_file().bytes();
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(parse(bytes.substr(0, size))) << size;
  }
  EXPECT_THAT(error_of(bytes.substr(0, 40)), HasSubstr("2 tensors, more than fit into the file"));
  EXPECT_THAT(error_of(bytes.substr(0, 160)), HasSubstr("the file is truncated"));
  EXPECT_THAT(error_of(bytes.substr(0, bytes.size() - 1)),
              HasSubstr("tensor 'b': its 144 bytes lie beyond the end of the file"));
}

TEST(GgufFileTest, RefusesOtherFormats) {
  EXPECT_THAT(error_of(std::string("GG")), HasSubstr("too short"));
  EXPECT_THAT(error_of([](GgufAssembler& file) { file.magic = "GGML"; }),
              HasSubstr("does not begin with 'GGUF'"));
  EXPECT_THAT(error_of([](GgufAssembler& file) { file.version = 1; }), HasSubstr("version 1"));
  EXPECT_THAT(error_of([](GgufAssembler& file) { file.version = 4; }), HasSubstr("version 4"));
  EXPECT_THAT(error_of([](GgufAssembler& file) { file.version = 3U << 24; }),
              HasSubstr("big endian"));
  EXPECT_EQ(error_of([](GgufAssembler& file) { file.version = 2; }), "no error");
}

TEST(GgufFileTest, RefusesCountsThatDoNotFit) {
  EXPECT_THAT(error_of([](GgufAssembler& file) { file.num_keys = std::uint64_t{1} << 60; }),
              HasSubstr("keys, more than fit"));
  EXPECT_THAT(error_of([](GgufAssembler& file) { file.num_tensors = 1000; }),
              HasSubstr("1000 tensors, more than fit"));
  EXPECT_THAT(error_of([](GgufAssembler& file) { file.num_keys = 20; }),
              HasSubstr("key 3 lies beyond"));
  const auto array = [](std::uint32_t type, std::uint64_t count) {
    return [=](GgufAssembler& file) {
      file.key("list", 9, GgufAssembler::number(type) + GgufAssembler::number(count));
    };
  };
  EXPECT_THAT(error_of(array(5, std::uint64_t{1} << 61)), HasSubstr("'list' claims"));
  EXPECT_THAT(error_of(array(8, std::uint64_t{1} << 61)), HasSubstr("'list' lies beyond"));
  EXPECT_THAT(error_of(array(9, 1)), HasSubstr("'list': its type is 9, an array of arrays"));
  EXPECT_THAT(error_of([](GgufAssembler& file) { file.key("odd", 13, ""); }),
              HasSubstr("'odd': its type is 13, which GGUF has not"));
  EXPECT_THAT(error_of([](GgufAssembler& file) {
                file.key("long", 8, GgufAssembler::number(~std::uint64_t{0}));
              }),
              HasSubstr("'long' lies beyond"));
}

TEST(GgufFileTest, RefusesNamesThatAreNone) {
  EXPECT_THAT(error_of([](GgufAssembler& file) { file.key("", 1); }), HasSubstr("its name"));
  EXPECT_THAT(error_of([](GgufAssembler& file) { file.key("a\nb", 1); }), HasSubstr("its name"));
  EXPECT_THAT(error_of([](GgufAssembler& file) { file.tensor(std::string(256, 'x'), {1}, 0, 0); }),
              HasSubstr("tensor 2: its name"));
  EXPECT_THAT(error_of([](GgufAssembler& file) { file.key("llama.block_count", 3); }),
              HasSubstr("'llama.block_count' is there twice"));
  EXPECT_THAT(error_of([](GgufAssembler& file) { file.tensor("a", {1}, 0, 0); }),
              HasSubstr("tensor 'a' is there twice"));
}

TEST(GgufFileTest, RefusesTensorsThatCannotBe) {
  const auto tensor = [](const std::vector<std::uint64_t>& shape, std::uint32_t type,
                         std::uint64_t offset) {
    return error_of([&](GgufAssembler& file) {
      file.tensor("c", shape, type, offset);
      file.data_bytes = 512;
    });
  };
  EXPECT_EQ(tensor({4}, kF32, 256), "no error");
  EXPECT_THAT(tensor({}, kF32, 256), HasSubstr("has 0 dimensions"));
  EXPECT_THAT(tensor({1, 1, 1, 1, 1}, kF32, 256), HasSubstr("has 5 dimensions"));
  EXPECT_THAT(tensor({4, 0}, kF32, 256), HasSubstr("its dimension of 0"));
  EXPECT_THAT(tensor({std::uint64_t{1} << 31, std::uint64_t{1} << 31, 4}, kF32, 256),
              HasSubstr("is not possible"));
  EXPECT_THAT(tensor({~std::uint64_t{0}}, kF32, 256), HasSubstr("is not possible"));
  EXPECT_THAT(tensor({100}, kQ4K, 256), HasSubstr("rows of 100 elements are not whole blocks"));
  EXPECT_EQ(tensor({256, 2}, kIq2Xs, 256), "no error");
  EXPECT_THAT(tensor({512, 2}, kIq2Xs, 256), HasSubstr("its 296 bytes lie beyond the end"));
  EXPECT_THAT(tensor({288}, kIq2Xs, 256), HasSubstr("not whole blocks of 256, as IQ2_XS has them"));
  EXPECT_THAT(tensor({std::uint64_t{1} << 58}, kIq2Xs, 256), HasSubstr("beyond the end"));
  EXPECT_THAT(tensor({4}, kF32, 260), HasSubstr("260 is not a multiple of 32"));
  EXPECT_THAT(tensor({4}, kF32, 512), HasSubstr("beyond the end of the file"));
  EXPECT_THAT(tensor({4}, kF32, ~std::uint64_t{0} - 31), HasSubstr("beyond the end of the file"));
  EXPECT_THAT(tensor({1000}, kF32, 256), HasSubstr("beyond the end of the file"));
  EXPECT_THAT(tensor({4}, kF32, 64), HasSubstr("tensors 'a' and 'c' overlap"));
  EXPECT_THAT(tensor({4}, kF32, 0), HasSubstr("overlap"));
}

// By ggml's names, whatever their shapes are.
TEST(GgufFileTest, RefusesTypesThatAreNotRead) {
  const auto refusal = [](std::uint32_t type) {
    return error_of([&](GgufAssembler& file) { file.tensor("c", {100}, type, 256); });
  };
  for (const auto& [type, name] : std::map<std::uint32_t, std::string>{
           {9, "Q8_1"},        {15, "Q8_K"},       {19, "IQ1_S"},      {29, "IQ1_M"},
           {34, "TQ1_0"},      {35, "TQ2_0"},      {40, "NVFP4"},      {41, "Q1_0"},
           {42, "Q2_0"},       {31, "Q4_0_4_4"},   {32, "Q4_0_4_8"},   {33, "Q4_0_8_8"},
           {36, "IQ4_NL_4_4"}, {37, "IQ4_NL_4_8"}, {38, "IQ4_NL_8_8"}, {24, "I8"},
           {25, "I16"},        {26, "I32"},        {27, "I64"},        {28, "F64"}}) {
    EXPECT_THAT(refusal(type), HasSubstr("tensor 'c': its type is " + name +
                                         ", which is not read; " + kReadTypes + " are read"));
  }
  EXPECT_THAT(refusal(77), HasSubstr("its type is number 77, which is not known here; F32"));
  EXPECT_THAT(refusal(4), HasSubstr("its type is number 4, which is not known here; F32"));
  EXPECT_THAT(refusal(34), HasSubstr("a file of these is needed, such as one called Q8_0"));
}

TEST(GgufFileTest, TakesTheFilesAlignment) {
  const auto aligned = [](std::uint32_t alignment, std::uint64_t offset) {
    return error_of([=](GgufAssembler& file) {
      file.key("general.alignment", alignment);
      file.tensor("c", {4}, kF32, offset);
      file.data_bytes = 1024;
    });
  };
  EXPECT_THAT(aligned(64, 256), HasSubstr("'b': its offset 96 is not a multiple of 64"));
  EXPECT_EQ(aligned(8, 248), "no error");
  EXPECT_THAT(aligned(0, 256), HasSubstr("general.alignment"));
  EXPECT_THAT(aligned(48, 256), HasSubstr("general.alignment"));
  EXPECT_THAT(aligned(1 << 21, 256), HasSubstr("general.alignment"));
}

}  // namespace
}  // namespace lmtp::gguf
