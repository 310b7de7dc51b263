// A small model of each architecture through MindSpeed-LLM's scripts: converted, pre-trained,
// tuned, given adapters, asked. The flags are those of its scripts (v2.0.0, of younger models v2.1
// and later) with these models' sizes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/random_model_dir.h"
#include "cli/short_training.h"
#include "cli/tiny_models.h"
#include "support/slow.h"

namespace danlu::test {
namespace {

struct ScriptOf {
  std::string family;
  std::string architecture;  ///< what scripts repeat of config.json beside kArchitecture
  std::string convert = {};  ///< beside the split
  std::string trained = {};  ///< of pre-training and tuning alone
  std::string targets = "linear_qkv linear_proj";
};

const std::string kArchitecture =
    " --use-mcore-models --num-layers 2 --hidden-size 32 --ffn-hidden-size 48 "
    "--num-attention-heads 4 --max-position-embeddings 64 --padded-vocab-size 320 "
    "--make-vocab-size-divisible-by 1 --position-embedding-type rope --attention-dropout 0.0 "
    "--hidden-dropout 0.0 --init-method-std 0.02 --tokenizer-type PretrainedFromHF "
    "--use-flash-attn --no-masked-softmax-fusion --attention-softmax-in-fp32 --seq-length 64 "
    "--use-rotary-position-embeddings --no-gradient-accumulation-fusion --micro-batch-size 1 "
    "--distributed-backend nccl --dtype fp32 ";
const std::string kTrained =
    " --global-batch-size 2 --lr 1e-3 --min-lr 1e-4 --train-iters 2 --lr-decay-style cosine "
    "--lr-warmup-iters 1 --weight-decay 1e-1 --clip-grad 1.0 --adam-beta1 0.9 --adam-beta2 0.95 "
    "--initial-loss-scale 65536 --split 100,0,0 --log-interval 1 --save-interval 1000 "
    "--eval-interval 1000 --eval-iters 0 --no-load-optim --no-load-rng --no-save-optim "
    "--no-save-rng --no-shared-storage --plot_loss false --manual-gc --manual-gc-interval 50";

std::vector<ScriptOf> scripts() {
  const std::string plain =
      "--untie-embeddings-and-output-weights --disable-bias-linear --normalization RMSNorm "
      "--norm-epsilon 1e-6 --use-fused-rmsnorm --use-fused-rotary-pos-emb ";
  const std::string gated = plain + "--swiglu --use-fused-swiglu --rotary-base 10000 ";
  const std::string grouped = "--group-query-attention --num-query-groups 2 ";
  const std::string dispatch =
      "--moe-permutation-async-comm --moe-token-dispatcher-type alltoall --moe-grouped-gemm "
      "--use-fused-moe-token-permute-and-unpermute --expert-model-parallel-size 1 "
      "--num-experts 4 ";
  const std::string latent =
      "--spec mindspeed_llm.tasks.models.spec.deepseek_spec layer_spec --shape-order BNSD "
      "--multi-head-latent-attention --qk-rope-head-dim 4 --qk-nope-head-dim 8 --kv-lora-rank 16 "
      "--v-head-dim 8 --qk-layernorm --first-k-dense-replace 1 --moe-layer-freq 1 "
      "--n-shared-experts 1 --moe-intermediate-size 24 --moe-router-topk 2 --seq-aux ";
  const std::string yarn =
      "--rope-scaling-beta-fast 32 --rope-scaling-beta-slow 1 --rope-scaling-factor 4 "
      "--rope-scaling-mscale 0.707 --rope-scaling-mscale-all-dim 0.707 "
      "--rope-scaling-original-max-position-embeddings 16 --rope-scaling-type yarn ";
  const std::string layer_spec = "--spec mindspeed_llm.tasks.models.spec.deepseek_spec layer_spec";
  return {
      {"mixtral",
       plain + "--swiglu --rotary-base 1000000 --no-position-embedding " + grouped + dispatch +
           "--moe-router-topk 2 --moe-router-load-balancing-type aux_loss",
       "--model-type-hf mixtral --moe-grouped-gemm", "--moe-aux-loss-coeff 0.02",
       "linear_qkv linear_proj linear_fc1 linear_fc2"},
      {"qwen2_moe",
       gated + grouped + dispatch +
           "--add-qkv-bias --moe-router-topk 2 --n-shared-experts 2 --shared-expert-gate "
           "--moe-router-load-balancing-type softmax_topk --moe-intermediate-size 24",
       "--model-type-hf qwen2-moe --moe-grouped-gemm --add-qkv-bias", "--moe-aux-loss-coeff 0.001"},
      {"qwen3_moe",
       gated + grouped + dispatch +
           "--kv-channels 12 --qk-layernorm --moe-router-topk 2 --moe-ffn-hidden-size 24 "
           "--norm-topk-prob --moe-router-load-balancing-type aux_loss --moe-layer-freq 1 "
           "--first-k-dense-replace -1",
       "--model-type-hf qwen3-moe --moe-grouped-gemm", "--moe-aux-loss-coeff 0.001"},
      {"deepseek_v2_lite",
       gated + dispatch + latent + yarn +
           "--topk-group 1 --routed-scaling-factor 1.0 --moe-alltoall-overlap-comm "
           "--moe-router-load-balancing-type pai_megatron_aux_loss",
       "--model-type-hf deepseek2-lite --moe-grouped-gemm " + layer_spec,
       "--moe-aux-loss-coeff 0.01 --reuse-fp32-param"},
      {"deepseek_v2",
       gated + dispatch + latent +
           "--q-lora-rank 20 --topk-group 2 --routed-scaling-factor 16.0 "
           "--moe-router-load-balancing-type group_limited_greedy",
       "--model-type-hf deepseek2 --moe-grouped-gemm " + layer_spec,
       "--moe-aux-loss-coeff 0.003 --moe-device-level-aux-loss-coeff 0.05 "
       "--moe-comm-aux-loss-coeff 0.02 --output-layer-slice-num 10"},
      {"deepseek_v3",
       gated + dispatch + latent +
           "--q-lora-rank 20 --n-group 2 --topk-group 2 --routed-scaling-factor 2.5 "
           "--norm-topk-prob --moe-router-score-function sigmoid --moe-router-enable-expert-bias "
           "--moe-router-load-balancing-type noaux_tc",
       "--moe-grouped-gemm --mtp-num-layers 1 --use-mcore-models",
       "--moe-aux-loss-coeff 0.0001 --mla-fa-without-pad --mla-zero-memory --moe-zero-memory "
       "level0 "
       "--swap-optimizer --gemm-gradient-accumulation-fusion --recompute-mtp-norm "
       "--mtp-mem-efficient-logits --moe-fb-overlap --recompute-activation-function "
       "--router-gating-in-fp32"},
      {"glm4_moe",
       gated + grouped + dispatch +
           "--kv-channels 8 --rotary-percent 0.5 --first-k-dense-replace 1 --n-shared-experts 1 "
           "--moe-ffn-hidden-size 24 --moe-router-topk 2 --moe-router-num-groups 1 "
           "--moe-router-group-topk 1 --norm-topk-prob --moe-router-score-function sigmoid "
           "--moe-router-enable-expert-bias --moe-router-load-balancing-type noaux_tc",
       "--moe-grouped-gemm --mtp-num-layers 1", "--moe-tp-extend-ep"},
      {"phimoe",
       "--untie-embeddings-and-output-weights --disable-bias-linear --add-qkv-bias "
       "--add-dense-bias --add-output-layer-bias --normalization LayerNorm --norm-epsilon 1e-5 "
       "--swiglu --use-fused-swiglu --rotary-base 10000 --no-rope-fusion "
       "--spec mindspeed_llm.tasks.models.spec.phi35_moe_spec layer_spec " +
           grouped + dispatch +
           "--moe-router-topk 2 --moe-router-load-balancing-type sparsemixer_topk "
           "--moe-input-jitter-eps 0.01",
       "--model-type-hf phi3.5-moe --moe-grouped-gemm --add-qkv-bias --add-dense-bias "
       "--add-output-layer-bias --spec mindspeed_llm.tasks.models.spec.phi35_moe_spec layer_spec"},
      {"llama4_text",
       "--untie-embeddings-and-output-weights --disable-bias-linear --normalization RMSNorm "
       "--norm-epsilon 1e-6 --kv-channels 8 " +
           grouped + dispatch + "--moe-router-topk 1"},
      {"chatglm",
       "--untie-embeddings-and-output-weights --disable-bias-linear --add-qkv-bias --swiglu "
       "--normalization RMSNorm --norm-epsilon 1e-5 --use-glm-rope --rotary-percent 0.5 "
       "--no-create-attention-mask-in-dataloader --kv-channels 8 " +
           grouped,
       "--model-type-hf chatglm3 --add-qkv-bias"},
      {"gemma",
       "--disable-bias-linear --normalization RMSNorm --norm-epsilon 1e-6 --kv-channels 12 --geglu "
       "--gelu-tanh --add-rmsnorm-offset --input-embeds-norm " +
           grouped,
       "--model-type-hf gemma"},
      {"gemma2",
       "--spec mindspeed_llm.tasks.models.spec.gemma2_spec layer_spec --disable-bias-linear "
       "--normalization RMSNorm --norm-epsilon 1e-6 --kv-channels 12 --gelu-tanh --post-norm "
       "--query-pre-attn-scalar 16 --output-logit-softcapping 30.0 --attn-logit-softcapping 50.0 "
       "--interleave-sliding-window 8 --add-rmsnorm-offset --input-embeds-norm " +
           grouped,
       "--model-type-hf gemma2 --post-norm", "--tokenizer-padding-side left"},
      {"phi3", gated + grouped, "--model-type-hf phi3.5"},
      {"minicpm", gated + grouped + "--scale-emb 12 --scale-depth 1.4 --dim-model-base 16 ",
       "--model-type-hf minicpm"},
      {"internlm3", gated + grouped + "--kv-channels 8 ", "--model-type-hf internlm3"},
      {"glm4",
       plain +
           "--swiglu --rotary-base 10000 --use-glm-rope --rotary-percent 0.5 --kv-channels 8 "
           "--post-norm " +
           grouped,
       "--model-type-hf glm4 --post-norm"},
      {"minicpm3",
       gated + "--multi-head-latent-attention --q-lora-rank 20 --kv-lora-rank 16 "
               "--qk-nope-head-dim 8 --qk-rope-head-dim 4 --v-head-dim 8 --scale-emb 12 "
               "--scale-depth 1.4 --dim-model-base 16",
       "--model-type-hf minicpm3"},
  };
}

class FamilyChain : public ShortTraining, public testing::WithParamInterface<ScriptOf> {
 protected:
  Words line(const std::string& text, const Words& places = {}) const {
    Words words = words_of(text);
    words.insert(words.end(), places.begin(), places.end());
    return words;
  }
  std::string tokenizer() const { return good("tokenizer").string(); }
};

TEST_P(FamilyChain, ConvertedPretrainedTunedAdaptedAndAsked) {
  DANLU_SLOW_BUT_FOR("deepseek_v2_lite", "glm4_moe", "qwen2_moe", "gemma2", "chatglm");
  const ScriptOf& script = GetParam();
  make_model(tiny_model(script.family));
  const std::string experts = script.architecture.find("--num-experts") != std::string::npos
                                  ? " --target-expert-parallel-size 2"
                                  : "";
  ok(
      line("convert --use-mcore-models --model-type GPT --load-model-type hf --save-model-type mg "
           "--target-tensor-parallel-size 2 --target-pipeline-parallel-size 2 --load-dir model "
           "--save-dir mcore --params-dtype fp32 --num-layers 2 " +
               script.convert + experts,
           {"--tokenizer-model", tokenizer()}));
  ok({"convert", "mcore", "back", "--to", "hf"});
  expect_same("model", "back");

  const std::string typed = script.architecture + kArchitecture;
  const auto trained = [&](const std::string& words, const std::string& load,
                           const std::string& save) {
    ok(line(words + " " + typed + script.trained + kTrained,
            {"--load", load, "--save", save, "--tokenizer-name-or-path", tokenizer(), "--data-path",
             good("good.jsonl").string()}));
    EXPECT_EQ(losses(save).size(), 2u) << words;
  };
  const std::string pretrain = "pretrain --json-keys output";
  trained(pretrain, "mcore", "pretrained");
  trained(pretrain, "model", "from_hf");
  ASSERT_EQ(losses("pretrained").size(), 2u);
  EXPECT_NEAR(losses("pretrained")[1], losses("from_hf")[1], 1e-6 * losses("from_hf")[1]);

  const std::string tune =
      "posttrain --stage sft --finetune --is-instruction-dataset --prompt-type qwen "
      "--variable-seq-lengths --tokenizer-not-use-fast";
  trained(tune, "pretrained", "tuned");
  const std::string adapter = " --lora-r 4 --lora-alpha 8 --lora-fusion --lora-target-modules ";
  trained(tune + adapter + script.targets, "tuned", "adapted");

  const std::string generate = "infer --task greedy --prompt fox --max-new-tokens 2 --no-stream ";
  const ProgramResult plain =
      ok(line(generate + typed, {"--load", "tuned", "--tokenizer-name-or-path", tokenizer()}));
  EXPECT_THAT(plain.out, testing::Not(testing::IsEmpty()));
  ok(line(generate + typed + adapter + script.targets,
          {"--load", "tuned", "--lora-load", "adapted", "--tokenizer-name-or-path", tokenizer()}));
}

INSTANTIATE_TEST_SUITE_P(Scripts, FamilyChain, testing::ValuesIn(scripts()),
                         [](const auto& info) { return info.param.family; });

class HubFiles : public ShortTraining {};

/// Llama-4 as the hub has it: the text model's tensors behind a prefix, beside a tower.
TEST_F(HubFiles, OfLlama4TheTextPartIsConvertedAndAsked) {
  nlohmann::json text = tiny_model("llama4_text");
  text["torch_dtype"] = "bfloat16";
  const nlohmann::json whole = {{"model_type", "llama4"},
                                {"architectures", {"Llama4ForConditionalGeneration"}},
                                {"text_config", text},
                                {"vision_config", {{"hidden_size", 24}}}};
  NamedShapes tensors = {{"vision_model.patch_embedding.linear.weight", {24, 12}},
                         {"multi_modal_projector.linear_1.weight", {32, 24}},
                         {"language_model.model.embed_tokens.weight", {320, 32}},
                         {"language_model.model.norm.weight", {32}},
                         {"language_model.lm_head.weight", {320, 32}}};
  for (const char* layer : {"language_model.model.layers.0.", "language_model.model.layers.1."}) {
    for (const auto& [name, shape] :
         NamedShapes{{"input_layernorm.weight", {32}},
                     {"post_attention_layernorm.weight", {32}},
                     {"self_attn.q_proj.weight", {32, 32}},
                     {"self_attn.k_proj.weight", {16, 32}},
                     {"self_attn.v_proj.weight", {16, 32}},
                     {"self_attn.o_proj.weight", {32, 32}},
                     {"feed_forward.router.weight", {4, 32}},
                     {"feed_forward.experts.gate_up_proj", {4, 32, 96}},
                     {"feed_forward.experts.down_proj", {4, 48, 32}},
                     {"feed_forward.shared_expert.gate_proj.weight", {48, 32}},
                     {"feed_forward.shared_expert.up_proj.weight", {48, 32}},
                     {"feed_forward.shared_expert.down_proj.weight", {32, 48}}})
      tensors.push_back({layer + name, shape});
  }
  write("hub/config.json", whole.dump());
  write_random_tensors(*this / "hub/model.safetensors", tensors);
  const ProgramResult converted = ok({"convert", "hub", "text", "--to", "hf"});
  EXPECT_THAT(converted.err, testing::HasSubstr("2 tensors of what sees pictures are left out"));
  expect_same("hub", "text");
  const nlohmann::json saved = nlohmann::json::parse(content_of(*this / "text/config.json"));
  EXPECT_EQ(saved["model_type"], "llama4_text");
  EXPECT_FALSE(saved.contains("vision_config"));
  const std::string names = ok({"inspect", "text", "--tensors"}).out;
  EXPECT_THAT(names, testing::Not(testing::HasSubstr("language_model")));
  const auto asked = [&](const char* model) {
    return ok({"infer", "--model", model, "--tokenizer", good("tokenizer").string(), "--prompt",
               "hi", "--max_new_tokens", "2", "--prompt_type", "chatml"})
        .out;
  };
  EXPECT_EQ(asked("hub"), asked("text"));
}

/// What scripts repeat of a model that is another one.
TEST_F(HubFiles, ArchitectureOfAnotherModelIsRefusedWithBothNumbers) {
  make_model(tiny_model("deepseek_v2_lite"));
  const auto refused = [&](const std::string& more, const Words& words) {
    expect_error(run(train_line("out", "--tuner full --max_steps 1 " + more)), 2, words);
  };
  refused("--rope-scaling-type llama3", {"--rope-scaling-type llama3 (config.json: yarn)"});
  refused("--rope-scaling-factor 40", {"--rope-scaling-factor 40 (config.json: 4)"});
  refused("--rope-scaling-mscale 1.0", {"--rope-scaling-mscale 1 (config.json: 0.707)"});
  refused("--rope-scaling-beta-fast 16", {"--rope-scaling-beta-fast 16 (config.json: 32)"});
  refused("--rope-scaling-original-max-position-embeddings 4096", {"4096 (config.json: 16)"});
  refused("--long-factor 1.0,2.0 --sliding-window 4 --post-norm",
          {"--long-factor 1.0,2.0 (config.json: none)", "--sliding-window 4 (config.json: 0)",
           "--post-norm true (config.json: false)"});
  refused("--num-layers 3", {"--num-layers 3 (config.json: 2)"});
  refused("--add-output-layer-bias --geglu", {"--add-output-layer-bias", "--geglu"});
}

class OwnConverters : public ShortTraining {};

/// ckpt_convert_deepseek3_hf2mcore.sh and _mcore2hf.sh: a program for each direction, so nothing
/// else on the line says it.
TEST_F(OwnConverters, OfDeepseekV3AreToldByTheirSizes) {
  make_model(tiny_model("deepseek_v3"));
  ok(
      words_of("convert --moe-grouped-gemm --target-tensor-parallel-size 1 "
               "--target-pipeline-parallel-size 2 --target-expert-parallel-size 2 --load-dir model "
               "--save-dir cut --num-layers 2 --mtp-num-layers 1 --first-k-dense-replace 1"));
  ok(
      words_of("convert --moe-grouped-gemm --source-tensor-parallel-size 1 "
               "--source-pipeline-parallel-size 2 --source-expert-parallel-size 2 --load-dir cut "
               "--save-dir back --num-layers 2 --mtp-num-layers 1"));
  expect_same("model", "back");
}

}  // namespace
}  // namespace danlu::test
