#include "run.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <optional>

#include "adapters.h"
#include "lmtp/agent/agent.h"
#include "lmtp/base/check.h"
#include "lmtp/model/kv_cache.h"

namespace lmtp::numerics {
namespace {

constexpr int kGraphsAtLoadMs = 100;  // on a device; the emulation takes minutes

std::uint32_t bits(float value) { return std::bit_cast<std::uint32_t>(value); }

std::string shown(TokenId token, float logprob) {
  char text[64];
  std::snprintf(text, sizeof(text), "%d %.9g (%08x)", token, static_cast<double>(logprob),
                bits(logprob));
  return text;
}

bool same(const TokenLogprob& a, const TokenLogprob& b) {
  return a.token == b.token && bits(a.logprob) == bits(b.logprob);
}

std::string entry_difference(const TokenEvent& got, const TokenEvent& alone) {
  if (got.token != alone.token || bits(got.logprob) != bits(alone.logprob)) {
    return shown(got.token, got.logprob) + ", alone " + shown(alone.token, alone.logprob);
  }
  if (got.finish_reason != alone.finish_reason) return "another finish_reason";
  if (got.top_logprobs.has_value() != alone.top_logprobs.has_value()) return "top_logprobs or none";
  if (!got.top_logprobs.has_value()) return "";
  if (got.top_logprobs->size() != alone.top_logprobs->size()) return "number of top_logprobs";
  for (std::size_t i = 0; i < got.top_logprobs->size(); ++i) {
    const TokenLogprob& a = (*got.top_logprobs)[i];
    const TokenLogprob& b = (*alone.top_logprobs)[i];
    if (!same(a, b)) {
      return "top_logprobs[" + std::to_string(i) + "] " + shown(a.token, a.logprob) + ", alone " +
             shown(b.token, b.logprob);
    }
  }
  return "";
}

// Empty where all bits are the same.
std::string stream_difference(const StreamOutcome& got, const StreamOutcome& alone) {
  if (!got.error.empty()) return "error: " + got.error;
  const std::size_t count = std::min(got.entries.size(), alone.entries.size());
  for (std::size_t i = 0; i < count; ++i) {
    const std::string difference = entry_difference(got.entries[i], alone.entries[i]);
    if (!difference.empty()) return "token " + std::to_string(i) + ": " + difference;
  }
  if (got.entries.size() == alone.entries.size()) return "";
  return std::to_string(got.entries.size()) + " tokens, alone " +
         std::to_string(alone.entries.size());
}

// Of the stream and of its forks, which go on with its seed.
std::string first_difference(const StreamOutcome& got, const StreamOutcome& alone) {
  std::string difference = stream_difference(got, alone);
  for (std::size_t i = 0; difference.empty() && i < got.forks.size(); ++i) {
    difference = stream_difference(got.forks[i], alone);
    if (!difference.empty()) difference = "fork " + std::to_string(i) + ": " + difference;
  }
  return difference;
}

// The cached tokens that a run must find: those computed before, except the last of each prompt.
std::int64_t cached_tokens_when_warm(const std::vector<Request>& batch) {
  std::int64_t sum = 0;
  for (const Request& request : batch) {
    sum += std::max<std::int64_t>(static_cast<std::int64_t>(request.prompt.size()) - 1, 0);
  }
  return sum;
}

std::string must(bool holds, const std::string& what, std::int64_t value) {
  return holds ? "" : what + ", which was " + std::to_string(value);
}

// Of a preempted batch only a part finds its prefix cached: the cache is too small for all. What
// windows have passed goes first, so that where layers are in groups none may be found.
std::string check_cache(const Configuration& configuration, const KvLayout& layout,
                        const BatchReport& report, const std::vector<Request>& batch,
                        std::size_t num_forerunners) {
  if (configuration.preempted && layout.num_groups > 1) return "";
  const std::int64_t cached = report.num_cached_tokens;
  const std::int64_t hits = report.num_partial_hits;
  switch (configuration.cache) {
    case CacheState::kCold:
      return must(cached == 0, "num_cached_tokens is to be 0", cached);
    case CacheState::kWarm: {
      const std::int64_t all = cached_tokens_when_warm(batch);
      const bool holds = configuration.preempted ? cached > 0 : cached == all;
      return must(holds, "num_cached_tokens is to be " + std::to_string(all), cached);
    }
    case CacheState::kPartial: {
      const auto all = static_cast<std::int64_t>(num_forerunners);
      const bool holds = configuration.preempted ? hits > 0 : hits == all;
      return must(holds, "num_partial_hits is to be " + std::to_string(all), hits);
    }
  }
  return "";
}

// All streams must run in one step; with drafts the first may have ended before the last one runs.
// If they are preempted, they do not fit; then as many must run together with the streams that
// preempt them.
std::string check_rows(const Configuration& configuration, const BatchReport& report) {
  if (configuration.preempted) {
    return must(report.max_rows >= configuration.batch, "the most streams in one step are too few",
                report.max_rows);
  }
  if (configuration.max_drafts > 0) {
    return must(report.max_batch_rows >= configuration.batch - configuration.batch / 2,
                "half of the batch's streams are to be in one step", report.max_batch_rows);
  }
  return must(report.max_batch_rows == configuration.batch,
              "the batch's streams are all to be in one step", report.max_batch_rows);
}

// A lower bound of the tokens that a stream would compute in one step without a chunk limit.
int uncached_tokens(const Request& request, CacheState cache) {
  if (request.kind == RequestKind::kScore) {
    // A prompt's last token is never taken from the cache; the last scored one is not computed.
    return static_cast<int>(request.scored.size()) - (request.prompt.empty() ? 1 : 0);
  }
  const auto length = static_cast<int>(request.prompt.size());
  if (cache == CacheState::kWarm) return 1;
  return cache == CacheState::kCold ? length : length - kSharedOfLongMax;
}

// The longest chunk must equal the limit. It may be less only if the model's context is too small,
// or the only stream generates and its prompt is cached.
std::string check_chunks(const Configuration& configuration, const BatchReport& report,
                         const std::vector<Request>& batch, const StreamLimits& limits) {
  int most = 0;
  for (const Request& request : batch) {
    most = std::max(most, uncached_tokens(request, configuration.cache));
  }
  const bool has_more = limits.context_length >= kContextMax && most > 1;
  const int wanted = has_more ? configuration.chunk : std::min(most, configuration.chunk);
  return must(report.max_chunk >= wanted && report.max_chunk <= configuration.chunk,
              "the longest chunk is to be " + std::to_string(wanted) + " to " +
                  std::to_string(configuration.chunk),
              report.max_chunk);
}

std::string check_scores(const BatchReport& report, const std::vector<Request>& batch) {
  std::int64_t all = 0;
  for (const Request& request : batch) all += static_cast<std::int64_t>(request.scored.size());
  return must(report.num_scored_tokens == all, "num_scored_tokens is to be " + std::to_string(all),
              report.num_scored_tokens);
}

// Whether the run met the configuration's conditions, by the engine's counters and its plans.
std::string check_conditions(const Configuration& configuration, const KvLayout& layout,
                             const BatchReport& report, const std::vector<Request>& batch,
                             const StreamLimits& limits, std::size_t num_forerunners) {
  const auto num_preempted =
      std::ranges::count_if(report.outcomes, [](const auto& o) { return o.is_preempted(); });
  std::string not_so = check_cache(configuration, layout, report, batch, num_forerunners);
  if (not_so.empty()) not_so = check_rows(configuration, report);
  if (not_so.empty()) not_so = check_chunks(configuration, report, batch, limits);
  if (not_so.empty()) not_so = check_scores(report, batch);
  // Where windows free blocks, what one stream needs at least may hold a few; more where all do.
  const bool may_all_fit =
      layout.num_groups > 1 && configuration.batch < (layout.has_stubs ? 8 : 7);
  const bool is_preempted = configuration.preempted && (report.num_preemptions > 0 || !may_all_fit);
  if (not_so.empty()) {
    not_so = must((report.num_preemptions > 0) == is_preempted,
                  is_preempted ? "num_preemptions is to be > 0" : "num_preemptions is to be 0",
                  report.num_preemptions);
  }
  if (not_so.empty()) {
    not_so = must((num_preempted > 0) == is_preempted || may_all_fit,
                  "streams of the batch are to be preempted, or none", num_preempted);
  }
  if (not_so.empty()) {
    not_so =
        must(report.num_failed_steps == 0, "num_failed_steps is to be 0", report.num_failed_steps);
  }
  // A few streams may have no token twice.
  if (const auto num_drafts = report.num_accepted_drafts + report.num_refused_drafts;
      not_so.empty() && (configuration.max_drafts == 0 || configuration.batch >= 7)) {
    not_so = must((num_drafts > 0) == (configuration.max_drafts > 0),
                  "there are to be drafts, or none", num_drafts);
  }
  if (not_so.empty()) {
    const auto num_edited = std::ranges::count(report.outcomes, true, &StreamOutcome::is_edited);
    not_so = must(num_edited == (configuration.edited ? num_generated(batch) : 0),
                  "all that generate are to be edited, or none", num_edited);
  }
  for (std::size_t i = 0; not_so.empty() && i < report.outcomes.size(); ++i) {
    const auto length = static_cast<int>(report.outcomes[i].entries.size());
    not_so = must(length >= kTokensMin, "stream " + std::to_string(i) + " is to be longer", length);
  }
  return not_so;
}

// KV blocks for all that a configuration runs and keeps; or, if streams are to be preempted, for
// `share` of the prompts of the hogs and of the batch, so that not all can grow. At least those of
// the longest stream. A block is of all layers: in groups it is several, of which those with a
// window need fewer.
int count_blocks(const Configuration& configuration, const StreamLimits& limits,
                 const KvLayout& layout, const std::vector<Phase>& phases, double share) {
  const int longest = (limits.context_length + kBlockSize - 1) / kBlockSize;
  int of_all = 0;
  for (const Phase& phase : phases) {
    for (const Request& request : phase.streams) of_all += blocks_at_end(request) + 1;
  }
  // A forked stream has four forks.
  if (!configuration.preempted) return longest + (configuration.edited ? 5 : 1) * of_all + 1;
  const std::vector<Request>& batch = phases.back().streams;
  const std::vector<Request>& hogs = phases[phases.size() - 2].streams;
  const auto held = [&](int num_blocks) {
    int sum = 0;
    for (int group = layout.first_group(); group < layout.num_groups; ++group) {
      sum += layout.num_held_max(group, num_blocks, 1);
    }
    return sum;
  };
  int at_first = 1;
  for (const Request& request : batch) at_first += held(blocks_of_prompt(request));
  // And one block that the scheduler reserves for each.
  for (const Request& request : hogs) at_first += held(blocks_of_prompt(request) + 1);
  const std::int64_t least = layout.num_held_max(limits.context_length);
  return (std::max(static_cast<int>(least), static_cast<int>(share * at_first)) +
          layout.num_with_layers() - 1) /
             layout.num_with_layers() +
         1;
}

}  // namespace

Result<void> Runner::add_model(const std::string& name) {
  const auto source = hub::resolve_model(name);
  if (!source.ok()) return source.error();
  auto config = model::load_model_config(*source);
  if (!config.ok()) return config.error();
  // Rotary positions have no table, so the context can be longer.
  if (!config->rotaries.empty()) {
    config->context_length = std::max(config->context_length, kContextMax);
  }
  if (config->vocab_size < kVocabSizeMin || config->context_length < kContextMin) {
    return Error{ErrorCode::kInternal,
                 name + ": its vocabulary must have " + std::to_string(kVocabSizeMin) +
                     " tokens, and its context " + std::to_string(kContextMin)};
  }
  models_[name] = {
      *source, *config, {config->vocab_size, std::min(config->context_length, kContextMax)}};
  return {};
}

std::vector<Phase> Runner::make_phases(const Configuration& configuration, const Model& model,
                                       const std::vector<Request>& batch, int attempt) const {
  const std::uint64_t seed = batch_seed(configuration.batch);
  // Each configuration has other arrivals, and so has each attempt at it.
  constexpr std::uint64_t kConfigurationsMax = 1 << 20;
  const std::uint64_t arrivals =
      seed +
      (configuration.number() + static_cast<std::uint64_t>(attempt) * kConfigurationsMax) * 16;
  std::vector<Phase> phases;
  const auto add = [&](std::vector<Request> streams) -> Phase& {
    std::vector<int> gaps = draw_gaps(arrivals + phases.size(), streams.size());
    return phases.emplace_back(Phase{std::move(streams), std::move(gaps)});
  };
  if (configuration.cache == CacheState::kWarm) add(batch).waits_for_end = true;
  if (configuration.cache == CacheState::kPartial) add(draw_forerunners(seed, batch, model.limits));
  if (configuration.preempted) {
    add(draw_hogs(seed, configuration.batch, model.limits));
    add(batch).of_batch = true;
    return phases;
  }
  // A SCORE may take one step only: SCOREs arrive together once all others generate, so that one
  // step has all streams.
  const auto first_score = batch.begin() + num_generated(batch);
  if (first_score != batch.begin()) add({batch.begin(), first_score}).of_batch = true;
  if (first_score != batch.end()) {
    Phase& scores = add({first_score, batch.end()});
    std::ranges::fill(scores.gaps, 0);
    scores.of_batch = true;
  }
  return phases;
}

Result<BatchReport> Runner::run_phases(const Model& model, const Setting& setting,
                                       std::vector<Phase> phases) const {
  agent::AgentOptions agent;
  agent.source = model.source;
  agent.config = model.config;
  agent.num_threads = setting.num_threads;
  agent.num_ranks = setting.num_ranks;
  agent.cuda_device = options_.cuda_device;
  agent.batch.max_tokens = setting.batched_tokens;
  agent.weight_type = setting.dtype;
  agent.kv_cache_type = setting.kv_type;
  const auto own = model::rank_config(model.config, setting.num_ranks);
  if (!own.ok()) return own.error();
  agent.kv_cache_bytes = std::int64_t{setting.num_blocks} * setting.num_ranks *
                         model::kv_block_bytes(model::kv_specs(*own), kv_type(agent));
  agent.context_length = model.limits.context_length;
  agent.debug = {.max_chunk_tokens = setting.chunk,
                 .max_prefill_ms = 0,  // by tokens: the same steps every time
                 .max_alone_ms = 0,
                 .run_ahead = setting.as_served,
                 .check_invariants = true,
                 .step_graphs = setting.as_served,
                 .graphs_at_load_ms = options_.backend == nullptr ? kGraphsAtLoadMs : 0,
                 .backend = options_.backend};
  engine::EngineOptions engine;
  engine.batch = agent.batch;
  engine.debug = agent.debug;
  engine.debug.eager_drafts = true;
  engine.max_drafts = setting.max_drafts;
  // No end-of-text token: every stream has its drawn length.
  const auto progress = [](int) { return true; };
  auto loaded = agent::make_agent(agent, progress);
  if (!loaded.ok()) return loaded.error();
  return std::make_shared<BatchMates>(std::move(phases), setting.edits)
      ->run({model.limits.vocab_size, model.limits.context_length, {}}, engine, std::move(*loaded));
}

Result<int> Runner::give_adapters(Model& model, const Configuration& configuration,
                                  std::vector<Request>& batch) {
  auto& adapters = model.adapters[{configuration.dtype, configuration.kv_type}];
  if (adapters.empty()) {
    agent::AgentOptions agent;
    agent.config = model.config;
    agent.weight_type = configuration.dtype;
    agent.kv_cache_type = configuration.kv_type;
    auto made = make_adapters(agent);
    if (!made.ok()) return made.error();
    adapters = *std::move(made);
  }
  for (std::size_t i = 0; i < batch.size(); ++i) {
    const std::size_t which = (i + 1) % (kNumAdapters + 1);
    if (which > 0) batch[i].adapter = adapters[which - 1];
  }
  int num_blocks = 0;
  for (const auto& adapter : adapters) num_blocks += adapter->num_blocks();
  return num_blocks;
}

Result<const StreamOutcome*> Runner::alone(const Configuration& configuration, const Model& model,
                                           const Request& request, int index) {
  const auto [at, is_new] = references_.try_emplace(
      {configuration.model, configuration.dtype, configuration.kv_type, configuration.num_ranks,
       configuration.batch, configuration.lone_score(), index,
       request.adapter != nullptr ? request.adapter->name() : ""});
  if (is_new) {
    Setting setting;
    setting.dtype = configuration.dtype;
    setting.kv_type = configuration.kv_type;
    setting.num_ranks = configuration.num_ranks;
    setting.as_served = false;
    setting.num_blocks = (model.limits.context_length + kBlockSize - 1) / kBlockSize + 1;
    if (request.adapter != nullptr) setting.num_blocks += request.adapter->num_blocks();
    auto report = run_phases(model, setting, {{{request}, {0}, false, true}});
    if (!report.ok()) return report.error();
    at->second = std::move(report->outcomes.front());
  }
  return &at->second;
}

Result<ConfigurationResult> Runner::run(const Configuration& configuration) {
  // How many streams are preempted, and what stays cached, depends on the drawn lengths and on when
  // streams arrive: if the conditions are not met, retry with another size of the cache, and then
  // with other arrivals.
  constexpr int kAttemptsMax = 12;
  Result<ConfigurationResult> result = Error{ErrorCode::kInternal, "no attempt"};
  for (int attempt = 0; attempt < kAttemptsMax; ++attempt) {
    for (const double share : {1.0, 1.05, 0.95, 1.1, 0.9, 1.15, 0.85, 1.3, 0.7}) {
      result = run(configuration, share, attempt);
      if (!configuration.preempted || !result.ok() || result->not_so.empty() ||
          result->num_differing() > 0) {
        return result;
      }
    }
  }
  return result;
}

Result<ConfigurationResult> Runner::run(const Configuration& configuration, double share,
                                        int attempt) {
  Model& model = models_.at(configuration.model);
  std::vector<Request> batch = draw_batch(batch_seed(configuration.batch), configuration.batch,
                                          configuration.lone_score(), model.limits);
  int num_adapter_blocks = 0;
  if (configuration.adapters) {
    const auto taken = give_adapters(model, configuration, batch);
    if (!taken.ok()) return taken.error();
    num_adapter_blocks = *taken;
  }
  std::vector<Phase> phases = make_phases(configuration, model, batch, attempt);
  const std::size_t num_forerunners =
      configuration.cache == CacheState::kPartial ? phases.front().streams.size() : 0;
  Setting setting;
  setting.dtype = configuration.dtype;
  setting.kv_type = configuration.kv_type;
  setting.num_threads = configuration.num_threads;
  setting.num_ranks = configuration.num_ranks;
  setting.chunk = configuration.chunk;
  setting.max_drafts = configuration.max_drafts;
  // While others generate, a step spends at most a quarter of its tokens on prompts.
  setting.batched_tokens = 4 * scored_tokens_max(configuration.batch);
  KvLayout layout =
      model::kv_groups(model::kv_specs(model.config), model.config.context_length).layout;
  layout.num_written_max = 2 * setting.batched_tokens;
  setting.num_blocks =
      count_blocks(configuration, model.limits, layout, phases, share) + num_adapter_blocks;
  // Forks would take the blocks of the streams that are to be preempted.
  const Edits all_fitting = configuration.preempted ? Edits::kBacktracks : Edits::kAll;
  if (configuration.edited) setting.edits = all_fitting;
  auto report = run_phases(model, setting, std::move(phases));
  if (!report.ok()) return report.error();
  ConfigurationResult result;
  for (int index = 0; index < configuration.batch; ++index) {
    const auto at = static_cast<std::size_t>(index);
    const auto reference = alone(configuration, model, batch[at], index);
    if (!reference.ok()) return reference.error();
    result.differences.push_back(first_difference(report->outcomes[at], **reference));
  }
  result.not_so =
      check_conditions(configuration, layout, *report, batch, model.limits, num_forerunners);
  result.report = std::move(*report);
  return result;
}

}  // namespace lmtp::numerics
