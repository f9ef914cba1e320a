// The configuration of a model, normalised from config.json. It is read before the weights are
// loaded.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernels/experts.h"
#include "kernels/linear.h"
#include "lmtp/base/ids.h"
#include "lmtp/base/model_source.h"
#include "lmtp/base/result.h"
#include "lmtp/model/quantization.h"

namespace lmtp::model {

// Rotary position embedding: of every head the first 2 * inverse_periods.size() dimensions turn.
struct RotaryConfig {
  std::vector<float> inverse_periods;  // radians a position
  float factor = 1.0F;                 // of cosine and sine
  // And by position; see kernels::RotaryAnglesArgs.
  float growth = 0.0F;
  int growth_period = 1;
};

// Where a layer has its norms. x goes from layer to layer; f is attention, or the MLP.
enum class NormPlaces : std::uint8_t {
  kBefore,    // x += f(norm(x))
  kAfter,     // x += norm(f(x))
  kAround,    // x += norm(f(norm(x)))
  kAfterSum,  // x = norm(x + f(x))
};

// What of queries and keys is normalised together, and when.
enum class QueryKeyNorm : std::uint8_t {
  kNone,
  kHead,
  kWhole,
  kTurnedHead,  // each head, once it has turned
};

// The MLP of the sparse layers, which is several experts (kernels/experts.h).
struct ExpertsConfig {
  int count = 0;                 // in a layer; 0: no layer is sparse
  int size = 0;                  // of an expert's middle, between up and down
  int shared_size = 0;           // of the expert that every token goes to; 0: there is none
  bool shared_is_gated = false;  // it counts the sigmoid of a score
  kernels::Routing routing;
  bool choice_bias = false;  // a number an expert for the choice alone
  bool router_bias = false;
  bool biases = false;  // of the experts' matrices
  // As kernels::GatedActivationArgs.
  bool interleaved = false;
  float limit = 0.0F;
  float up_added = 0.0F;

  // What a step needs for each of its tokens.
  std::int64_t floats_per_token(std::int64_t hidden_size) const;
};

// One layer of a decoder.
struct LayerSpec {
  int window = 0;                   // tokens that attention sees; 0: all before
  int rotary = 0;                   // index in ModelConfig::rotaries; -1: nothing turns
  int query_rotary = -1;            // the queries', where it is another than the keys'
  float attention_scale = 0.0F;     // of the scores; 0: 1 / sqrt(head_dim)
  float attention_soft_cap = 0.0F;  // of the scores; 0: none
  NormPlaces norms = NormPlaces::kBefore;
  QueryKeyNorm query_key_norm = QueryKeyNorm::kNone;
  bool parallel = false;  // attention and MLP read the same x, with norms before alone
  bool one_norm = false;  // of a parallel layer: and the same normalised x
  bool gated = true;      // the MLP: down(activation(gate(x)) * up(x)), not down(activation(up(x)))
  // The numbers of kXielu are weights, and not here.
  kernels::Activation activation = kernels::Activation::kSilu;
  bool qkv_bias = false;
  bool attention_out_bias = false;
  bool mlp_bias = false;
  bool sparse = false;  // the MLP is ModelConfig::experts
  bool sinks = false;   // a score of each head's own, as kernels::AttentionArgs::sinks
};

// Fields that an architecture does not use keep their defaults.
struct ModelConfig {
  std::string model_type;    // config.json's: "gpt2"
  std::string architecture;  // config.json's architectures[0]: "GPT2LMHeadModel"
  // config.json's type of the checkpoint's weights; random weights are made in it.
  kernels::ElementType weight_type = kernels::ElementType::kF32;
  Quantization quantization;
  int vocab_size = 0;
  int context_length = 0;
  int hidden_size = 0;
  int num_layers = 0;
  int num_heads = 0;
  int num_kv_heads = 0;
  int kv_copies = 1;  // of a rank_config: ranks one after another that have the same KV heads
  // Where queries, keys and values are one matrix: of how many [q | k | v], one after another, of
  // which ranks have whole ones. 0: of one, which ranks divide in itself.
  int qkv_parts = 0;
  int head_dim = 0;
  int mlp_size = 0;  // 0: all layers are sparse
  ExpertsConfig experts;
  float norm_epsilon = 0.0F;
  bool tied_embeddings = true;  // the output head is the token embedding
  // False: the folder was saved as the class without it (Qwen3Model). Then tied_embeddings, and
  // nothing is to be generated.
  bool has_head = true;
  // settle_head() decides that: config.json, or that of the larger model around this one, ties it.
  bool settles_head = false;
  int embedding_size = 0;              // of a token, where not hidden_size; 0: hidden_size
  float embedding_scale = 1.0F;        // of a token's embedding
  std::vector<RotaryConfig> rotaries;  // of the layers; empty: no rotary embedding
  std::vector<LayerSpec> layers;       // num_layers
  float residual_scale = 1.0F;         // of what attention and MLPs add to x
  float logit_scale = 1.0F;
  float logit_soft_cap = 0.0F;  // after the scale; 0: none
  bool final_norm = true;
  std::vector<TokenId> eos_ids;  // ascending; generation_config.json's, else config.json's
  // The model_type of the larger model whose text model this is, such as "llava"; empty: none.
  std::string outer_model_type;
  // Notes for the user: parts of the folder that are skipped, problems that --force ignores.
  std::vector<std::string> notes;
};

struct ConfigOptions {
  bool force = false;      // unsupported settings become notes instead of errors
  int context_length = 0;  // requested by --context-length; chooses between longrope's factors
  // Whether the output head is the embedding, whatever config.json and the weights say.
  std::optional<bool> tie_embeddings = std::nullopt;
};

// Limits far beyond any model, so that a corrupt file does not cause huge allocations.
inline constexpr int kVocabSizeMax = 1 << 21;
inline constexpr int kContextLengthMax = 1 << 22;
inline constexpr int kHiddenSizeMax = 1 << 17;
inline constexpr int kNumLayersMax = 1 << 12;
inline constexpr int kExpertsOfLayersMax = 1 << 16;
inline constexpr std::int64_t kExpertFloatsMax = std::int64_t{1} << 22;  // of a token

// Reads config.json and generation_config.json of a folder, or the metadata of a GGUF file; missing
// keys have the defaults of the transformers library. The error names the file and what is wrong
// with it. Any thread.
Result<ModelConfig> read_model_config(const std::string& folder, const ConfigOptions& options = {});

// The config of a random model: "gpt2", "gpt2-medium", "tinyllama-1.1b", "llama-3-8b",
// "qwen3-30b-a3b", "gpt-oss-20b"; of all but the first two also with fewer layers:
// "qwen3-30b-a3b-8l". The error lists the known shapes.
Result<ModelConfig> shape_config(const std::string& shape);

// The sizes of what one of num_ranks ranks computes: its share of the heads, of the KV heads and of
// the MLP. Where there are fewer KV heads than ranks it has one of them, as others have. The error
// names the numbers of ranks that are possible.
Result<ModelConfig> rank_config(ModelConfig config, int num_ranks);

// read_model_config or shape_config, by source.kind.
Result<ModelConfig> load_model_config(const ModelSource& source, const ConfigOptions& options = {});

// The JSON text of config.json for a shape, as the transformers library would read it.
Result<std::string> shape_config_json(const std::string& shape);

}  // namespace lmtp::model
