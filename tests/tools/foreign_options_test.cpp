// Options that lmtp-serve does not have: those of others, and misspelt ones.
#include "lmtp-serve/foreign_options.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "parse_line.h"
#include "source_dir.h"

namespace lmtp::tools {
namespace {

void says(std::vector<const char*> arguments, const char* option, const char* instead) {
  const std::string line = mistake_of(std::move(arguments));
  EXPECT_EQ(line.rfind(std::string("lmtp-serve: ") + option, 0), 0U) << line;
  EXPECT_NE(line.find(instead), std::string::npos) << line;
}

TEST(ForeignOptions, WhatLmqlTakesIsRefusedWithWhatToUseInstead) {
  says({"gpt2", "--loader", "auto-gptq"}, "--loader: ", "--dtype int8");
  says({"--loader", "auto-gptq", "gpt2"}, "--loader: ", "--dtype int8");
  says({"--single_thread", "gpt2", "--cuda"}, "--single_thread: ", "--threads N");
  says({"gpt2", "--load_in_8bit", "True"}, "--load_in_8bit: ", "--dtype int8");
  says({"gpt2", "--load-in-4bit=True"}, "--load-in-4bit: ", "--dtype int4");
  says({"gpt2", "--device_map", "auto"}, "--device_map: ", "--cuda");
  says({"gpt2", "--cuda", "--lora-modules", "a=b"}, "--lora-modules: ", "CPUs alone");
  says({"gpt2", "--device", "cuda:1", "--lora-modules", "a=b"}, "--lora-modules: ", "CPUs alone");
  says({"gpt2", "--lora-modules", "a=b", "--lora-modules", "a=c"},
       "--lora-modules: ", "'a' is the name of two");
  says({"gpt2", "--lora-modules", "gpt2=b"}, "--lora-modules: ", "'gpt2' is the name of two");
  says({"gpt2", "balance", "localhost:8081"}, "balance: ", "lmtp-serve balance HOST:PORT");
  says({"gpt2", "--revision", "v2"}, "--revision: ", "MODEL@REVISION");
  says({"gpt2", "--torch_dtype", "float16"}, "--torch_dtype: ", "--dtype");
  says({"gpt2", "--anything", "1"}, "--anything is no option", "transformers");
  says({"gpt2", "gpt2-medium"}, "'gpt2-medium'", "MODEL is one");
  says({"gpt2", "-"}, "- is no option", "lmtp-serve --help");
}

TEST(ForeignOptions, WhatOtherServersTakeIsToo) {
  says({"gpt2", "--max-num-seqs", "8"}, "--max-num-seqs: ", "--max-concurrent-requests N");
  says({"--model-path=gpt2"}, "--model-path: ", "MODEL by itself");
  says({"--model-id", "gpt2", "--sharded", "true"}, "--model-id: ", "MODEL by itself");
  says({"-m", "a.gguf", "-ngl", "99"}, "-ngl: ", "--cuda");
  says({"-hf", "org/name"}, "-hf: ", "MODEL by itself");
  says({"a.gguf", "-ngl", "99"}, "-ngl: ", "--cuda");
  says({"gpt2", "--keepalive", "5m"}, "--keepalive: ", "--unload-after TIME");
  says({"gpt2", "--prot", "1"}, "--prot is no option", "; is --port meant?");
  says({"gpt2", "--max_batched_token=1"}, "--max_batched_token is no", "is --max-batched-tokens");
  says({"gpt2", "--kv-chace", "1GiB"}, "--kv-chace is no option", "is --kv-cache meant?");
}

TEST(ForeignOptions, NamesOfOthersAreTaken) {
  for (const std::vector<const char*>& line :
       {std::vector{"-m", "gpt2", "-c", "99", "-t", "3", "-a", "x"},
        std::vector{"--model", "gpt2", "--max-model-len", "99", "--threads", "3", "--alias", "x"},
        std::vector{"--model=gpt2", "--ctx-size=99", "-t3", "--served-model-name", "x"}}) {
    const ServeOptions options = std::get<ServeOptions>(parse(line));
    EXPECT_EQ(options.model, "gpt2");
    EXPECT_EQ(options.context_length, 99);
    EXPECT_EQ(options.num_threads, 3);
    EXPECT_EQ(options.served_names, std::vector<std::string>{"x"});
  }
  says({"--model"}, "--model is no option", "lmtp-serve");
}

TEST(Keygen, PrintsAKeyAndItsLine) {
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  const auto done = parse({"keygen", "alice"});
  const std::string out = ::testing::internal::GetCapturedStdout();
  ::testing::internal::GetCapturedStderr();
  ASSERT_TRUE(std::holds_alternative<int>(done));
  EXPECT_EQ(std::get<int>(done), 0);
  const std::regex lines(R"(sk-[0-9a-f]{64}\n\{"name": "alice", "key_sha256": "[0-9a-f]{64}"\}\n)");
  EXPECT_TRUE(std::regex_match(out, lines)) << out;
  EXPECT_NE(mistake_of({"keygen", "a b"}).find("letters, digits"), std::string::npos);
  EXPECT_NE(mistake_of({"keygen", "a", "b"}).find("one NAME"), std::string::npos);
  EXPECT_NE(mistake_of({"keygen", "-a"}).find("begin with '-'"), std::string::npos);
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(std::get<int>(parse({"keygen", "--help"})), 0);
  EXPECT_EQ(::testing::internal::GetCapturedStdout().rfind("lmtp-serve keygen [NAME]", 0), 0U);
}

// The page has the table as it is, and what is advised there is.
TEST(ForeignOptions, ThePageForThoseWhoComeFromElsewhereIsTheTable) {
  std::string table;
  std::set<std::string> names;
  for (const ForeignOption& option : foreign_options()) {
    std::string shown(option.name);
    std::ranges::replace(shown, '_', '-');
    const bool is_short = shown.size() <= 3 && shown != "rpc";
    shown.insert(0, is_short ? "-" : "--");
    EXPECT_TRUE(names.insert(shown).second) << shown;
    table += "| `" + shown + "` | " + std::string(option.of) + " | " + option.instead + " |\n";
  }
  std::ifstream file(testing::source_dir() + "/docs/coming_from.md");
  const std::string page(std::istreambuf_iterator<char>(file), {});
  const std::string head = "| option | of | here |\n|---|---|---|\n";
  const std::size_t begin = page.find(head);
  ASSERT_NE(begin, std::string::npos);
  EXPECT_EQ(page.substr(begin + head.size()), table);

  ::testing::internal::CaptureStdout();
  EXPECT_TRUE(std::holds_alternative<int>(parse({"--help"})));
  const std::string help = ::testing::internal::GetCapturedStdout();
  const std::regex option("--[a-z][a-z0-9-]+");
  for (std::sregex_iterator at(page.begin(), page.end(), option), end; at != end; ++at) {
    const bool is_known = names.contains(at->str()) || help.find(at->str()) != std::string::npos;
    EXPECT_TRUE(is_known) << at->str();
  }
}

}  // namespace
}  // namespace lmtp::tools
