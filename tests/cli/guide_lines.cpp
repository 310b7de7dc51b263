#include "cli/guide_lines.h"

#include <cctype>
#include <sstream>

#include "cli/bad_input.h"
#include "support/shared_data.h"

namespace danlu::test {

Words words_of(const std::string& text) {
  Words words;
  bool inside = false;
  char quote = 0;
  for (const char c : text) {
    if (quote == 0 && (c == '\'' || c == '"')) {
      quote = c;
      if (!inside) words.emplace_back();
      inside = true;
    } else if (c == quote) {
      quote = 0;
    } else if (quote == 0 && std::isspace(static_cast<unsigned char>(c))) {
      inside = false;
    } else {
      if (!inside) words.emplace_back();
      inside = true;
      words.back() += c;
    }
  }
  return words;
}

std::vector<std::string> commands_of(const std::string& guide, const std::string& mark) {
  std::istringstream text(content_of(shared_dir() / "guides" / guide));
  std::vector<std::string> commands;
  std::string command;
  for (std::string line; std::getline(text, line);) {
    if (const size_t comment = line.find(" #"); comment != std::string::npos) line.resize(comment);
    if (line.starts_with("```")) line.clear();
    const bool goes_on = line.ends_with("\\");
    if (goes_on) line.pop_back();
    command += line + " ";
    if (goes_on) continue;
    if (command.find(mark) != std::string::npos) commands.push_back(command);
    command.clear();
  }
  return commands;
}

Values environment_of(Words& words) {
  Values environment;
  while (!words.empty() && words.front().find('=') != std::string::npos &&
         !words.front().starts_with("-")) {
    const size_t equals = words.front().find('=');
    environment[words.front().substr(0, equals)] = words.front().substr(equals + 1);
    words.erase(words.begin());
  }
  return environment;
}

void PrintTo(const GuideLine& line, std::ostream* out) { *out << line.name; }

namespace guide_lines_detail {

ModelShape qwen15(int64_t layers) { return {.layers = layers, .hidden = 32, .ffn = 48}; }
ModelShape qwen25(int64_t layers, int64_t heads, int64_t kv_heads, bool tied) {
  return {.layers = layers,
          .hidden = 4 * heads,
          .ffn = 64,
          .heads = heads,
          .kv_heads = kv_heads,
          .tied = tied};
}
ModelShape llama2() {
  return {.model_type = "llama",
          .architecture = "LlamaForCausalLM",
          .layers = 32,
          .hidden = 64,
          .ffn = 96,
          .heads = 32,
          .kv_heads = 32};
}

/// ALiBi and a normalised head; its 40 heads are 4 here.
ModelShape baichuan13() {
  return {.model_type = "baichuan",
          .architecture = "BaichuanForCausalLM",
          .layers = 40,
          .hidden = 32,
          .ffn = 48,
          .kv_heads = 4};
}

/// What the scripts that guides (c) and (e) name start with.
const std::string kRanks =
    " --nproc_per_node 8 --nnodes 1 --node_rank 0 --master_addr localhost --master_port 6000 ";
/// What all of them end with.
const std::string kEnd = R"(
    --use-mcore-models --hidden-size 0 --ffn-hidden-size 0 --max-position-embeddings 0
    --seq-length 0 --disable-bias-linear --use-flash-attn --swiglu --use-fused-swiglu
    --normalization RMSNorm --use-fused-rmsnorm --position-embedding-type rope
    --use-fused-rotary-pos-emb --make-vocab-size-divisible-by 1 --attention-dropout 0.0
    --hidden-dropout 0.0 --train-iters 2000 --lr-decay-style cosine --lr-warmup-fraction 0.01
    --init-method-std 0.01 --clip-grad 1.0 --adam-beta1 0.9 --no-gradient-accumulation-fusion
    --no-masked-softmax-fusion --attention-softmax-in-fp32 --no-load-optim --no-load-rng --bf16
    --load MODEL --save RUN --data-path DATA --log-interval 1 --save-interval 2000
    --eval-interval 2000 --distributed-backend nccl )";
const std::string kTune =
    " --finetune --stage sft --is-instruction-dataset --variable-seq-lengths ";
const std::string kLora = R"( --lora-fusion
    --lora-target-modules linear_qkv linear_proj linear_fc1 linear_fc2 )";
const std::string kQwen = R"( --add-qkv-bias --group-query-attention --rotary-base 1000000
    --norm-epsilon 1e-6 --padded-vocab-size 0 --tokenizer-type PretrainedFromHF
    --tokenizer-name-or-path TOKENIZER --adam-beta2 0.95 --initial-loss-scale 4096
    --split 100,0,0 --eval-iters 0 )";
const std::string kLlama = R"( --num-layers 32 --num-attention-heads 32
    --untie-embeddings-and-output-weights --adam-beta2 0.95 --weight-decay 1e-1
    --split 949,50,1 )";

}  // namespace guide_lines_detail

std::vector<GuideLine> printed_lines() {
  using namespace guide_lines_detail;
  const Source hf = Source::kHuggingFace, converted = Source::kConverted;
  const auto alpaca = [](const char* name, const ModelShape& shape, size_t which, Source first,
                         const char* said) {
    return GuideLine{name, kAlpacaGuide, "torchrun", shape, which, Data::kRows, first, said};
  };
  const auto swift = [](const char* name, size_t which, Source first, const char* said) {
    const ModelShape shape = qwen15(32);
    return GuideLine{name, kSwiftGuide, "NPROC_PER_NODE", shape, which, Data::kRows, first, said};
  };
  const auto changed = [](GuideLine line, const Values& changes) {
    line.changes = changes;
    return line;
  };
  const char *zero2 = "state and gradients (ZeRO-2)", *zero3 = "parameters (ZeRO-3)";
  return {alpaca("a_full_shard", qwen15(32), 0, hf, zero3),
          alpaca("a_offload", qwen15(40), 1, converted, "in host memory"),
          alpaca("a_zero2", qwen15(32), 2, converted, zero2),
          changed(alpaca("a_zero3", qwen15(32), 2, hf, zero3),
                  {{"--deepspeed", "ds_config_zero3.json"}}),
          changed(alpaca("a_baichuan2_13b", baichuan13(), 0, hf, zero3),
                  {{"--fsdp_transformer_layer_cls_to_wrap", "BaichuanLayer"}}),
          changed(alpaca("a_baichuan2_13b_offload", baichuan13(), 1, hf, "in host memory"),
                  {{"--fsdp_transformer_layer_cls_to_wrap", "BaichuanLayer"}}),
          changed(alpaca("a_baichuan2_13b_zero3", baichuan13(), 2, hf, zero3),
                  {{"--deepspeed", "ds_config_zero3.json"}}),
          swift("b_data_parallel", 0, hf, "× 4 processes"),
          swift("b_zero2", 1, converted, zero2),
          swift("b_zero3", 2, hf, zero3),
          changed(swift("b_data_parallel_full", 0, hf, "× 4 processes"), {{"--sft_type", "full"}}),
          changed(swift("b_zero2_full", 1, hf, zero2), {{"--sft_type", "full"}}),
          changed(swift("b_zero3_full", 2, hf, zero3), {{"--sft_type", "full"}})};
}

std::vector<GuideLine> script_lines() {
  using namespace guide_lines_detail;
  const std::string c = "c_mindspeed_llm_practice.txt", e = "e_mindspeed_llm_guide.txt";
  const std::string small = R"( --num-layers 24 --num-attention-heads 14 --num-query-groups 2
      --use-distributed-optimizer --overlap-grad-reduce --use-rotary-position-embeddings --seed 42
      --weight-decay 1e-1 --log-throughput )";
  const std::string seven = R"( --num-layers 28 --num-attention-heads 28 --num-query-groups 4
      --untie-embeddings-and-output-weights --lr 1.25e-6 --min-lr 1.25e-7 --no-save-optim
      --no-save-rng --seed 1234 --micro-batch-size 1 --log-throughput )";
  const std::string tp2pp2 =
      " --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --micro-batch-size 1 ";
  const std::string pp2 = R"( --tensor-model-parallel-size 1 --pipeline-model-parallel-size 2
      --sequence-parallel )";
  const std::string list = " --num-layer-list 16,16 ";
  const std::string pretrain = "danlu pretrain" + kRanks, tune = "danlu posttrain" + kRanks;
  const ModelShape half = qwen25(24, 14, 2, true), whole = qwen25(28, 28, 4, false);
  return {{"c_pretrain", c,
           pretrain + pp2 + list + kLlama + R"( --tokenizer-type Llama2Tokenizer
           --tokenizer-model TOKENIZER/tokenizer.model --micro-batch-size 1 --global-batch-size 8
           --lr 1.25e-6 --min-lr 1.25e-7 --initial-loss-scale 65536 --use-distributed-optimizer
           --overlap-grad-reduce --eval-iters 10 )" +
               kEnd,
           llama2(), 0, Data::kText, Source::kConverted, "stand in 2 pipeline stages"},
          {"c_pretrain_virtual", c,
           pretrain + pp2 + kLlama + R"( --num-layers-per-virtual-pipeline-stage 4
           --tokenizer-type PretrainedFromHF --tokenizer-name-or-path TOKENIZER
           --micro-batch-size 1 --global-batch-size 8 --lr 1.0e-6 --min-lr 1.0e-7
           --adam-eps 1e-5 --initial-loss-scale 4096.0 --eval-iters 0 )" +
               kEnd,
           llama2(), 0, Data::kText, Source::kHuggingFace, "4 runs of layers in each"},
          {"c_tune_full", c,
           tune + pp2 + list + kTune + kLlama + R"( --tokenizer-type PretrainedFromHF
           --tokenizer-name-or-path TOKENIZER --tokenizer-not-use-fast --prompt-type llama2
           --micro-batch-size 4 --global-batch-size 32 --lr 5e-5 --min-lr 1.25e-7
           --initial-loss-scale 1 --eval-iters 0 )" +
               kEnd,
           llama2(), 0, Data::kSamples, Source::kHuggingFace, "stand in 2 pipeline stages"},
          {"c_tune_packed", c,
           tune + kTune + kLlama + R"( --tensor-model-parallel-size 2
           --pipeline-model-parallel-size 1 --context-parallel-size 4 --sequence-parallel
           --context-parallel-algo ulysses_cp_algo --ulysses-degree-in-cp 2
           --cp-attention-mask-type causal --cp-window-size 1 --use-cp-send-recv-overlap
           --num-workers 16 --no-check-for-nan-in-loss-and-grad --reuse-fp32-param
           --overlap-grad-reduce --overlap-param-gather --use-distributed-optimizer
           --tokenizer-type PretrainedFromHF --tokenizer-name-or-path TOKENIZER
           --micro-batch-size 1 --global-batch-size 2 --lr 1.0e-6 --adam-eps 1e-5
           --initial-loss-scale 1 --reset-position-ids --eval-iters 0 --log-throughput )" +
               kEnd,
           llama2(), 0, Data::kSamples, Source::kHuggingFace, "4 context-parallel processes",
           false},
          {"c_tune_lora", c,
           tune + pp2 + list + kTune + kLora + kLlama + R"( --lora-r 16 --lora-alpha 32
           --tokenizer-type PretrainedFromHF --tokenizer-name-or-path TOKENIZER
           --prompt-type llama2 --micro-batch-size 4 --global-batch-size 32 --lr 5e-5
           --min-lr 1.25e-6 --rotary-base 10000 --norm-epsilon 1e-05 --vocab-size 0
           --initial-loss-scale 65536 --eval-iters 0 --log-throughput )" +
               kEnd,
           llama2(), 0, Data::kSamples, Source::kConverted, "stand in 2 pipeline stages"},
          {"e_pretrain_half_b", e,
           pretrain + tp2pp2 + kQwen + small + R"( --context-parallel-size 2
           --context-parallel-algo megatron_cp_algo --use-cp-send-recv-overlap
           --use-fused-ring-attention-update --sequence-parallel --global-batch-size 2
           --lr 1.25e-6 --min-lr 1.25e-7 )" +
               kEnd,
           half, 0, Data::kText, Source::kConverted, "2 context-parallel processes", false},
          {"e_tune_half_b_lora", e,
           tune + tp2pp2 + kTune + kLora + kQwen + small + R"( --tokenizer-not-use-fast
           --prompt-type qwen --padded-samples --lora-r 8 --lora-alpha 16 --global-batch-size 4
           --lr 7.75e-7 --min-lr 7.75e-8 )" +
               kEnd,
           half, 0, Data::kSamples, Source::kHuggingFace, "(ZeRO-1)", false},
          {"e_pretrain_7b", e, pretrain + kQwen + seven + R"( --tensor-model-parallel-size 4
           --pipeline-model-parallel-size 2 --sequence-parallel --global-batch-size 2
           --weight-decay 1e-1 )" + kEnd,
           whole, 1, Data::kText, Source::kConverted, "over 4 tensor-parallel processes", false},
          {"e_tune_7b", e,
           tune + kTune + kQwen + seven + R"( --tensor-model-parallel-size 1
           --pipeline-model-parallel-size 2 --use-distributed-optimizer --overlap-grad-reduce
           --overlap-param-gather --tokenizer-not-use-fast --prompt-type qwen
           --global-batch-size 8 --weight-decay 0.0 )" +
               kEnd,
           whole, 1, Data::kSamples, Source::kConverted, "(ZeRO-1)"}};
}

}  // namespace danlu::test
