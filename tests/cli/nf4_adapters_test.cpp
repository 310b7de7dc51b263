// Adapters that were trained on a base in NF4: what answers, merges, judges and trains with them
// takes the numbers that the base had there, or says that it does not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <sstream>

#include "cli/preference_lines.h"

namespace danlu::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

class Nf4Adapters : public PreferenceLines {
 protected:
  ProgramResult trained(const std::string& to, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> words = {"--tuner", "lora", "--lr", "0.05", "--output_dir", to};
    words.insert(words.end(), more.begin(), more.end());
    ProgramResult result = train(good("good.jsonl"), words);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result;
  }
  std::vector<std::string> of_two(const std::string& verb, const std::string& adapters,
                                  const std::vector<std::string>& more = {}) const {
    std::vector<std::string> words = {verb, "--model", good("model").string(), "--adapters",
                                      adapters};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  std::string weights_of(const std::string& model) const {
    return content_of(*this / model / "model.safetensors");
  }
};

TEST_F(Nf4Adapters, AnswerOnTheNumbersThatTheyWereTrainedOn) {
  trained("q", {"--quantization_bit", "4"});
  const std::vector<std::string> asked = {"--prompt", "fox?", "--max_new_tokens", "8"};
  const auto with = [&](const std::string& quantize) {
    std::vector<std::string> words = asked;
    if (!quantize.empty()) words.insert(words.end(), {"--quantize", quantize});
    return ok(of_two("infer", "q", words));
  };
  const ProgramResult alone = with(""), told = with("nf4"), plain = with("none");
  EXPECT_THAT(alone.err, HasSubstr("notice: q: these adapters were trained on their base in NF4"));
  EXPECT_THAT(alone.err, HasSubstr("--quantize none"));
  EXPECT_THAT(alone.err, HasSubstr("of them in blocks"));
  EXPECT_EQ(alone.out, told.out);
  EXPECT_THAT(told.err, Not(HasSubstr("notice: q")));
  EXPECT_THAT(plain.err, HasSubstr("with --quantize none answer otherwise"));
  EXPECT_THAT(plain.err, Not(HasSubstr("of them in blocks")));
  // A checkpoint of the run, given alone, says the same.
  const ProgramResult checkpoint =
      ok({"infer", "--adapters", "q/checkpoint-2", "--prompt", "fox?", "--max_new_tokens", "8"});
  EXPECT_EQ(checkpoint.out, told.out);
  EXPECT_THAT(checkpoint.err, HasSubstr("in NF4, in which it is held here too"));
  // Nothing is said of adapters that were trained on what the files have.
  trained("plain");
  EXPECT_THAT(ok(of_two("infer", "plain", asked)).err, Not(HasSubstr("NF4")));
}

TEST_F(Nf4Adapters, AreAddedToTheNumbersOfNf4) {
  trained("q", {"--quantization_bit", "4"});
  const ProgramResult alone = ok({"merge", "--adapters", "q", "--output", "alone"});
  EXPECT_THAT(alone.err, HasSubstr("to whose numbers they are added; --quantization_bit 0"));
  EXPECT_THAT(alone.err, HasSubstr("matrices in NF4: they are dequantised"));
  EXPECT_THAT(alone.err, HasSubstr("on the base as its files have it these adapters give other "
                                   "logits, by up to "));
  ok({"merge", "--adapters", "q", "--output", "told", "--quantization_bit", "4"});
  EXPECT_EQ(weights_of("alone"), weights_of("told"));
  const ProgramResult plain =
      ok({"merge", "--adapters", "q", "--output", "plain", "--quantization_bit", "0"});
  EXPECT_THAT(plain.err, HasSubstr("are added to what its files have; without --quantization_bit"));
  EXPECT_THAT(plain.err, HasSubstr("on the base in NF4, where they were trained, these adapters "
                                   "give other logits"));
  EXPECT_NE(weights_of("plain"), weights_of("told"));
  // Either line is of the same two models.
  const auto distance = [](const std::string& said) {
    const size_t at = said.find("by up to ", said.find("these adapters give other logits"));
    return std::stod(said.substr(at + std::string("by up to ").size()));
  };
  EXPECT_GT(distance(alone.err), 1e-4);
  EXPECT_NEAR(distance(alone.err), distance(plain.err), 1e-2 * distance(alone.err));
  // Simple factors are recorded, and count.
  trained("simple", {"--quantization_bit", "4", "--double_quantization", "false"});
  ok({"merge", "--adapters", "simple", "--output", "by_record"});
  ok({"merge", "--adapters", "simple", "--output", "by_flags", "--quantization_bit", "4",
      "--double_quantization", "false"});
  ok({"merge", "--adapters", "simple", "--output", "other", "--quantization_bit", "4",
      "--double_quantization", "true"});
  EXPECT_EQ(weights_of("by_record"), weights_of("by_flags"));
  EXPECT_NE(weights_of("by_record"), weights_of("other"));
  // convert adds to what the files have, and says so.
  EXPECT_THAT(
      ok({"convert", good("model").string(), "converted", "--to", "hf", "--adapters", "q"}).err,
      HasSubstr("danlu merge adds them to the numbers of NF4"));
  EXPECT_THAT(
      ok({"export", "--adapters", "q", "--merge_lora", "true", "--output_dir", "exported"}).err,
      HasSubstr("to whose numbers they are added"));
}

TEST_F(Nf4Adapters, TrainFurtherWhereTheyWereOrSayThatTheyDoNot) {
  trained("q", {"--quantization_bit", "4"});
  const ProgramResult plain = trained("further", {"--adapters", "q"});
  EXPECT_THAT(plain.err, HasSubstr("notice: q: these adapters were trained on their base in NF4, "
                                   "and are trained further on what its files have; "
                                   "--quantization_bit 4 holds it as it was"));
  const ProgramResult same = trained("same", {"--adapters", "q", "--quantization_bit", "4"});
  EXPECT_THAT(same.err, Not(HasSubstr("notice: q")));
  // What is recorded of the last training counts.
  EXPECT_THAT(ok(of_two("infer", "further", {"--prompt", "a", "--max_new_tokens", "1"})).err,
              Not(HasSubstr("NF4")));
}

TEST_F(Nf4Adapters, TheNextLineIsAsTheAdaptersWereTrained) {
  const ProgramResult result = trained("q", {"--quantization_bit", "4"});
  const std::string next = "next: danlu ";
  const size_t at = result.err.find(next);
  ASSERT_NE(at, std::string::npos) << result.err;
  std::istringstream words(result.err.substr(at + next.size(), result.err.find('\n', at) - at));
  std::vector<std::string> typed;
  for (std::string word; words >> word && word != "DONE";) typed.push_back(word);
  ASSERT_EQ(typed.front(), "chat");
  EXPECT_THAT(typed, testing::Contains("nf4"));
  typed.front() = "infer";
  typed.insert(typed.end(), {"--prompt", "fox?", "--max_new_tokens", "4"});
  EXPECT_THAT(ok(typed).err, HasSubstr("of them in blocks"));
}

TEST_F(Nf4Adapters, AReferenceBeginsAsThePolicyDoes) {
  trained("q", {"--quantization_bit", "4", "--lora_dropout", "0"});
  const auto first_step = [&](const std::string& to, const std::vector<std::string>& more) {
    std::vector<std::string> words = {"--tuner",        "lora", "--adapters",  "q",
                                      "--ref_adapters", "q",    "--recompute", "none"};
    words.insert(words.end(), more.begin(), more.end());
    ok(line({"rlhf", "--rlhf_type", "dpo"}, "pairs.jsonl", to, words));
    return steps_of(*this / to)[0];
  };
  for (const std::vector<std::string>& more :
       std::vector<std::vector<std::string>>{{}, {"--precompute_ref_log_probs", "true"}}) {
    const std::string to = more.empty() ? "beside" : "before";
    std::vector<std::string> in_nf4 = more;
    in_nf4.insert(in_nf4.end(), {"--quantization_bit", "4"});
    const Json step = first_step(to, in_nf4);
    EXPECT_EQ(step.at("rewards/margins"), 0);
    EXPECT_EQ(step.at("rewards/chosen"), 0);
    EXPECT_NEAR(step.at("loss").get<double>(), std::log(2.0), 1e-6);
  }
  expect_same_losses(*this / "beside", *this / "before", 4);
  // GRPO's distance to such a reference begins at nothing, too.
  ok(line(
      {"rlhf", "--rlhf_type", "grpo"}, "pairs.jsonl", "grpo",
      {"--tuner", "lora", "--adapters", "q", "--ref_adapters", "q", "--quantization_bit", "4",
       "--reward_funcs", "repetition", "--num_generations", "2", "--max_completion_length", "6"}));
  EXPECT_NEAR(steps_of(*this / "grpo")[0].at("kl").get<double>(), 0, 1e-9);
}

TEST_F(Nf4Adapters, JudgesHaveTheNumbersThatTheyWereTrainedOn) {
  ok(line({"rlhf", "--rlhf_type", "rm", "--tuner", "lora", "--quantization_bit", "4"},
          "pairs.jsonl", "judge", {"--lr", "0.05"}));
  ok({"merge", "--adapters", "judge", "--output", "in_nf4"});
  ok({"merge", "--adapters", "judge", "--output", "as_files", "--quantization_bit", "0"});
  const auto reward_by = [&](const std::string& judge) {
    const std::string to = "drawn_by_" + judge;
    const ProgramResult result = ok(line({"rlhf", "--rlhf_type", "grpo"}, "pairs.jsonl", to,
                                         {"--reward_model", judge, "--num_generations", "2",
                                          "--max_completion_length", "8", "--tuner", "full"}));
    EXPECT_EQ(result.err.find("whose numbers it has here") != std::string::npos, judge == "judge");
    return steps_of(*this / to)[0].at("reward").get<double>();
  };
  const double by_adapters = reward_by("judge");
  EXPECT_NEAR(by_adapters, reward_by("in_nf4"), 1e-5);
  EXPECT_GT(std::fabs(by_adapters - reward_by("as_files")), 1e-4);
}

/// What a run says it needs beside the same run whose base is dense.
TEST_F(Nf4Adapters, ModelsBesideThePolicyArePlannedAsTheyAreHeld) {
  trained("q", {"--quantization_bit", "4"});
  const auto planned = [&](const std::string& to, const std::vector<std::string>& begin,
                           std::vector<std::string> more) {
    more.insert(more.end(), {"--tuner", "lora", "--dry_run"});
    const ProgramResult result = ok(line(begin, "pairs.jsonl", to, more));
    const size_t at = result.err.find("memory: weights ");
    EXPECT_NE(at, std::string::npos) << result.err;
    std::istringstream words(result.err.substr(at + std::string("memory: weights ").size()));
    double number = 0;
    std::string unit;
    words >> number >> unit;
    return unit == "kB" ? number : 1000 * number;
  };
  const std::vector<std::string> in_nf4 = {"--quantization_bit", "4"};
  const auto with = [](std::vector<std::string> words, const std::vector<std::string>& more) {
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  // The base: 35.9 k numbers of 4 bytes, of which 15.4 k become 4.127 bits.
  const double saved = 15.36 * (4 - 4.127 / 8);
  const std::vector<std::string> dpo = {"rlhf", "--rlhf_type", "dpo"},
                                 ppo = {"rlhf", "--rlhf_type", "ppo"};
  const std::vector<std::string> judged = {"--reward_funcs", "repetition",
                                           "--max_completion_length", "6"};
  EXPECT_NEAR(planned("a", dpo, {}) - planned("b", dpo, in_nf4), saved, 1);
  const std::vector<std::string> further = {"--adapters", "q", "--ref_adapters", "q"};
  EXPECT_NEAR(planned("c", dpo, further) - planned("d", dpo, with(further, in_nf4)), 2 * saved, 2)
      << "the policy and its reference";
  EXPECT_NEAR(planned("e", ppo, judged) - planned("f", ppo, with(judged, in_nf4)), 2 * saved, 2)
      << "the policy and its critic";
}

}  // namespace
}  // namespace danlu::test
