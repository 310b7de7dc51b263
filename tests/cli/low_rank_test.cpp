// Optimizers with less state than Adam's from the command line: GaLore, APOLLO, Adam-mini.
#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>

#include "base/json.h"
#include "cli/logged_steps.h"
#include "cli/optimizer_lines.h"
#include "support/slow.h"

namespace danlu::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

class SmallStateLines : public OptimizerLines {
 protected:
  SmallStateLines() { always_ = {"--tuner", "full"}; }
  void expect_losses_of(const std::string& run, const std::string& other) const {
    const auto want = steps_of((*this) / run), got = steps_of((*this) / other);
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) {
      const double loss = want[i].at("loss");
      EXPECT_NEAR(got[i].at("loss").get<double>(), loss, 1e-4 * loss) << run << " " << i;
    }
  }
};

const std::vector<std::string> kGalore = {
    "--use_galore", "true", "--galore_rank", "4", "--galore_update_proj_gap", "3"};

TEST_F(SmallStateLines, ARunGoesOnToTheBit) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {kGalore, "GaLore (rank 4, svd std, new every 3 steps, scale 1)"},
      {{"--use_apollo", "true", "--apollo_rank", "4", "--apollo_update_interval", "3"},
       "APOLLO (rank 4, random std, new every 3 steps, scale 32, factors by channel)"},
      {{"--use_adam_mini", "true"}, "Adam-mini"}};
  for (const auto& [flags, said] : cases) {
    if (said == "Adam-mini" && !is_slow()) continue;
    const std::string once = "once-" + said.substr(0, 6), twice = "twice-" + said.substr(0, 6);
    std::vector<std::string> loud = flags;
    loud.push_back("-v");
    EXPECT_THAT(done(line(once, loud)).err, HasSubstr(said));
    done(line(twice, flags));
    take_back(twice);
    EXPECT_THAT(done(line(twice, flags)).err, HasSubstr("resuming from"));
    EXPECT_EQ(content_of((*this) / twice / "model.safetensors"),
              content_of((*this) / once / "model.safetensors"))
        << said;
  }
  const ProgramResult inspected =
      done({"inspect", (*this) / "once-GaLore/checkpoint-4/optim", "--tensors"});
  EXPECT_THAT(inspected.out, HasSubstr("(GaLore and Adam)"));
  EXPECT_THAT(inspected.out, HasSubstr("low_projection.model.layers.0.mlp.up_proj.weight"));
  EXPECT_THAT(inspected.out, Not(HasSubstr("exp_avg.model.layers.0.mlp.down_proj.weight")));
  EXPECT_THAT(content_of((*this) / "once-GaLore/README.md"), HasSubstr("GaLore (rank 4"));
  // The state of one subspace is none of another's.
  take_back("once-GaLore");
  std::vector<std::string> other = line("once-GaLore", kGalore);
  for (auto at = other.begin(); at != other.end(); ++at)
    if (*at == "--galore_rank") *(at + 1) = "3";
  other.insert(other.end(), {"--resume", (*this) / "once-GaLore/checkpoint-2"});
  expect_error(run_words(other), 2, {"optimizer_subspace"});
  expect_error(run_words({"convert", (*this) / "once-APOLLO/checkpoint-2", (*this) / "mcore",
                          "--to", "mcore", "--with-optimizer"}),
               4, {"Megatron's format is written with the state of Adam alone"});
}

TEST_F(SmallStateLines, ProcessesThatShareOrCutGiveTheLossesOfOne) {
  done(line("one", kGalore));
  for (const std::vector<std::string>& split :
       {std::vector<std::string>{"--shard", "zero2"}, {"--tp", "2"}}) {
    if (split.front() == "--tp" && !is_slow()) continue;
    const std::string run = "two" + split.back();
    std::vector<std::string> words = line(run, kGalore);
    words.insert(words.end(), split.begin(), split.end());
    const ProgramResult two = launch(2, words);
    ASSERT_EQ(two.exit_code, 0) << two.err;
    expect_losses_of("one", run);
    // One process goes on with what two have written.
    take_back(run);
    EXPECT_THAT(done(line(run, kGalore)).err, HasSubstr("resuming from"));
    expect_losses_of("one", run);
  }
}

TEST_F(SmallStateLines, LinesOfOtherSystemsAreKnown) {
  EXPECT_THAT(done(training("factory", {"--finetuning_type", "full", "--use_galore", "true",
                                        "--galore_layerwise", "true", "--galore_target",
                                        "mlp,self_attn", "--max_steps", "1", "-v"}))
                  .err,
              HasSubstr("GaLore (rank 16, svd std, new every 200 steps, scale 2)"));
  EXPECT_THAT(
      done(training("swift", {"--tuner_type", "full", "--use_galore", "true",
                              "--galore_optim_per_parameter", "true", "--max_steps", "1", "-v"}))
          .err,
      HasSubstr("GaLore (rank 128, svd std, new every 50 steps, scale 1)"));
  EXPECT_THAT(
      done(training("trainer", {"--tuner", "full", "--optim", "galore_adamw", "--optim_args",
                                "rank=8, update_proj_gap=9", "--max_steps", "1", "-v"}))
          .err,
      HasSubstr("GaLore (rank 8, svd std, new every 9 steps, scale 0.25)"));
  expect_error(run_words(line("no", {"--use_galore", "true", "--use_apollo", "true"})), 2,
               {"GaLore, APOLLO: one optimizer at a time"});
  expect_error(run_words(line("no", {"--optim_args", "rank=8"})), 2,
               {"optim_args: the optimizer has no subspaces"});
  expect_error(run_words(line("no", {"--optim", "galore_adamw", "--optim_args", "rank"})), 2,
               {"'rank' is none of it"});
  expect_error(run_words(training("no", {"--tuner", "lora", "--use_galore", "true"})), 2,
               {"--use_galore", "adapters are of low rank themselves"});
  expect_error(run_words(line("no", {"--use_galore", "true", "--galore_quantization", "true"})), 2,
               {"--galore_quantization", "the optimizer's state is fp32"});
  expect_error(run_words(line("no", {"--use_galore", "true", "--save_format", "mcore"})), 2,
               {"Megatron's format is written with the state of Adam alone"});
}

TEST_F(SmallStateLines, APlanHasItsSmallState) {
  const auto moments = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words = {"plan", good("model"), "--machine", "cpu-node", "--json"};
    words.insert(words.end(), more.begin(), more.end());
    const std::string text = Json::parse(done(words).out).dump();
    return std::stoll(text.substr(text.find("\"moments\":") + 10));
  };
  const int64_t adam = moments({});
  EXPECT_LT(moments({"--use_galore", "true", "--galore_rank", "4"}), adam);
  EXPECT_LT(moments({"--use_galore", "true", "--galore_rank", "2"}),
            moments({"--use_galore", "true", "--galore_rank", "8"}));
  EXPECT_LT(moments({"--use_adam_mini", "true"}), adam);
}

}  // namespace
}  // namespace danlu::test
