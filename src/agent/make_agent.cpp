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
#include "lmtp/base/text.h"
#include "lmtp/model/weight_store.h"
#include "load_model.h"

namespace lmtp::agent {
namespace {

using kernels::DeviceError;

// A guard behind the registry's decision, which lets a static server's only model be tried, and
// since which memory may have been taken: an error instead of a loading that fails half-way, or a
// process that is killed.
Result<void> check_fit(const AgentOptions& options, const kernels::Stream& stream) {
  const std::optional<std::int64_t> free = free_memory_bytes();
  if (free.has_value() && options.swap_bytes > *free) {
    return Error{ErrorCode::kUnavailable, "--swap-space: of " + gib_text(options.swap_bytes) +
                                              " of the host's memory " + gib_text(*free) +
                                              " are free; give less"};
  }
  const std::int64_t needed = count_weight_bytes(options);
  const std::string weights =
      "the weights take " + gib_text(needed) + " as " + dtype_name(options.weight_type) + ", and ";
  if (const kernels::DeviceApi* device = stream.device_api(); device != nullptr) {
    const kernels::DeviceMemory memory = device->memory();
    if (needed <= memory.free_bytes) return {};
    return Error{ErrorCode::kUnavailable,
                 weights + "of the " + gib_text(memory.total_bytes) + " of " +
                     device_name(options) + " " + gib_text(memory.free_bytes) +
                     " are free; serve a smaller model, or free some of its memory"};
  }
  if (!free.has_value() || needed <= *free) return {};
  return Error{ErrorCode::kUnavailable,
               weights + gib_text(*free) +
                   " of memory are free; serve a smaller model, or free some memory"};
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

Result<std::unique_ptr<scheduler::ModelAgent>> load_agent(const AgentOptions& options,
                                                          const scheduler::LoadProgress& progress) {
  const auto num_blocks = count_blocks(options);
  if (!num_blocks.ok()) return num_blocks.error();
  const auto num_weights = count_weights(options);
  if (!num_weights.ok()) return num_weights.error();
  const kernels::Backend& backend = backend_of(options);
  AgentParts parts;
  parts.pool = make_pool(options);
  if (backend.device != nullptr) recover_device(*backend.device, options.cuda_device.value());
  parts.stream =
      std::make_unique<kernels::Stream>(backend, *parts.pool, options.cuda_device.value_or(0));
  if (const auto fit = check_fit(options, *parts.stream); !fit.ok()) return fit.error();
  parts.communicator = std::make_unique<model::SingleRank>();
  {
    const auto store = backend.device != nullptr
                           ? model::make_device_store(*parts.stream, options.weight_type)
                           : model::make_host_store(*parts.pool, options.weight_type);
    auto loaded = load_model(options, *num_weights, *store, *parts.communicator, progress);
    if (!loaded.ok()) return loaded.error();
    parts.model = std::move(loaded->model);
    parts.notes = std::move(loaded->notes);
    parts.num_widened = loaded->num_widened;
    parts.stream->synchronize();
  }
  return std::unique_ptr<scheduler::ModelAgent>(
      std::make_unique<BackendAgent>(std::move(parts), options, *num_blocks));
}

void report_device_gone(const AgentOptions& options, const std::string& reason) {
  if (options.on_device_gone) options.on_device_gone(reason);
}

}  // namespace

Result<std::unique_ptr<scheduler::ModelAgent>> make_agent(const AgentOptions& options,
                                                          const scheduler::LoadProgress& progress) {
  LMTP_CHECK(options.batch.max_tokens >= 1, options.batch.max_tokens);
  LMTP_CHECK(options.cuda_device.has_value() || kernels::is_for_host(options.weight_type));
  LMTP_CHECK(options.cuda_device.has_value() || kv_type(options) != kernels::ElementType::kF16);
  if (options.cuda_device.has_value() && options.debug.backend == nullptr) {
    const kernels::cuda::Probe probe = kernels::cuda::probe(*options.cuda_device);
    if (!probe.available) {
      report_device_gone(options, probe.reason);
      return Error{ErrorCode::kUnavailable, "no CUDA: " + probe.reason};
    }
  }
  try {
    return load_agent(options, progress);
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

}  // namespace lmtp::agent
