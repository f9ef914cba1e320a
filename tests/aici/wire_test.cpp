// The protocol's JSON, as values, on both ends: what an engine writes and reads, and what a runtime
// does. The examples are those of the protocol's description.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "lmtp-aicirt/main_server.h"
#include "lmtp-aicirt/side_server.h"
#include "process/trace.h"
#include "process/wire.h"
#include "process/wire_a.h"
#include "process/wire_c.h"
#include "scripted_runtime.h"
#include "source_dir.h"

namespace lmtp::aici {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int kVocab = 51'200;

Json ok_data(const std::string& data) {
  return *data_of({{"type", "ok"}, {"data", Json::parse(data)}});
}

const char* const kPostPreCommand = R"({"op":"post_pre_process",
    "post_ops":[{"id":2,"tokens":[29946],"backtrack":0}],
    "pre_ops":[{"id":3,"req_id":"run-b"}],"freed":[5]})";
const char* const kPostPreData = R"({
    "post_seqs":{"2":{"error":"","result":{"stop":false},"storage":[],"logs":"","micros":50}},
    "pre_seqs":{
      "2":{"error":"","result":{"suspend":false,"num_forks":1,"ff_tokens":[]},
           "storage":[],"logs":"","micros":10},
      "3":{"error":"","result":{"suspend":false,"num_forks":2,"ff_tokens":[]},
           "storage":[],"logs":"","micros":30},
      "4":{"error":"","result":{"suspend":true,"num_forks":1,"ff_tokens":[]},
           "storage":[],"logs":"","micros":10},
      "5":{"error":"","result":{"suspend":false,"num_forks":1,"ff_tokens":[]},
           "storage":[],"logs":"","micros":10}}})";
const char* const kMidCommandA =
    R"({"op":"mid_process","ops":[{"id":2},{"id":3},{"id":7,"clone_id":3}]})";
const char* const kMidDataA = R"({"num_seqs":3,"seqs":{
    "2":{"error":"","result":null,"storage":[],"logs":"","micros":10},
    "3":{"error":"","result":{"ff_tokens":[10,11],"backtrack":0},
         "storage":[],"logs":"","micros":10},
    "7":{"error":"","result":null,"storage":[],"logs":"","micros":10}}})";
const char* const kMidCommandC = R"({"op":"mid_process","freed":[],
    "ops":[{"id":1,"req_id":"run-a","backtrack":0,"tokens":[]}]})";
const char* const kMidDataC = R"({
    "seqs":{"1":{"error":"",
                 "result":{"branches":[{"sample_mask":0,"temperature":null,"splices":[]}]},
                 "storage":[],"logs":"","micros":90}},
    "dtype":"f32","first_mask_byte_offset":1376,"mask_num_bytes":204800,
    "mask_num_elts":51200,"num_masks":1})";

// Of an engine's command what is not null: the examples leave that out.
Json without_nulls(Json command) {
  for (Json& op : command["ops"]) {
    for (auto it = op.begin(); it != op.end();) it = it->is_null() ? op.erase(it) : std::next(it);
  }
  return command;
}

TEST(EngineWireTest, WritesAndReadsTheExamplesOfA) {
  EXPECT_EQ(wire_a::command_of(wire_a::PostPreProcess{{{2, {29946}, 0}}, {{3, "run-b"}}, {5}}),
            Json::parse(kPostPreCommand));
  const auto post_pre = wire_a::read_post_pre(ok_data(kPostPreData), kVocab);
  ASSERT_TRUE(post_pre.ok());
  EXPECT_FALSE(post_pre->post.at(2).result->stop);
  EXPECT_EQ(post_pre->post.at(2).log.micros, 50);
  EXPECT_EQ(post_pre->pre.at(3).result->num_forks, 2);
  EXPECT_TRUE(post_pre->pre.at(4).result->suspend);
  EXPECT_EQ(wire_a::command_of(std::vector<wire_a::MidOp>{{2, {}}, {3, {}}, {7, 3}}),
            Json::parse(kMidCommandA));
  const auto mid = wire_a::read_mid(ok_data(kMidDataA), 3, kVocab);
  ASSERT_TRUE(mid.ok());
  EXPECT_FALSE(mid->at(2).result.has_value());
  EXPECT_THAT(mid->at(3).result->ff_tokens, ElementsAre(10, 11));
  EXPECT_FALSE(wire_a::read_mid(ok_data(kMidDataA), 2, kVocab).ok());
}

TEST(EngineWireTest, WritesAndReadsTheExamplesOfC) {
  EXPECT_EQ(without_nulls(wire_c::command_of({{.id = 1, .request_id = "run-a"}}, {})),
            Json::parse(kMidCommandC));
  const auto mid = wire_c::read_mid(ok_data(kMidDataC), kVocab);
  ASSERT_TRUE(mid.ok());
  EXPECT_EQ(mid->seqs.at(1).result->branches.at(0).sample_mask, 0U);
  EXPECT_EQ(mid->rows.first_byte, 1376U);
  EXPECT_EQ(mid->rows.row_bytes, 204800U);
  EXPECT_EQ(mid->rows.row_elements, 51200U);
  EXPECT_EQ(wire_c::command_of({{.id = 1, .tokens = {464}, .sampled = 464}}, {}),
            Json::parse(R"({"op":"mid_process","freed":[],"ops":[{"id":1,"backtrack":0,
                "tokens":[464],"sampled":464,"req_id":null,"clone_id":null,"clone_idx":null}]})"));
  EXPECT_EQ(wire_c::command_of({{.id = 1, .backtrack = 2, .tokens = {11, 12}}}, {1}).at("freed"),
            Json::parse("[1]"));
}

TEST(EngineWireTest, WritesAndReadsTheSideChannel) {
  EXPECT_EQ(mk_module("\x01\xFF~"), Json::parse(R"({"op":"mk_module","binary":"Af9+"})"));
  EXPECT_EQ(mk_module("ab").at("binary"), "YWI=");
  EXPECT_EQ(instantiate({"run-a", {1, 2}, "tag", "{\"a\":1}", {}}),
            Json::parse(R"({"op":"instantiate","req_id":"run-a","prompt":[1,2],
                "module_id":"tag","module_arg":"{\"a\":1}"})"));
  EXPECT_EQ(auth_json({"ann", true}), Json::parse(R"({"user":"ann","is_admin":true})"));
  const auto a1 = read_instantiate(Json::object(), kVocab);
  EXPECT_TRUE(a1->is_plain);
  const auto a2 = read_instantiate(
      Json::parse(R"({"error":"","result":{"suspend":false,"num_forks":1,"ff_tokens":[4]},
          "storage":[],"logs":"x","micros":1})"),
      kVocab);
  EXPECT_THAT(a2->value.appended, ElementsAre(4));
  EXPECT_EQ(a2->value.log.logs, "x");
  const auto c = read_instantiate(Json::parse(R"({"error":"","result":{"prompt":[7,8]},"storage":[
          {"WriteVar":{"name":"n","value":"00ff","op":"Append","when_version_is":3}}],
          "logs":"","micros":1})"),
                                  kVocab);
  EXPECT_THAT(*c->value.prompt, ElementsAre(7, 8));
  EXPECT_EQ(c->value.log.storage.at(0).value, std::string("\0\xFF", 2));
  EXPECT_EQ(c->value.log.storage.at(0).when_version_is, 3);
  const auto failed = read_instantiate(
      Json::parse(R"({"error":"trap","result":null,"storage":[],"logs":"","micros":1})"), kVocab);
  EXPECT_EQ(failed->error, "trap");
}

TEST(EngineWireTest, ReadsErrors) {
  const auto user =
      data_of(Json::parse(R"({"type":"error","error":"no","is_user_error":true,"$rid":"1"})"));
  EXPECT_EQ(user.error().code, ErrorCode::kInvalid);
  EXPECT_EQ(user.error().message, "no");
  EXPECT_EQ(
      data_of(Json::parse(R"({"type":"error","error":"no","is_user_error":false})")).error().code,
      ErrorCode::kUnavailable);
  EXPECT_THAT(data_of(Json::parse(R"({"type":"json-error"})")).error().message,
              HasSubstr("json-error"));
  EXPECT_FALSE(data_of(Json::object()).ok());
}

// Each a path in the answer and what is put there.
TEST(EngineWireTest, NamesTheFieldThatIsWrong) {
  const std::vector<std::pair<const char*, Json>> wrong = {
      {"/seqs", Json::array()},
      {"/seqs/3/result/ff_tokens/0", kVocab},
      {"/seqs/3/result/ff_tokens/0", -1},
      {"/seqs/3/result/ff_tokens", nullptr},
      {"/seqs/3/result/backtrack", 1.5},
      {"/seqs/3/result/backtrack", std::int64_t{1} << 40},
      {"/seqs/3/error", nullptr},
      {"/seqs/3/storage", {{{"WriteVar", {{"name", "n"}, {"value", "0"}, {"op", "Set"}}}}}},
      {"/seqs/x", Json::parse(kMidDataA).at("seqs").at("2")},
      {"/num_seqs", "3"},
  };
  for (const auto& [path, value] : wrong) {
    Json data = Json::parse(kMidDataA);
    data[Json::json_pointer(path)] = value;
    const auto read = wire_a::read_mid(data, 3, kVocab);
    EXPECT_FALSE(read.ok()) << path;
  }
  Json data = Json::parse(kMidDataA);
  data["seqs"]["3"]["result"]["backtrack"] = -1;
  EXPECT_THAT(wire_a::read_mid(data, 3, kVocab).error().message,
              HasSubstr("seqs.3.result.backtrack"));
  data = Json::parse(kMidDataC);
  data["seqs"]["1"]["result"]["branches"][0]["sample_mask"] = nullptr;
  EXPECT_FALSE(wire_c::read_mid(data, kVocab).ok());
}

// The other end.
class ServerWireTest : public ::testing::Test {
 protected:
  void serve(bool is_c, int vocab_size, bool is_a2 = false) {
    runtime_ = std::make_unique<lmtp::testing::ScriptedRuntime>(
        vocab_size, [](const std::string& /*problem*/) {});
    options_.vocab_size = vocab_size;
    if (options_.eos == 0) options_.eos = 2;
    options_.rows = rows_;
    server_ = is_c ? aicirt::make_server_c(*runtime_, options_)
                   : aicirt::make_server_a(*runtime_, options_);
    side_ = std::make_unique<aicirt::SideServer>(*runtime_,
                                                 aicirt::SideOptions{.is_c = is_c, .is_a2 = is_a2},
                                                 [this](const std::string& id, Instantiated made) {
                                                   made.log = {};
                                                   server_->add_appended(id, std::move(made));
                                                 });
  }
  Json ask_side(const Json& command) {
    Json answer;
    side_->take(command.dump(), [&](Json given) { answer = std::move(given); });
    return answer;
  }
  void instantiate(const std::string& id, const std::string& script) {
    const Json answer = ask_side({{"op", "instantiate"},
                                  {"req_id", id},
                                  {"prompt", {1}},
                                  {"module_id", "script"},
                                  {"module_arg", Json::parse(script)}});
    ASSERT_EQ(answer.at("type"), "ok") << answer;
  }
  // The data, without times.
  Json ask(const std::string& command) {
    Json answer = server_->take(command);
    EXPECT_EQ(answer.at("type"), "ok") << answer;
    for (const char* key : {"seqs", "post_seqs", "pre_seqs"}) {
      if (!answer["data"].contains(key)) continue;
      for (Json& result : answer["data"][key]) result["micros"] = 0;
    }
    return answer.value("data", Json());
  }
  static Json result_in(const char* data, const char* seqs, const char* id) {
    Json result = Json::parse(data).at(seqs).at(id);
    result["micros"] = 0;
    return result;
  }

  std::vector<unsigned char> rows_ = std::vector<unsigned char>(std::size_t{4} << 20);
  aicirt::MainOptions options_;
  std::unique_ptr<lmtp::testing::ScriptedRuntime> runtime_;
  std::unique_ptr<aicirt::MainServer> server_;
  std::unique_ptr<aicirt::SideServer> side_;
};

TEST_F(ServerWireTest, AnswersTheExamplesOfA) {
  serve(false, kVocab);
  EXPECT_EQ(ask(R"({"op":"tokens"})"), Json::parse(R"({"vocab_size":51200})"));
  instantiate("run-a", R"([{"any":true},{"any":true}])");
  instantiate("run-b", R"([{"fork":[[{"splice":[10,11]}],[{"allow":[9]}]]}])");
  instantiate("run-c", R"([{"any":true}])");
  ask(R"({"op":"post_pre_process","post_ops":[],"freed":[],
      "pre_ops":[{"id":2,"req_id":"run-a"},{"id":5,"req_id":"run-c"}]})");
  ask(R"({"op":"mid_process","ops":[{"id":2}]})");
  const Json post_pre = ask(kPostPreCommand);
  EXPECT_EQ(post_pre.at("post_seqs").at("2"), result_in(kPostPreData, "post_seqs", "2"));
  EXPECT_EQ(post_pre.at("pre_seqs").at("2"), result_in(kPostPreData, "pre_seqs", "2"));
  EXPECT_EQ(post_pre.at("pre_seqs").at("3"), result_in(kPostPreData, "pre_seqs", "3"));
  EXPECT_EQ(post_pre.at("pre_seqs").at("5"), result_in(kPostPreData, "pre_seqs", "5"));
  const Json mid = ask(kMidCommandA);
  for (const char* id : {"2", "3", "7"}) {
    EXPECT_EQ(mid.at("seqs").at(id), result_in(kMidDataA, "seqs", id));
  }
  EXPECT_EQ(mid.at("num_seqs"), 3);
  const auto* row = reinterpret_cast<const float*>(rows_.data()) + std::size_t{2} * kVocab;
  EXPECT_EQ(row[9], 0.0F);
  EXPECT_EQ(row[8], -100.0F);
  EXPECT_EQ(reinterpret_cast<const float*>(rows_.data())[8], 0.0F);
}

TEST_F(ServerWireTest, AnswersTheExamplesOfC) {
  // Rows have (vocabulary + 1000) / 64 * 64 elements.
  constexpr int kExampleVocab = 50'257;
  rows_.resize(std::size_t{64} << 20);
  serve(true, kExampleVocab);
  EXPECT_EQ(ask(R"({"op":"tokens"})"), Json::parse(R"({"vocab_size":50257,"eos_token_id":2})"));
  EXPECT_THAT(server_->take(R"({"op":"post_pre_process"})").at("error").get<std::string>(),
              ::testing::StartsWith("bad op"));
  instantiate("run-a", R"([{"allow":[464]},{"splice":[11,12],"drop":2}])");
  Json wanted = Json::parse(kMidDataC);
  wanted["seqs"]["1"]["micros"] = 0;
  EXPECT_EQ(ask(kMidCommandC), wanted);
  const auto* row = reinterpret_cast<const float*>(rows_.data() + 1376);
  EXPECT_EQ(row[464], 0.0F);
  EXPECT_TRUE(std::isinf(row[465]));
  EXPECT_TRUE(std::isinf(row[51'199]));
  const Json second = ask(R"({"op":"mid_process","freed":[],
      "ops":[{"id":1,"backtrack":0,"tokens":[464],"sampled":464}]})");
  EXPECT_EQ(second.at("seqs").at("1").at("result").at("branches"),
            Json::parse(R"([{"sample_mask":null,"temperature":null,
                "splices":[{"when_sampled":[],"backtrack":2,"ff_tokens":[11,12]}]}])"));
  const Json third = ask(R"({"op":"mid_process","freed":[1],
      "ops":[{"id":1,"backtrack":2,"tokens":[11,12],"sampled":null}]})");
  EXPECT_EQ(third.at("seqs").at("1").at("result").at("branches"), Json::array());
}

TEST_F(ServerWireTest, RefusesWhatIsWrong) {
  serve(false, kVocab);
  EXPECT_EQ(server_->take("{").at("type"), "json-error");
  const Json unknown = server_->take(
      R"({"op":"post_pre_process","post_ops":[{"id":1,"tokens":[]}],"pre_ops":[],
          "freed":[],"$rid":"x"})");
  EXPECT_EQ(unknown, Json::parse(R"({"type":"error","error":"invalid id 1","is_user_error":false,
          "$rid":"x"})"));
  EXPECT_THAT(server_->take(R"({"op":"post_pre_process"})").at("error").get<std::string>(),
              HasSubstr("post_ops"));
  const Json mid = ask(R"({"op":"mid_process","ops":[{"id":9}]})");
  EXPECT_EQ(mid.at("seqs").at("9").at("error"), "Worker: invalid id 9");
  EXPECT_EQ(ask_side(Json::parse(R"({"op":"mk_module","binary":"!"})")).at("is_user_error"), true);
  EXPECT_EQ(ask_side(Json::parse(R"({"op":"ping","$rid":"7"})")),
            Json::parse(R"({"type":"ok","data":{"pong":1},"$rid":"7"})"));
  EXPECT_EQ(ask_side(Json::parse(R"({"op":"nothing"})")).at("error"), "bad op");
}

// What AICI's own Python engines have said to lmtp-aicirt, and what it answered then. A first line
// of each file says which dialect: {"dialect": "a2" or "c", "vocab_size": n}.
TEST_F(ServerWireTest, AnswersAsInTracesOfAicisOwnEngines) {
  const std::string folder = ::lmtp::testing::source_dir() + "/tests/aici/traces";
  int num_exchanges = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    SCOPED_TRACE(entry.path().filename());
    std::ifstream file(entry.path());
    std::string line;
    ASSERT_TRUE(std::getline(file, line));
    const Json head = Json::parse(line);
    rows_.resize(std::size_t{1} << 20);
    options_.rows_offset = 3;  // as the double has it
    options_.eos = head.at("vocab_size").get<int>() - 1;
    serve(head.at("dialect") == "c", head.at("vocab_size").get<int>(), head.at("dialect") == "a2");
    while (std::getline(file, line)) {
      const Json exchange = Json::parse(line);
      const Json& command = exchange.at("cmd");
      Json wanted = exchange.at("resp");
      Json answer =
          exchange.at("suff") == "-side" ? ask_side(command) : server_->take(command.dump());
      EXPECT_EQ(answer, wanted) << command;
      ++num_exchanges;
    }
  }
  EXPECT_GE(num_exchanges, 20);
}

}  // namespace
}  // namespace lmtp::aici
