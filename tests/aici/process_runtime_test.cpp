// Both ends of the shared memory, and a program between which may fail at any time.
#include "lmtp/aici/process_runtime.h"

#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <future>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "eventually.h"
#include "player.h"
#include "process/trace.h"
#include "scoped_env.h"
#include "scripted_runtime.h"
#include "temp_folder.h"

namespace lmtp::aici {
namespace {

using lmtp::testing::Player;
using lmtp::testing::ScopedEnv;
using lmtp::testing::TempFolder;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int kVocab = 100;

// What both dialects can say.
const std::vector<std::string> kScripts = {
    R"([{"allow":[5,6,7]},{"ff":[10,11]},{"allow":[8],"log":"eight"},{"stop":true}])",
    R"([{"any":true},{"splice":[20,21],"drop":2},{"any":true,"set":["name","\u0001x"]},
        {"error":"no more"}])",
    R"([{"ff":[30]},{"fork":[[{"allow":[40]},{"wait":"b"},{"allow":[41]}],
        [{"allow":[50]},{"allow":[51],"set":["b","1"]}],
        [{"allow":[60]},{"fork":[[{"any":true}],[{"allow":[61]}]]}]]},{"stop":true}])",
    R"([{"allow":[1]},{"wait":"never"}])",
    R"([{"splice":[9],"drop":0},{"any":true},{"any":true}])",
    R"([{"init_ff":[70,71]},{"allow":[72]},{"ff":[73]},{"any":true}])",
    R"(no list)",
};

std::vector<std::string> own_entries() {
  std::vector<std::string> entries;
  const std::string own = "lmtp-" + std::to_string(getpid()) + "-";
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
    const std::string name = entry.path().filename();
    if (name.find(own) != std::string::npos) entries.push_back(name);
  }
  return entries;
}

std::string text_of_file(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

struct Setting {
  Dialect dialect;
  bool futex;
  const char* name;
};

class ProcessRuntimeTest : public ::testing::TestWithParam<Setting> {
 protected:
  ProcessOptions options() const {
    ProcessOptions options;
    options.path = LMTP_AICIRT_DOUBLE;
    options.tokenizer = std::to_string(kVocab);
    options.vocab_size = kVocab + 20;
    options.dialect = GetParam().dialect;
    options.futex = GetParam().futex;
    options.json_mib = 1;
    options.bias_mib = 1;
    options.step_time = std::chrono::seconds(10);  // however slow the machine is
    options.folder = folder_.path();
    options.back_off = std::chrono::milliseconds(5);
    return options;
  }
  static std::unique_ptr<Runtime> make(const ProcessOptions& options) {
    Result<std::unique_ptr<Runtime>> made = make_process_runtime(options);
    EXPECT_TRUE(made.ok()) << (made ? "" : made.error().message);
    return made ? *std::move(made) : nullptr;
  }
  void TearDown() override {
    EXPECT_THAT(own_entries(), IsEmpty());
    EXPECT_EQ(text_of_file(report_), "");
  }

  TempFolder folder_;
  const std::string report_ = folder_.path() + "/report";
  const ScopedEnv report_env_{"DOUBLE_REPORT", report_};
};

// Without a program between.
Player::Endings expected(const std::vector<std::string>& scripts) {
  lmtp::testing::ScriptedRuntime runtime(
      kVocab, [](const std::string& problem) { ADD_FAILURE() << problem; });
  return Player(runtime, kVocab).play(scripts);
}

void expect_same(const Player::Endings& endings, const Player::Endings& wanted) {
  EXPECT_EQ(endings.size(), wanted.size());
  for (const auto& [name, ending] : wanted) {
    SCOPED_TRACE(name);
    const auto found = endings.find(name);
    ASSERT_NE(found, endings.end());
    EXPECT_THAT(found->second.tokens, ::testing::ElementsAreArray(ending.tokens));
    EXPECT_EQ(found->second.logs, ending.logs);
    EXPECT_EQ(found->second.stored, ending.stored);
    EXPECT_EQ(found->second.temperature, ending.temperature);
    // Texts of errors of a request's own are the same but for what goes before them.
    EXPECT_THAT(found->second.end, HasSubstr(ending.end));
  }
}

TEST_P(ProcessRuntimeTest, GoesTheWayOfTheSameControllersWithoutAProgramBetween) {
  const auto runtime = make(options());
  const Player::Endings wanted = expected(kScripts);
  ASSERT_EQ(wanted.size(), 10U);
  EXPECT_EQ(wanted.at("r3").end, kDeadlock);
  expect_same(Player(*runtime, kVocab).play(kScripts), wanted);
}

// Another process makes names and ends at once, as one that is killed while its program starts.
TEST_P(ProcessRuntimeTest, RemovesWhatAServerThatWasKilledHasLeft) {
  const pid_t killed = fork();
  if (killed == 0) _exit(0);
  ASSERT_EQ(waitpid(killed, nullptr, 0), killed);
  const auto make_name = [](const std::string& front, pid_t pid, const char* back,
                            std::chrono::hours age) {
    const std::string path = "/dev/shm/" + front + std::to_string(pid) + "-0123abcd-" + back;
    std::ofstream(path) << "left";
    std::filesystem::last_write_time(path, std::filesystem::file_time_type::clock::now() - age);
    return path;
  };
  constexpr std::chrono::hours kHour{1};
  const std::vector<std::string> left = {make_name("lmtp-", killed, "bin-shm", kHour),
                                         make_name("sem.lmtp-", killed, "cmd-read", kHour)};
  const std::vector<std::string> others = {make_name("lmtp-", killed, "new", {}),
                                           make_name("lmtp-", getppid(), "of-one-that-runs", kHour),
                                           make_name("other-", killed, "bin-shm", kHour)};
  const auto runtime = make(options());
  Player(*runtime, kVocab).play({kScripts[0]});  // it has started
  for (const std::string& path : left) EXPECT_FALSE(std::filesystem::exists(path)) << path;
  for (const std::string& path : others) EXPECT_TRUE(std::filesystem::remove(path)) << path;
}

TEST_P(ProcessRuntimeTest, RunsManyAtATime) {
  const auto runtime = make(options());
  std::vector<std::string> scripts;
  for (int i = 0; i < 40; ++i) scripts.push_back(kScripts[static_cast<std::size_t>(i) % 5]);
  expect_same(Player(*runtime, kVocab).play(scripts), expected(scripts));
}

TEST_P(ProcessRuntimeTest, GoesTheSameWayWhereItsCallsComeOneByOne) {
  const auto runtime = make(options());
  Player player(*runtime, kVocab);
  player.pause = std::chrono::milliseconds(3);  // more than choices wait for others
  expect_same(player.play(kScripts), expected(kScripts));
}

// Seconds, so once for each dialect and each mode.
class ProcessFaultTest : public ProcessRuntimeTest {};

TEST_P(ProcessFaultTest, LosesEverySequenceAndStartsAgainWhereItsProgramIsKilled) {
  const std::vector<std::string> scripts = {kScripts[0], kScripts[2]};
  const Player::Endings wanted = expected(scripts);
  // The last round is the first that ends before its fault.
  bool is_hit = true;
  for (int at = 1; is_hit; ++at) {
    SCOPED_TRACE(at);
    ASSERT_LT(at, 100);
    const std::string once = folder_.path() + "/once-" + std::to_string(at);
    const ScopedEnv once_env("DOUBLE_ONCE", once);
    const ScopedEnv fault_env("DOUBLE_FAULT", "kill:" + std::to_string(at));
    const auto runtime = make(options());
    Player first(*runtime, kVocab);
    const Player::Endings endings = first.play(scripts);
    ASSERT_FALSE(endings.empty());
    is_hit = std::ranges::any_of(endings, [](const auto& entry) {
      return entry.second.end.find("signal") != std::string::npos;
    });
    is_hit = is_hit || at < 6;         // killed as it starts: the requests wait for another one
    std::filesystem::remove(report_);  // what was not freed
    Player again(*runtime, kVocab, first.next_id());
    Player::Endings after;
    EXPECT_TRUE(lmtp::testing::eventually([&] {
      after = again.play({kScripts[0]});
      return after["r0"].tokens == wanted.at("r0").tokens;
    }));
    std::filesystem::remove(report_);  // where it was killed only now
  }
}

TEST_P(ProcessFaultTest, EndsAProgramWhoseAnswersMakeNoSense) {
  for (const char* fault : {"broken:7", "bare:9", "hang:9"}) {
    SCOPED_TRACE(fault);
    const ScopedEnv once_env("DOUBLE_ONCE", folder_.path() + "/once-" + fault);
    const ScopedEnv fault_env("DOUBLE_FAULT", fault);
    ProcessOptions with = options();
    with.step_time = std::chrono::milliseconds(20);
    const auto runtime = make(with);
    const Player::Endings endings =
        Player(*runtime, kVocab).play({kScripts[0], kScripts[1], kScripts[0]});
    ASSERT_EQ(endings.size(), 3U);
    EXPECT_TRUE(std::ranges::any_of(endings, [](const auto& entry) {
      return entry.second.end.find("answer") != std::string::npos ||
             entry.second.end.find("started again") != std::string::npos;
    })) << endings.at("r0").end;
    std::filesystem::remove(report_);
  }
}

TEST_P(ProcessRuntimeTest, RefusesAProgramWithAnotherVocabulary) {
  const ScopedEnv fault_env("DOUBLE_FAULT", "vocab:121");
  const auto runtime = make(options());
  const Player::Endings endings = Player(*runtime, kVocab).play({kScripts[0]});
  EXPECT_THAT(endings.at("r0").end, HasSubstr("121 tokens; the model has 120"));
}

// Of a question of the side channel.
template <typename T>
struct Answer {
  Runtime::Done<Result<T>> done() {
    return [this](Result<T> result) { promise.set_value(std::move(result)); };
  }
  Result<T> get() { return promise.get_future().get(); }

  std::promise<Result<T>> promise;
};

TEST_P(ProcessRuntimeTest, AsksManyThingsBesidesAndTakesTheirAnswersInAnyOrder) {
  for (const char* fault : {"swap", "twice"}) {
    const ScopedEnv fault_env("DOUBLE_FAULT", fault);
    const auto runtime = make(options());
    Answer<ModuleInfo> module;
    Answer<std::vector<TagInfo>> set;
    Answer<std::vector<TagInfo>> refused;
    Answer<std::vector<TagInfo>> all;
    runtime->upload(std::string("\0asm", 4), {"ann", false}, module.done());
    runtime->set_tags("aa4", {"ann.one", "ann.two"}, {"ann", false}, set.done());
    runtime->set_tags("aa4", {"ann.one"}, {"bob", false}, refused.done());
    runtime->get_tags({}, all.done());
    const Result<ModuleInfo> made = module.get();
    ASSERT_TRUE(made.ok());
    EXPECT_EQ(made->module_id, "aa4");
    EXPECT_EQ(made->compiled_size, 8);
    EXPECT_EQ(set.get()->at(1).updated_by, "ann");
    const Result<std::vector<TagInfo>> not_done = refused.get();
    ASSERT_FALSE(not_done.ok());
    EXPECT_EQ(not_done.error().code, ErrorCode::kInvalid);
    EXPECT_EQ(not_done.error().message, "controller: permission denied for tag name");
    EXPECT_GE(all.get()->size(), 1U);
  }
}

TEST_P(ProcessRuntimeTest, IsNotMadeWithABackOffThatIsNone) {
  for (const int back_off_ms : {-1, 0, 30'001}) {
    ProcessOptions wrong = options();
    wrong.back_off = std::chrono::milliseconds(back_off_ms);
    const auto refused = make_process_runtime(std::move(wrong));
    ASSERT_FALSE(refused.ok()) << back_off_ms;
    EXPECT_EQ(refused.error().message, "ProcessOptions::back_off: allowed are 1 to 30000 ms");
  }
}

TEST_P(ProcessRuntimeTest, SendsNothingThatHasNoRoom) {
  const auto runtime = make(options());
  Answer<ModuleInfo> large;
  Answer<ModuleInfo> small;
  runtime->upload(std::string(std::size_t{1} << 20, 'x'), {}, large.done());
  runtime->upload("x", {}, small.done());
  const Result<ModuleInfo> refused = large.get();
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalid);
  EXPECT_THAT(refused.error().message, HasSubstr("--aicirt-json-size"));
  EXPECT_TRUE(small.get().ok());
}

TEST_P(ProcessRuntimeTest, LeavesNoInstanceOfAClientThatHasGone) {
  const auto runtime = make(options());
  Answer<Instantiated> early;
  runtime->instantiate({"early", {1}, "script", kScripts[0], {}}, early.done());
  runtime->discard("early");
  EXPECT_TRUE(early.get().ok());
  Answer<Instantiated> late;
  runtime->instantiate({"late", {1}, "script", kScripts[0], {}}, late.done());
  EXPECT_TRUE(late.get().ok());
  runtime->discard("late");
  Answer<Instantiated> freed;
  runtime->instantiate({"freed", {1}, "script", kScripts[0], {}}, freed.done());
  EXPECT_TRUE(freed.get().ok());
  runtime->bind("freed", 1);
  runtime->free(1);
  // The double reports what is left when it ends; a request after these is a step, with them.
  EXPECT_EQ(Player(*runtime, kVocab, 2).play({kScripts[0]}).size(), 1U);
  Answer<Instantiated> missing;
  runtime->instantiate({"missing", {1}, "nothing", "", {}}, missing.done());
  const Result<Instantiated> not_there = missing.get();
  ASSERT_FALSE(not_there.ok());
  EXPECT_EQ(not_there.error().code, ErrorCode::kNotFound);
}

TEST_P(ProcessRuntimeTest, WritesWhatWasSaidALineForEachExchange) {
  ProcessOptions with = options();
  with.trace_path = folder_.path() + "/trace";
  {
    const auto runtime = make(with);
    EXPECT_EQ(Player(*runtime, kVocab).play({kScripts[0]}).size(), 1U);
  }
  std::ifstream file(with.trace_path);
  std::vector<std::string> ops;
  for (std::string line; std::getline(file, line);) {
    const Json exchange = Json::parse(line);
    EXPECT_TRUE(exchange.at("timestamp").is_number());
    EXPECT_TRUE(exchange.at("resp").is_object());
    ops.push_back(exchange.at("suff").get<std::string>() + "/" +
                  exchange.at("cmd").at("op").get<std::string>());
  }
  EXPECT_THAT(ops, ::testing::IsSupersetOf(
                       {"/ping", "/tokens", "-side/ping", "-side/instantiate", "/mid_process"}));
}

constexpr auto kName = [](const auto& setting) { return std::string(setting.param.name); };

INSTANTIATE_TEST_SUITE_P(Dialects, ProcessFaultTest,
                         ::testing::Values(Setting{Dialect::kA, false, "A"},
                                           Setting{Dialect::kC, true, "CByFutex"}),
                         kName);

INSTANTIATE_TEST_SUITE_P(Dialects, ProcessRuntimeTest,
                         ::testing::Values(Setting{Dialect::kA, false, "A"},
                                           Setting{Dialect::kAuto, false, "C"},
                                           Setting{Dialect::kA, true, "AByFutex"},
                                           Setting{Dialect::kC, true, "CByFutex"}),
                         kName);

TEST(ProcessRuntimeOptionsTest, ThatCannotWorkAreRefused) {
  ProcessOptions options;
  options.path = "/nowhere/aicirt";
  EXPECT_THAT(make_process_runtime(options).error().message, HasSubstr("/nowhere/aicirt"));
  options.path = LMTP_AICIRT_DOUBLE;
  options.json_mib = 0;
  EXPECT_THAT(make_process_runtime(options).error().message, HasSubstr("--aicirt-json-size"));
  options.json_mib = 1;
  options.bias_mib = 1;
  options.vocab_size = 1 << 18;
  EXPECT_THAT(make_process_runtime(options).error().message, HasSubstr("--aicirt-bin-size"));
}

}  // namespace
}  // namespace lmtp::aici
