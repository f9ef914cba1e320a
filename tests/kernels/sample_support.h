// Rows for the op sample, each with the arrays that its parameters point to.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "kernel_support.h"
#include "kernels/sample.h"

namespace lmtp::testing {

struct SampleCase {
  std::vector<float> logits;
  kernels::SampleRow params = {};  // first_count, and what the arrays below give, are filled in
  std::int32_t position = 0;
  std::vector<std::int32_t> tokens = {};  // before: what penalties count
  std::size_t num_uncounted = 0;          // of them: for the repetition penalty alone
  std::int32_t input = 0;                 // counted with them if params.counts_input
  std::map<std::int32_t, float> biases = {};
  std::vector<std::uint32_t> mask = {};
  bool has_mask = false;
  std::vector<std::uint32_t> draw_mask = {};  // empty: none
  std::vector<std::int32_t> listed = {};
};

struct SampleOutcome {
  kernels::SampleRecord record;
  std::vector<std::pair<std::int32_t, float>> top;
  std::vector<std::pair<std::int32_t, float>> listed;
  kernels::TopToken measured;

  bool valid() const { return record.is_valid != 0; }
};

// Those of the rows that have one.
struct DrawMasks {
  explicit DrawMasks(const std::vector<SampleCase>& cases)
      : row_words(static_cast<std::int64_t>(cases.front().logits.size() + 31) / 32) {
    for (const SampleCase& one : cases) {
      of.push_back(one.draw_mask.empty() ? -1 : num_masks++);
      if (one.draw_mask.empty()) continue;
      words.insert(words.end(), one.draw_mask.begin(), one.draw_mask.end());
      words.resize(static_cast<std::size_t>(num_masks * row_words));
    }
  }

  std::int64_t row_words;
  std::int32_t num_masks = 0;
  std::vector<std::uint32_t> words;
  std::vector<std::int32_t> of;
};

inline std::vector<SampleOutcome> outcomes_of(const std::vector<SampleCase>& cases,
                                              const std::vector<kernels::SampleRecord>& records,
                                              const std::vector<kernels::TopToken>& top,
                                              std::int32_t top_stride) {
  std::vector<SampleOutcome> outcomes;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    SampleOutcome outcome{.record = records[i], .top = {}, .listed = {}, .measured = {}};
    const kernels::TopToken* at = top.data() + i * static_cast<std::size_t>(top_stride);
    for (int k = 0; k < records[i].num_top; ++k) outcome.top.emplace_back(at[k].id, at[k].logprob);
    at += cases[i].params.num_top;
    for (std::size_t k = 0; outcome.valid() && k < cases[i].listed.size(); ++k) {
      outcome.listed.emplace_back(at[k].id, at[k].logprob);
    }
    if (outcome.valid() && cases[i].params.is_measured != 0) {
      outcome.measured = at[cases[i].listed.size()];
    }
    outcomes.push_back(std::move(outcome));
  }
  return outcomes;
}

// All rows by one call of the op. REQUIRES: all have as many logits.
inline std::vector<SampleOutcome> sample(const kernels::Backend& backend,
                                         const std::vector<SampleCase>& cases,
                                         int num_threads = 1) {
  const auto width = static_cast<std::int64_t>(cases.front().logits.size());
  const auto count = static_cast<std::int64_t>(cases.size());
  std::vector<float> logits;
  std::vector<kernels::SampleRow> rows;
  std::vector<std::int32_t> positions;
  std::vector<std::int32_t> inputs;
  std::vector<kernels::TokenCount> counts;
  std::vector<std::vector<std::int32_t>> ids(cases.size());
  std::vector<std::vector<float>> values(cases.size());
  std::int32_t top_stride = 1;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const SampleCase& one = cases[i];
    kernels::SampleRow row = one.params;
    logits.insert(logits.end(), one.logits.begin(), one.logits.end());
    positions.push_back(one.position);
    inputs.push_back(one.input);
    std::map<std::int32_t, std::int32_t> seen;
    for (std::size_t token = 0; token < one.tokens.size(); ++token) {
      seen[one.tokens[token]] += token < one.num_uncounted ? 0 : 1;
    }
    row.first_count = static_cast<std::int64_t>(counts.size());
    row.num_counts = static_cast<std::int64_t>(seen.size());
    for (const auto& [id, times] : seen) counts.push_back({id, times});
    for (const auto& [id, value] : one.biases) {
      ids[i].push_back(id);
      values[i].push_back(value);
    }
    row.num_biases = static_cast<std::int64_t>(ids[i].size());
    row.bias_ids = ids[i].data();
    row.bias_values = values[i].data();
    row.mask = one.has_mask ? one.mask.data() : nullptr;
    row.num_mask_words = static_cast<std::int64_t>(one.mask.size());
    row.listed_ids = one.listed.data();
    row.num_listed = static_cast<std::int64_t>(one.listed.size());
    top_stride = std::max(
        top_stride, row.num_top + static_cast<std::int32_t>(row.num_listed + row.is_measured));
    rows.push_back(row);
  }
  // Behind them one that is passed over.
  logits.resize(logits.size() + static_cast<std::size_t>(width), NAN);
  rows.emplace_back().scored = kernels::kSampleNothing;
  std::vector<float> raw(logits.size());
  const DrawMasks masks(cases);
  std::vector<kernels::SampleRecord> records(rows.size(), {.token = -7});
  std::vector<kernels::SampleRecord> sent = records;
  std::vector<kernels::TopToken> top(cases.size() * static_cast<std::size_t>(top_stride));
  kernels::WorkerPool pool(num_threads);
  kernels::Stream stream(backend, pool);
  kernels::sample(stream, {.logits = kernels::make_matrix(logits.data(), count + 1, width),
                           .rows = rows.data(),
                           .positions = positions.data(),
                           .counts = counts.data(),
                           .ids = inputs.data(),
                           .records = records.data(),
                           .sent = sent.data(),
                           .top = top.data(),
                           .top_stride = top_stride,
                           .raw = kernels::make_matrix(raw.data(), count + 1, width),
                           .masks = masks.words.data(),
                           .mask_words = masks.row_words,
                           .mask_of = masks.words.empty() ? nullptr : masks.of.data()});
  stream.synchronize();
  EXPECT_EQ(records.back().token, -7);
  EXPECT_TRUE(
      std::ranges::equal(std::as_bytes(std::span(sent)), std::as_bytes(std::span(records))));
  return outcomes_of(cases, records, top, top_stride);
}

inline SampleOutcome sample(const kernels::Backend& backend, const SampleCase& one) {
  return sample(backend, std::vector<SampleCase>{one}).front();
}

// A mask of these tokens.
inline std::vector<std::uint32_t> mask_of(const std::vector<std::int32_t>& allowed) {
  std::vector<std::uint32_t> words;
  for (const std::int32_t token : allowed) {
    const auto at = static_cast<std::size_t>(token);
    if (words.size() <= at / 32) words.resize(at / 32 + 1);
    words[at / 32] |= 1U << (at % 32);
  }
  return words;
}

inline void expect_same(const SampleOutcome& a, const SampleOutcome& b) {
  ASSERT_EQ(a.record.is_valid, b.record.is_valid);
  ASSERT_EQ(a.record.token, b.record.token);
  ASSERT_EQ(bits(a.record.logprob), bits(b.record.logprob));
  ASSERT_EQ(a.top, b.top);
  ASSERT_EQ(a.listed, b.listed);
  ASSERT_EQ(a.measured.id, b.measured.id);
  ASSERT_EQ(bits(a.measured.logprob), bits(b.measured.logprob));
}

// Rows of one width with all parameters drawn, ties, impossible tokens and some that are no
// numbers.
inline std::vector<SampleCase> random_cases(std::size_t width, int count, unsigned seed) {
  std::mt19937 generator(seed);
  const auto one_in = [&](unsigned n) { return generator() % n == 0; };
  const auto fraction = [&] { return static_cast<float>(generator() % 1000 + 1) / 1000.0F; };
  const auto any_id = [&] { return static_cast<std::int32_t>(generator() % width); };
  const auto top_max = static_cast<unsigned>(std::min<std::size_t>(width, kernels::kSampleTopMax));
  std::vector<SampleCase> cases;
  for (int i = 0; i < count; ++i) {
    SampleCase one{.logits = random_floats(width, generator(), one_in(3) ? 0.05F : 4.0F)};
    one.position = static_cast<std::int32_t>(generator() % 100000);
    kernels::SampleRow& params = one.params;
    if (one_in(4)) {
      for (float& logit : one.logits) logit = std::floor(logit * 2.0F) / 2.0F;
    }
    if (one_in(5)) {
      for (float& logit : one.logits) logit = one_in(3) ? -INFINITY : logit;
    }
    if (one_in(20)) one.logits[generator() % width] = one_in(2) ? NAN : INFINITY;
    if (one_in(40)) one.logits.assign(width, -INFINITY);
    params.num_top = one_in(2) ? 0 : static_cast<std::int32_t>(generator() % (top_max + 1));
    params.temperature = one_in(4) ? 0.0F : 0.05F + 2.0F * fraction();
    if (one_in(30)) params.temperature = std::numeric_limits<float>::denorm_min();
    params.top_k = one_in(2) ? 0 : 1 + any_id();
    params.top_p = one_in(2) ? 1.0F : one_in(8) ? 1e-9F : fraction();
    if (one_in(3)) params.min_p = one_in(8) ? 1.0F : 0.3F * fraction();
    if (one_in(3)) params.typical_p = one_in(8) ? 1e-9F : fraction();
    params.seed = generator();
    if (one_in(3)) {
      params.repetition_penalty = 0.5F + fraction();
      params.presence_penalty = fraction();
      params.frequency_penalty = fraction() - 0.5F;
      for (int k = 0; k < 30; ++k) one.tokens.push_back(any_id());
      if (one_in(2)) one.num_uncounted = 20;
      params.counts_input = one_in(2) ? 1 : 0;
      one.input = one_in(2) ? one.tokens.front() : any_id();
    }
    if (one_in(3)) {
      for (int k = 0; k < 20; ++k) {
        one.biases[any_id()] = one_in(4) ? -INFINITY : 10.0F * fraction();
      }
    }
    one.has_mask = one_in(3);
    if (one.has_mask) {
      one.mask.resize(one_in(3) ? 1 + generator() % (width / 32 + 1) : width / 32 + 1);
      for (std::uint32_t& word : one.mask) {
        word = one_in(3) ? 0 : static_cast<std::uint32_t>(generator());
      }
    }
    if (one_in(4)) {
      one.draw_mask.resize((width + 31) / 32);
      for (std::uint32_t& word : one.draw_mask) word = static_cast<std::uint32_t>(generator());
    }
    params.is_raw = one_in(4) ? 1 : 0;
    if (one_in(6)) params.scored = any_id();
    if (one_in(4)) one.listed = {any_id(), any_id(), any_id()};
    params.is_measured = one_in(2) ? 1 : 0;
    cases.push_back(std::move(one));
  }
  return cases;
}

}  // namespace lmtp::testing
