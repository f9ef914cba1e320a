// A checkpoint of 16 bits that is computed in float32 takes the memory of 16 bits, and its streams
// have the bits of the same numbers in a file of 32.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "agent_driver.h"
#include "bit_cases.h"
#include "lmtp/agent/model_memory.h"
#include "source_dir.h"
#include "temp_folder.h"

namespace lmtp {
namespace {

using kernels::ElementType;
using testing::AgentDriver;

std::string read(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string with_size(const std::string& text) {
  const std::uint64_t size = text.size();
  std::string bytes(sizeof(size), '\0');
  std::memcpy(bytes.data(), &size, sizeof(size));
  return bytes + text;
}

// model.safetensors with the numbers in float32.
std::string widened(const std::string& file) {
  std::uint64_t header_size = 0;
  std::memcpy(&header_size, file.data(), sizeof(header_size));
  const char* data = file.data() + sizeof(header_size) + header_size;
  auto header = nlohmann::json::parse(file.substr(sizeof(header_size), header_size));
  std::string all;
  for (auto& [name, tensor] : header.items()) {
    if (name == "__metadata__") continue;
    const std::size_t first = tensor["data_offsets"][0];
    const std::size_t end = tensor["data_offsets"][1];
    std::vector<float> values((end - first) / 2);
    const ElementType type = tensor["dtype"] == "F16" ? ElementType::kF16 : ElementType::kBF16;
    kernels::convert_to_f32(data + first, type, std::ssize(values), values.data());
    tensor["dtype"] = "F32";
    tensor["data_offsets"] = {all.size(), all.size() + values.size() * sizeof(float)};
    all.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
  }
  return with_size(header.dump()) + all;
}

class KeptWeightsTest : public ::testing::TestWithParam<const char*> {
 protected:
  KeptWeightsTest()
      : narrow_(testing::folder_source(testing::source_dir() + "/tests/goldens/" +
                                       std::string(GetParam()))) {
    const std::filesystem::path folder = narrow_.folder;
    copy_.write("config.json", read(folder / "config.json"));
    copy_.write("model.safetensors", widened(read(folder / "model.safetensors")));
    wide_ = testing::folder_source(copy_.path());
  }

  ModelSource narrow_;
  ModelSource wide_;
  testing::TempFolder copy_;
};

INSTANTIATE_TEST_SUITE_P(Checkpoints, KeptWeightsTest,
                         ::testing::Values("checkpoints/five-heads-f16",
                                           "checkpoints/narrow-mlp-bf16", "ranks/llama-two-kv"));

// Many rows in prefill, few and one later on; a SCORE.
std::vector<std::vector<scheduler::TokenResult>> serve(scheduler::ModelAgent& agent) {
  AgentDriver driver(agent);
  std::vector<const testing::DrivenStream*> streams;
  for (int number = 0; number < 6; ++number) {
    streams.push_back(&driver.generate(testing::prompt_of(number, 1 + 9 * number), 2 + 3 * number,
                                       testing::params_of(number)));
  }
  streams.push_back(&driver.score(testing::prompt_of(7, 9), testing::prompt_of(8, 20), 12));
  driver.run();
  std::vector<std::vector<scheduler::TokenResult>> results;
  for (const testing::DrivenStream* stream : streams) results.push_back(stream->results);
  return results;
}

TEST_P(KeptWeightsTest, HaveTheBitsOfAFileOfFloat32AndHalfItsBytes) {
  for (const int num_ranks : {1, 2}) {
    if (num_ranks > 1 && std::string(GetParam()) != "ranks/llama-two-kv") continue;
    const auto narrow =
        testing::load_agent(narrow_, 2, kernels::WeightType::kF32, nullptr, {}, num_ranks);
    const auto wide =
        testing::load_agent(wide_, 2, kernels::WeightType::kF32, nullptr, {}, num_ranks);
    testing::expect_same_bits(serve(*narrow), serve(*wide));
    const auto narrow_bytes = static_cast<double>(narrow->info().ranks[0].weights_bytes);
    const auto wide_bytes = static_cast<double>(wide->info().ranks[0].weights_bytes);
    // Biases, norms and positions are not kept so.
    EXPECT_LT(narrow_bytes, 0.65 * wide_bytes);
  }
}

TEST_P(KeptWeightsTest, AreCountedByTheWidthOfTheFile) {
  const auto bytes_of = [&](const ModelSource& source, kernels::WeightType type) {
    agent::AgentOptions options;
    options.source = source;
    options.config = *model::load_model_config(narrow_);
    options.weight_type = type;
    return agent::estimate_memory(options)->weights_bytes;
  };
  const auto wide = bytes_of(wide_, kernels::WeightType::kF32);
  const auto narrow = bytes_of(wide_, kernels::WeightType::kBF16);
  EXPECT_GT(wide, narrow);
  EXPECT_EQ(bytes_of(narrow_, kernels::WeightType::kF32), narrow);
  EXPECT_EQ(bytes_of(narrow_, kernels::WeightType::kBF16), narrow);
  ModelSource none = narrow_;
  none.folder = "/nowhere";  // before it is downloaded: all that it may take
  EXPECT_EQ(bytes_of(none, kernels::WeightType::kF32), wide);
}

}  // namespace
}  // namespace lmtp
