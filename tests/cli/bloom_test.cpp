// BLOOM through every verb: begun at random, trained alone and on two ranks, tuned with MindSpeed's
// flags, converted, adapted, asked.
#include <gtest/gtest.h>

#include "cli/short_training.h"

namespace danlu::test {
namespace {

class BloomLines : public ShortTraining {
 protected:
  void SetUp() override {
    ShortTraining::SetUp();
    make_model({{"model_type", "bloom"},
                {"architectures", {"BloomForCausalLM"}},
                {"vocab_size", 320},
                {"n_embed", 32},
                {"n_layer", 2},
                {"num_attention_heads", 4},
                {"layer_norm_epsilon", 1e-5},
                {"initializer_range", 0.1},
                {"seq_length", 64},
                {"torch_dtype", "float32"},
                {"bos_token_id", 1},
                {"eos_token_id", 2}});
  }
};

TEST_F(BloomLines, TrainedDividedConvertedAdaptedAndAsked) {
  ok(train_line("one", "--tuner full --max_steps 3"));
  ok(on_two(train_line("two", "--tuner full --max_steps 3 --tp 2 --sequence_parallel true")));
  const std::vector<double> alone = losses("one"), divided = losses("two");
  ASSERT_EQ(alone.size(), 3u);
  ASSERT_EQ(divided.size(), 3u);
  for (size_t step = 0; step < alone.size(); ++step)
    EXPECT_NEAR(divided[step], alone[step], 1e-4 * alone[step]);
  EXPECT_LT(alone.back(), alone.front());

  for (const char* to : {"mcore", "legacy"}) {
    const std::string cut = std::string("cut_") + to, back = std::string("back_") + to;
    ok({"convert", "one", cut, "--to", to, "--tp", "2", "--pp", "2", "--model-type-hf", "bloom",
        "--embed-layernorm", "--add-qkv-bias", "--add-dense-bias"});
    ok({"convert", cut, back, "--to", "hf"});
    expect_same("one", back);
  }
  ok({"convert", "one", "native", "--to", "native", "--tp", "2", "--pp", "2"});
  ok({"convert", "native", "back_native", "--to", "hf"});
  expect_same("one", "back_native");
  ok({"convert", "one", "model.gguf", "--to", "gguf", "--outtype", "f32"});
  EXPECT_EQ(ask(*this / "model.gguf").out, ask(*this / "one").out);

  ok(train_line("adapted", "--tuner lora --target_modules all-linear --lora_rank 4 --max_steps 3"));
  const ProgramResult answer = ask(*this / "adapted");
  EXPECT_EQ(answer.exit_code, 0) << answer.err;
}

/// The flags of MindSpeed-LLM's pretrain_bloom_ptd_7B.sh, with this model's sizes.
TEST_F(BloomLines, MindSpeedsLinesRun) {
  ok({"convert", "model", "start", "--to", "legacy"});
  Words pretrain = words_of(
      "pretrain --load start --hf-config model --num-layers 2 --hidden-size 32 "
      "--num-attention-heads 4 --tokenizer-type PretrainedFromHF --seq-length 32 "
      "--max-position-embeddings 64 --micro-batch-size 1 --global-batch-size 2 --embed-layernorm "
      "--padded-vocab-size 320 --make-vocab-size-divisible-by 1 --attention-softmax-in-fp32 "
      "--apply-query-key-layer-scaling --lr 1.2e-6 --train-iters 2 --init-method-std 0.0048 "
      "--hidden-dropout 0.0 --attention-dropout 0.0 --position-embedding-type alibi "
      "--normalization LayerNorm --min-lr 1e-8 --lr-decay-iters 10 --lr-decay-style cosine "
      "--weight-decay 1e-1 --clip-grad 1.0 --adam-beta1 0.9 --adam-beta2 0.95 "
      "--initial-loss-scale 4096 --no-gradient-accumulation-fusion --no-load-optim --no-load-rng "
      "--seed 42 --json-keys output --split 100,0,0 --log-interval 1 --save trained --dtype fp32");
  const Words places = {"--tokenizer-name-or-path", good("tokenizer").string(), "--data-path",
                        good("good.jsonl").string()};
  pretrain.insert(pretrain.end(), places.begin(), places.end());
  ok(pretrain);
  EXPECT_EQ(losses("trained").size(), 2u);
  for (const auto& [flag, value] :
       {std::pair("--normalization", "RMSNorm"), std::pair("--position-embedding-type", "rope"),
        std::pair("--swiglu", "true")}) {
    Words other = pretrain;
    other.insert(other.end(), {flag, value});
    expect_error(run(other), 2, {flag, "config.json"});
  }
}

}  // namespace
}  // namespace danlu::test
