// The grid: its axes, and one configuration of them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernels/element_type.h"
#include "kernels/linear.h"

namespace lmtp::numerics {

struct Axis {
  std::string name;
  std::vector<std::string> values;
};

// What every grid has, behind the axis "model" with these values.
std::vector<Axis> make_axes(const std::vector<std::string>& models, bool on_device);

// cold: nothing of the prompts is cached. warm: the same streams ran before. partial: others ran,
// or still run, whose prompts agree up to somewhere inside a block.
enum class CacheState { kCold, kWarm, kPartial };

// One value of every axis.
struct Configuration {
  std::vector<int> at;  // index into each axis' values
  std::string model;
  int batch = 0;
  int chunk = 0;
  CacheState cache = CacheState::kCold;
  bool preempted = false;
  bool edited = false;
  int max_drafts = 0;
  bool adapters = false;
  int num_threads = 0;
  int num_ranks = 1;
  kernels::WeightType dtype = kernels::WeightType::kF32;
  std::optional<kernels::ElementType> kv_type = {};  // else as dtype has them

  // Another one for other values, models apart; the same whatever else the grid has.
  std::uint64_t number() const;
  // Whether the stream of a batch of one scores: in every other configuration. One that is to be
  // preempted generates: a SCORE in few chunks is over before anything beside it has grown.
  bool lone_score() const;

  // As the options that choose it alone: "--model demo --batch 2 ...".
  std::string options(const std::vector<Axis>& axes) const;
};

// All of them, in order.
std::vector<Configuration> all_configurations(const std::vector<Axis>& axes);

// A few in which any two values of different axes meet at least once.
std::vector<Configuration> sample(const std::vector<Configuration>& all, std::uint64_t seed);

// Fewer, of 3 to 8 streams where there are such: every value of every other axis occurs.
std::vector<Configuration> small_sample(const std::vector<Configuration>& all, std::uint64_t seed);

}  // namespace lmtp::numerics
