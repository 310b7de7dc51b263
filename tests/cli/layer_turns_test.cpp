// Layers that take turns, from the command line: LISA and BAdam.
#include <gmock/gmock.h>

#include <filesystem>

#include "base/json.h"
#include "cli/logged_steps.h"
#include "cli/optimizer_lines.h"
#include "support/slow.h"

namespace danlu::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class LayerTurnLines : public OptimizerLines {
 protected:
  LayerTurnLines() { always_ = {"--tuner_type", "full", "--dtype", "fp32"}; }
};

const std::vector<std::string> kLisa = {"--lisa_activated_layers", "1", "--lisa_step_interval",
                                        "1"};
const std::vector<std::string> kBadam = {
    "--use_badam", "true", "--badam_mode", "layer", "--badam_switch_interval", "3"};

TEST_F(LayerTurnLines, ARunGoesOnToTheBitAndProcessesGiveTheLossesOfOne) {
  for (const auto& [flags, said] :
       {std::pair{kLisa, "LISA (1 layer at a time, 1 updates each)"},
        std::pair{kBadam, "BAdam (1 layer at a time, 3 updates each)"}}) {
    const std::string name = std::string(said).substr(0, 4);
    std::vector<std::string> loud = flags;
    loud.push_back("-v");
    EXPECT_THAT(done(line("once" + name, loud)).err, HasSubstr(said));
    done(line("twice" + name, flags));
    take_back("twice" + name);
    EXPECT_THAT(done(line("twice" + name, flags)).err, HasSubstr("resuming from"));
    EXPECT_EQ(content_of((*this) / ("twice" + name) / "model.safetensors"),
              content_of((*this) / ("once" + name) / "model.safetensors"))
        << said;
    for (const std::vector<std::string>& split :
         {std::vector<std::string>{"--shard", "zero3"}, {"--tp", "2"}}) {
      // One of each, LISA shared and BAdam cut.
      const bool is_common = (split.front() == "--tp") == (name == "BAda");
      if (!is_common && !is_slow()) continue;
      std::vector<std::string> words = line(name + split.back(), flags);
      words.insert(words.end(), split.begin(), split.end());
      const ProgramResult two = launch(2, words);
      ASSERT_EQ(two.exit_code, 0) << two.err;
      const auto want = steps_of((*this) / ("once" + name)),
                 got = steps_of((*this) / (name + split.back()));
      ASSERT_EQ(got.size(), want.size());
      for (size_t i = 0; i < want.size(); ++i) {
        const double loss = want[i].at("loss"), norm = want[i].at("grad_norm");
        EXPECT_NEAR(got[i].at("loss").get<double>(), loss, 1e-5 * loss) << said << split.back();
        EXPECT_NEAR(got[i].at("grad_norm").get<double>(), norm, 1e-4 * norm) << said;
      }
    }
  }
}

TEST_F(LayerTurnLines, APlanOfBAdamHasMomentsOfOneLayer) {
  const auto moments = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words = {"plan", good("model"), "--machine", "cpu-node", "--json"};
    words.insert(words.end(), more.begin(), more.end());
    const std::string text = Json::parse(done(words).out).dump();
    return std::stoll(text.substr(text.find("\"moments\":") + 10));
  };
  EXPECT_LT(moments({"--tuner", "full", "--use_badam", "true"}), moments({"--tuner", "full"}) / 2);
}

TEST_F(LayerTurnLines, LinesThatCannotBeAreRefused) {
  expect_error(run_words(training("no", {"--tuner", "lora", "--use_badam", "true"})), 2,
               {"--use_badam", "layers take turns where all of them are trained"});
  expect_error(run_words(line("no", {"--use_badam", "true", "--badam_mode", "ratio"})), 2,
               {"--badam_mode", "whole layers take turns"});
  expect_error(run_words(line("no", {"--use_badam", "true", "--lisa_activated_layers", "2"})), 2,
               {"LISA, BAdam: one optimizer at a time"});
  expect_error(run_words(line("no", {"--optim", "muon", "--lisa_activated_layers", "2"})), 2,
               {"Muon, LISA: one optimizer at a time"});
  expect_error(run_words(line("no", {"--lisa_activated_layers", "2", "--save_format", "mcore"})), 2,
               {"Megatron's format is written with the state of Adam alone"});
}

}  // namespace
}  // namespace danlu::test
