// The command line of lmtp-serve.
#include "lmtp-serve/serve_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <variant>
#include <vector>

#include "lmtp-serve/option_values.h"
#include "parse_line.h"
#include "temp_folder.h"

namespace lmtp::tools {
namespace {

TEST(ServeOptions, HaveTheDocumentedDefaults) {
  const ServeOptions options = options_of({"demo"});
  EXPECT_EQ(options.model, "demo");
  EXPECT_EQ(options.device, "cpu");
  EXPECT_EQ(options.host, "127.0.0.1");
  EXPECT_EQ(options.port, 8080);
  EXPECT_EQ(options.kv_cache_bytes, 0);
  EXPECT_EQ(options.max_concurrent_requests, 1024);
  EXPECT_EQ(options.max_message_bytes, 16U << 20);
}

TEST(ServeOptions, AChatTemplateIsUtf8) {
  const testing::TempFolder folder;
  folder.write("good.jinja", "caf\xc3\xa9");
  folder.write("bad.jinja", "caf\xe9");
  const std::string good = folder.path() + "/good.jinja";
  const std::string bad = folder.path() + "/bad.jinja";
  EXPECT_EQ(options_of({"demo", "--chat-template", good.c_str()}).chat_template_file, good);
  EXPECT_THAT(mistake_of({"demo", "--chat-template", bad.c_str()}),
              ::testing::HasSubstr(bad + " is not UTF-8"));
}

TEST(ServeOptions, AnUnknownFormatOfCallsIsAnsweredByTheNames) {
  for (const char* name : {"hermes", "none"}) {
    EXPECT_EQ(options_of({"demo", "--tool-call-format", name}).tool_call_format, name);
  }
  EXPECT_EQ(options_of({"demo"}).tool_call_format, "");
  const std::string mistake = mistake_of({"demo", "--tool-call-format", "Hermes"});
  for (const char* part : {"--tool-call-format: 'Hermes' is no format", " none, ", " hermes"}) {
    EXPECT_THAT(mistake, ::testing::HasSubstr(part));
  }
  EXPECT_THAT(mistake_of({"auto", "--tool-call-format", "hermes"}),
              ::testing::HasSubstr("--tool-call-format: is of one model"));
}

TEST(ServeOptions, TemperaturesOfDecisionsAreOfAllKindsOrByKind) {
  const auto temperature = [](const char* text) {
    return options_of({"demo", "--decision-temperature", text}).decisions.temperature;
  };
  EXPECT_THAT(temperature("1.5"), ::testing::ElementsAre(1.5, 1.5, 1.5));
  EXPECT_THAT(temperature("score=2,noul=0.5"), ::testing::ElementsAre(0.5, 0, 2));
  for (const char* wrong : {"0", "-1", "inf", "x", "noul", "noul=", "other=1", "1,2", "nan"}) {
    EXPECT_THAT(mistake_of({"demo", "--decision-temperature", wrong}),
                ::testing::HasSubstr("allowed is a number above 0, or one for each kind"))
        << wrong;
  }
}

TEST(ServeOptions, TheEnvironmentNamesTheModelWhereNoneIsGiven) {
  EXPECT_EQ(options_of({}).model, "auto");
  setenv("LMTP_DEFAULT_MODEL", "demo", 1);
  EXPECT_EQ(options_of({}).model, "demo");
  EXPECT_EQ(options_of({"--port", "9000"}).model, "demo");
  EXPECT_EQ(options_of({"doctor"}).model, "demo");
  EXPECT_EQ(options_of({"auto"}).model, "auto");
  EXPECT_EQ(options_of({"--cuda", "gpt2"}).model, "gpt2");
  for (const char* option : {"--max-models=2", "--unload-after=1h", "--model-dir=."}) {
    EXPECT_EQ(options_of({option}).model, "auto") << option;
  }
  setenv("LMTP_DEFAULT_MODEL", "", 1);
  EXPECT_EQ(options_of({}).model, "auto");
  unsetenv("LMTP_DEFAULT_MODEL");
}

TEST(ServeOptions, AUnixSocketTakesThePlaceOfTcpUnlessThatIsAskedFor) {
  EXPECT_TRUE(options_of({"demo"}).on_tcp);
  const ServeOptions alone = options_of({"demo", "--listen", "unix:/run/l.sock"});
  EXPECT_EQ(alone.unix_path, "/run/l.sock");
  EXPECT_FALSE(alone.on_tcp);
  EXPECT_TRUE(options_of({"demo", "--listen", "unix:l", "--port", "0"}).on_tcp);
  EXPECT_TRUE(options_of({"demo", "--listen", "unix:l", "--host", "::1"}).on_tcp);
  const ServeOptions stdio = options_of({"demo", "--stdio"});
  EXPECT_TRUE(stdio.on_stdio && !stdio.on_tcp && stdio.unix_path.empty());
}

TEST(ServeOptions, DoctorIsTheFirstWord) {
  const ServeOptions options = options_of({"doctor", "m", "--port", "9000"});
  EXPECT_TRUE(options.is_doctor);
  EXPECT_EQ(options.model, "m");
  EXPECT_EQ(options.port, 9000);
  EXPECT_TRUE(options_of({"doctor"}).is_auto());
  EXPECT_EQ(options_of({"--force", "doctor"}).model, "doctor");
  EXPECT_FALSE(options_of({"./doctor"}).is_doctor);
}

TEST(ServeOptions, AreRead) {
  const ServeOptions options = options_of({"--static",   "--port",
                                           "9000",       "--host",
                                           "::1",        "m",
                                           "--kv-cache", "1.5GiB",
                                           "--cuda",     "--threads",
                                           "3",          "--max-batched-tokens",
                                           "64",         "--max-concurrent-requests",
                                           "5",          "--max-message-size",
                                           "1MiB",       "--shutdown-timeout",
                                           "0.5",        "--log-level",
                                           "error",      "--context-length",
                                           "8192",       "--force"});
  EXPECT_EQ(options.model, "m");
  EXPECT_EQ(options.device, "cuda");
  EXPECT_EQ(options.host, "::1");
  EXPECT_EQ(options.port, 9000);
  EXPECT_EQ(options.kv_cache_bytes, 3LL << 29);
  EXPECT_EQ(options.num_threads, 3);
  EXPECT_EQ(options.batch.max_tokens, 64);
  EXPECT_EQ(options.max_concurrent_requests, 5);
  EXPECT_EQ(options.max_message_bytes, 1U << 20);
  EXPECT_EQ(options.shutdown_timeout_ms, 500);
  EXPECT_EQ(options.log_level, log::Level::kError);
  EXPECT_EQ(options.context_length, 8192);
  EXPECT_TRUE(options.force);
}

TEST(ServeOptions, TensorParallelSizeHasTheNamesThatOthersGiveIt) {
  EXPECT_EQ(options_of({"demo"}).tensor_parallel_size, 1);
  for (const char* option : {"--tensor-parallel-size", "--tp", "--num-shard"}) {
    EXPECT_EQ(options_of({"demo", option, "4"}).tensor_parallel_size, 4) << option;
  }
  EXPECT_NE(mistake_of({"demo", "--tp", "0"}).find("--tensor-parallel-size"), std::string::npos);
}

TEST(ServeOptions, OfRanksGoToTheServersOfALayout) {
  EXPECT_EQ(options_of({"demo"}).communicator, "auto");
  EXPECT_EQ(options_of({"demo", "--tp", "2", "--communicator", "gloo"}).communicator, "gloo");
  EXPECT_EQ(options_of({"demo", "--layout", "2x2", "--communicator", "gloo"}).child_arguments,
            (std::vector<std::string>{"--communicator=gloo", "--tensor-parallel-size=2"}));
}

TEST(ServeOptions, OfConnectionsAreRead) {
  const ServeOptions options = options_of(
      {"demo", "--max-read-buffers", "32MiB", "--max-write-queues", "1GiB", "--allow-origin",
       "https://a.example", "--allow-origin", "http://b:3000", "--allow-origin", "http://c:*",
       "--allow-origin", "null", "--allow-origin", "*", "--allow-host", "lm.example"});
  EXPECT_EQ(options.max_read_buffers_bytes, 32U << 20);
  EXPECT_EQ(options.max_write_queues_bytes, 1U << 30);
  EXPECT_EQ(options.allowed_origins, (std::vector<std::string>{"https://a.example", "http://b:3000",
                                                               "http://c:*", "null", "*"}));
  EXPECT_EQ(options.allowed_hosts, std::vector<std::string>{"lm.example"});
  EXPECT_NE(mistake_of({"demo", "--max-read-buffers", "8MiB"}).find("16 MiB and more"),
            std::string::npos)
      << "the longest message has no room";
  for (const char* origin : {"a.example", "://a", "https://", "https://:*", "https://*.a",
                             "http*://a", "https://a:*/", "https://a.example/"}) {
    EXPECT_NE(mistake_of({"demo", "--allow-origin", origin}).find("SCHEME://HOST"),
              std::string::npos)
        << origin;
  }
}

TEST(ServeOptions, ATraceIsBounded) {
  EXPECT_EQ(options_of({"demo"}).tracing.path, "");
  const ServeOptions usual = options_of({"demo", "--trace", "t.json"});
  EXPECT_EQ(usual.tracing.path, "t.json");
  EXPECT_EQ(usual.tracing.max_bytes, 256 << 20);
  EXPECT_EQ(options_of({"demo", "--trace-limit", "1GiB"}).tracing.max_bytes, 1 << 30);
  EXPECT_NE(mistake_of({"demo", "--trace-limit", "1KiB"}).find("allowed are 64 KiB and more"),
            std::string::npos);
  EXPECT_NE(mistake_of({"balance", "a:1", "--trace", "t"}).find("--trace: is not for a balancer"),
            std::string::npos);
  EXPECT_NE(mistake_of({"demo", "--layout", "2x1", "--trace", "t"}).find("does not go with"),
            std::string::npos);
}

TEST(ServeOptions, OfHttpRequestsAreThoseOfTgi) {
  const ServeOptions usual = options_of({"demo"});
  EXPECT_EQ(usual.api.max_best_of, 2);
  EXPECT_EQ(usual.api.max_stop_sequences, 4);
  EXPECT_EQ(usual.api.max_top_n_tokens, 5);
  const ServeOptions options = options_of(
      {"demo", "--max-best-of", "1", "--max-stop-sequences", "0", "--max-top-n-tokens", "9"});
  EXPECT_EQ(options.api.max_best_of, 1);
  EXPECT_EQ(options.api.max_stop_sequences, 0);
  EXPECT_EQ(options.api.max_top_n_tokens, 9);
  EXPECT_NE(mistake_of({"demo", "--max-best-of", "0"}).find("--max-best-of"), std::string::npos);
  EXPECT_NE(mistake_of({"demo", "--max-stop-sequences", "17"}).find("--max-stop-sequences"),
            std::string::npos);
}

TEST(ServeOptions, OfSchedulingAreThoseOfTgi) {
  const ServeOptions usual = options_of({"demo"});
  EXPECT_EQ(usual.max_input_tokens, 0);
  EXPECT_EQ(usual.max_total_tokens, 0);
  EXPECT_EQ(usual.batch.max_prefill_tokens, 0);
  EXPECT_EQ(usual.batch.max_total_tokens, 0);
  EXPECT_FALSE(usual.batch.pacing);
  const ServeOptions options =
      options_of({"demo", "--max-input-tokens", "100", "--max-total-tokens", "101",
                  "--max-batch-prefill-tokens", "64", "--max-batch-total-tokens", "101",
                  "--waiting-served-ratio", "1.2", "--max-waiting-tokens", "7"});
  EXPECT_EQ(options.max_input_tokens, 100);
  EXPECT_EQ(options.max_total_tokens, 101);
  EXPECT_EQ(options.batch.max_prefill_tokens, 64);
  EXPECT_EQ(options.batch.max_total_tokens, 101);
  EXPECT_EQ(options.batch.pacing->waiting_served_ratio, 1.2);
  EXPECT_EQ(options.batch.pacing->max_waiting_steps, 7);
  EXPECT_EQ(options_of({"demo", "--max-input-length", "5"}).max_input_tokens, 5);
  // One brings TGI's value of the other.
  EXPECT_EQ(options_of({"demo", "--waiting-served-ratio", "2"}).batch.pacing->max_waiting_steps,
            20);
  EXPECT_EQ(options_of({"demo", "--max-waiting-tokens", "5"}).batch.pacing->waiting_served_ratio,
            0.3);
}

TEST(ServeOptions, WhoseNamesMetricsHave) {
  const auto aliases_of = [](const char* names) {
    const server::MetricsAliases aliases =
        options_of({"demo", "--metrics-aliases", names}).metrics_aliases;
    return std::pair(aliases.vllm, aliases.tgi);
  };
  EXPECT_TRUE(options_of({"demo"}).metrics_aliases.vllm);
  EXPECT_TRUE(options_of({"demo"}).metrics_aliases.tgi);
  EXPECT_EQ(aliases_of("vllm,tgi"), std::pair(true, true));
  EXPECT_EQ(aliases_of("tgi"), std::pair(false, true));
  EXPECT_EQ(aliases_of("none"), std::pair(false, false));
  EXPECT_NE(mistake_of({"demo", "--metrics-aliases", "sglang"}).find("--metrics-aliases"),
            std::string::npos);
  EXPECT_NE(mistake_of({"demo", "--metrics-aliases", "none,tgi"}).find("not both"),
            std::string::npos);
}

TEST(ServeOptions, ThatContradictEachOtherAreRefused) {
  const auto says = [](std::vector<const char*> arguments, const char* what) {
    EXPECT_NE(mistake_of(std::move(arguments)).find(what), std::string::npos) << what;
  };
  says({"demo", "--max-input-tokens", "10", "--max-total-tokens", "10"},
       "--max-input-tokens: 10 is too large; with --max-total-tokens 10 at most 9 are allowed");
  says({"demo", "--max-input-tokens", "10", "--max-batch-total-tokens", "9"},
       "with --max-batch-total-tokens 9 at most 8");
  says({"demo", "--max-input-tokens", "64", "--context-length", "64"},
       "with --context-length 64 at most 63");
  says({"demo", "--max-total-tokens", "65", "--context-length", "64"}, "at most 64");
  says({"demo", "--max-total-tokens", "11", "--max-batch-total-tokens", "10"},
       "--max-total-tokens: 11 is too large; with --max-batch-total-tokens 10 at most 10");
  says({"demo", "--waiting-served-ratio", "-1"}, "--waiting-served-ratio");
  says({"demo", "--max-batch-prefill-tokens", "0"}, "--max-batch-prefill-tokens");
}

TEST(ServeOptions, WithoutAModelServeAny) {
  for (const ServeOptions& options : {options_of({}), options_of({"auto"})}) {
    EXPECT_TRUE(options.is_auto());
    EXPECT_EQ(options.max_models, 3);
    EXPECT_EQ(options.unload_after_ms, 30 * 60 * 1000);
    EXPECT_TRUE(options.model_dirs.empty());
    EXPECT_TRUE(options.allow_download.empty());
  }
  const ServeOptions options =
      options_of({"--max-models", "5", "--unload-after", "never", "--model-dir", "a", "auto",
                  "--model-dir", "b", "--allow-download"});
  EXPECT_TRUE(options.is_auto());
  EXPECT_EQ(options.max_models, 5);
  EXPECT_EQ(options.unload_after_ms, 0);
  EXPECT_EQ(options.model_dirs, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(options.allow_download, std::vector<std::string>{"*"});
  EXPECT_EQ(options_of({"--allow-download=org/*", "--allow-download=gpt2"}).allow_download,
            (std::vector<std::string>{"org/*", "gpt2"}));
  EXPECT_EQ(options_of({"--allow-download", "auto"}).allow_download, std::vector<std::string>{"*"});
  EXPECT_EQ(options_of({"--download-max", "20GB"}).download_bytes_max, 20'000'000'000);
  EXPECT_FALSE(options_of({"demo", "--model-dir", "a"}).is_auto());
}

TEST(ServeOptions, MistakesAreOneLineThatNamesTheOption) {
  EXPECT_NE(mistake_of({"--max-models", "0"}).find("--max-models"), std::string::npos);
  EXPECT_NE(mistake_of({"--unload-after", "soon"}).find("--unload-after"), std::string::npos);
  EXPECT_NE(mistake_of({"auto", "--static"}).find("--static"), std::string::npos);
  EXPECT_NE(mistake_of({"demo", "--max-models", "2"}).find("--max-models"), std::string::npos);
  EXPECT_NE(mistake_of({"demo", "--unload-after", "1h"}).find("--unload-after"), std::string::npos);
  EXPECT_NE(mistake_of({"demo", "--allow-download"}).find("--allow-download"), std::string::npos);
  EXPECT_NE(mistake_of({"--download-max", "much"}).find("--download-max"), std::string::npos);
  EXPECT_NE(mistake_of({"demo", "--prot", "1"}).find("--prot"), std::string::npos);
  EXPECT_NE(mistake_of({"demo", "--port", "70000"}).find("--port"), std::string::npos);
  EXPECT_NE(mistake_of({"demo", "--port", "x"}).find("--port"), std::string::npos);
  EXPECT_NE(mistake_of({"demo", "--kv-cache", "lots"}).find("--kv-cache"), std::string::npos);
  EXPECT_NE(mistake_of({"demo", "--max-message-size", "5"}).find("--max-message-size"),
            std::string::npos);
  EXPECT_NE(mistake_of({"demo", "--threads", "-1"}).find("--threads"), std::string::npos);
  EXPECT_NE(mistake_of({"demo", "--log-level", "loud"}).find("--log-level"), std::string::npos);
}

TEST(ServeOptions, NamesOfTheServedModelAreItsOwn) {
  const ServeOptions options =
      options_of({"demo", "--served-model-name", "org/a", "--served-model-name=b", "--lora-modules",
                  R"({"name": "c", "path": "p", "base_model_name": "b"})"});
  EXPECT_THAT(options.served_names, ::testing::ElementsAre("org/a", "b"));
  EXPECT_EQ(options.shown_name(), "org/a");
  EXPECT_EQ(options_of({"demo"}).shown_name(), "demo");
  const auto says = [](std::vector<const char*> arguments, const char* what) {
    EXPECT_THAT(mistake_of(std::move(arguments)), ::testing::HasSubstr(what));
  };
  const std::string long_name(257, 'a');
  for (const char* name :
       {"--served-model-name=a\nb", "--served-model-name=caf\xe9", "--served-model-name=a\x7f"}) {
    says({"demo", name}, "--served-model-name: allowed are names of 1 to 256 bytes");
  }
  says({"demo", "--served-model-name="}, "--served-model-name: 1 required NAME missing");
  says({"demo", "--served-model-name", long_name.c_str()}, "1 to 256 bytes");
  says({"demo", "--served-model-name", "a", "--lora-modules", "a=b"}, "'a' is the name of two");
  says({"demo", "--served-model-name", "a", "b"},
       "'b' is one name too many; MODEL is one, and --served-model-name is repeated for each");
  says({"--served-model-name", "a"}, "--served-model-name: is of one model: name MODEL");
  says({"balance", "h:1", "--served-model-name", "a"},
       "--served-model-name: is not for a balancer; give it to the workers");
}

TEST(ServeOptions, ABalancerHasWorkersAndNothingThatComputes) {
  const ServeOptions options =
      options_of({"balance", "a:8081", "[::1]:8082", "unix:/run/l.sock", "--port", "9000",
                  "--policy", "leastconn", "--worker-timeout", "0.5"});
  ASSERT_TRUE(options.is_balancer());
  ASSERT_EQ(options.balance.workers.size(), 3U);
  EXPECT_EQ(options.balance.workers[0].host, "a");
  EXPECT_EQ(options.balance.workers[1].host, "::1");
  EXPECT_EQ(options.balance.workers[1].port, 8082);
  EXPECT_EQ(options.balance.workers[2].host, "unix:/run/l.sock");
  EXPECT_EQ(options.balance.policy, balance::Policy::kLeastConn);
  EXPECT_EQ(options.balance.worker_timeout_ms, 500);
  EXPECT_EQ(options.balance.max_requests, 3U * 1024);
  EXPECT_EQ(options.port, 9000);
  EXPECT_FALSE(options_of({"demo"}).is_balancer());
  const auto says = [](std::vector<const char*> arguments, const char* what) {
    const std::string line = mistake_of(std::move(arguments));
    EXPECT_NE(line.find(what), std::string::npos) << line;
  };
  EXPECT_EQ(options_of({"balance", "a:1"}).balance.message_bytes_max, std::size_t{16} << 20);
  EXPECT_EQ(options_of({"balance", "a:1", "--max-write-queue", "1MiB"}).balance.message_bytes_max,
            std::size_t{16} << 20);
  EXPECT_EQ(options_of({"balance", "a:1", "--max-write-queue", "64MiB"}).balance.message_bytes_max,
            std::size_t{64} << 20);
  says({"balance"}, "WORKER");
  says({"balance", "a"}, "'a' is no worker; write HOST:PORT");
  says({"balance", "a:0"}, "is no worker");
  says({"balance", "a:70000"}, "is no worker");
  says({"balance", "::1:8080"}, "is no worker");
  says({"balance", "a:1", "a:1"}, "'a:1' is named twice");
  says({"balance", "a:1", "--cuda"}, "--cuda: is not for a balancer");
  says({"balance", "a:1", "--policy", "best"}, "--policy");
  says({"balance", "a:1", "--balance-factor", "0.5"}, "--balance-factor");
  says({"balance", "a:1", "--worker-stall-timeout", "1"}, "10 and more");
  std::vector<std::string> names;
  for (int i = 0; i < 17; ++i) names.push_back("a:" + std::to_string(i + 1));
  std::vector<const char*> many = {"balance", "--worker-connections", "64"};
  for (const std::string& name : names) many.push_back(name.c_str());
  says(many, "at most 1024");
}

TEST(ServeOptions, ALayoutsServersHaveWhatIsNotTheBalancers) {
  const ServeOptions options = options_of(
      {"demo", "--layout", "2x1", "--port", "9000", "--api-key=k", "--dtype", "bf16", "--force",
       "--served-model-name", "n", "--lora-modules", "a=b", "c=d", "--shutdown-timeout", "5"});
  EXPECT_EQ(options.num_children, 2);
  EXPECT_THAT(options.child_arguments,
              ::testing::UnorderedElementsAre("--dtype=bf16", "--force=true",
                                              "--served-model-name=n", "--lora-modules=a=b",
                                              "--lora-modules=c=d", "--shutdown-timeout=5"));
  EXPECT_EQ(options.balance.max_requests, 2U * 1024);
  EXPECT_EQ(options.port, 9000);
  EXPECT_FALSE(options.is_balancer());
  EXPECT_FALSE(options_of({"demo"}).has_layout());
  EXPECT_EQ(options_of({"demo", "--layout", "64x1", "--cuda"}).num_children, 64);
  const ServeOptions divided = options_of({"demo", "--layout", "2x4"});
  EXPECT_EQ(divided.num_children, 2);
  EXPECT_EQ(divided.tensor_parallel_size, 4);
  EXPECT_EQ(divided.child_arguments, std::vector<std::string>{"--tensor-parallel-size=4"});
  EXPECT_EQ(options_of({"demo", "--layout", "2x1", "--max-concurrent-requests", "7"})
                .balance.max_requests,
            7U);
}

TEST(ServeOptions, ALayoutThatCannotBeIsRefusedWithWhatCan) {
  const auto says = [](std::vector<const char*> arguments, const char* what) {
    const std::string line = mistake_of(std::move(arguments));
    EXPECT_NE(line.find(what), std::string::npos) << line;
  };
  for (const char* layout : {"0x1", "2x0", "x", "2x", "x1", "2", "-2x1", "2x1x", "2X1", "65x1",
                             "2x-1", "99999999999x1", " 2x1"}) {
    says({"demo", "--layout", layout}, "is no layout; write GROUPSxDEVICES with 1 to 64 groups");
  }
  says({"demo", "--layout", "2x4", "--tp", "4"}, "write 2x4, and leave this option out");
  says({"--layout", "2x1"}, "--layout: is of one model: name MODEL");
  says({"auto", "--layout", "2x1"}, "--layout: is of one model: name MODEL");
  says({"demo", "--layout", "2x1", "--device", "cuda:1"}, "CUDA_VISIBLE_DEVICES");
  says({"demo", "--layout", "2x1", "--stdio"}, "--stdio: does not go with --layout");
  says({"demo", "--layout", "2x1", "--aici"}, "--aici: does not go with --layout");
  says({"demo", "--layout", "2x1", "--allow-runtime-lora"}, "does not go with --layout");
  says({"doctor", "demo", "--layout", "2x1"}, "--layout: is not for doctor");
  says({"balance", "a:1", "--layout", "2x1"}, "--layout: is not for a balancer");
}

TEST(ServeOptions, HelpAndVersionEndWell) {
  for (const char* option : {"--help", "--version"}) {
    ::testing::internal::CaptureStdout();
    const auto parsed = parse({option});
    const std::string text = ::testing::internal::GetCapturedStdout();
    ASSERT_TRUE(std::holds_alternative<int>(parsed));
    EXPECT_EQ(std::get<int>(parsed), 0);
    EXPECT_NE(text.find("lmtp-serve"), std::string::npos);
  }
}

TEST(Sizes, AreReadWithTheirUnits) {
  EXPECT_EQ(*parse_size("0"), 0);
  EXPECT_EQ(*parse_size("4096"), 4096);
  EXPECT_EQ(*parse_size("4k"), 4096);
  EXPECT_EQ(*parse_size("4KiB"), 4096);
  EXPECT_EQ(*parse_size("4 kB"), 4000);
  EXPECT_EQ(*parse_size("512MiB"), 512LL << 20);
  EXPECT_EQ(*parse_size("0.5G"), 512LL << 20);
  EXPECT_EQ(*parse_size("2TiB"), 2LL << 40);
  for (const char* wrong : {"", "x", "-1", "1x", "MiB", "1e30", "nan", "1 MiB x"}) {
    EXPECT_FALSE(parse_size(wrong).ok()) << wrong;
  }
}

TEST(Durations, AreReadWithTheirUnits) {
  EXPECT_EQ(*parse_duration_ms("90"), 90'000);
  EXPECT_EQ(*parse_duration_ms("90s"), 90'000);
  EXPECT_EQ(*parse_duration_ms("30m"), 1'800'000);
  EXPECT_EQ(*parse_duration_ms("1.5h"), 5'400'000);
  EXPECT_EQ(*parse_duration_ms("2D"), 172'800'000);
  EXPECT_EQ(*parse_duration_ms("0"), 0);
  EXPECT_EQ(*parse_duration_ms("never"), 0);
  EXPECT_EQ(*parse_duration_ms("0.00001"), 1) << "not never";
  for (const char* wrong : {"", "m", "-1", "1w", "1 x", "nan", "1e30", "30 m"}) {
    EXPECT_FALSE(parse_duration_ms(wrong).ok()) << wrong;
  }
}

}  // namespace
}  // namespace lmtp::tools
