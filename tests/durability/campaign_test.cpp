// Killed anywhere, and given again: nothing differs and nothing is left.
//
// `make test` tries a sample of the operations, `make test-slow` each one, both as a kill and as a
// loss of power. By hand, with the directory of the last one kept:
//   DANLU_KILL="sft 37" build/test_durability            in front of operation 37
//   DANLU_KILL="convert 12 40 3 power" …                 12, 15, …, 39; and what was not synced is
//   lost
#include "durability/campaign.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <random>
#include <sstream>

#include "durability/inputs.h"
#include "support/fake_hub.h"

namespace danlu::test {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> sft(const std::vector<std::string>& more) {
  const Inputs& in = Inputs::get();
  std::vector<std::string> arguments = {"sft",
                                        "--model",
                                        in / "model",
                                        "--dataset",
                                        in / "rows.jsonl",
                                        "--output_dir",
                                        "ROOT/run",
                                        "--dtype",
                                        "fp32",
                                        "--max_steps",
                                        "4",
                                        "--logging_steps",
                                        "1",
                                        "--save_steps",
                                        "2",
                                        "--eval_steps",
                                        "2",
                                        "--lr",
                                        "0.01",
                                        "--val_ratio",
                                        "0.1",
                                        "--batch_size",
                                        "2",
                                        "--max_length",
                                        "64",
                                        "--device",
                                        "cpu",
                                        "--save_total_limit",
                                        "1"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

/// Answers are drawn, judged and learnt from; checkpoints lie two steps apart.
std::vector<std::string> rlhf(const std::string& type, const std::vector<std::string>& more) {
  std::vector<std::string> arguments =
      sft({"--rlhf_type", type, "--tuner", "full", "--reward_funcs", "repetition",
           "--max_completion_length", "4", "--num_generations", "2", "--log_completions", "true",
           "--version_dir", "false"});
  arguments[0] = "rlhf";
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

/// From a hub in this process. One worker and contents that come in one piece: the operations are
/// the same each time.
std::vector<std::string> download_of_two_files() {
  static FakeHub hub;
  hub.files = {{"config.json", {"{}"}},
               {"sub/model.safetensors", {std::string(2'000, 'w'), /*is_lfs=*/true}}};
  ::setenv("HF_ENDPOINT", hub.url().c_str(), 1);
  ::setenv("no_proxy", "127.0.0.1", 1);
  return {"download", hub.id, "--hub", "hf", "--cache_dir", "ROOT/cache", "--max_workers", "1"};
}

/// Multiple choice and a generation of eight rows.
std::vector<std::string> evaluation(const std::string& output) {
  const Inputs& in = Inputs::get();
  if (!fs::exists(in / "exam")) {
    fs::create_directory(in / "exam");
    std::ofstream(in / "exam/fox.yaml") << R"({task: fox, test_split: test, doc_to_text: "{{q}}",
output_type: multiple_choice, doc_to_choice: [dog, lazy, times], doc_to_target: gold,
metric_list: [{metric: acc}]})";
    std::ofstream(in / "exam/say.yaml") << R"({task: say, test_split: test, doc_to_text: "{{q}}",
output_type: generate_until, doc_to_target: gold, metric_list: [{metric: exact_match}],
generation_kwargs: {until: [dog], max_gen_toks: 4}})";
    std::ofstream rows(in / "exam/test.jsonl");
    for (int i = 0; i < 8; ++i)
      rows << R"({"q": "the fox )" << i << R"( jumps", "gold": )" << i % 3 << "}\n";
  }
  return {"eval",           "--model",         in / "model",    "--tasks",   "fox,say",
          "--include_path", in / "exam",       "--data_dir",    in / "exam", "--dtype",
          "fp32",           "--deterministic", "--output_path", output};
}

/// A model that sees pictures, all of which is trained.
std::vector<std::string> sft_of_pictures(const std::vector<std::string>& more) {
  const SeeingModel& seeing = Inputs::seeing();
  std::vector<std::string> arguments =
      sft({"--model", seeing.model, "--dataset", seeing.rows, "--freeze_vit", "false",
           "--freeze_aligner", "false", "--max_length", "256"});
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

Command command_named(const std::string& name) {
  const Inputs& in = Inputs::get();
  if (name == "sft") return {name, sft({})};
  if (name == "lora") return {name, sft({"--tuner", "lora"})};
  if (name == "grpo") return {name, rlhf("grpo", {"--num_iterations", "1"})};
  if (name == "ppo") return {name, rlhf("ppo", {"--num_ppo_epochs", "2"})};
  if (name == "pictures") return {name, sft_of_pictures({"--tuner", "full"})};
  if (name == "pictures_lora")
    return {name, sft_of_pictures({"--tuner", "lora", "--lora_dropout", "0.1"})};
  if (name == "preprocess")
    return {name,
            {"preprocess", "--input", in / "rows.jsonl", "--tokenizer", in / "tokenizer",
             "--output-prefix", "ROOT/out/rows"}};
  if (name == "convert")
    return {name, {"convert", in / "model", "ROOT/mc", "--to", "mcore", "--tp", "2"}};
  if (name == "gguf") return {name, {"convert", in / "model", "ROOT/m.gguf", "--to", "gguf"}};
  if (name == "gguf_replaced") {
    // The names and sizes are the same: only their content tells the old file from the new one.
    if (!fs::exists(in / "older")) {
      fs::create_directory(in / "older");
      Inputs::make({"init", "--config", in / "config.json", "--tokenizer", in / "tokenizer",
                    "--seed", "7", "--output", in / "older-model"});
      Inputs::make({"convert", in / "older-model", in / "older/m.gguf", "--to", "gguf"});
    }
    return {name,
            {"convert", in / "model", "ROOT/m.gguf", "--to", "gguf", "--overwrite"},
            false,
            in / "older"};
  }
  if (name == "tokenizer")
    return {name,
            {"tokenizer", "train", "--input", in / "texts.txt", "--vocab_size", "290", "--output",
             "ROOT/tokenizer"},
            true};
  if (name == "convert_rows") {
    std::ofstream(in / "llava.json")
        << R"([{"conversations": [{"from": "human", "value": "fox"}]}])";
    return {name,
            {"convert-rows", "llava", "--input", in / "llava.json", "--output", "ROOT/rows.json"},
            true};
  }
  if (name == "download") return {name, download_of_two_files()};
  if (name == "eval") return {name, evaluation("ROOT/out")};
  if (name == "compare") {
    if (!fs::exists(in / "examined")) Inputs::make(evaluation(in / "examined"));
    return {name,
            {"compare", in / "examined", in / "examined", "--output", "ROOT/new/difference.json",
             "--plot", "ROOT/new/bars.png"}};
  }
  if (name == "merge") {
    if (!fs::exists(in / "adapter"))
      Inputs::make({"sft", "--model", in / "model", "--dataset", in / "rows.jsonl", "--output_dir",
                    in / "adapter", "--tuner", "lora", "--max_steps", "2", "--dtype", "fp32",
                    "--cache_dir", in / "cache"});
    return {
        name,
        {"merge", "--model", in / "model", "--adapters", in / "adapter", "--output", "ROOT/merged"},
        true};
  }
  throw std::runtime_error("no command " + name);
}

/// A directory of its own for each command.
Campaign campaign_of(const std::string& name) {
  const fs::path directory = Inputs::get() / ("of-" + name);
  fs::create_directories(directory);
  return Campaign(command_named(name), directory);
}

/// All operations, or as many of them as `sample`, spread, another choice for each command.
std::vector<uint64_t> chosen(uint64_t operations, uint64_t sample, uint64_t seed) {
  std::vector<uint64_t> result;
  if (std::getenv("DANLU_SLOW")) sample = operations;
  std::mt19937_64 random(seed);
  for (uint64_t i = 0; i < sample; ++i) {
    const uint64_t begin = operations * i / sample, end = operations * (i + 1) / sample;
    if (begin < end) result.push_back(1 + begin + random() % (end - begin));
  }
  return result;
}

struct Share {
  const char* command;
  uint64_t kills, power_losses;  ///< tried by `make test`
};

class Killed : public testing::TestWithParam<Share> {};

TEST_P(Killed, TheSameCommandMakesItGood) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "a sanitizer wants to be the first library";
#endif
  if (std::getenv("DANLU_KILL")) GTEST_SKIP() << "one is tried by hand";
  if (std::string(GetParam().command).starts_with("pictures")) DANLU_REQUIRES_SHARED();
  Campaign campaign = campaign_of(GetParam().command);
  ASSERT_GT(campaign.operations(), 5u);
  uint64_t tried = 0;
  for (const auto& [loss, sample] : {std::pair{Loss::kNothing, GetParam().kills},
                                     std::pair{Loss::kPower, GetParam().power_losses}}) {
    const char* what = loss == Loss::kPower ? "loss of power" : "kill";
    const auto tries = chosen(campaign.operations(), sample, 17 + campaign.name().size());
    tried += tries.size();
    uint64_t failed = 0;
    for (const uint64_t at : tries) {
      const std::string found = campaign.try_kill(at, loss);
      if (found.empty()) continue;
      ++failed;
      ADD_FAILURE() << campaign.name() << ", " << what << " at operation " << at << " of "
                    << campaign.operations() << ":\n"
                    << found;
    }
    std::printf("%-10s %-13s %4zu of %4llu operations, %llu bad\n", campaign.name().c_str(), what,
                tries.size(), static_cast<unsigned long long>(campaign.operations()),
                static_cast<unsigned long long>(failed));
    std::fflush(stdout);
  }
  EXPECT_GE(campaign.kills() + 1 + tried / 50, tried) << "hardly anything was killed";
}

INSTANTIATE_TEST_SUITE_P(Commands, Killed,
                         testing::Values(Share{"sft", 3, 2}, Share{"lora", 2, 1},
                                         Share{"grpo", 3, 2}, Share{"ppo", 2, 1},
                                         Share{"pictures", 2, 1}, Share{"pictures_lora", 2, 1},
                                         Share{"preprocess", 10, 4}, Share{"convert", 10, 4},
                                         Share{"gguf", 6, 3}, Share{"gguf_replaced", 12, 3},
                                         Share{"tokenizer", 5, 3}, Share{"convert_rows", 5, 3},
                                         Share{"merge", 2, 1}, Share{"download", 8, 4},
                                         Share{"eval", 8, 4}, Share{"compare", 4, 2}),
                         [](const auto& info) { return std::string(info.param.command); });

TEST(KilledByHand, WhereAskedFor) {
  const char* asked = std::getenv("DANLU_KILL");
  if (!asked) GTEST_SKIP() << "nothing is asked for";
  std::istringstream words(asked);
  std::string name, word;
  words >> name;
  std::vector<uint64_t> numbers;
  Loss loss = Loss::kNothing;
  while (words >> word) {
    if (word == "power") {
      loss = Loss::kPower;
    } else {
      numbers.push_back(std::stoull(word));
    }
  }
  Campaign campaign = campaign_of(name);
  std::printf("%s: %llu operations, in %s\n", name.c_str(),
              static_cast<unsigned long long>(campaign.operations()),
              (Inputs::get() / ("of-" + name)).c_str());
  ASSERT_FALSE(numbers.empty()) << "DANLU_KILL=\"COMMAND FIRST [LAST [STEP]] [power]\"";
  const uint64_t last = numbers.size() > 1 ? numbers[1] : numbers[0];
  for (uint64_t at = numbers[0]; at <= last; at += numbers.size() > 2 ? numbers[2] : 1)
    EXPECT_EQ(campaign.try_kill(at, loss), "") << "at operation " << at;
}

// --- the library itself
// ---------------------------------------------------------------------------

TEST(KillAt, AnUndisturbedRunAndItsOwnRepetitionAreEqual) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "a sanitizer wants to be the first library";
#endif
  Campaign campaign = campaign_of("tokenizer");
  EXPECT_EQ(campaign.try_kill(campaign.operations() + 1, Loss::kNothing), "");
  EXPECT_EQ(campaign.kills(), 0u);
  EXPECT_EQ(campaign.try_kill(1, Loss::kNothing), "");
  EXPECT_EQ(campaign.kills(), 1u);
}

TEST(KillAt, DifferencesAreNamed) {
  EXPECT_EQ(differences({{"a", "1"}}, {{"a", "1"}}), "");
  EXPECT_EQ(differences({{"a", "1"}, {"b", "dir"}}, {{"a", "1"}, {".c", ""}}),
            "  missing: b\n  left: .c\n");
  EXPECT_NE(differences({{"a", "1"}}, {{"a", "2"}}).find("differs: a at 0"), std::string::npos);
}

}  // namespace
}  // namespace danlu::test
