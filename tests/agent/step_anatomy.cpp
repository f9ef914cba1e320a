// What a decode step of a model consists of: its time as one graph, and without each of its ops.
// Without an op the others run as before, on whatever numbers are there; the difference is what the
// step would gain if that op took no time, which is less than the op's own where it overlaps.
//
//   step_anatomy DEVICE SHAPE ROWS CONTEXTS     step_anatomy cuda:0 gpt2-medium 1,64 200
//
// DEVICE is cpu (float32) or cuda[:N] (bfloat16). One line of JSON a point.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "kernels/backend.h"
#include "kernels/device.h"
#include "kernels/device_api.h"
#include "kernels/memory.h"
#include "kernels/stream.h"
#include "lmtp/agent/agent_options.h"
#include "lmtp/base/json.h"
#include "lmtp/base/model_source.h"
#include "lmtp/model/kv_cache.h"
#include "lmtp/model/model_config.h"
#include "lmtp/model/weight_store.h"
#include "load_model.h"

namespace lmtp::agent {
namespace {

using kernels::Backend;
using kernels::Memory;
using kernels::Stream;

using Clock = std::chrono::steady_clock;

// Memory of the stream's backend with what the host holds.
template <typename T>
Memory upload(Stream& stream, const std::vector<T>& values) {
  auto memory = Memory::allocate(stream.backend(), values.size() * sizeof(T));
  if (const kernels::DeviceApi* device = stream.device_api()) {
    device->copy_to_device(stream.handle(), memory.data(), values.data(), memory.num_bytes());
    stream.synchronize();
  } else {
    std::memcpy(memory.data(), values.data(), memory.num_bytes());
  }
  return memory;
}

// The median time of step(), in seconds; on a device some of them are a graph.
double seconds_of(Stream& stream, const std::function<void()>& step) {
  constexpr int kSteps = 4;  // of a graph
  constexpr int kRounds = 7;
  constexpr int kRepetitions = 20;
  const auto steps = [&] {
    for (int i = 0; i < kSteps; ++i) step();
  };
  steps();  // scratch memory grows
  stream.synchronize();
  const kernels::DeviceApi* device = stream.device_api();
  void* graph = nullptr;
  if (device != nullptr) {
    device->begin_capture(stream.handle());
    steps();
    graph = device->end_capture(stream.handle());
    device->launch_graph(graph, stream.handle());  // the first launch also uploads it
    stream.synchronize();
  }
  std::vector<double> rounds;
  for (int round = 0; round < kRounds; ++round) {
    const Clock::time_point start = Clock::now();
    const int repetitions = device != nullptr ? kRepetitions : 1;
    for (int i = 0; i < repetitions; ++i) {
      device != nullptr ? device->launch_graph(graph, stream.handle()) : steps();
    }
    stream.synchronize();
    const std::chrono::duration<double> seconds = Clock::now() - start;
    rounds.push_back(seconds.count() / (repetitions * kSteps));
  }
  if (graph != nullptr) device->release(kernels::DeviceApi::HandleKind::kGraph, graph);
  std::nth_element(rounds.begin(), rounds.begin() + kRounds / 2, rounds.end());
  return rounds[kRounds / 2];
}

struct Op {
  const char* name;
  void (*leave_out)(Backend&);
};

// On a device an op may run in the launch that rounds a linear's inputs: left out, it leaves that.
template <typename... Args>
void leave_out_of_linears(Backend& b) {
  if (b.takes_prologue == nullptr) return;
  b.takes_prologue = [](const kernels::LinearArgs& args) {
    return !(std::holds_alternative<Args>(args.prologue) || ...) &&
           kernels::cuda::backend().takes_prologue(args);
  };
}

constexpr Op kOps[] = {
    {"linear",
     [](Backend& b) {
       b.linear = [](Stream&, const kernels::LinearArgs&) {};
       b.takes_prologue = nullptr;
     }},
    {"norms",
     [](Backend& b) {
       b.layer_norm = [](Stream&, const kernels::LayerNormArgs&) {};
       b.rms_norm = [](Stream&, const kernels::RmsNormArgs&) {};
       leave_out_of_linears<kernels::LayerNormArgs, kernels::RmsNormArgs>(b);
     }},
    {"rotary", [](Backend& b) { b.rotary = [](Stream&, const kernels::RotaryArgs&) {}; }},
    {"kv_store", [](Backend& b) { b.kv_store = [](Stream&, const kernels::KvStoreArgs&) {}; }},
    {"attention",
     [](Backend& b) { b.paged_attention = [](Stream&, const kernels::AttentionArgs&) {}; }},
    {"gated_activation",
     [](Backend& b) {
       b.gated_activation = [](Stream&, const kernels::GatedActivationArgs&) {};
       leave_out_of_linears<kernels::GatedActivationArgs>(b);
     }},
    {"embedding, angles and rows",
     [](Backend& b) {
       b.embedding = [](Stream&, const kernels::EmbeddingArgs&) {};
       b.rotary_angles = [](Stream&, const kernels::RotaryAnglesArgs&) {};
       b.gather_rows = [](Stream&, const kernels::GatherRowsArgs&) {};
     }},
    {"sample", [](Backend& b) { b.sample = [](Stream&, const kernels::SampleArgs&) {}; }},
};

// A step of `rows` streams of `context` tokens, whose blocks are scattered. Owner: main().
class DecodeStep {
 public:
  DecodeStep(Stream& stream, model::CausalLM& model, const AgentOptions& options, int rows,
             int context)
      : stream_(stream), model_(model) {
    const int blocks_each = (context + kBlockSize - 1) / kBlockSize;
    const int num_blocks = rows * blocks_each;
    std::vector<std::int32_t> tables(static_cast<std::size_t>(num_blocks));
    std::vector<std::int32_t> slots;
    constexpr std::int64_t kStep = 7919;  // a prime that divides no number of blocks here
    for (std::int64_t i = 0; i < num_blocks; ++i) {
      tables[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(1 + i * kStep % num_blocks);
    }
    for (int row = 0; row < rows; ++row) {
      const auto last = static_cast<std::size_t>((row + 1) * blocks_each - 1);
      slots.push_back(tables[last] * kBlockSize + (context - 1) % kBlockSize);
    }
    std::vector<std::int32_t> counted(static_cast<std::size_t>(rows) + 1);
    std::iota(counted.begin(), counted.end(), 0);
    std::vector<std::int32_t> offsets = counted;
    for (std::int32_t& offset : offsets) offset *= blocks_each;
    const std::vector<std::int32_t> positions(static_cast<std::size_t>(rows), context - 1);
    kernels::SampleRow greedy;
    greedy.num_top = 1;
    const auto keep = [&](const auto& values) {
      return static_cast<const std::int32_t*>(memory_.emplace_back(upload(stream, values)).data());
    };
    input_ = {.num_tokens = rows,
              .num_sequences = rows,
              .chunk_max = 1,
              .context_max = context,
              .num_table_blocks = num_blocks,
              .ids = keep(counted),
              .positions = keep(positions),
              .cu_seqlens = keep(counted)};
    input_.first_positions = input_.positions;
    input_.block_offsets = keep(offsets);
    input_.groups[0] = {
        .slots = keep(slots), .tables = keep(tables), .table_starts = input_.block_offsets};
    input_.logit_rows = input_.ids;
    sample_rows_ =
        upload(stream, std::vector<kernels::SampleRow>(static_cast<std::size_t>(rows), greedy));
    const auto allocate = [&](std::int64_t size) {
      return Memory::allocate(stream.backend(), static_cast<std::size_t>(size));
    };
    const std::int64_t vocabulary = options.config.vocab_size;
    logits_ = allocate(rows * vocabulary * 4);
    records_ = allocate(rows * static_cast<std::int64_t>(sizeof(kernels::SampleRecord)));
    top_ = allocate(rows * static_cast<std::int64_t>(sizeof(kernels::TopToken)));
    cache_ = std::make_unique<model::KvCache>(model::kv_specs(options.config), num_blocks + 1,
                                              stream, kv_type(options));
  }

  double seconds() {
    return seconds_of(stream_, [this] { run(); });
  }

 private:
  void run() {
    const auto hidden = model_.forward(stream_, input_, *cache_);
    const auto logits = kernels::make_matrix(logits_.floats(), input_.num_tokens,
                                             std::int64_t{model_.config().vocab_size});
    model_.logits(stream_, hidden, input_.logit_rows, logits);
    kernels::sample(stream_, {.logits = logits,
                              .rows = static_cast<const kernels::SampleRow*>(sample_rows_.data()),
                              .positions = input_.positions,
                              .records = static_cast<kernels::SampleRecord*>(records_.data()),
                              .top = static_cast<kernels::TopToken*>(top_.data()),
                              .top_stride = 1});
  }

  Stream& stream_;
  model::CausalLM& model_;
  std::vector<Memory> memory_;
  model::InputArrays input_;
  Memory sample_rows_;
  Memory logits_;
  Memory records_;
  Memory top_;
  std::unique_ptr<model::KvCache> cache_;
};

template <typename T>
T checked(Result<T> result) {
  if (!result.ok()) throw std::runtime_error(result.error().message);
  return std::move(*result);
}

std::vector<int> numbers(const std::string& list) {
  std::vector<int> all;
  std::istringstream stream(list);
  for (std::string part; std::getline(stream, part, ',');) all.push_back(std::stoi(part));
  return all;
}

void run(const std::string& device, const std::string& name, const std::vector<int>& all_rows,
         const std::vector<int>& contexts) {
  AgentOptions options;
  if (device != "cpu") {
    options.cuda_device = device.starts_with("cuda:") ? std::stoi(device.substr(5)) : 0;
    options.weight_type = kernels::WeightType::kBF16;
  }
  options.source = {
      .kind = SourceKind::kRandom, .name = name, .names = {name}, .folder = "", .shape = name};
  options.config = checked(model::load_model_config(options.source));
  options.batch.max_tokens = *std::max_element(all_rows.begin(), all_rows.end());
  const Backend& all = device == "cpu" ? kernels::cpu_backend() : kernels::cuda::backend();
  Backend backend = all;
  const auto pool = make_pool(options);
  Stream stream(backend, *pool, options.cuda_device.value_or(0));
  const auto store = device == "cpu" ? model::make_host_store(*pool, options.weight_type)
                                     : model::make_device_store(stream, options.weight_type);
  model::SingleRank alone;
  const auto loaded = checked(load_model(options, checked(count_weights(options)), *store, alone,
                                         [](int) { return true; }));
  stream.synchronize();
  for (const int rows : all_rows) {
    for (const int context : contexts) {
      DecodeStep step(stream, *loaded.model, options, rows, context);
      const auto print = [&](const char* left_out, double seconds, double whole) {
        const OrderedJson point = {{"what", "step"},
                                   {"shape", name},
                                   {"rows", rows},
                                   {"context", context},
                                   {"without", left_out},
                                   {"us", seconds * 1e6},
                                   {"gain_us", (whole - seconds) * 1e6}};
        std::printf("%s\n", point.dump().c_str());
        std::fflush(stdout);
      };
      const double whole = step.seconds();
      print("", whole, whole);
      for (const Op& op : kOps) {
        op.leave_out(backend);
        print(op.name, step.seconds(), whole);
        backend = all;
      }
    }
  }
}

}  // namespace
}  // namespace lmtp::agent

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "usage: step_anatomy cpu|cuda[:N] SHAPE ROWS CONTEXTS\n");
    return 2;
  }
  try {
    lmtp::agent::run(argv[1], argv[2], lmtp::agent::numbers(argv[3]),
                     lmtp::agent::numbers(argv[4]));
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "step_anatomy: %s\n", error.what());
    return 1;
  }
}
