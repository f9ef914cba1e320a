#include "adapters.h"

#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <nlohmann/json.hpp>
#include <random>
#include <string>

#include "lmtp/agent/adapter.h"
#include "lmtp/base/json.h"
#include "lmtp/model/causal_lm.h"
#include "lmtp/model/weights.h"
#include "temp_folder.h"

namespace lmtp::numerics {
namespace {

// One that fills its groups of ranks, and two that do not.
constexpr std::array<int, kNumAdapters> kRanks = {3, 8, 17};

// A safetensors file.
class TensorFile {
 public:
  // Small enough that sixteen layers do not let the outputs grow beyond the model's own.
  void add(const std::string& name, std::int64_t rows, std::int64_t columns,
           std::mt19937_64& random) {
    const std::size_t begin = data_.size();
    const float most = 1.0F / std::sqrt(static_cast<float>(columns));
    for (std::int64_t i = 0; i < rows * columns; ++i) {
      const float value = most * (static_cast<float>(random() >> 40) / 8388608.0F - 1.0F);
      data_.append(reinterpret_cast<const char*>(&value), sizeof(value));
    }
    header_[name] = {{"dtype", "F32"},
                     {"shape", Json::array({rows, columns})},
                     {"data_offsets", Json::array({begin, data_.size()})}};
  }
  std::string text() const {
    const std::string header = header_.dump();
    const std::uint64_t size = header.size();
    std::string text(sizeof(size), '\0');
    std::memcpy(text.data(), &size, sizeof(size));
    return text + header + data_;
  }

 private:
  Json header_;
  std::string data_;
};

}  // namespace

Result<std::vector<std::shared_ptr<const Adapter>>> make_adapters(
    const agent::AgentOptions& options) {
  const auto linears = model::describe_linears(options.config);
  if (!linears.ok()) return linears.error();
  std::vector<std::shared_ptr<const Adapter>> adapters;
  for (const int rank : kRanks) {
    std::mt19937_64 random(static_cast<std::uint64_t>(rank));
    TensorFile file;
    for (const model::WeightStack& linear : *linears) {
      for (const model::WeightPart& part : linear.parts) {
        const std::string name = "base_model.model." + part.name;
        file.add(name + ".lora_A.weight", rank, linear.k, random);
        file.add(name + ".lora_B.weight", part.n(), rank, random);
      }
    }
    const testing::TempFolder folder;
    folder.write("adapter_config.json", Json({{"peft_type", "LORA"},
                                              {"r", rank},
                                              {"lora_alpha", rank},
                                              {"target_modules", "all-linear"}})
                                            .dump());
    folder.write("adapter_model.safetensors", file.text());
    auto adapter =
        agent::read_adapter(options, {"rank " + std::to_string(rank), folder.path()}, {});
    if (!adapter.ok()) return adapter.error();
    adapters.push_back(*std::move(adapter));
  }
  return adapters;
}

}  // namespace lmtp::numerics
