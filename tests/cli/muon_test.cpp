// Lines that train with Muon: as other systems type them, gone on with, refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/logged_steps.h"
#include "cli/optimizer_lines.h"

namespace danlu::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

class MuonLines : public OptimizerLines {
 protected:
  MuonLines() { always_ = {"--optimizer", "muon"}; }
};

TEST_F(MuonLines, ARunGoesOnToTheBit) {
  for (const std::string tuner : {"full", "lora"}) {
    const std::string file = tuner == "full" ? "model.safetensors" : "adapter_model.safetensors";
    const std::string once = "once-" + tuner, twice = "twice-" + tuner;
    EXPECT_THAT(done(line(once, {"--tuner", tuner, "-v"})).err,
                HasSubstr("Muon (momentum 0.95, Nesterov, 5 steps simple, scale spectral x 0.2)"));
    done(line(twice, {"--tuner", tuner}));
    take_back(twice);
    EXPECT_THAT(done(line(twice, {"--tuner", tuner})).err, HasSubstr("resuming from"));
    EXPECT_EQ(content_of((*this) / twice / file), content_of((*this) / once / file)) << tuner;
  }
  const ProgramResult inspected =
      done({"inspect", (*this) / "once-full/checkpoint-4/optim", "--tensors"});
  EXPECT_THAT(inspected.out, HasSubstr("(Muon and Adam)"));
  EXPECT_THAT(inspected.out, HasSubstr("momentum.model.layers.0.mlp.down_proj.weight"));
  EXPECT_THAT(inspected.out, HasSubstr("exp_avg_sq.model.embed_tokens.weight"));
  EXPECT_THAT(inspected.out, Not(HasSubstr("exp_avg_sq.model.layers.0.mlp.down_proj.weight")));
  EXPECT_THAT(content_of((*this) / "once-full/README.md"),
              HasSubstr("Muon (momentum 0.95, 5 Newton-Schulz steps) and AdamW"));
  // The state of one optimizer is none of the other's.
  take_back("once-full");
  std::vector<std::string> other =
      line("once-full", {"--tuner", "full", "--resume", (*this) / "once-full/checkpoint-2"});
  other[static_cast<size_t>(std::find(other.begin(), other.end(), "muon") - other.begin())] =
      "adamw";
  expect_error(run_words(other), 2, {"optimizer"});
  expect_error(run_words({"convert", (*this) / "once-full/checkpoint-2", (*this) / "mcore", "--to",
                          "mcore", "--with-optimizer"}),
               4, {"Megatron's format is written with the state of Adam alone"});
}

TEST_F(MuonLines, ProcessesThatShareItsStateGiveTheLossesOfOne) {
  done(line("one", {"--tuner", "full"}));
  std::vector<std::string> words = line("two", {"--tuner", "full", "--optimizer", "dist_muon"});
  words.erase(words.end() - 2, words.end());
  *std::find(words.begin(), words.end(), "muon") = "dist_muon";
  const ProgramResult two = launch(2, words);
  ASSERT_EQ(two.exit_code, 0) << two.err;
  EXPECT_THAT(two.err, HasSubstr("(ZeRO-1)"));
  const auto one_steps = steps_of((*this) / "one"), two_steps = steps_of((*this) / "two");
  ASSERT_EQ(two_steps.size(), one_steps.size());
  for (size_t i = 0; i < one_steps.size(); ++i) {
    const double want = one_steps[i].at("loss");
    EXPECT_NEAR(two_steps[i].at("loss").get<double>(), want, 1e-5 * want);
  }
  // One process goes on with what two have written.
  take_back("two");
  EXPECT_THAT(done(line("two", {"--tuner", "full"})).err, HasSubstr("resuming from"));
  const auto again = steps_of((*this) / "two");
  const double want = one_steps.back().at("loss");
  EXPECT_NEAR(again.back().at("loss").get<double>(), want, 1e-5 * want);
}

TEST_F(MuonLines, LinesOfOtherSystemsAreKnown) {
  EXPECT_THAT(done(training("factory", {"--finetuning_type", "full", "--use_muon", "true",
                                        "--max_steps", "1", "-v"}))
                  .err,
              HasSubstr("Muon (momentum 0.95, Nesterov, 5 steps simple, scale spectral x 0.2)"));
  EXPECT_THAT(
      done(training("megatron", {"--save_safetensors", "true", "--tensor_model_parallel_size", "1",
                                 "--optimizer", "dist_muon", "--max_steps", "1", "-v"}))
          .err,
      HasSubstr("Muon (momentum 0.9, 5 steps quintic, scale spectral x 1)"));
  expect_error(run_words(line("no", {"--muon_tp_mode", "blockwise"})), 2,
               {"--muon_tp_mode", "whole matrices are orthogonalised"});
  expect_error(
      run_words(line("no", {"--muon_num_ns_steps", "6", "--muon_coefficient_type", "quintic"})), 2,
      {"muon_num_ns_steps must be a multiple of 5 with quintic, got 6"});
  fs::create_directory((*this) / "away");
  expect_error(run_words(line("no", {"--offload", "optimizer", "--offload_dir", (*this) / "away"})),
               2, {"muon"});
  expect_error(run_words(line("no", {"--tuner", "full", "--save_format", "mcore"})), 2,
               {"Megatron's format is written with the state of Adam alone"});
}

TEST_F(MuonLines, APlanHasItsOneMoment) {
  const auto moments = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words = {"plan", good("model"), "--machine", "cpu-node", "--json"};
    words.insert(words.end(), more.begin(), more.end());
    const Json plan = Json::parse(done(words).out);
    const std::string text = plan.dump();
    const size_t at = text.find("\"moments\":");
    return std::stoll(text.substr(at + 10));
  };
  EXPECT_LT(moments({"--optim", "muon"}), moments({}));
}

}  // namespace
}  // namespace danlu::test
