#include "grid.h"

#include <algorithm>
#include <iterator>
#include <random>

#include "lmtp/base/check.h"

namespace lmtp::numerics {
namespace {

enum AxisIndex {
  kModel,
  kBatch,
  kChunk,
  kCache,
  kPreempted,
  kEdited,
  kDrafts,
  kAdapters,
  kThreads,
  kRanks,
  kDtype,
  kNumAxes
};

Configuration make_configuration(const std::vector<Axis>& axes, std::vector<int> at) {
  const auto value = [&](AxisIndex axis) -> const std::string& {
    return axes[axis].values[static_cast<std::size_t>(at[axis])];
  };
  Configuration made;
  made.model = value(kModel);
  made.batch = std::stoi(value(kBatch));
  made.chunk = std::stoi(value(kChunk));
  made.cache = value(kCache) == "cold"   ? CacheState::kCold
               : value(kCache) == "warm" ? CacheState::kWarm
                                         : CacheState::kPartial;
  made.preempted = value(kPreempted) == "yes";
  made.edited = value(kEdited) == "yes";
  made.max_drafts = std::stoi(value(kDrafts));
  made.adapters = value(kAdapters) == "yes";
  made.num_threads = std::stoi(value(kThreads));
  made.num_ranks = std::stoi(value(kRanks));
  const std::string weights = value(kDtype).substr(0, value(kDtype).find('+'));
  made.dtype = weights == "f32"    ? kernels::WeightType::kF32
               : weights == "bf16" ? kernels::WeightType::kBF16
               : weights == "f16"  ? kernels::WeightType::kF16
               : weights == "int4" ? kernels::WeightType::kInt4
                                   : kernels::WeightType::kInt8;
  const std::string keys = value(kDtype).substr(std::min(weights.size() + 1, value(kDtype).size()));
  if (keys == "fp8") made.kv_type = kernels::ElementType::kE4M3;
  if (keys == "bf16") made.kv_type = kernels::ElementType::kBF16;
  if (keys == "f16") made.kv_type = kernels::ElementType::kF16;
  made.at = std::move(at);
  return made;
}

// Whether its conditions can come about: adapters are not divided among ranks; few streams leave,
// beside three adapters in blocks of the cache, no size of it with which they are preempted and yet
// find a prefix there.
bool is_possible(const Configuration& configuration) {
  if (configuration.adapters && configuration.num_ranks > 1) return false;  // are refused
  constexpr int kPreemptedMin = 7;
  return !(configuration.adapters && configuration.preempted &&
           configuration.batch < kPreemptedMin);
}

// Two values of different axes; twice the same: one value.
using Pair = std::size_t;
constexpr std::size_t kValuesMax = 64;  // of an axis
constexpr Pair kPairs = (kNumAxes + 1) * kValuesMax * (kNumAxes + 1) * kValuesMax;

Pair pair_of(std::size_t a, int value_a, std::size_t b, int value_b) {
  const auto index = [](std::size_t axis, int value) {
    return axis * kValuesMax + static_cast<std::size_t>(value);
  };
  return index(a, value_a) * (kNumAxes + 1) * kValuesMax + index(b, value_b);
}

std::vector<Pair> pairs_of(const Configuration& configuration) {
  // A batch of one that scores is another value than one that generates.
  std::vector<Pair> pairs = {
      pair_of(kBatch, configuration.at[kBatch], kNumAxes, configuration.lone_score() ? 1 : 0)};
  for (std::size_t b = 0; b < configuration.at.size(); ++b) {
    for (std::size_t a = 0; a < b; ++a) {
      pairs.push_back(pair_of(a, configuration.at[a], b, configuration.at[b]));
    }
  }
  return pairs;
}

std::vector<Pair> values_but_batch(const Configuration& configuration) {
  std::vector<Pair> values;
  for (std::size_t axis = 0; axis < configuration.at.size(); ++axis) {
    if (axis == kBatch) continue;
    values.push_back(pair_of(axis, configuration.at[axis], axis, configuration.at[axis]));
  }
  return values;
}

// Greedy: takes, of configurations in a random order, those that add many new pairs of values, then
// those that add fewer, until none adds any.
std::vector<Configuration> cover(std::vector<Configuration> drawn, std::uint64_t seed,
                                 std::vector<Pair> (*brings)(const Configuration&)) {
  std::mt19937_64 random(seed);
  std::shuffle(drawn.begin(), drawn.end(), random);
  std::vector<Configuration> taken;
  std::vector<bool> seen(kPairs, false);
  for (const int wanted : {40, 30, 20, 14, 10, 7, 5, 3, 2, 1}) {
    for (const Configuration& configuration : drawn) {
      const std::vector<Pair> pairs = brings(configuration);
      if (std::ranges::count_if(pairs, [&](Pair pair) { return !seen[pair]; }) < wanted) continue;
      for (const Pair pair : pairs) seen[pair] = true;
      taken.push_back(configuration);
    }
  }
  return taken;
}

}  // namespace

std::vector<Axis> make_axes(const std::vector<std::string>& models, bool on_device) {
  using Values = std::vector<std::string>;
  return {{"model", models},
          {"batch", {"1", "2", "3", "7", "8", "31", "64"}},
          {"chunk", {"16", "64", "512"}},
          {"cache", {"cold", "warm", "partial"}},
          {"preempted", {"no", "yes"}},
          {"edited", {"no", "yes"}},
          {"drafts", on_device ? Values{"0"} : Values{"0", "5"}},
          {"adapters", on_device ? Values{"no"} : Values{"no", "yes"}},
          {"threads", on_device ? Values{"1"} : Values{"1", "2"}},
          {"ranks", on_device ? Values{"1"} : Values{"1", "2", "4"}},
          {"dtype",
           on_device ? Values{"f32", "bf16", "f16", "int8", "int4", "bf16+fp8"}
                     : Values{"f32", "bf16", "int8", "int4", "bf16+fp8", "f32+bf16", "f32+f16"}}};
}

std::uint64_t Configuration::number() const {
  const int keys = !kv_type                                  ? 0
                   : *kv_type == kernels::ElementType::kE4M3 ? 512
                   : *kv_type == kernels::ElementType::kBF16 ? 256
                                                             : 768;
  std::uint64_t number = 0;
  for (const int value :
       {batch, chunk, static_cast<int>(cache),
        (preempted ? 1 : 0) + (edited ? 2 : 0) + (adapters ? 4 : 0) + 8 * max_drafts, num_threads,
        static_cast<int>(dtype) + keys + 32 * (num_ranks - 1)}) {
    number = number * 1024 + static_cast<std::uint64_t>(value);
  }
  return number;
}

bool Configuration::lone_score() const {
  return batch == 1 && !preempted &&
         (static_cast<int>(cache) + num_threads + static_cast<int>(dtype)) % 2 == 1;
}

std::string Configuration::options(const std::vector<Axis>& axes) const {
  std::string text;
  for (std::size_t axis = 0; axis < axes.size(); ++axis) {
    text += (axis == 0 ? "--" : " --") + axes[axis].name + " " +
            axes[axis].values[static_cast<std::size_t>(at[axis])];
  }
  return text;
}

std::vector<Configuration> all_configurations(const std::vector<Axis>& axes) {
  LMTP_CHECK(axes.size() == kNumAxes, axes.size());
  for (const Axis& axis : axes) LMTP_CHECK(axis.values.size() <= kValuesMax, axis.values.size());
  std::vector<Configuration> all;
  std::vector<int> at(axes.size(), 0);
  while (true) {
    if (auto made = make_configuration(axes, at); is_possible(made)) all.push_back(std::move(made));
    std::size_t axis = axes.size();
    do {
      if (axis == 0) return all;
      --axis;
      at[axis] = (at[axis] + 1) % static_cast<int>(axes[axis].values.size());
    } while (at[axis] == 0);
  }
}

std::vector<Configuration> sample(const std::vector<Configuration>& all, std::uint64_t seed) {
  return cover(all, seed, pairs_of);
}

std::vector<Configuration> small_sample(const std::vector<Configuration>& all, std::uint64_t seed) {
  std::vector<Configuration> few;
  std::ranges::copy_if(all, std::back_inserter(few),
                       [](const Configuration& c) { return c.batch >= 3 && c.batch <= 8; });
  return cover(few.empty() ? all : few, seed, values_but_batch);
}

}  // namespace lmtp::numerics
