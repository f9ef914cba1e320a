// ModelManager: from the name in a request to the engine that serves it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lmtp/engine/engine.h"

namespace lmtp::engine {

// What MODEL_INFO tells of a model, besides the engine's counters.
struct ModelDescription {
  std::string name;          // as given on the command line
  std::string type;          // config.json's model_type: "gpt2"
  std::string architecture;  // config.json's architectures[0]: "GPT2LMHeadModel"
  std::string constructor;   // how the reference would load it, as LMQL prints it
  std::string tokenizer;     // folder or name of the tokenizer
  std::string dtype;
  std::string device;
};

struct ServedModel {
  ModelDescription description;
  std::vector<std::string> names;  // all that it answers to
  ModelLimits limits;
  EngineOptions options;
  agent::AgentFactory factory;
};

// Owner: main. resolve() and the accessors from any thread; stop() from one.
class ModelManager {
 public:
  // Serves one named model (a static server). `on_loaded`: see Engine.
  ModelManager(ServedModel model, std::function<void(const Result<void>&)> on_loaded);
  ~ModelManager();
  ModelManager(const ModelManager&) = delete;
  ModelManager& operator=(const ModelManager&) = delete;

  struct Entry {
    ModelDescription description;
    std::unique_ptr<Engine> engine;
  };

  // The model of that name; empty means the loaded one. The pointer lives as long as the manager.
  Result<const Entry*> resolve(std::string_view name) const;

  // Can the named model answer now?
  bool healthy() const;

  void stop(int grace_ms);

 private:
  std::vector<std::string> names_;
  Entry entry_;
};

}  // namespace lmtp::engine
