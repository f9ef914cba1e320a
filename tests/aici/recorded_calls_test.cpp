// AICI's own controllers `uppercase` and `yesno`, as they once answered, over the shared memory:
// what lmtp-aicirt's end makes of their answers, the engine's end reads again.
#include <gmock/gmock.h>

#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <variant>
#include <vector>

#include "lmtp/aici/process_runtime.h"
#include "recorded_runtime.h"
#include "runtime_driver.h"
#include "scoped_env.h"
#include "source_dir.h"
#include "temp_folder.h"

namespace lmtp::aici {
namespace {

using lmtp::testing::RecordedCalls;
using testing::Answer;

struct Setting {
  std::string name;
  Dialect dialect;
  bool futex;
};

class RecordedCallsTest : public ::testing::TestWithParam<Setting> {
 protected:
  std::unique_ptr<Runtime> start(int vocab_size) const {
    ProcessOptions options;
    options.path = LMTP_AICIRT_DOUBLE;
    options.tokenizer = std::to_string(vocab_size);
    options.vocab_size = vocab_size;
    options.dialect = GetParam().dialect;
    options.futex = GetParam().futex;
    options.json_mib = 1;
    options.bias_mib = 1;
    options.folder = folder_.path();
    Result<std::unique_ptr<Runtime>> made = make_process_runtime(options);
    EXPECT_TRUE(made.ok()) << made.error().message;
    return *std::move(made);
  }

  // What an engine sees of a request: each token that comes behind it and each mask, in order.
  using Way = std::vector<std::variant<TokenId, RecordedCalls::Mask>>;

  static void append(Way& way, const std::vector<TokenId>& tokens) {
    way.insert(way.end(), tokens.begin(), tokens.end());
  }

  static Way recorded_way(const RecordedCalls& recorded, const std::vector<Json>& calls) {
    Way way;
    for (std::size_t i = 1; i < calls.size(); ++i) {
      if (calls[i].at("call") == "choose") {
        way.emplace_back(recorded.choice_of(calls[i]).branches[0].mask);
      } else {
        append(way, RecordedCalls::report_of(calls[i]).appended);
        append(way, RecordedCalls::advance_of(calls[i]).appended);
      }
    }
    return way;
  }

  // Draws what was drawn, until the controller stops.
  static Way go_again(Runtime& runtime, const std::vector<Json>& calls) {
    const Json& first = calls.front();
    const std::string id = "run-" + first.at("arg").get<std::string>();
    Answer<Result<Instantiated>> made;
    runtime.instantiate({id, first.at("prompt"), first.at("controller"), first.at("arg")},
                        made.done());
    if (const auto given = made.get(); !given) throw std::runtime_error(given.error().message);
    const Sequence sequence = runtime.new_sequence();
    runtime.bind(id, sequence);
    Way way;
    Report report;
    std::size_t next = 1;  // call
    while (true) {
      Answer<Advance> advanced;
      runtime.advance(sequence, report, advanced.done());
      const Advance advance = advanced.get();
      append(way, advance.appended);
      if (advance.kind != Advance::Kind::kGoOn) {
        EXPECT_EQ(advance.kind, Advance::Kind::kStop) << advance.error;
        break;
      }
      Answer<Choice> chosen;
      runtime.choose(sequence, {sequence}, chosen.done());
      const Choice choice = chosen.get();
      if (choice.kind == Choice::Kind::kStop) break;
      const Branch& branch = choice.branches.at(0);
      if (branch.samples) {
        way.emplace_back(branch.mask);
        while (!calls.at(next).contains("report") || !calls[next]["report"].contains("sampled")) {
          ++next;
        }
        report = RecordedCalls::report_of(calls[next++]);
      } else {
        report = {.appended = branch.splices.at(0).appended};
      }
      append(way, report.appended);
    }
    runtime.free(sequence);
    return way;
  }

  lmtp::testing::TempFolder folder_;
};

TEST_P(RecordedCallsTest, OfAicisOwnControllersComeThrough) {
  for (const char* const name : {"demo", "gpt2"}) {
    SCOPED_TRACE(name);
    const std::string path = ::lmtp::testing::source_dir() + "/tests/aici/calls/" + name + ".jsonl";
    const std::string report = folder_.path() + "/" + name;
    const lmtp::testing::ScopedEnv calls("DOUBLE_CALLS", path);
    const lmtp::testing::ScopedEnv to("DOUBLE_REPORT", report);
    const RecordedCalls recorded(path);
    ASSERT_EQ(recorded.requests.size(), 3U);
    {
      const auto runtime = start(recorded.head.at("vocab_size"));
      for (const std::vector<Json>& each : recorded.requests) {
        SCOPED_TRACE(each.front().at("controller"));
        EXPECT_TRUE(go_again(*runtime, each) == recorded_way(recorded, each));
      }
    }
    std::ifstream file(report);
    std::string problem;
    EXPECT_FALSE(std::getline(file, problem)) << problem;
  }
}

std::string name_of(const ::testing::TestParamInfo<Setting>& info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(Dialects, RecordedCallsTest,
                         ::testing::Values(Setting{"A", Dialect::kA, false},
                                           Setting{"C", Dialect::kC, true}),
                         name_of);

}  // namespace
}  // namespace lmtp::aici
