// What every Runtime does, over Wasm in another program: the engine's end of the shared memory,
// then lmtp-aicirt's end, then the embedded runtime.
#include "lmtp/aici/process_runtime.h"
#include "runtime_suite.h"
#include "scoped_env.h"

namespace lmtp::aici::testing {
namespace {

RuntimeMaker maker(const std::string& name, Dialect dialect, bool futex) {
  return {name,
          [dialect, futex](const std::string& folder) {
            ProcessOptions options;
            options.path = LMTP_AICIRT_DOUBLE;
            options.tokenizer = std::to_string(kVocab);
            options.vocab_size = kVocab;
            options.dialect = dialect;
            options.futex = futex;
            options.json_mib = 1;
            options.bias_mib = 1;
            options.folder = folder;
            Result<std::unique_ptr<Runtime>> made = make_process_runtime(options);
            EXPECT_TRUE(made.ok()) << made.error().message;
            return *std::move(made);
          },
          dialect == Dialect::kA, dialect == Dialect::kC};
}

const RuntimeMaker kA = maker("A", Dialect::kA, false);
const RuntimeMaker kC = maker("C", Dialect::kC, true);

std::string name_of(const ::testing::TestParamInfo<RuntimeMaker>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(Processes, RuntimeSuite, ::testing::Values(kA, kC), name_of);
INSTANTIATE_TEST_SUITE_P(Processes, RuntimeSuiteA, ::testing::Values(kA), name_of);
INSTANTIATE_TEST_SUITE_P(Processes, RuntimeSuiteC, ::testing::Values(kC), name_of);

// For all cases, before the first program is started.
class WithWasm : public ::testing::Environment {
 public:
  void SetUp() override { env_.emplace("DOUBLE_WASM", "1"); }
  void TearDown() override { env_.reset(); }

 private:
  std::optional<lmtp::testing::ScopedEnv> env_;
};
[[maybe_unused]] const auto* const kWithWasm =
    ::testing::AddGlobalTestEnvironment(new WithWasm);  // NOLINT: googletest owns it

}  // namespace
}  // namespace lmtp::aici::testing
