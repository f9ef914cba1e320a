// From a name to a model on the CPU or a device: the hub, its config, its weights.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "lmtp/agent/agent_options.h"
#include "lmtp/catalog/model_names.h"
#include "lmtp/catalog/model_options.h"
#include "lmtp/hub/model_source.h"
#include "lmtp/registry/model_factory.h"

namespace lmtp::catalog {

// Owner: the Registry. Any thread, several at once.
class HubModelFactory : public registry::ModelFactory {
 public:
  // `one_model`: the operator has named the only one; with options.force it is fetched even where
  // it will not fit. on_device_gone: agent::AgentOptions. REQUIRES: parse_device
  // accepts options.device, and parse_communicator options.communicator.
  HubModelFactory(ModelOptions options, bool one_model, NamePolicy policy,
                  std::function<void(const std::string& reason)> on_device_gone);

  Result<registry::ServedModel> find(const std::string& name) override;
  Result<registry::ServedModel> fetch(const std::string& name,
                                      const DownloadProgress& progress) override;
  std::optional<std::int64_t> free_memory_bytes() override;

 private:
  std::optional<std::int64_t> free_bytes() const;
  Result<void> accept(const std::string& name, const std::string& folder) const;
  // is_loaded: it is made to be loaded, and not just looked at.
  Result<registry::ServedModel> make(const ModelSource& source, bool is_loaded) const;
  registry::LoadAdapter adapters(const agent::AgentOptions& agent) const;
  registry::LoadControllers controllers(int vocab_size, const std::vector<TokenId>& eos_ids,
                                        const std::string& folder) const;
  registry::LoadControllers process_controllers(int vocab_size, const std::string& folder) const;

  const ModelOptions options_;
  const bool one_model_;
  const NamePolicy policy_;
  const std::function<void(const std::string& reason)> on_device_gone_;
  const std::optional<int> cuda_device_;
  // A model's dtype must not depend on which others happen to be loaded.
  const std::optional<std::int64_t> free_bytes_at_start_;
};

}  // namespace lmtp::catalog
