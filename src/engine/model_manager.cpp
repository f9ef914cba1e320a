#include "lmtp/engine/model_manager.h"

#include <algorithm>
#include <utility>

namespace lmtp::engine {

ModelManager::ModelManager(ServedModel model, std::function<void(const Result<void>&)> on_loaded)
    : names_(std::move(model.names)),
      entry_{std::move(model.description),
             std::make_unique<Engine>(std::move(model.limits), model.options,
                                      std::move(model.factory), std::move(on_loaded))} {}

ModelManager::~ModelManager() = default;

Result<const ModelManager::Entry*> ModelManager::resolve(std::string_view name) const {
  if (name.empty() || std::ranges::find(names_, name) != names_.end()) return &entry_;
  // A name is echoed only in part: it comes from a stranger and may be long.
  constexpr std::size_t kEchoed = 128;
  return Error{"model: '" + std::string(name.substr(0, kEchoed)) +
               "' is not served here, allowed is '" + entry_.description.name +
               "' (or leave it out)"};
}

bool ModelManager::healthy() const { return entry_.engine->stats().state == EngineState::kReady; }

void ModelManager::stop(int grace_ms) { entry_.engine->stop(grace_ms); }

}  // namespace lmtp::engine
