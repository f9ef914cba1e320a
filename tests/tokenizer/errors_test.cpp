// Each broken or unsupported folder: the error names the file and what is wrong with it.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "lmtp/tokenizer/tokenizer.h"
#include "support/temp_folder.h"

namespace lmtp::tokenizer {
namespace {

using testing::TempFolder;

struct Case {
  const char* name;
  std::vector<std::pair<const char*, std::string>> files;
  std::vector<const char*> said;
};

std::string with(const std::string& key, const std::string& value) {
  const std::vector<std::pair<std::string, std::string>> parts = {
      {"normalizer", "null"},
      {"pre_tokenizer", R"({"type":"ByteLevel","add_prefix_space":false})"},
      {"decoder", R"({"type":"ByteLevel"})"},
      {"added_tokens", "[]"},
      {"model", R"({"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]})"}};
  std::string json = "{\"version\":\"1.0\"";
  for (const auto& [name, usual] : parts) {
    json += ",\"" + name + "\":" + (name == key ? value : usual);
  }
  return json + "}";
}

std::vector<std::pair<const char*, std::string>> json(const std::string& key,
                                                      const std::string& value) {
  return {{"tokenizer.json", with(key, value)}};
}

std::vector<Case> cases_of_folders() {
  return {
      {"empty folder", {}, {"neither tokenizer.json nor", "supported: BPE", "Gemma"}},
      {"vocab alone", {{"vocab.json", "{}"}}, {"neither tokenizer.json"}},
      {"sentencepiece", {{"tokenizer.model", "x"}}, {"tokenizer.model: not a sentencepiece"}},
      {"class of a model file",
       {{"tokenizer.model", "x"},
        {"tokenizer_config.json", R"({"tokenizer_class":"T5Tokenizer"})"}},
       {"the tokenizer.model of a T5Tokenizer", "supported"}},
      {"class of vocabulary files",
       {{"vocab.json", "{}"},
        {"merges.txt", ""},
        {"tokenizer_config.json", R"({"tokenizer_class":"CLIPTokenizerFast"})"}},
       {"vocab.json and merges.txt of a CLIPTokenizer", "supported"}},
      {"tekken without a pattern",
       {{"tekken.json", R"({"config":{},"vocab":[]})"}},
       {"tekken.json: 'config.pattern' is missing"}},
      {"tekken with bad bytes",
       {{"tekken.json", R"({"config":{"pattern":"a"},"vocab":[{"token_bytes":"Y"}]})"}},
       {"tekken.json: 'vocab', entry 0: 'token_bytes' is not base64"}},
      {"a tekken.json in another order",
       {{"tekken.json", R"({"config":{"pattern":"a"},"vocab":[{"rank":1,"token_bytes":"YQ=="}]})"}},
       {"tekken.json: 'vocab', entry 0: its 'rank' is not its place in the list"}},
      {"tekken with one rank twice",
       {{"tekken.json", R"({"config":{"pattern":"a"},"vocab":[],"special_tokens":[
            {"rank":0,"token_str":"<s>"},{"rank":0,"token_str":"</s>"}]})"}},
       {"'special_tokens': an entry has no rank of its own"}},
      {"tiktoken",
       {{"a.tiktoken", "YQ== 0\nYg== x\n"}},
       {"a.tiktoken: line 2 is not base64 and a rank"}},
      {"tiktoken with a token far away",
       {{"tiktoken.model", "YQ== 0\n"},
        {"tokenizer_config.json", R"({"added_tokens_decoder":{"2000000000":{"content":"x"}}})"}},
       {"adds a token with the id 2000000000, far beyond"}},
      {"tekken with too many",
       {{"tekken.json",
         R"({"config":{"pattern":"a","default_num_special_tokens":9999999},"vocab":[]})"}},
       {"'config.default_num_special_tokens' is too high"}},
      {"tiktoken of another class than Llama 3's",
       {{"tiktoken.model", "YQ== 0\n"},
        {"tokenizer_config.json", R"({"tokenizer_class":"TikTokenTokenizer"})"}},
       {"tiktoken.model: has no pattern", "class 'TikTokenTokenizer' is not known"}},
      {"tiktoken of another class by its model",
       {{"qwen.tiktoken", "YQ== 0\n"}, {"config.json", R"({"model_type":"qwen2"})"}},
       {"class 'Qwen2Tokenizer' is not known"}},
      {"tiktoken with a gap",
       {{"tiktoken.model", "YQ== 0\nYg== 2\n"}},
       {"no token has the rank 1"}},
      {"tiktoken with a huge rank",
       {{"tiktoken.model", "YQ== 4294967295\n"}},
       {"tiktoken.model: line 1"}},
      {"not JSON", {{"tokenizer.json", "{"}}, {"tokenizer.json: not a JSON object"}},
      {"an array", {{"tokenizer.json", "[]"}}, {"tokenizer.json: not a JSON object"}},
      {"empty file", {{"tokenizer.json", ""}}, {"tokenizer.json: not a JSON object"}},
      {"merges line",
       {{"vocab.json", R"({"a":0})"}, {"merges.txt", "#version: 0.2\na\n"}},
       {"merges.txt, line 2", "merge 'a'"}},
      {"merges bytes",
       {{"vocab.json", R"({"a":0})"}, {"merges.txt", "\xFF \xFF\n"}},
       {"not UTF-8"}},
      {"config",
       {{"vocab.json", R"({"a":0})"}, {"merges.txt", ""}, {"tokenizer_config.json", "x"}},
       {"tokenizer_config.json: not JSON: line 1, column 1"}},
      {"null in the config",
       {{"vocab.json", R"({"a":0})"},
        {"merges.txt", ""},
        {"tokenizer_config.json", R"({"added_tokens_decoder":{"5":{"content":NaN}}})"}},
       {"tokenizer_config.json: 'added_tokens_decoder': '5': 'content' is null"}},
  };
}

std::vector<Case> cases_of_parts() {
  return {
      {"normalizer",
       json("normalizer", R"({"type":"StripAccents"})"),
       {"normalizer is 'StripAccents'", "supported"}},
      {"charsmap",
       json("normalizer", R"({"type":"Precompiled","precompiled_charsmap":"YWJ"})"),
       {"the 'precompiled_charsmap' of a 'Precompiled' is not base64"}},
      {"no charsmap",
       json("normalizer", R"({"type":"Precompiled"})"),
       {"a 'Precompiled': the charsmap is cut off"}},
      {"normalizer in a sequence",
       json("normalizer", R"({"type":"Sequence","normalizers":[{"type":"NFC"},{"type":"Bert"}]})"),
       {"normalizer is 'Bert'"}},
      {"empty sequence", json("normalizer", R"({"type":"Sequence"})"), {"no 'normalizers'"}},
      {"normalizer of text", json("normalizer", "3"), {"'normalizer' is not an object"}},
      {"replace", json("normalizer", R"({"type":"Replace","content":"x"})"), {"no 'pattern'"}},
      {"regex",
       json("normalizer", R"({"type":"Replace","pattern":{"Regex":"(?x)a"},"content":""})"),
       {"the pattern '(?x)a': '(?x' is not supported", "supported: "}},
      {"pre-tokenizer", json("pre_tokenizer", R"({"type":"UnicodeScripts"})"), {"'UnicodeScripts"}},
      {"behavior",
       json("pre_tokenizer", R"({"type":"Split","pattern":{"String":"x"},"behavior":"Odd"})"),
       {"behavior is 'Odd'"}},
      {"scheme",
       json("pre_tokenizer", R"({"type":"Metaspace","prepend_scheme":"last"})"),
       {"prepend_scheme is 'last'"}},
      {"decoder", json("decoder", R"({"type":"WordPiece"})"), {"decoder is 'WordPiece'"}},
  };
}

std::vector<Case> cases_of_models() {
  return {
      {"no model", json("model", "3"), {"'model' is missing"}},
      {"word pieces", json("model", R"({"type":"WordPiece","vocab":[]})"), {"is 'WordPiece'"}},
      {"words",
       json("model", R"({"type":"WordLevel","vocab":{"a":0},"unk_token":"?"})"),
       {"'model.unk_token': '?' is not in the vocabulary"}},
      {"word with a bad id",
       json("model", R"({"type":"WordLevel","vocab":{"a":-1},"unk_token":"a"})"),
       {"the id of 'a' is not allowed"}},
      {"dropout", json("model", R"({"dropout":0.1,"vocab":{},"merges":[]})"), {"dropout"}},
      {"no vocab", json("model", R"({"type":"BPE","merges":[]})"), {"'model.vocab' is missing"}},
      {"no merges", json("model", R"({"type":"BPE","vocab":{}})"), {"'model.merges' is missing"}},
      {"text id", json("model", R"({"vocab":{"a":"0"},"merges":[]})"), {"id of 'a'"}},
      {"negative id", json("model", R"({"vocab":{"a":-1},"merges":[]})"), {"'a' has id -1"}},
      {"huge id", json("model", R"({"vocab":{"a":99999999},"merges":[]})"), {"has id 99999999"}},
      {"merge of one", json("model", R"({"vocab":{"a":0},"merges":["a"]})"), {"merge 'a'"}},
      {"merge of three", json("model", R"({"vocab":{"a":0},"merges":["a a a"]})"), {"'a a a'"}},
      {"merge of numbers", json("model", R"({"vocab":{"a":0},"merges":[[1,2]]})"), {"neither"}},
      {"unknown part",
       json("model", R"({"vocab":{"a":0},"merges":["a x"]})"),
       {"'x', which is not in the vocabulary"}},
      {"unknown result", json("model", R"({"vocab":{"a":0},"merges":["a a"]})"), {"'aa'"}},
      {"suffix",
       json("model", R"({"end_of_word_suffix":"</w>","vocab":{},"merges":[]})"),
       {"end_of_word_suffix", "supported"}},
      {"added without id", json("added_tokens", R"([{"content":"x"}])"), {"no id or no content"}},
      {"added with bad id", json("added_tokens", R"([{"id":-5,"content":"x"}])"), {"'x' has id"}},
  };
}

TEST(LoadTokenizer, SaysWhatIsWrong) {
  std::vector<Case> cases = cases_of_folders();
  for (auto& more : {cases_of_parts(), cases_of_models()}) {
    cases.insert(cases.end(), more.begin(), more.end());
  }
  for (const Case& c : cases) {
    const TempFolder folder;
    for (const auto& [name, text] : c.files) folder.write(name, text);
    const auto loaded = load_tokenizer(folder.path());
    ASSERT_FALSE(loaded.ok()) << c.name;
    for (const char* part : c.said) {
      EXPECT_NE(loaded.error().message.find(part), std::string::npos)
          << c.name << ": '" << loaded.error().message << "' lacks '" << part << "'";
    }
  }
}

TEST(LoadTokenizer, TheCasesAreOnlyWrongWhereTheySaySo) {
  const TempFolder folder;
  folder.write("tokenizer.json", with("", ""));
  EXPECT_TRUE(load_tokenizer(folder.path()).ok());
}

TEST(LoadTokenizer, AMissingFolderIsNamed) {
  const auto loaded = load_tokenizer("/nowhere/at/all");
  ASSERT_FALSE(loaded.ok());
  EXPECT_EQ(loaded.error().message, "/nowhere/at/all: not a folder");
}

}  // namespace
}  // namespace lmtp::tokenizer
