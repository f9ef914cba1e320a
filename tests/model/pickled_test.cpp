// The pickle of a pytorch_model.bin as hostile as it may be: an error that says what is wrong, and
// nothing else. The zip around it is zip_directory_test.cpp's, and what torch.save itself writes
// tests/e2e/test_weights.py's.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "lmtp/model/weights.h"
#include "pickle_assembler.h"
#include "pickle_reader.h"
#include "temp_folder.h"

namespace lmtp {
namespace {

using testing::little_endian;
using testing::pickled;
using testing::pickled_dict;
using testing::pickled_global;
using testing::TensorParts;
using testing::torch_file;

const std::string kZero(1, '\0');
const std::string kStorage(6 * sizeof(float), '\1');

std::string pickle_error(const std::string& pickle) {
  const auto tensors = model::read_pickle(pickle);
  return tensors.ok() ? "" : tensors.error().message;
}

// Of a file that is asked for a tensor "a", [2, 3].
std::string file_error(const std::string& file, std::size_t element_size = sizeof(float)) {
  const testing::TempFolder folder;
  folder.write("pytorch_model.bin", file);
  const auto source = model::open_checkpoint(folder.path());
  if (!source.ok()) return source.error().message;
  const auto tensor = (*source)->tensor({"a", {2, 3}, {}});
  if (!tensor.ok()) return tensor.error().message;
  std::vector<char> data(6 * element_size);
  const auto read = tensor->read(0, data.size(), data.data());
  return read.ok() ? "" : read.error().message;
}

std::string tensor_error(const TensorParts& tensor, std::size_t element_size = sizeof(float)) {
  return file_error(torch_file(pickled_dict({{"a", pickled(tensor)}}), kStorage), element_size);
}

void expect_error(const std::string& error, const char* part) {
  EXPECT_NE(error.find(part), std::string::npos) << "'" << error << "' lacks '" << part << "'";
}

std::string repeated(const std::string& text, int count) {
  std::string result;
  for (int i = 0; i < count; ++i) result += text;
  return result;
}

TEST(PickledTest, AWholeFileIsRead) {
  EXPECT_EQ(tensor_error({}), "");
  EXPECT_EQ(tensor_error({.storage_class = "BFloat16Storage", .offset = 6}, 2), "");
}

TEST(PickledTest, WhatIsAskedForIsNamedAndNotCalled) {
  const std::string call = pickled("touch evil") + "\x85R.";
  expect_error(pickle_error(pickled_global("os", "system") + call), "it asks for 'os.system'");
  expect_error(pickle_error(pickled("builtins") + pickled("eval") + "\x93" + call),
               "it asks for 'builtins.eval'");
  expect_error(pickle_error(pickled_global("collections", "OrderedDict") + call),
               "it calls 'OrderedDict' in another way");
  expect_error(pickle_error("K\1K\2\x93."), "without a name");
  const std::string file = torch_file(pickled_global("a.b", "C") + ")\x81.", kStorage);
  expect_error(file_error(file), "it asks for 'a.b.C', and nothing but");
  expect_error(file_error(file), "save_pretrained(FOLDER)");
}

TEST(PickledTest, ProgramsThatTakeWhatTheyHaveNotMade) {
  for (const char* program : {"R", "t", "u", "e", "a", "s", "b", "Q", "\x85", "\x87", "\x90",
                              "\x93", "", "N(R", "}(NR", "((N\x86"}) {
    expect_error(pickle_error(std::string(program) + "."), "it takes more than it has made");
  }
  expect_error(pickle_error("q" + kZero), "it takes more");
  expect_error(pickle_error("h" + kZero + "."), "it recalls what it has not noted");
  expect_error(pickle_error("j\1\1\1\1."), "it recalls what it has not noted");
  expect_error(pickle_error("NNa."), "no container");
  expect_error(pickle_error("](NNu."), "no container");
  expect_error(pickle_error("}(Nu."), "no container");
  expect_error(pickle_error("NQ."), "a storage that is not as torch.save writes one");
  expect_error(pickle_error("NNR."), "it calls what it has not named");
  expect_error(pickle_error("\x80\6."), "protocol 6");
  expect_error(pickle_error("cos\nsystem"), "it ends in the middle");
  expect_error(pickle_error("i."), "opcode, 105,");
  expect_error(pickle_error("N."), "no dictionary of tensors");
  expect_error(pickle_error("}."), "no dictionary of tensors");
}

TEST(PickledTest, EveryTruncationIsAnError) {
  const std::string whole = pickled_dict({{"a", pickled(TensorParts{})}});
  ASSERT_EQ(pickle_error(whole), "");
  for (std::size_t size = 0; size < whole.size(); ++size) {
    EXPECT_NE(pickle_error(whole.substr(0, size)), "") << size;
  }
}

TEST(PickledTest, BombsEnd) {
  const std::string huge = little_endian(UINT64_MAX, 8);
  expect_error(pickle_error("\x8D" + huge + "abc"), "it ends in the middle");
  expect_error(pickle_error("B" + huge.substr(0, 4)), "it ends in the middle");
  expect_error(pickle_error("\x8A" + huge.substr(0, 1) + std::string(255, '\1') + "."), "no dict");
  expect_error(pickle_error(repeated("N", 1 << 22)), "more steps than any checkpoint");
  expect_error(pickle_error(repeated("(", 1 << 22)), "more steps than any checkpoint");
  // Deep nesting, and a tuple of 2^100000 leaves: nothing follows them.
  expect_error(pickle_error(repeated("]", 300000) + repeated("a", 299999) + "."), "no dictionary");
  expect_error(pickle_error(")q" + kZero +
                            repeated("h" + kZero + "h" + kZero + "\x86q" + kZero, 100000) + "."),
               "no dictionary");
  // A dictionary that is its own state dict.
  EXPECT_NE(pickle_error("}q" + kZero + pickled("state_dict") + "h" + kZero + "s."), "");
}

TEST(PickledTest, ANameThatIsThereTwice) {
  const std::string tensor = pickled(TensorParts{});
  expect_error(pickle_error(pickled_dict({{"a", tensor}, {"b", tensor}, {"a", tensor}})),
               "it has 'a' twice");
}

TEST(PickledTest, TensorsThatReachBeyondTheirStorage) {
  const char* const beyond = "tensor 'a': its data lie beyond the end of its storage";
  constexpr std::int64_t kHuge = std::int64_t{1} << 62;
  expect_error(tensor_error({.offset = 1}), beyond);
  expect_error(tensor_error({.offset = kHuge}), beyond);
  expect_error(tensor_error({.shape = {3, 3}}), beyond);
  expect_error(tensor_error({.storage_class = "DoubleStorage"}), beyond);
  expect_error(tensor_error({.shape = {kHuge, kHuge}}), beyond);
  expect_error(tensor_error({.shape = {kHuge, 4}}), beyond);
  expect_error(tensor_error({.offset = kHuge, .shape = {0, 3}}), beyond);
  expect_error(tensor_error({.record = "1"}), "tensor 'a': it has no record 'data/1'");
  expect_error(tensor_error({.record = "../data.pkl"}), "it has no record");
}

TEST(PickledTest, TensorsThatAreNotWhatTheyLookLike) {
  expect_error(tensor_error({.strides = {1, 2}}), "tensor 'a': it is not contiguous");
  expect_error(tensor_error({.strides = {0, 1}}), "it is not contiguous");
  expect_error(tensor_error({.strides = {1}}), "whose shape is not a list");
  expect_error(tensor_error({.shape = {2, -3}}), "whose shape is not a list");
  expect_error(tensor_error({.shape = std::vector<std::int64_t>(9, 1),
                             .strides = std::vector<std::int64_t>(9, 1)}),
               "whose shape is not a list");
  expect_error(tensor_error({.offset = -1}), "not as torch.save writes one");
  expect_error(tensor_error({.storage_class = "CharStorage"}), "its type is I8");
  EXPECT_EQ(tensor_error({.shape = {2, 3}, .strides = {3, 1}}), "");
}

}  // namespace
}  // namespace lmtp
