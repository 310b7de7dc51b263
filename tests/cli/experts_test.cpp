// Models with experts through every verb: made, trained with divided experts, gone on with,
// converted, tuned with MindSpeed's flags, asked.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cli/short_training.h"
#include "cli/tiny_models.h"
#include "support/slow.h"

namespace danlu::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class ExpertLines : public ShortTraining {
 protected:
  void make_model(const std::string& family) const {
    ShortTraining::make_model(tiny_model(family));
  }
  /// Four steps of whole weights that save at the second.
  Words four_steps(const std::string& to, const std::string& more = "") const {
    return train_line(to, "--tuner full --max_steps 4 --save_steps 2 " + more);
  }
  double last_loss(const std::string& run_dir) const {
    const std::vector<double> all = losses(run_dir);
    return all.empty() ? 0 : all.back();
  }
};

TEST_F(ExpertLines, ARewardModelPredictsNothingFurtherAhead) {
  make_model("glm4_moe");
  expect_error(run({"rlhf", "--rlhf_type", "rm", "--model", "model", "--dataset",
                    good("good.jsonl").string(), "--output_dir", "out", "--tuner", "full",
                    "--mtp-num-layers", "1"}),
               2, {"--mtp-num-layers", "reward model"});
}

/// Five pairs on two ranks: in the last step one has none, and takes part with filling.
TEST_F(ExpertLines, ARewardModelIsTrainedWhereARankHasNoPair) {
  make_model("qwen3_moe");
  std::string pairs;
  for (int i = 0; i < 5; ++i) {
    pairs += nlohmann::json{{"messages",
                             {{{"role", "user"}, {"content", "question " + std::to_string(i)}},
                              {{"role", "assistant"}, {"content", "a good answer"}}}},
                            {"rejected_response", "no" + std::to_string(i)}}
                 .dump() +
             "\n";
  }
  write("pairs.jsonl", pairs);
  const auto line = [](const std::string& to) {
    return words_of(
        "rlhf --rlhf_type rm --model model --dataset pairs.jsonl --no-version-dir --tuner full "
        "--dtype fp32 --max_steps 3 --logging_steps 1 --val_ratio 0 --lr 1e-3 --batch_size 1 "
        "--global_batch_size 2 --save_strategy no --no_shuffle --output_dir " +
        to);
  };
  ok(line("one"));
  ok(on_two(line("two --ep 2")));
  EXPECT_NEAR(last_loss("one"), last_loss("two"), 1e-6);
  EXPECT_GT(last_loss("one"), 0);
}

class ExpertChain : public ExpertLines, public testing::WithParamInterface<const char*> {};

TEST_P(ExpertChain, TrainedDividedContinuedConvertedTunedAndAsked) {
  DANLU_SLOW_BUT_FOR("qwen3_moe");
  make_model(GetParam());
  const std::string balanced = "--router_aux_loss_coef 0.02", divided = balanced + " --ep 2";
  ok(on_two(four_steps("two", divided)));
  ok(four_steps("one", balanced));
  const double loss = last_loss("one");
  EXPECT_GT(loss, 1.0);
  EXPECT_NEAR(last_loss("two"), loss, 1e-4 * loss);
  EXPECT_THAT(content_of(*this / "two/logging.jsonl"), HasSubstr("aux_loss"));

  // As if it had been killed behind its first checkpoint.
  fs::copy(*this / "two", *this / "again", fs::copy_options::recursive);
  fs::remove_all(*this / "again/checkpoint-4");
  for (const char* file : {"DONE", "model.safetensors", "last"})
    fs::remove_all(*this / "again" / file);
  ok(on_two(four_steps("again", divided)));
  expect_same("two", "again");

  ok({"convert", "two", "mcore", "--to", "mcore", "--tp", "2", "--ep", "2"});
  ok({"convert", "mcore", "back", "--to", "hf"});
  expect_same("two", "back");
  // Whole experts on both tensor ranks, counted as Megatron counts them.
  ok({"convert", "mcore", "whole_experts", "--to", "mcore", "--tp", "2", "--ep", "2",
      "--expert-tensor-parallel-size", "1"});
  bool is_counted = false;
  for (const auto& entry : fs::recursive_directory_iterator(*this / "whole_experts"))
    is_counted |= entry.path().filename() == "mp_rank_01_001";
  EXPECT_TRUE(is_counted);
  ok({"convert", "whole_experts", "back_again", "--to", "hf"});
  expect_same("two", "back_again");

  Words tune = words_of(
      "posttrain --stage sft --load mcore --save tuned --lora-r 4 --lora-alpha 8 "
      "--lora-target-modules linear_qkv --seq-length 64 --micro-batch-size 1 --global-batch-size 4 "
      "--train-iters 2 --lr 1e-3 --expert-model-parallel-size 2 --moe-grouped-gemm "
      "--moe-token-dispatcher-type alltoall --moe-router-topk 2 --moe-aux-loss-coeff 0.01 "
      "--moe-permutation-async-comm --dtype fp32");
  const Words places = {"--data-path", good("good.jsonl").string(), "--tokenizer-name-or-path",
                        good("tokenizer").string()};
  tune.insert(tune.end(), places.begin(), places.end());
  ok(on_two(tune));
  const ProgramResult answer = ask(*this / "tuned");
  EXPECT_EQ(answer.exit_code, 0) << answer.err;
}

INSTANTIATE_TEST_SUITE_P(Families, ExpertChain, testing::Values("mixtral", "qwen3_moe"),
                         [](const auto& info) { return std::string(info.param); });

/// Begun at random with its layer that predicts further ahead; gone on with; tuned without it.
TEST_F(ExpertLines, LayersThatPredictFurtherAheadAreTrainedResumedAndKept) {
  make_model("glm4_moe");
  const std::string trained =
      "--from_scratch true --num-nextn-predict-layers 1 --mtp-loss-scaling-factor 0.3 "
      "--moe-tp-extend-ep --tensor_model_parallel_size 2";
  ok(on_two(four_steps("whole", trained)));
  EXPECT_THAT(content_of(*this / "whole/logging.jsonl"), HasSubstr("mtp_1_loss"));
  const std::string tensors = ok({"inspect", "whole", "--tensors"}).out;
  for (const char* name : {"layers.2.eh_proj", "layers.2.embed_tokens", "layers.2.shared_head.head",
                           "layers.2.mlp.experts.3.down_proj"})
    EXPECT_THAT(tensors, HasSubstr(name));
  // As if it had been killed behind its first checkpoint.
  fs::copy(*this / "whole", *this / "again", fs::copy_options::recursive);
  fs::remove_all(*this / "again/checkpoint-4");
  for (const char* file : {"DONE", "model.safetensors", "last"})
    fs::remove_all(*this / "again" / file);
  ok(on_two(four_steps("again", trained)));
  expect_same("whole", "again");

  Words tuned = four_steps("tuned");
  tuned[2] = "whole";
  ok(tuned);
  EXPECT_THAT(ok({"inspect", "tuned", "--tensors"}).out, HasSubstr("layers.2.eh_proj"));

  ok({"convert", "whole", "mcore", "--to", "mcore", "--tp", "2", "--ep", "2"});
  ok({"convert", "mcore", "engine", "--to", "mcore", "--pp", "2", "--transformer-impl",
      "transformer_engine", "--moe-grouped-gemm"});
  ok({"convert", "engine", "back", "--to", "hf"});
  expect_same("whole", "back");

  ok({"convert", "whole", "native", "--to", "native", "--tp", "2", "--pp", "2"});
  ok({"convert", "native", "from_native", "--to", "hf"});
  expect_same("whole", "from_native");
  ok({"convert", "whole", "model.gguf", "--to", "gguf", "--outtype", "f32"});
  ok({"convert", "model.gguf", "from_gguf", "--to", "hf"});
  expect_same("whole", "from_gguf");

  // The state, cut by Megatron's rules and joined again.
  const std::string trained_so_far = "whole/checkpoint-4";
  ok({"convert", trained_so_far, "state", "--to", "mcore", "--tp", "2", "--ep", "2",
      "--with-optimizer"});
  ok({"convert", "state", "again_cut", "--to", "mcore", "--pp", "2", "--with-optimizer",
      "--transformer-impl", "transformer_engine"});
  ok({"convert", "again_cut", "native_far", "--to", "native", "--with-optimizer"});
  ok({"convert", trained_so_far, "native_near", "--to", "native", "--with-optimizer"});
  for (const char* part : {"weights", "optim"}) {
    const std::string file = std::string(part) + "/mp_rank_00.safetensors";
    EXPECT_GT(fs::file_size(*this / "native_near" / file), 1000u);
    EXPECT_EQ(content_of(*this / "native_far" / file), content_of(*this / "native_near" / file))
        << part;
  }
  EXPECT_THAT(content_of(*this / "native_far/optim/mp_rank_00.safetensors"),
              HasSubstr("exp_avg_sq.model.layers.2.eh_proj.weight"));
}

/// Answers of one process and of two, with guesses by the layer and without; in text too.
TEST_F(ExpertLines, LayersThatPredictFurtherAheadGuessForOneProcessAndForTwo) {
  make_model("glm4_moe");
  ok(four_steps("trained", "--from_scratch true --mtp-num-layers 1"));
  write("prompts.txt", "one and two\nthe question\nhi\n");
  const std::string mtp = R"({"method": "mtp", "num_speculative_tokens": 2})",
                    ngram = R"({"method": "ngram", "prompt_lookup_min": 1})";
  const auto answers = [&](const std::string& name, const Words& more, bool is_guessed) {
    Words line = words_of(
        "infer --model trained --raw --dtype fp32 --quantize none --do_sample false "
        "--max_new_tokens 24 --dataset prompts.txt --output " +
        name);
    line.insert(line.end(), more.begin(), more.end());
    const ProgramResult result = ok(line);
    EXPECT_EQ(result.err.find("tokens were guessed") != std::string::npos, is_guessed)
        << result.err;
    return content_of(*this / name);
  };
  const std::string plain = answers("plain.jsonl", {}, false);
  EXPECT_EQ(answers("mtp.jsonl", {"--speculative-config", mtp}, true), plain);
  EXPECT_EQ(answers("text.jsonl", {"--speculative-config", ngram}, true), plain);
  EXPECT_EQ(
      answers("two.jsonl", {"--tensor-parallel-size", "2", "--speculative-config", mtp}, true),
      plain);
  Words beams = words_of("infer --model trained --raw --prompt hi --num_beams 2");
  beams.insert(beams.end(), {"--speculative-config", mtp});
  expect_error(run(beams), 2, {"--speculative-config", "beams"});
}

TEST_F(ExpertLines, LayersThatPredictFurtherAheadHaveTheirRules) {
  make_model("glm4_moe");
  const auto refused = [&](int ranks, const std::string& more, const Words& words) {
    const std::string on = " --nproc_per_node " + std::to_string(ranks);
    const Words line = four_steps("out", more + on);
    expect_error(run(line), 2, words);
  };
  refused(1, "--mtp-num-layers 2", {"--mtp-num-layers 2", "has 1 layers"});
  refused(1, "--mtp-num-layers 1 --tuner lora", {"beside adapters"});
  refused(2, "--tp 2 --expert-tensor-parallel-size 1", {"give a multiple of 2"});
  refused(4, "--tp 4 --expert-tensor-parallel-size 2", {"give a multiple of 2"});
  refused(4, "--tp 4 --expert-tensor-parallel-size 3", {"divide them", "1, 2, 4"});
  refused(2, "--tp 2 --expert-tensor-parallel-size 4", {"and no more", "a larger --tp cuts"});
  expect_error(run({"convert", "model", "files", "--to", "mcore", "--tp", "2",
                    "--expert-tensor-parallel-size", "4"}),
               2, {"and no more", "give a larger --tp"});
  refused(1, "--moe-router-load-balancing-type sinkhorn", {"choose by more than scores"});
  // Files that have none.
  expect_error(run(four_steps("out", "--mtp-num-layers 1")), 4,
               {"missing: model.layers.2.enorm.weight"});
}

TEST_F(ExpertLines, WhatExpertsCannotDoIsAnErrorBeforeWeightsAreRead) {
  make_model("mixtral");
  const auto refused = [&](const std::string& more, const Words& words) {
    expect_error(run(four_steps("out", more)), 2, words);
    EXPECT_FALSE(fs::exists(*this / "out/model.safetensors"));
  };
  refused("--nproc_per_node 3 --ep 3 --global_batch_size 6",
          {"--ep 3 does not divide the 4 experts", "1, 2, 4"});
  refused("--nproc_per_node 2 --ep 3", {"--ep 3 does not divide the 2 data-parallel processes"});
  refused("--moe-router-bias-update-rate 0.001", {"routers of mixtral have no bias"});
  refused("--moe-device-level-aux-loss-coeff 0.05", {"has no groups of experts"});
  refused("--moe-comm-aux-loss-coeff 0.02", {"--moe-comm-aux-loss-coeff", "has no groups"});
  refused(
      "--moe-expert-capacity-factor 1 --moe-token-dispatcher-type allgather",
      {"--moe-expert-capacity-factor", "--moe-token-dispatcher-type allgather drops no tokens"});
  refused("--moe-pad-expert-input-to-capacity",
          {"--moe-pad-expert-input-to-capacity", "--moe-expert-capacity-factor"});
  refused("--moe-token-dispatcher-type alltoal", {"--moe-token-dispatcher-type", "alltoall"});
  refused("--nproc_per_node 2 --router_aux_loss_coef 0.1 --moe_aux_loss_scope model --pp 2",
          {"a balance loss over all layers"});
  Words dense = four_steps("out", "--router_aux_loss_coef 0.1");
  dense[2] = good("model").string();
  expect_error(run(dense), 2, {"--router_aux_loss_coef", "qwen2 has no experts"});
  dense = four_steps("out", "--moe-input-jitter-eps 0.1");
  dense[2] = good("model").string();
  expect_error(run(dense), 2, {"--moe-input-jitter-eps", "qwen2 has no experts"});
  Words divided = four_steps("out", "--ep 2 --nproc_per_node 2");
  divided[2] = good("model").string();
  expect_error(run(divided), 2, {"--ep 2: qwen2 has no experts to divide"});
}

// Noise, Sinkhorn's choice and room follow from the seed, the step and the token: a killed run
// draws what it would have drawn.
TEST_F(ExpertLines, ChoicesOfTrainingGoOnBitForBit) {
  for (const auto& [family, more] :
       {std::pair{"mixtral",
                  "--moe-router-load-balancing-type sinkhorn --ep 2 "
                  "--moe-expert-capacity-factor 1 --moe-input-jitter-eps 0.05"},
        std::pair{"phimoe", "--moe-router-load-balancing-type sparsemixer_topk --ep 2"},
        std::pair{"qwen2_moe", "--cp 2 --moe-expert-capacity-factor 0.75"}}) {
    if (!is_slow() && family == std::string("phimoe")) continue;
    SCOPED_TRACE(family);
    make_model(family);
    ok(on_two(four_steps("whole", more)));
    fs::copy(*this / "whole", *this / "again", fs::copy_options::recursive);
    fs::remove_all(*this / "again/checkpoint-4");
    for (const char* file : {"DONE", "model.safetensors", "last"})
      fs::remove_all(*this / "again" / file);
    ok(on_two(four_steps("again", more)));
    expect_same("whole", "again");
    for (const char* run : {"whole", "again", "model"}) fs::remove_all(*this / run);
  }
}

TEST_F(ExpertLines, ExpertsThatSomeTensorRanksCutGoOnAtAnotherSplit) {
  make_model("qwen2_moe");
  const std::string pairs = "--tp 4 --expert-tensor-parallel-size 2 --ep 2 --nproc_per_node 4";
  ok(four_steps("pairs", pairs));
  ok(four_steps("one"));
  const double loss = last_loss("one");
  EXPECT_NEAR(last_loss("pairs"), loss, 1e-4 * loss);
  // From the checkpoint in its midst, on one process.
  fs::copy(*this / "pairs", *this / "again", fs::copy_options::recursive);
  fs::remove_all(*this / "again/checkpoint-4");
  for (const char* file : {"DONE", "model.safetensors", "last"})
    fs::remove_all(*this / "again" / file);
  ok(four_steps("again"));
  EXPECT_NEAR(last_loss("again"), loss, 1e-4 * loss);
}

TEST_F(ExpertLines, MissingExpertsAreNamed) {
  make_model("qwen3_moe");
  const fs::path file = *this / "model/model.safetensors";
  // A name in the header becomes another of the same length.
  replace_in_file(file, "layers.1.mlp.experts.2.up_proj", "layers.1.mlp.experts.2.up_pr0j");
  expect_error(run(four_steps("out")), 4,
               {"model/model.safetensors", "missing: model.layers.1.mlp.experts.2.up_proj.weight"});
}

TEST_F(ExpertLines, AMissingBiasOfTheRouterIsNamed) {
  make_model("deepseek_v3");
  const fs::path file = *this / "model/model.safetensors";
  replace_in_file(file, "layers.1.mlp.gate.e_score_correction_bias",
                  "layers.1.mlp.gate.e_score_correction_bi0s");
  const Words words = {"model/model.safetensors",
                       "missing: model.layers.1.mlp.gate.e_score_correction_bias"};
  expect_error(run(four_steps("out")), 4, words);
  expect_error(ask(*this / "model"), 4, words);
  expect_error(run({"convert", "model", "cut", "--to", "mcore"}), 4,
               {"missing: model.layers.1.mlp.gate.e_score_correction_bias"});
}

TEST_F(ExpertLines, ASplitOfExpertsThatCannotBeSaysWhichCan) {
  make_model("qwen3_moe");
  expect_error(run({"convert", "model", "cut", "--to", "mcore", "--ep", "3"}), 2,
               {"expert parallel size 3 does not divide 4 experts", "1, 2, 4"});
  expect_error(run({"convert", good("model").string(), "cut", "--to", "mcore", "--ep", "2"}), 2,
               {"qwen2 has no experts"});
}

}  // namespace
}  // namespace danlu::test
