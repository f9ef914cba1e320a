#include <exception>
#include <string>
#include <utility>

#include "backend_agent.h"
#include "free_memory.h"
#include "kernels/device.h"
#include "kernels/device_api.h"
#include "lmtp/agent/agent.h"
#include "lmtp/agent/model_memory.h"
#include "lmtp/base/check.h"
#include "lmtp/base/guarded.h"
#include "lmtp/base/text.h"
#include "lmtp/model/weight_store.h"
#include "load_model.h"
#include "numerics_id.h"
#include "tensor_parallel.h"

namespace lmtp::agent {
namespace {

using kernels::DeviceError;

std::string weights_text(const AgentOptions& options, std::int64_t num_bytes) {
  return "the weights take " + gib_text(num_bytes) + " as " + dtype_name(options.weight_type) +
         ", and ";
}

// A guard behind the registry's decision, which lets a static server's only model be tried, and
// since which memory may have been taken: an error instead of a loading that fails half-way, or a
// process that is killed.
Result<void> check_host_fit(const AgentOptions& options) {
  const std::optional<std::int64_t> free = free_memory_bytes();
  if (free.has_value() && options.swap_bytes > *free) {
    return Error{ErrorCode::kUnavailable, "--swap-space: of " + gib_text(options.swap_bytes) +
                                              " of the host's memory " + gib_text(*free) +
                                              " are free; give less"};
  }
  const std::int64_t needed = count_weight_bytes(options) * options.num_ranks;
  if (options.cuda_device.has_value() || !free.has_value() || needed <= *free) return {};
  return Error{ErrorCode::kUnavailable,
               weights_text(options, needed) + gib_text(*free) +
                   " of memory are free; serve a smaller model, or free some memory"};
}

// The same of the device of a rank.
Result<void> check_device_fit(const AgentOptions& options, const AgentOptions& own,
                              const kernels::DeviceApi& device) {
  const std::int64_t needed = count_weight_bytes(options);
  const kernels::DeviceMemory memory = device.memory();
  if (needed <= memory.free_bytes) return {};
  return Error{ErrorCode::kUnavailable,
               weights_text(options, needed) + "of the " + gib_text(memory.total_bytes) + " of " +
                   device_name(own) + " " + gib_text(memory.free_bytes) +
                   " are free; serve a smaller model, or free some of its memory"};
}

// A lost device works again after a reset, which needs all that was allocated on it to be freed.
void recover_device(const kernels::DeviceApi& device, int number) {
  try {
    device.use_device(number);
    (void)device.memory();
  } catch (const DeviceError& error) {
    if (error.kind() != DeviceError::Kind::kSticky) throw;
    device.reset();
    device.use_device(number);
  }
}

const kernels::Backend& backend_of(const AgentOptions& options) {
  if (options.debug.backend != nullptr) return *options.debug.backend;
  return options.cuda_device.has_value() ? kernels::cuda::backend() : kernels::cpu_backend();
}

using LoadedAgent = Result<std::unique_ptr<scheduler::ModelAgent>>;

// The agent of one rank, which may be the only one.
LoadedAgent load_agent(const AgentOptions& options,
                       std::shared_ptr<model::Communicator> communicator,
                       const scheduler::LoadProgress& progress) {
  const auto num_weights = count_weights(options);
  if (!num_weights.ok()) return num_weights.error();
  const int rank = communicator->shard().rank;
  const AgentOptions own = options_of_rank(options, rank);
  const auto num_blocks = count_blocks(options);
  if (!num_blocks.ok()) return num_blocks.error();
  const kernels::Backend& backend = backend_of(own);
  AgentParts parts;
  parts.pool = make_pool(own);
  if (backend.device != nullptr) recover_device(*backend.device, own.cuda_device.value());
  parts.stream =
      std::make_unique<kernels::Stream>(backend, *parts.pool, own.cuda_device.value_or(0));
  if (backend.device != nullptr) {
    const auto fit = check_device_fit(options, own, *backend.device);
    if (!fit.ok()) return fit.error();
  }
  parts.communicator = std::move(communicator);
  {
    const auto store = backend.device != nullptr
                           ? model::make_device_store(*parts.stream, own.weight_type)
                           : model::make_host_store(*parts.pool, own.weight_type);
    auto loaded = load_model(options, *num_weights, *store, *parts.communicator, progress);
    if (!loaded.ok()) return loaded.error();
    parts.model = std::move(loaded->model);
    parts.notes = std::move(loaded->notes);
    parts.num_widened = loaded->num_widened;
    parts.weights_bytes = loaded->weights_bytes;
    parts.stream->synchronize();
  }
  if (rank == 0) parts.numerics = numerics_id(options, backend);
  return std::unique_ptr<scheduler::ModelAgent>(
      std::make_unique<BackendAgent>(std::move(parts), own, *num_blocks));
}

void report_device_gone(const AgentOptions& options, const std::string& reason) {
  if (options.on_device_gone) options.on_device_gone(reason);
}

// load_agent, with its exceptions as errors.
LoadedAgent load_safely(const AgentOptions& options,
                        std::shared_ptr<model::Communicator> communicator,
                        const scheduler::LoadProgress& progress) {
  try {
    return load_agent(options, std::move(communicator), progress);
  } catch (const DeviceError& error) {
    if (error.kind() == DeviceError::Kind::kOutOfMemory) {
      return Error{
          ErrorCode::kUnavailable,
          "the memory of " + device_name(options) +
              (options.swap_bytes > 0 ? ", or what the host may lock for --swap-space," : "") +
              " is full; serve a smaller model, give a smaller --kv-cache, or free some of "
              "it"};
    }
    if (error.kind() != DeviceError::Kind::kFailed) report_device_gone(options, error.what());
    return Error{cause_of(error), std::string("the model cannot be loaded: ") + error.what()};
  } catch (const std::exception& exception) {
    return Error{cause_of(exception),
                 std::string("the model cannot be loaded: ") + exception.what()};
  }
}

// Whether the devices are there.
Result<void> check_devices(const AgentOptions& options) {
  if (!options.cuda_device.has_value() || options.debug.backend != nullptr) return {};
  const int first = *options.cuda_device;
  const kernels::cuda::Probe probe = kernels::cuda::probe(first);
  if (!probe.available) {
    report_device_gone(options, probe.reason);
    return Error{ErrorCode::kUnavailable, "no CUDA: " + probe.reason};
  }
  return enough_devices(options, probe.num_devices);
}

}  // namespace

LoadedAgent make_agent(const AgentOptions& options, const scheduler::LoadProgress& progress) {
  LMTP_CHECK(options.batch.max_tokens >= 1, options.batch.max_tokens);
  LMTP_CHECK(options.cuda_device.has_value() || kernels::is_for_host(options.weight_type));
  if (const auto there = check_devices(options); !there.ok()) return there.error();
  if (const auto counted = count_weights(options); !counted.ok()) return counted.error();
  if (const auto fit = check_host_fit(options); !fit.ok()) return fit.error();
  if (options.num_ranks == 1) {
    return load_safely(options, std::make_shared<model::SingleRank>(), progress);
  }
  // A sum of theirs waits for the host, which no graph can.
  AgentOptions ranks = options;
  ranks.debug.step_graphs = false;
  const auto make_rank = [&ranks](std::shared_ptr<model::Communicator> communicator,
                                  const scheduler::LoadProgress& of_rank) {
    return load_safely(ranks, std::move(communicator), of_rank);
  };
  return guarded([&] { return make_tensor_parallel(options, progress, make_rank); },
                 "the model cannot be loaded: ");
}

}  // namespace lmtp::agent
