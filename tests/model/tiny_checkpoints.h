// Small checkpoints of made-up tensors, and what loading them says.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/worker_pool.h"
#include "lmtp/model/causal_lm.h"
#include "lmtp/model/weights.h"
#include "temp_folder.h"

namespace lmtp::testing {

using model::TensorSpec;

inline const char* const kTinyConfig =
    R"({"model_type": "gpt2", "vocab_size": 11, "n_positions": 8, "n_embd": 4, "n_layer": 1,
        "n_head": 2})";

// Untied.
inline const char* const kTinyLlama =
    R"({"model_type": "llama", "vocab_size": 11, "hidden_size": 4, "intermediate_size": 6,
        "num_hidden_layers": 1, "num_attention_heads": 2, "max_position_embeddings": 8,
        "tie_word_embeddings": false})";

inline std::string file_of(std::string_view header, std::string_view data) {
  const std::uint64_t size = header.size();
  std::string file(sizeof(size), '\0');
  std::memcpy(file.data(), &size, sizeof(size));
  return file.append(header).append(data);
}

// A safetensors file of these tensors, of ones or of their mean.
inline std::string file_with(const std::vector<TensorSpec>& tensors) {
  std::string header = R"({"__metadata__":{"format":"pt"})";
  std::string data;
  for (const TensorSpec& tensor : tensors) {
    header += ",\"" + tensor.name + R"(":{"dtype":"F32","shape":[)";
    for (std::size_t i = 0; i < tensor.shape.size(); ++i) {
      header += (i == 0 ? "" : ",") + std::to_string(tensor.shape[i]);
    }
    const std::size_t begin = data.size();
    const std::vector<float> ones(static_cast<std::size_t>(tensor.num_elements()),
                                  tensor.init.mean > 0.0F ? tensor.init.mean : 1.0F);
    data.append(reinterpret_cast<const char*>(ones.data()), ones.size() * sizeof(float));
    header +=
        "],\"data_offsets\":[" + std::to_string(begin) + "," + std::to_string(data.size()) + "]}";
  }
  return file_of(header + "}", data);
}

inline std::vector<TensorSpec> tensors_of(const char* config) {
  const TempFolder folder;
  folder.write("config.json", config);
  return *model::describe_tensors(*model::read_model_config(folder.path()));
}

inline std::string load_error(const TempFolder& folder, const char* json = kTinyConfig) {
  folder.write("config.json", json);
  const auto config = model::read_model_config(folder.path());
  auto source = model::open_checkpoint(folder.path());
  if (!source.ok()) return source.error().message;
  const auto checked = model::check_tensors(*config, **source, false);
  if (!checked.ok()) return checked.error().message;
  kernels::WorkerPool pool(2);
  int last_percent = -1;
  const auto tensors = model::describe_tensors(*config);
  std::int64_t num_elements = 0;
  for (const TensorSpec& tensor : *tensors) num_elements += tensor.num_elements();
  const auto store = model::make_host_store(pool, kernels::WeightType::kF32);
  model::WeightLoader loader(**source, *store, num_elements,
                             [&](int percent) { return (last_percent = percent) >= 0; });
  model::SingleRank single;
  const auto loaded =
      model::make_causal_lm(*config, loader, {.max_tokens = 4, .communicator = single});
  if (!loaded.ok()) return loaded.error().message;
  EXPECT_EQ(last_percent, 100);
  return "";
}

inline std::string load_error(const std::string& file, const char* json = kTinyConfig) {
  const TempFolder folder;
  folder.write("model.safetensors", file);
  return load_error(folder, json);
}

inline void expect_said(const std::string& error, const char* part) {
  EXPECT_NE(error.find(part), std::string::npos) << "'" << error << "' lacks '" << part << "'";
}

}  // namespace lmtp::testing
