// A sample of 131072 tokens on 8 ranks, under a limit of memory that one rank breaks. Minutes: with
// DANLU_SLOW only.
#include <sys/resource.h>

#include <cstdlib>
#include <fstream>

#include "base/json.h"
#include "cli/launch.h"
#include "cli/logged_steps.h"
#include "support/slow.h"

namespace danlu::test {
namespace {

constexpr int64_t kTokens = 131072;
/// What each process's data may take (RLIMIT_DATA). Training asks for 1.2 GiB of it to begin.
constexpr rlim_t kLimitBytes = rlim_t{1465} << 20;

class DataLimit {
 public:
  DataLimit() {
    ::getrlimit(RLIMIT_DATA, &before_);
    const rlimit limit{kLimitBytes, before_.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_DATA, &limit), 0);
  }
  ~DataLimit() { ::setrlimit(RLIMIT_DATA, &before_); }
  DataLimit(const DataLimit&) = delete;
  DataLimit& operator=(const DataLimit&) = delete;

 private:
  rlimit before_{};
};

class LongContext : public Launch {
 protected:
  void SetUp() override {
    DANLU_SLOW_TEST();
    Launch::SetUp();
    Json config = Json::parse(content_of(good("model") / "config.json"));
    config.update({{"hidden_size", 32},
                   {"intermediate_size", 512},
                   {"num_hidden_layers", 2},
                   {"num_attention_heads", 2},
                   {"num_key_value_heads", 1},
                   {"max_position_embeddings", kTokens}});
    config.erase("head_dim");
    write("config.json", config.dump());
    const ProgramResult made = run_words(
        {"init", "--config", "config.json", "--tokenizer", good("tokenizer"), "--output", "model"});
    ASSERT_EQ(made.exit_code, 0) << made.err;
    std::ofstream text((*this) / "text.jsonl");
    text << R"({"text": ")";
    uint64_t state = 1;
    for (int64_t word = 0; word < kTokens; ++word) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      text << static_cast<char>('a' + (state >> 60)) << ' ';
    }
    text << "\"}\n";
  }
  std::vector<std::string> line(const std::string& run, const std::vector<std::string>& more) {
    std::vector<std::string> words = {"pretrain",
                                      "--model",
                                      "model",
                                      "--dataset",
                                      "text.jsonl",
                                      "--output_dir",
                                      run,
                                      "--no-version-dir",
                                      "--dtype",
                                      "fp32",
                                      "--max_length",
                                      std::to_string(kTokens),
                                      "--max_steps",
                                      "1",
                                      "--logging_steps",
                                      "1",
                                      "--val_ratio",
                                      "0",
                                      "--batch_size",
                                      "1",
                                      "--gradient_accumulation_steps",
                                      "1"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
};

TEST_F(LongContext, EightRanksHoldASampleThatOneCannot) {
  {
    const DataLimit limit;
    // At once by the plan, and in the middle of the step where it is not asked.
    for (const auto& flags : std::vector<std::vector<std::string>>{{}, {"--no-plan-check"}}) {
      const ProgramResult alone = run_words(line("capped", flags));
      EXPECT_EQ(alone.exit_code, 6) << alone.err;
    }
    for (const auto& [run, flags] : std::map<std::string, std::vector<std::string>>{
             {"ring", {"--cp", "8", "--context-parallel-algo", "megatron_cp_algo"}},
             {"hybrid",
              {"--cp", "8", "--context-parallel-algo", "hybrid_cp_algo", "--ulysses-degree-in-cp",
               "2", "--cp-window-size", "2"}}}) {
      const ProgramResult together = launch(8, line(run, flags));
      EXPECT_EQ(together.exit_code, 0) << run << together.err;
    }
  }
  const ProgramResult free = run_words(line("free", {}));
  ASSERT_EQ(free.exit_code, 0) << free.err;
  const auto expected = steps_of((*this) / "free");
  ASSERT_EQ(expected.size(), 1u);
  for (const char* run : {"ring", "hybrid"}) {
    const auto got = steps_of((*this) / run);
    ASSERT_EQ(got.size(), 1u) << run;
    for (const char* key : {"loss", "grad_norm"}) {
      const double want = expected[0].at(key);
      EXPECT_NEAR(got[0].at(key).get<double>(), want, 1e-5 * want) << run << " " << key;
    }
  }
}

}  // namespace
}  // namespace danlu::test
