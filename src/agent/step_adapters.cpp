#include "step_adapters.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "lmtp/agent/adapter.h"
#include "lmtp/base/check.h"
#include "load_model.h"

namespace lmtp::agent {

void StepAdapters::load(const std::vector<scheduler::AdapterLoad>& loads,
                        const model::KvCache& cache) {
  for (const scheduler::AdapterLoad& load : loads) {
    std::erase_if(residents_, [&](const auto& other) {
      return std::ranges::find_first_of(other.second.blocks, load.blocks) !=
             other.second.blocks.end();
    });
    const auto* adapter = dynamic_cast<const LoadedAdapter*>(load.weights.get());
    LMTP_CHECK(adapter != nullptr, load.adapter);
    const model::LoraWeights& weights = adapter->weights();
    const std::int64_t piece_bytes = cache.piece_bytes();
    Resident resident{.blocks = load.blocks,
                      .pieces = {},
                      .piece_size = piece_bytes / kernels::element_size(weights.type),
                      .type = weights.type,
                      .deltas = weights.deltas,
                      .first_delta = weights.first_delta};
    for (const BlockId block : load.blocks) cache.append_pieces(block, resident.pieces);
    const auto size = static_cast<std::size_t>(piece_bytes);
    LMTP_CHECK(size > 0 && resident.pieces.size() * size >= weights.elements.size(), size,
               resident.pieces.size(), weights.elements.size());
    std::size_t done = 0;
    for (void* piece : resident.pieces) {
      const std::size_t count = std::min(size, weights.elements.size() - done);
      std::memcpy(piece, weights.elements.data() + done, count);
      done += count;
    }
    residents_[load.adapter] = std::move(resident);
  }
}

kernels::LoraRows StepAdapters::list(const scheduler::StepPlan& plan,
                                     const scheduler::SlotTable& slots) {
  rows_.clear();
  adapters_.clear();
  std::int32_t first = 0;
  for (const scheduler::PlanRow& row : plan.rows) {
    const int adapter = slots.at(row.slot).adapter;
    for (std::int32_t i = 0; i < row.num_tokens && adapter != 0; ++i) {
      rows_.push_back({first + i, adapter});
    }
    first += row.num_tokens;
  }
  if (rows_.empty()) return {};
  std::ranges::stable_sort(rows_, {}, &kernels::LoraRow::adapter);
  int number = 0;
  for (kernels::LoraRow& row : rows_) {
    if (std::exchange(number, row.adapter) != row.adapter) {
      const auto found = residents_.find(row.adapter);
      LMTP_CHECK(found != residents_.end(), row.adapter);
      const Resident& resident = found->second;
      adapters_.push_back({.pieces = resident.pieces.data(),
                           .piece_size = resident.piece_size,
                           .type = resident.type,
                           .deltas = resident.deltas.data(),
                           .first_delta = resident.first_delta.data()});
    }
    row.adapter = static_cast<std::int32_t>(adapters_.size()) - 1;
  }
  return {.rows = rows_.data(),
          .num_rows = static_cast<std::int64_t>(rows_.size()),
          .adapters = adapters_.data(),
          .num_adapters = static_cast<int>(adapters_.size())};
}

Result<void> takes_adapters(const AgentOptions& options) {
  if (options.num_ranks > 1) {
    return Error{ErrorCode::kInvalid,
                 "adapters are not divided among ranks yet; serve this model without "
                 "--tensor-parallel-size, or merge the adapter into it"};
  }
  if (options.cuda_device) {
    return Error{ErrorCode::kInvalid,
                 "adapters are computed on CPUs alone so far; serve this model without --cuda"};
  }
  return {};
}

Result<std::shared_ptr<const Adapter>> read_adapter(const AgentOptions& options,
                                                    const AdapterSource& source,
                                                    const AdapterOptions& limits) {
  if (const Result<void> taken = takes_adapters(options); !taken) return taken.error();
  const std::int64_t block_bytes = adapter_block_bytes(options);
  auto weights = model::read_lora(source.folder, options.config,
                                  {.rank_max = limits.rank_max,
                                   .type = kernels::element_type(options.weight_type),
                                   .bytes_max = limits.blocks_max * block_bytes,
                                   .goes_on = limits.goes_on});
  if (!weights) return weights.error();
  const auto num_bytes = static_cast<std::int64_t>(weights->elements.size());
  return std::shared_ptr<const Adapter>(std::make_shared<LoadedAdapter>(
      source.name, static_cast<int>((num_bytes + block_bytes - 1) / block_bytes),
      *std::move(weights)));
}

}  // namespace lmtp::agent
