// The ops of mixtures of experts: their checks, and those that are the same for every instruction
// set. The products are a backend's own linear, called for a part of an expert in each task.
#include "kernels/experts.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <new>
#include <utility>

#include "kernels/backend.h"
#include "plain_ops.h"

namespace lmtp::kernels {
namespace {

constexpr float kBelowAll = -std::numeric_limits<float>::infinity();

// values[e]: what the weight of expert e is made of.
void score_experts(const RouteArgs& args, const float* logits, float* values) {
  const std::int64_t count = args.logits.columns;
  switch (args.routing.kind) {
    case Routing::Kind::kSoftmaxOfChosen:
      std::copy(logits, logits + count, values);
      return;
    case Routing::Kind::kSigmoid:
      for (std::int64_t e = 0; e < count; ++e) values[e] = 1.0F / (1.0F + std::exp(-logits[e]));
      return;
    case Routing::Kind::kSoftmax:
      break;
  }
  const float most = *std::max_element(logits, logits + count);
  float sum = 0.0F;
  for (std::int64_t e = 0; e < count; ++e) sum += values[e] = std::exp(logits[e] - most);
  for (std::int64_t e = 0; e < count; ++e) values[e] /= sum;
}

// The index of the greatest that is not taken, the lower of equal ones; count >= 1 are not taken.
int best_of(const float* scores, const bool* taken, int count) {
  int best = -1;
  for (int i = 0; i < count; ++i) {
    if (!taken[i] && (best < 0 || scores[i] > scores[best])) best = i;
  }
  return best;
}

// Scores outside of the best groups become less than all others.
void keep_groups(const Routing& routing, float* scores, int num_experts) {
  const int size = num_experts / routing.groups;
  float of_group[kExpertsMax];
  bool taken[kExpertsMax] = {};
  for (int g = 0; g < routing.groups; ++g) {
    const float* own = scores + g * size;
    float first = kBelowAll;
    float second = kBelowAll;
    for (int i = 0; i < size; ++i) {
      second = std::max(second, std::min(first, own[i]));
      first = std::max(first, own[i]);
    }
    of_group[g] = size > 1 ? first + second : first;
  }
  for (int i = 0; i < routing.top_groups; ++i) {
    taken[best_of(of_group, taken, routing.groups)] = true;
  }
  for (int g = 0; g < routing.groups; ++g) {
    if (!taken[g]) std::fill(scores + g * size, scores + (g + 1) * size, kBelowAll);
  }
}

// From values of the chosen experts, best first, to their weights.
void weigh(const Routing& routing, float* weights) {
  const int top_k = routing.top_k;
  float added = routing.sum_added;
  if (routing.kind == Routing::Kind::kSoftmaxOfChosen) {
    const float most = *std::max_element(weights, weights + top_k);
    for (int i = 0; i < top_k; ++i) weights[i] = std::exp(weights[i] - most);
    added = 0.0F;
  }
  if (routing.renormalise || routing.kind == Routing::Kind::kSoftmaxOfChosen) {
    float sum = 0.0F;
    for (int i = 0; i < top_k; ++i) sum += weights[i];
    const float divisor = std::max(sum + added, routing.sum_min);
    for (int i = 0; i < top_k; ++i) weights[i] /= divisor;
  }
  for (int i = 0; i < top_k; ++i) weights[i] *= routing.scale;
}

void route_row(const RouteArgs& args, std::int64_t row) {
  const int num_experts = static_cast<int>(args.logits.columns);
  const int top_k = args.routing.top_k;
  float values[kExpertsMax];
  float scores[kExpertsMax];
  bool taken[kExpertsMax] = {};
  score_experts(args, args.logits.row(row), values);
  for (int e = 0; e < num_experts; ++e) {
    scores[e] = args.choice_bias == nullptr ? values[e] : values[e] + args.choice_bias[e];
  }
  if (args.routing.groups > 1) keep_groups(args.routing, scores, num_experts);
  std::int32_t* experts = args.experts + row * top_k;
  float* weights = args.weights.row(row);
  for (int i = 0; i < top_k; ++i) {
    const int best = best_of(scores, taken, num_experts);
    taken[best] = true;
    experts[i] = best;
    weights[i] = values[best];
  }
  weigh(args.routing, weights);
  for (int i = 1; i < top_k; ++i) {
    for (int j = i; j > 0 && experts[j - 1] > experts[j]; --j) {
      std::swap(experts[j - 1], experts[j]);
      std::swap(weights[j - 1], weights[j]);
    }
  }
}

// Some panels of an expert.
struct PanelsOfExpert {
  std::int32_t expert;
  std::int32_t first;
  std::int32_t count;
};

// The columns [first, first + count) of a weight, in panels.
PackedLinear panels_of(const PackedLinear& whole, std::int64_t first, std::int64_t count) {
  constexpr std::int64_t kUnitBytes = 4;
  PackedLinear part = whole;
  part.panels = static_cast<const char*>(whole.panels) +
                first * panel_size(whole.k, whole.type, whole.grouping) * kUnitBytes;
  const std::int64_t column = first * kPanelColumns;
  part.n = std::min(whole.n - column, count * kPanelColumns);
  if (whole.scales != nullptr) part.scales += column;
  if (whole.sums != nullptr) part.sums += column;
  return part;
}

void run_task(Stream& lane, const ExpertLinearArgs& args, const PanelsOfExpert& task) {
  const ExpertLinear& expert = args.experts[task.expert];
  const std::int64_t first_slot = args.offsets[task.expert];
  const std::int64_t rows = args.offsets[task.expert + 1] - first_slot;
  const std::int64_t column = std::int64_t{task.first} * kPanelColumns;
  const PackedLinear weight = panels_of(expert.weight, task.first, task.count);
  lane.backend().linear(lane,
                        {.x = {args.x.row(first_slot), rows, args.x.columns, args.x.stride},
                         .weight = weight,
                         .bias = expert.bias == nullptr ? nullptr : expert.bias + column,
                         .y = {args.y.row(first_slot) + column, rows, weight.n, args.y.stride}});
}

}  // namespace

void plain::route(Stream& stream, const RouteArgs& args) {
  stream.pool().parallel_for(static_cast<int>(args.logits.rows),
                             [&](int row, int) { route_row(args, row); });
}

void plain::expert_rows(Stream&, const ExpertRowsArgs& args) {
  const std::int64_t count = args.m * args.top_k;
  std::fill(args.offsets, args.offsets + args.num_experts + 1, 0);
  for (std::int64_t i = 0; i < count; ++i) ++args.offsets[args.experts[i] + 1];
  for (int e = 0; e < args.num_experts; ++e) args.offsets[e + 1] += args.offsets[e];
  // offsets[e] is where the next row of e goes; afterwards that is where e + 1 begins.
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int32_t slot = args.offsets[args.experts[i]]++;
    args.slots[i] = slot;
    args.rows[slot] = static_cast<std::int32_t>(i / args.top_k);
  }
  for (int e = args.num_experts; e > 0; --e) args.offsets[e] = args.offsets[e - 1];
  args.offsets[0] = 0;
}

void plain::expert_linear(Stream& stream, const ExpertLinearArgs& args) {
  // An expert of few rows costs as much as its weights take to be read.
  constexpr std::int64_t kRowsOfRead = 8;
  constexpr std::int64_t kTasksPerThread = 4;
  const int num_threads = stream.pool().num_threads();
  const std::int64_t num_panels = padded_columns(args.y.columns) / kPanelColumns;
  const auto cost_of = [&](int e) {
    const std::int64_t rows = args.offsets[e + 1] - args.offsets[e];
    return rows == 0 ? 0 : std::max(rows, kRowsOfRead);
  };
  std::int64_t total = 0;
  for (int e = 0; e < args.num_experts; ++e) total += cost_of(e);
  const std::int64_t wanted = num_threads == 1 ? 1 : kTasksPerThread * num_threads;
  const auto bound = static_cast<std::size_t>(args.num_experts + wanted);
  auto* tasks = static_cast<PanelsOfExpert*>(stream.scratch(bound * sizeof(PanelsOfExpert)));
  int num_tasks = 0;
  for (int e = 0; e < args.num_experts; ++e) {
    if (cost_of(e) == 0) continue;
    const std::int64_t parts = std::clamp<std::int64_t>(cost_of(e) * wanted / total, 1, num_panels);
    for (std::int64_t part = 0; part < parts; ++part) {
      const std::int64_t first = num_panels * part / parts;
      const std::int64_t end = num_panels * (part + 1) / parts;
      tasks[num_tasks++] = {e, static_cast<std::int32_t>(first),
                            static_cast<std::int32_t>(end - first)};
    }
  }
  stream.make_lanes();
  std::atomic<bool> lacks_memory = false;  // which a lane takes for more rows than before
  stream.pool().parallel_for(num_tasks, [&](int task, int worker) {
    try {
      run_task(stream.lane(worker), args, tasks[task]);
    } catch (const std::bad_alloc&) {
      lacks_memory = true;
    }
  });
  if (lacks_memory) throw std::bad_alloc();
  stream.even_lanes();
}

void route(Stream& stream, const RouteArgs& args) {
  const Routing& by = args.routing;
  const std::int64_t num_experts = args.logits.columns;
  LMTP_CHECK(args.logits.data != nullptr && args.experts != nullptr && !args.weights.empty());
  LMTP_CHECK(num_experts >= 1 && num_experts <= kExpertsMax, num_experts);
  LMTP_CHECK(by.groups >= 1 && num_experts % by.groups == 0 && by.top_groups >= 1 &&
                 by.top_groups <= by.groups,
             num_experts, by.groups, by.top_groups);
  LMTP_CHECK(by.top_k >= 1 && by.top_k <= kExpertsPerRowMax &&
                 by.top_k <= num_experts / by.groups * by.top_groups,
             by.top_k, num_experts);
  check_same("route", "weights rows", args.weights.rows, "logits rows", args.logits.rows);
  check_same("route", "weights columns", args.weights.columns, "top_k", by.top_k);
  stream.backend().route(stream, args);
}

void expert_rows(Stream& stream, const ExpertRowsArgs& args) {
  LMTP_CHECK(args.experts != nullptr && args.offsets != nullptr && args.rows != nullptr &&
             args.slots != nullptr);
  LMTP_CHECK(args.m >= 0 && args.top_k >= 1 && args.num_experts >= 1 &&
                 args.m * args.top_k <= std::numeric_limits<std::int32_t>::max(),
             args.m, args.top_k, args.num_experts);
  stream.backend().expert_rows(stream, args);
}

void expert_linear(Stream& stream, const ExpertLinearArgs& args) {
  constexpr const char* kOp = "expert_linear";
  LMTP_CHECK(args.num_experts >= 1 && args.experts != nullptr && args.offsets != nullptr &&
                 !args.x.empty() && !args.y.empty(),
             args.num_experts);
  check_same(kOp, "x rows", args.x.rows, "y rows", args.y.rows);
  check_same(kOp, "the last offset", args.offsets[args.num_experts], "x rows", args.x.rows);
  for (int e = 0; e < args.num_experts; ++e) {
    const PackedLinear& weight = args.experts[e].weight;
    check_same(kOp, "x columns", args.x.columns, "an expert's inputs", weight.k);
    check_same(kOp, "y columns", args.y.columns, "an expert's outputs", weight.n);
    LMTP_CHECK(weight.type != WeightType::kInt8 || weight.k <= kInt8InputsMax, weight.k);
    LMTP_CHECK(args.offsets[e] <= args.offsets[e + 1], e);
  }
  stream.backend().expert_linear(stream, args);
}

void combine(Stream& stream, const CombineArgs& args) {
  constexpr const char* kOp = "combine";
  LMTP_CHECK(!args.x.empty() && args.slots != nullptr && !args.weights.empty() && !args.y.empty());
  check_same(kOp, "x columns", args.x.columns, "y columns", args.y.columns);
  check_same(kOp, "weights rows", args.weights.rows, "y rows", args.y.rows);
  for (const auto& [matrix, columns] :
       {std::pair{args.shared, args.y.columns}, std::pair{args.residual, args.y.columns},
        std::pair{args.shared_gate, std::int64_t{1}}}) {
    LMTP_CHECK(matrix.empty() || (matrix.rows == args.y.rows && matrix.columns == columns),
               matrix.rows, matrix.columns);
  }
  LMTP_CHECK(args.shared_gate.empty() || !args.shared.empty());
  stream.backend().combine(stream, args);
}

}  // namespace lmtp::kernels
