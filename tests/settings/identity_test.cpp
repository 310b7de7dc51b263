// Which run a line means, and what of it a resume or another rank may have otherwise.
#include "settings/identity.h"

#include <gmock/gmock.h>

#include "settings/option_lines.h"

namespace danlu::settings::options_test {

using testing::HasSubstr;

class Identity : public TrainOptions {
 protected:
  Json of(const std::vector<std::string>& words) const {
    const TrainConfig config = with("sft", words);
    return run_identity(config, open_model(config.model),
                        plan_run(config, /*num_samples=*/100, data::LastBatch::kPartial));
  }
};

TEST_F(Identity, KeysAreOptionsOrWhatIsDerivedFromSeveral) {
  const std::set<std::string> derived = {"precision", "lora",        "num_samples", "total_steps",
                                         "start_lr",  "warmup_ramp", "pictures",    "objective",
                                         "mtp",       "nf4",         "routers"};
  const OptionTable table = cli::sft_options();
  const Json identity = of({});
  for (const auto& [key, value] : identity.items()) {
    const OptionSpec* option = table.find_spec(key);
    EXPECT_TRUE(derived.contains(key) || (option && option->name == key)) << key;
  }
  EXPECT_EQ(identity.at("warmup_steps"), 1);  // 0.05 of 7 steps of 16 samples
}

TEST_F(Identity, ANamedCheckpointMayBeGoneOnWithOtherRatesButNotOtherAdapters) {
  const Json then = of({}), now = of({"--lr", "0.5", "--lora_rank", "4"});
  const IdentityChange named = compare_identities(then, now, /*named=*/true);
  EXPECT_EQ(named.tolerable, "lr: 0.0001 then, 0.5 now");
  EXPECT_THAT(named.fatal, HasSubstr("lora: {\"rank\":8,"));
  const IdentityChange found = compare_identities(then, now, /*named=*/false);
  EXPECT_EQ(found.tolerable, "");
  EXPECT_THAT(found.fatal, HasSubstr("lr: 0.0001 then, 0.5 now"));
}

TEST_F(Identity, WhatAnOlderVersionDidNotKeepIsADifference) {
  const Json now = of({});
  Json then = now;
  then.erase("pack_sequences");
  EXPECT_EQ(compare_identities(then, now, /*named=*/true).fatal,
            "pack_sequences: null then, false now");
  EXPECT_EQ(compare_identities(now, now, /*named=*/false).fatal, "");
}

// Before the key was kept, models with experts had a balance loss as now.
TEST_F(Identity, RoutersOfAnOlderVersionAreNotCompared) {
  Json now = of({});
  now["routers"] = {{"aux_loss_coef", 0.001}};
  Json then = now;
  then.erase("routers");
  EXPECT_EQ(compare_identities(then, now, /*named=*/false).fatal, "");
  EXPECT_EQ(compare_identities(then, now, /*named=*/true).tolerable, "");
  then["routers"] = nullptr;
  EXPECT_THAT(compare_identities(then, now, /*named=*/false).fatal, HasSubstr("routers: null"));
  EXPECT_THAT(compare_identities(then, now, /*named=*/true).tolerable, HasSubstr("routers: null"));
}

TEST_F(Identity, PicturesAreThoseOfTheProcessorBesideTheTokenizer) {
  EXPECT_TRUE(of({}).at("pictures").is_null());
  fs::create_directories(directory_ / "hf");
  write_json_file(directory_ / "hf/preprocessor_config.json",
                  {{"image_processor_type", "Qwen2VLImageProcessor"}});
  const std::vector<std::string> words = {"--tokenizer", (directory_ / "hf").string()};
  const Json then = of(words), now = of(words + std::vector<std::string>{"--exif", "ignore"});
  EXPECT_THAT(compare_identities(then, now, /*named=*/true).fatal, HasSubstr("pictures: {"));
}

TEST_F(Identity, ScopesOfOptionsReachWhoeverCompares) {
  const TrainConfig config = with("sft", {"--dry_run", "--resume", "none"});
  EXPECT_THAT(config.of_start,
              testing::ElementsAre("dry_run", "overwrite_output_dir", "plan_check", "resume"));
  EXPECT_THAT(
      config.of_machine,
      testing::ElementsAre("cache_dir", "dataloader_num_workers", "hostfile", "master_addr",
                           "master_port", "max_restarts", "min_ranks", "nnodes", "node_rank",
                           "nproc", "offload_dir", "python", "rdzv_timeout", "workers"));
}

}  // namespace danlu::settings::options_test
