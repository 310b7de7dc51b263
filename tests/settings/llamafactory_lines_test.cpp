// Lines of LLaMA-Factory have its templates, and say so in what a run writes down.
#include <gmock/gmock.h>

#include "option_lines.h"
#include "settings/options/data_options.h"

namespace danlu::settings::options_test {
namespace {

class LlamaFactoryLines : public TrainOptions {
 protected:
  TrainConfig of_file(const std::string& text) const {
    std::ofstream(directory_ / "run.yaml") << text;
    return with("train", {(directory_ / "run.yaml").string()});
  }
};

TEST_F(LlamaFactoryLines, ATemplatesNameIsLlamaFactorysAndRecordedAsSuch) {
  const std::string lora = "finetuning_type: lora\nstage: sft\n";
  const TrainConfig theirs = of_file(lora + "template: qwen\n");
  EXPECT_EQ(theirs.profile.name, "llamafactory");
  EXPECT_EQ(theirs.data.template_name, "llamafactory:qwen");
  EXPECT_EQ(theirs.args.at("template"), "llamafactory:qwen");
  EXPECT_EQ(theirs.settings.at("template"), "qwen") << "config.yaml says it as it was typed";
  for (const char* name : {"auto", "qwen2.5", "mine"})
    EXPECT_EQ(of_file(lora + "template: " + name + "\n").data.template_name, name);
}

// mask_history and train_on_prompt are Danlu's own names too.
TEST_F(LlamaFactoryLines, NamesThatDanluHasTooChooseNothingAlone) {
  for (const char* flag : {"--mask_history", "--train_on_prompt"}) {
    EXPECT_EQ(with("sft", {flag, "true"}).profile.name, "danlu");
    EXPECT_EQ(with("train", {flag, "true", "--data_path", "x.json"}).profile.name, "alpaca");
    EXPECT_EQ(with("train", {flag, "true", "--stage", "sft"}).profile.name, "llamafactory");
  }
}

TEST_F(LlamaFactoryLines, ElsewhereItIsMindSpeeds) {
  const TrainConfig ours = with("sft", {"--template", "qwen"});
  EXPECT_EQ(ours.data.template_name, "qwen");
  EXPECT_EQ(ours.args.at("template"), "qwen");
  const TrainConfig named = with("sft", {"--template", "llamafactory:qwen"});
  EXPECT_EQ(named.data.template_name, "llamafactory:qwen");
}

}  // namespace
}  // namespace danlu::settings::options_test
