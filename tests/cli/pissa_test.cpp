// Lines whose adapters begin with a part of their base: what is saved is plain LoRA.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "cli/launch.h"
#include "cli/logged_steps.h"

namespace danlu::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class PissaLines : public Launch {
 protected:
  std::vector<std::string> line(const std::string& run,
                                const std::vector<std::string>& more = {}) const {
    std::vector<std::string> words =
        training(run, {"--tuner",        "lora", "--lora_rank",  "4", "--lora_alpha",        "8",
                       "--lora_dropout", "0",    "--max_steps",  "4", "--save_steps",        "2",
                       "--val_ratio",    "0",    "--batch_size", "2", "--global_batch_size", "4",
                       "--lr",           "1e-3"});
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  ProgramResult done(const std::vector<std::string>& words) const {
    const ProgramResult result = run_words(words);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result;
  }
  Json adapter_of(const std::string& run) const {
    return Json::parse(std::ifstream((*this) / run / "adapter_config.json"));
  }
  double first_loss(const std::string& run) const {
    return steps_of((*this) / run).front().at("loss");
  }
};

TEST_F(PissaLines, BeginAtTheBaseAndAreSavedAsPlainAdaptersOfTwiceTheRank) {
  done(line("plain"));
  for (const std::string start : {"pissa", "pissa_niter_4", "olora", "gaussian"}) {
    done(line(start, {"--init_weights", start}));
    EXPECT_NEAR(first_loss(start), first_loss("plain"), 1e-5 * first_loss("plain")) << start;
    EXPECT_NE(steps_of((*this) / start).back().at("loss"),
              steps_of((*this) / "plain").back().at("loss"))
        << start;
    const Json config = adapter_of(start);
    EXPECT_EQ(config.at("r"), start == "gaussian" ? 4 : 8);
    EXPECT_EQ(config.at("lora_alpha"), start == "gaussian" ? 8 : 16);
    EXPECT_EQ(config.at("init_lora_weights"), true);
  }
  // A base in NF4 gives the part of its rounded weights.
  done(line("plain4", {"--quantization_bit", "4"}));
  done(line("pissa4", {"--quantization_bit", "4", "--init_weights", "pissa"}));
  EXPECT_NEAR(first_loss("pissa4"), first_loss("plain4"), 1e-5 * first_loss("plain4"));
  // The base that nobody has changed, with the adapter or merged with it, says the same.
  done({"merge", "--model", good("model"), "--adapters", (*this) / "pissa", "--output",
        (*this) / "merged"});
  const auto answers = [&](const std::vector<std::string>& of) {
    std::vector<std::string> words = {"infer", "--prompt",      "question", "--dtype",
                                      "fp32",  "--temperature", "0",        "--max_new_tokens",
                                      "8"};
    words.insert(words.end(), of.begin(), of.end());
    return done(words).out;
  };
  EXPECT_EQ(answers({"--model", good("model"), "--adapters", (*this) / "pissa"}),
            answers({"--model", (*this) / "merged"}));
}

TEST_F(PissaLines, ARunGoesOnToTheBit) {
  const std::vector<std::string> more = {"--init_weights", "pissa", "--lora_dropout", "0.1",
                                         "--weight_decay", "0.1"};
  done(line("once", more));
  done(line("twice", more));
  fs::remove_all((*this) / "twice/checkpoint-4");
  fs::remove((*this) / "twice/DONE");
  fs::remove((*this) / "twice/adapter_model.safetensors");
  EXPECT_THAT(done(line("twice", more)).err, HasSubstr("resuming from"));
  EXPECT_EQ(content_of((*this) / "twice/adapter_model.safetensors"),
            content_of((*this) / "once/adapter_model.safetensors"));
  expect_error(run_words(line("twice", {"--resume", (*this) / "twice/checkpoint-2"})), 2, {"lora"});
  // Two processes, which share parameters, begin and go on alike.
  std::vector<std::string> shared = line("two", more);
  shared.insert(shared.end(), {"--shard", "zero3"});
  const ProgramResult two = launch(2, shared);
  ASSERT_EQ(two.exit_code, 0) << two.err;
  const auto one_steps = steps_of((*this) / "once"), two_steps = steps_of((*this) / "two");
  ASSERT_EQ(one_steps.size(), two_steps.size());
  for (size_t i = 0; i < one_steps.size(); ++i) {
    const double want = one_steps[i].at("loss");
    EXPECT_NEAR(two_steps[i].at("loss").get<double>(), want, 1e-5 * want);
  }
}

TEST_F(PissaLines, WordsOfOtherSystemsAreKnownAndOthersRefused) {
  done(training("factory", {"--finetuning_type", "lora", "--pissa_init", "true", "--pissa_iter",
                            "4", "--pissa_convert", "true", "--max_steps", "1"}));
  EXPECT_EQ(adapter_of("factory").at("r"), 16);
  expect_error(run_words(line("no", {"--init_weights", "lora-ga"})), 2,
               {"adapters cannot begin as 'lora-ga'", "pissa_niter_16"});
  expect_error(run_words(line("no", {"--init_lora_weights", "pissa", "--use_dora", "true"})), 2,
               {"--init_lora_weights pissa", "DoRA"});
  expect_error(run_words(line("no", {"--init_weights", "olora", "--pissa_init", "true"})), 2,
               {"give one"});
  // Files of PEFT's that are for a base without the part.
  Json config = adapter_of("factory");
  config["init_lora_weights"] = "pissa";
  std::ofstream((*this) / "factory/adapter_config.json") << config;
  expect_error(run_words({"merge", "--model", good("model"), "--adapters", (*this) / "factory",
                          "--output", (*this) / "merged"}),
               4, {"init_lora_weights must be true", "path_initial_model_for_weight_conversion"});
}

}  // namespace
}  // namespace danlu::test
