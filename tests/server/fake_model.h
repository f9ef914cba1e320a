// A model manager over the null agent, for tests of the server.
#pragma once

#include <functional>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fake_agent.h"
#include "fake_factory.h"
#include "fake_tokenizer.h"
#include "lmtp/registry/registry.h"

namespace lmtp::testing {

// As the models have it.
inline const FakeTokenizer& fake_tokenizer() {
  static const FakeTokenizer kTokenizer(kFakeVocabSize);
  return kTokenizer;
}

struct FakeModelOptions {
  FakeAgentOptions agent;
  engine::EngineOptions engine;
  int context_length = kFakeContext;
  // If valid, loading reports 40 percent and then waits for it.
  std::shared_future<void> load_gate;
  std::function<registry::LoadedTokenizer()> load_tokenizer;  // empty: a FakeTokenizer
  registry::LoadControllers load_controllers;                 // empty: none are run
  text::EmbeddingConfig embeddings;
  bool generates = true;           // ModelLimits'
  std::vector<std::string> notes;  // in what MODEL_INFO answers
};

// Has streams of kEndless tokens.
inline FakeModelOptions endless_model() {
  FakeModelOptions options;
  options.agent.num_blocks = kEndlessBlocks;
  options.context_length = kEndlessContext;
  return options;
}

inline FakeModelOptions with_controllers(std::shared_ptr<aici::Runtime> runtime) {
  FakeModelOptions options;
  options.load_controllers = [runtime = std::move(runtime)](const auto&) {
    return registry::LoadedControllers(runtime);
  };
  return options;
}

inline registry::ServedModel make_fake_model(const std::string& name,
                                             FakeModelOptions options = {}) {
  registry::ServedModel model = fake_served_model(name);
  model.options = options.engine;
  model.limits.context_length = options.context_length;
  options.agent.vocab_size = kFakeVocabSize;
  if (options.agent.eos_id >= 0) model.limits.eos_ids = {options.agent.eos_id};
  if (options.load_tokenizer) model.load_tokenizer = options.load_tokenizer;
  model.load_controllers = options.load_controllers;
  model.limits.generates = options.generates;
  model.load_embeddings = [made = options.embeddings]() -> text::LoadedEmbeddings {
    return std::make_shared<const text::EmbeddingConfig>(made);
  };
  model.description.notes = options.notes;
  model.load = [options](std::int64_t, const scheduler::LoadProgress& progress)
      -> Result<std::unique_ptr<scheduler::ModelAgent>> {
    progress(40);
    if (options.load_gate.valid()) options.load_gate.wait();
    return std::unique_ptr<scheduler::ModelAgent>(std::make_unique<FakeAgent>(options.agent));
  };
  return model;
}

// Serves "fake", also known as "/models/fake".
inline std::unique_ptr<registry::Registry> make_fake_models(FakeModelOptions options = {}) {
  registry::OnlyModel only;
  only.name = "fake";
  only.found = make_fake_model("fake", std::move(options));
  return std::make_unique<registry::Registry>(std::make_unique<FakeFactory>(), std::move(only));
}

}  // namespace lmtp::testing
