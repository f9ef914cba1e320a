// What is kept of a row's tokens before one is drawn: as the definition says, in double, and as
// transformers keeps it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>

#include "kernels/draw_weight.h"
#include "kernels/philox.h"
#include "lmtp/base/json.h"
#include "sample_support.h"
#include "source_dir.h"

namespace lmtp {
namespace {

using testing::SampleCase;

// For each token whether it is kept.
using IsKept = std::vector<bool>;

constexpr int kDraws = 40;

// Nearer to an edge than this, rounding decides.
bool is_near(double a, double b) { return std::abs(a - b) <= 1e-5 * std::abs(b); }

// The definition: a filter after the other, over sorted lists of probabilities.
class Definition {
 public:
  explicit Definition(const SampleCase& one) : one_(one), kept_(one.logits.size(), true) {
    const float max = *std::max_element(one.logits.begin(), one.logits.end());
    for (const float logit : one.logits) {
      const double below = static_cast<double>(max) - static_cast<double>(logit);
      weights_.push_back(std::exp(-below / static_cast<double>(one.params.temperature)));
    }
  }

  // Nothing where rounding decides.
  std::optional<IsKept> kept() {
    keep_min_p();
    keep_top_k();
    keep_top_p();
    keep_typical_p();
    return is_clear_ ? std::optional(kept_) : std::nullopt;
  }

 private:
  void keep_min_p() {
    const auto least = static_cast<double>(one_.params.min_p);
    for (std::size_t id = 0; id < kept_.size(); ++id) {
      if (least < 1.0 && is_near(weights_[id], least)) is_clear_ = false;
      kept_[id] = kept_[id] && weights_[id] >= least;
    }
  }

  void keep_top_k() {
    if (one_.params.top_k == 0) return;
    const auto ids = sorted();
    for (std::size_t i = static_cast<std::size_t>(one_.params.top_k); i < ids.size(); ++i) {
      kept_[ids[i]] = false;
    }
  }

  void keep_top_p() {
    if (one_.params.top_p < 1.0F) keep_share(sorted(), static_cast<double>(one_.params.top_p));
  }

  void keep_typical_p() {
    if (one_.params.typical_p >= 1.0F) return;
    const std::vector<std::size_t> ids = sorted();
    double all = 0.0;
    for (const std::size_t id : ids) all += weights_[id];
    double entropy = 0.0;
    std::vector<double> surprisals(weights_.size());
    for (const std::size_t id : ids) {
      surprisals[id] = -std::log(weights_[id] / all);
      if (weights_[id] > 0.0) entropy += weights_[id] / all * surprisals[id];
    }
    const auto distance = [&](std::size_t id) { return std::abs(surprisals[id] - entropy); };
    std::vector<std::size_t> nearest = ids;
    std::sort(nearest.begin(), nearest.end());
    std::stable_sort(nearest.begin(), nearest.end(),
                     [&](std::size_t a, std::size_t b) { return distance(a) < distance(b); });
    keep_share(nearest, static_cast<double>(one_.params.typical_p));
    // Surprisals are whole numbers of 2^-16.
    for (std::size_t i = 1; i < nearest.size(); ++i) {
      const bool is_edge = kept_[nearest[i - 1]] && !kept_[nearest[i]];
      const bool is_tie = one_.logits[nearest[i - 1]] == one_.logits[nearest[i]];
      const double between = distance(nearest[i]) - distance(nearest[i - 1]);
      if (is_edge && !is_tie && between < 1e-4) is_clear_ = false;
    }
  }

  // The first of them that have this share of their weight.
  void keep_share(const std::vector<std::size_t>& ids, double share) {
    double all = 0.0;
    for (const std::size_t id : ids) all += weights_[id];
    double sum = 0.0;
    for (const std::size_t id : ids) {
      kept_[id] = sum < share * all;
      sum += weights_[id];
      if (is_near(sum, share * all)) is_clear_ = false;
    }
  }

  // Those that are kept, the most probable first.
  std::vector<std::size_t> sorted() const {
    std::vector<std::size_t> ids;
    for (std::size_t id = 0; id < kept_.size(); ++id) {
      if (kept_[id]) ids.push_back(id);
    }
    std::stable_sort(ids.begin(), ids.end(),
                     [&](std::size_t a, std::size_t b) { return one_.logits[a] > one_.logits[b]; });
    return ids;
  }

  const SampleCase& one_;
  std::vector<double> weights_;
  IsKept kept_;
  bool is_clear_ = true;
};

// The token that is drawn where these are kept.
std::int32_t drawn_of(const SampleCase& one, const IsKept& kept) {
  const float max = *std::max_element(one.logits.begin(), one.logits.end());
  std::vector<std::uint64_t> weights;
  for (std::size_t id = 0; id < kept.size(); ++id) {
    const float weight = kernels::draw_weight(one.logits[id], max, one.params.temperature);
    weights.push_back(kept[id] ? static_cast<std::uint64_t>(weight) : 0);
  }
  const auto sum = std::accumulate(weights.begin(), weights.end(), std::uint64_t{0});
  const double number =
      kernels::uniform(one.params.seed, static_cast<std::uint64_t>(one.position) + 1);
  const auto target =
      std::min(static_cast<std::uint64_t>(number * static_cast<double>(sum)), sum - 1);
  std::uint64_t passed = 0;
  std::size_t id = 0;
  while ((passed += weights[id]) <= target) ++id;
  return static_cast<std::int32_t>(id);
}

class DrawTest : public testing::BackendTest {
 protected:
  // Draws of a row where these are kept: by a list of a few wrong tokens many would be others.
  void expect_kept(SampleCase one, const IsKept& kept) {
    std::vector<SampleCase> draws;
    for (one.position = 0; one.position < kDraws; ++one.position) draws.push_back(one);
    const auto drawn = testing::sample(*GetParam(), draws);
    for (std::size_t i = 0; i < draws.size(); ++i) {
      ASSERT_EQ(drawn[i].record.token, drawn_of(draws[i], kept)) << "position " << i;
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Backends, DrawTest, ::testing::ValuesIn(kernels::cpu_backends()),
                         testing::backend_name);

TEST_P(DrawTest, KeepsWhatTheDefinitionKeeps) {
  std::mt19937 generator(5);
  const auto one_in = [&](unsigned n) { return generator() % n == 0; };
  const auto fraction = [&] { return static_cast<float>(generator() % 999 + 1) / 1000.0F; };
  int num_clear = 0;
  for (int i = 0; i < 600; ++i) {
    const std::size_t width = std::vector<std::size_t>{1, 6, 63, 500}[generator() % 4];
    const float spread = std::vector<float>{0.05F, 1.0F, 4.0F}[generator() % 3];
    SampleCase one{.logits = testing::random_floats(width, generator(), spread)};
    if (one_in(4)) {
      for (float& logit : one.logits) logit = std::floor(logit * 2.0F) / 2.0F;
    }
    if (one_in(4)) {
      for (float& logit : one.logits) logit = one_in(3) ? -INFINITY : logit;
      one.logits.back() = 0.5F;
    }
    one.params.seed = generator();
    one.params.temperature = 0.2F + fraction();
    if (one_in(2)) one.params.min_p = one_in(3) ? fraction() : 0.1F * fraction();
    if (one_in(3)) one.params.top_k = static_cast<std::int32_t>(generator() % width) + 1;
    if (one_in(3)) one.params.top_p = fraction();
    if (one_in(2)) one.params.typical_p = fraction();
    const auto kept = Definition(one).kept();
    if (!kept) continue;
    ++num_clear;
    SCOPED_TRACE(i);
    ASSERT_NO_FATAL_FAILURE(expect_kept(one, *kept));
  }
  EXPECT_GT(num_clear, 400);
}

// Parameters of DrawParams by the names that they have in tests/goldens/draws.json.
void set_param(kernels::SampleRow& params, const std::string& name, const Json& value) {
  if (name == "top_k") {
    params.top_k = value.get<std::int32_t>();
    return;
  }
  const std::map<std::string, float DrawParams::*> members = {
      {"temperature", &DrawParams::temperature},
      {"min_p", &DrawParams::min_p},
      {"top_p", &DrawParams::top_p},
      {"typical_p", &DrawParams::typical_p}};
  params.*members.at(name) = value.get<float>();
}

TEST_P(DrawTest, KeepsWhatTransformersKeeps) {
  const auto goldens = read_json_file(testing::source_dir() + "/tests/goldens/draws.json");
  ASSERT_TRUE(goldens.ok()) << goldens.error().message;
  ASSERT_GE(goldens->size(), 200U);
  for (std::size_t i = 0; i < goldens->size(); ++i) {
    const Json& golden = (*goldens)[i];
    SCOPED_TRACE(golden.dump());
    SampleCase one{.logits = golden["logits"].get<std::vector<float>>()};
    one.params.seed = i;
    IsKept kept(one.logits.size());
    for (const Json& id : golden["kept"]) kept.at(id.get<std::size_t>()) = true;
    for (const auto& [name, value] : golden.items()) {
      if (name != "logits" && name != "kept") set_param(one.params, name, value);
    }
    ASSERT_NO_FATAL_FAILURE(expect_kept(one, kept));
  }
}

// All that equal the most probable one stay, and no others.
TEST_P(DrawTest, AMinPOfOneKeepsTies) {
  SampleCase one{.logits = std::vector<float>(300, 1.0F)};
  IsKept kept(300);
  for (const std::size_t id : {7, 40, 41, 299}) {
    one.logits[id] = 1.001F;
    kept[id] = true;
  }
  one.params.temperature = 1.5F;
  one.params.min_p = 1.0F;
  expect_kept(one, kept);
}

// Nothing that is reported depends on what is kept, nor does a greedy token.
TEST_P(DrawTest, FiltersChangeNoLogProbability) {
  SampleCase one{.logits = testing::random_floats(1000, 3, 2.0F)};
  one.params.num_top = 5;
  SampleCase filtered = one;
  filtered.params.min_p = 0.9F;
  filtered.params.typical_p = 1e-6F;
  const testing::SampleOutcome greedy = testing::sample(*GetParam(), one);
  testing::expect_same(testing::sample(*GetParam(), filtered), greedy);
  filtered.params.temperature = 1.0F;
  testing::expect_same(testing::sample(*GetParam(), filtered), greedy);
}

}  // namespace
}  // namespace lmtp
