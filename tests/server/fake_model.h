// A model manager over the null agent, for tests of the server.
#pragma once

#include <functional>
#include <future>
#include <memory>
#include <string>
#include <utility>

#include "fake_agent.h"
#include "lmtp/engine/model_manager.h"

namespace lmtp::testing {

inline constexpr int kFakeVocabSize = 1000;
inline constexpr int kFakeContext = 512;

struct FakeModelOptions {
  FakeAgentOptions agent;
  engine::EngineOptions engine;
  // Where valid, loading waits for it after having told 40 percent.
  std::shared_future<void> load_gate;
};

// Serves "fake", also known as "/models/fake".
inline std::unique_ptr<engine::ModelManager> make_fake_models(FakeModelOptions options = {}) {
  engine::ServedModel model;
  model.description.name = "fake";
  model.description.type = "fake_type";
  model.description.architecture = "FakeForCausalLM";
  model.description.constructor = "make_fake_models(\"fake\")";
  model.description.tokenizer = "/models/fake";
  model.description.dtype = "none";
  model.description.device = "cpu";
  model.names = {"fake", "/models/fake"};
  model.limits.vocab_size = kFakeVocabSize;
  model.limits.context_length = kFakeContext;
  model.options = options.engine;
  options.agent.vocab_size = kFakeVocabSize;
  model.factory =
      [options](const agent::LoadProgress& progress) -> Result<std::unique_ptr<agent::ModelAgent>> {
    progress(40);
    if (options.load_gate.valid()) options.load_gate.wait();
    return std::unique_ptr<agent::ModelAgent>(std::make_unique<FakeAgent>(options.agent));
  };
  return std::make_unique<engine::ModelManager>(std::move(model), [](const Result<void>&) {});
}

}  // namespace lmtp::testing
