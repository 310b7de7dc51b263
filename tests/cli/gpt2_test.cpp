// GPT-2 through every verb: begun at random, trained alone and on two ranks, tuned with the flags
// of MindSpeed-LLM's GPT-3 scripts, converted, adapted, asked.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>

#include "cli/short_training.h"

namespace danlu::test {
namespace {

namespace fs = std::filesystem;

class Gpt2Lines : public ShortTraining {
 protected:
  void SetUp() override {
    ShortTraining::SetUp();
    make_model({{"model_type", "gpt2"},
                {"architectures", {"GPT2LMHeadModel"}},
                {"vocab_size", 320},
                {"n_embd", 32},
                {"n_layer", 2},
                {"n_head", 4},
                {"n_positions", 64},
                {"n_inner", nullptr},
                {"layer_norm_epsilon", 1e-5},
                {"initializer_range", 0.1},
                {"torch_dtype", "float32"},
                {"bos_token_id", 1},
                {"eos_token_id", 2}});
  }
  nlohmann::json json_in(const std::string& file) const {
    return nlohmann::json::parse(content_of(*this / file));
  }
  /// The header of a safetensors file: eight bytes of its length, then JSON.
  nlohmann::json header_of(const std::string& directory) const {
    const std::string content = content_of(*this / directory / "model.safetensors");
    uint64_t size = 0;
    std::memcpy(&size, content.data(), sizeof size);
    return nlohmann::json::parse(content.substr(sizeof size, size));
  }
};

/// The numbers of an f32 tensor.
std::vector<float> numbers_of(const std::string& file, const std::string& tensor) {
  uint64_t size = 0;
  std::memcpy(&size, file.data(), sizeof size);
  const nlohmann::json header = nlohmann::json::parse(file.substr(sizeof size, size));
  const std::vector<size_t> offsets = header.at(tensor).at("data_offsets");
  std::vector<float> numbers((offsets[1] - offsets[0]) / sizeof(float));
  std::memcpy(numbers.data(), file.data() + sizeof size + size + offsets[0],
              offsets[1] - offsets[0]);
  return numbers;
}

TEST_F(Gpt2Lines, TrainedDividedConvertedAdaptedAndAsked) {
  ok(train_line("one", "--tuner full --max_steps 3"));
  ok(on_two(train_line("two", "--tuner full --max_steps 3 --tp 2 --sequence_parallel true")));
  ok(on_two(train_line("stages", "--tuner full --max_steps 3 --pp 2")));
  const std::vector<double> alone = losses("one");
  ASSERT_EQ(alone.size(), 3u);
  EXPECT_LT(alone.back(), alone.front());
  for (const char* run_dir : {"two", "stages"}) {
    const std::vector<double> divided = losses(run_dir);
    ASSERT_EQ(divided.size(), 3u) << run_dir;
    for (size_t step = 0; step < alone.size(); ++step)
      EXPECT_NEAR(divided[step], alone[step], 1e-4 * alone[step]) << run_dir;
  }

  for (const Words& form : {Words{"mcore"}, Words{"legacy"},
                            Words{"mcore", "--transformer-impl", "transformer_engine"}}) {
    const std::string name = form.size() > 1 ? "te" : form[0];
    Words line = {"convert",
                  "one",
                  "cut_" + name,
                  "--tp",
                  "2",
                  "--pp",
                  "2",
                  "--model-type-hf",
                  "gpt2",
                  "--add-qkv-bias",
                  "--add-dense-bias",
                  "--to"};
    line.insert(line.end(), form.begin(), form.end());
    ok(line);
    ok({"convert", "cut_" + name, "back_" + name, "--to", "hf"});
    expect_same("one", "back_" + name);
  }
  ok({"convert", "one", "native", "--to", "native", "--tp", "2", "--pp", "2"});
  ok({"convert", "native", "back_native", "--to", "hf"});
  expect_same("one", "back_native");
  ok({"convert", "one", "model.gguf", "--to", "gguf", "--outtype", "f32"});
  EXPECT_EQ(ask(*this / "model.gguf").out, ask(*this / "one").out);
  ok({"convert", "model.gguf", "back_gguf", "--to", "hf"});
  expect_same("one", "back_gguf");

  ok(train_line("adapted", "--tuner lora --target_modules all-linear --lora_rank 4 --max_steps 3"));
  const ProgramResult answer = ask(*this / "adapted");
  EXPECT_EQ(answer.exit_code, 0) << answer.err;
  EXPECT_EQ(json_in("adapted/adapter_config.json")["fan_in_fan_out"], true);
  ok({"merge", "--adapters", "adapted", "--output", "merged"});
  EXPECT_EQ(ask(*this / "merged").out, answer.out);
}

/// attn.c_proj is square, so its shape does not tell how it lies; three steps move it little.
TEST_F(Gpt2Lines, AnAdapterThatSavesAMatrixWholeHasItAsTheBaseHas) {
  const std::string words =
      "--tuner lora --target_modules c_attn --lora_rank 4 --lora_modules_to_save attn.c_proj "
      "--max_steps 3";
  ok(train_line("alone", words));
  ok(on_two(train_line("two", words + " --tp 2")));
  const std::string name = "transformer.h.1.attn.c_proj.weight";
  const std::vector<float> base = numbers_of(content_of(*this / "model/model.safetensors"), name);
  for (const std::string run_dir : {"alone", "two"}) {
    const std::vector<float> whole = numbers_of(
        content_of(*this / run_dir / "adapter_model.safetensors"), "base_model.model." + name);
    ASSERT_EQ(whole.size(), base.size());
    float far = 0;
    for (size_t i = 0; i < base.size(); ++i) far = std::max(far, std::fabs(whole[i] - base[i]));
    EXPECT_GT(far, 0) << run_dir;
    EXPECT_LT(far, 0.02) << run_dir;
  }
  const ProgramResult answer = ask(*this / "alone");
  EXPECT_EQ(answer.exit_code, 0) << answer.err;
  ok({"merge", "--adapters", "two", "--output", "merged"});
  EXPECT_EQ(ask(*this / "merged").out, answer.out);
  EXPECT_EQ(
      numbers_of(content_of(*this / "merged/model.safetensors"), name),
      numbers_of(content_of(*this / "two/adapter_model.safetensors"), "base_model.model." + name));
}

/// Files hold matrices turned over: [in, out].
TEST_F(Gpt2Lines, WhatIsSavedLiesAsInHuggingFacesFiles) {
  ok(train_line("one", "--tuner full --max_steps 1"));
  for (const char* directory : {"model", "one"}) {
    const nlohmann::json header = header_of(directory);
    const auto shape = [&](const std::string& name) { return header.at(name).at("shape").dump(); };
    EXPECT_EQ(shape("transformer.h.0.attn.c_attn.weight"), "[32,96]") << directory;
    EXPECT_EQ(shape("transformer.h.0.mlp.c_proj.weight"), "[128,32]") << directory;
    EXPECT_EQ(shape("transformer.wpe.weight"), "[64,32]") << directory;
  }
}

TEST_F(Gpt2Lines, LongerTextsThanItsTableAreErrors) {
  expect_error(run(train_line("long", "--tuner full --max_steps 1 --max_length 65")), 2,
               {"--max_length 65", "64"});
  std::string prompt;
  for (int i = 0; i < 80; ++i) prompt += " fox";
  expect_error(ask(*this / "model", prompt), 3, {"the model's window holds 64"});
}

/// Its args alone say what a checkpoint of Megatron's is, too.
TEST_F(Gpt2Lines, AMegatronCheckpointWithoutConfigIsDescribedByItsArgs) {
  ok({"convert", "model", "cut", "--to", "mcore", "--tp", "2"});
  fs::remove(*this / "cut/config.json");
  ok({"convert", "cut", "back", "--to", "hf"});
  expect_same("model", "back");
  EXPECT_EQ(json_in("back/config.json")["model_type"], "gpt2");
}

/// The flags of MindSpeed-LLM's pretrain_gpt3_175B_ptd.sh, with this model's sizes.
TEST_F(Gpt2Lines, MindSpeedsLinesRun) {
  Words pretrain = words_of(
      "pretrain --model model --from_scratch --tensor-model-parallel-size 1 --num-layers 2 "
      "--hidden-size 32 --num-attention-heads 4 --seq-length 32 --max-position-embeddings 64 "
      "--tokenizer-type GPT2BPETokenizer --transformer-impl local --micro-batch-size 1 "
      "--global-batch-size 2 --train-iters 2 --weight-decay 0.1 --adam-beta1 0.9 --adam-beta2 0.95 "
      "--initial-loss-scale 4096 --init-method-std 0.006 --clip-grad 1.0 --lr 6.0e-5 "
      "--lr-decay-style cosine --min-lr 6.0e-6 --lr-warmup-fraction .001 --lr-decay-iters 430000 "
      "--no-load-optim --no-load-rng --no-gradient-accumulation-fusion --no-masked-softmax-fusion "
      "--no-bias-gelu-fusion --attention-softmax-in-fp32 --attention-dropout 0.0 "
      "--hidden-dropout 0.0 --use-flash-attn --overlap-grad-reduce --split 100,0,0 --log-interval "
      "1 "
      "--eval-interval 5000 --eval-iters 1 --distributed-backend nccl --dtype fp32 --json-keys "
      "output --position-embedding-type learned_absolute --save trained --padded-vocab-size 320");
  const Words places = {"--tokenizer-name-or-path", good("tokenizer").string(), "--data-path",
                        good("good.jsonl").string()};
  pretrain.insert(pretrain.end(), places.begin(), places.end());
  ok(pretrain);
  EXPECT_EQ(losses("trained").size(), 2u);
  for (const auto& [flag, value] :
       {std::pair("--normalization", "RMSNorm"), std::pair("--position-embedding-type", "rope"),
        std::pair("--swiglu", "true"), std::pair("--max-position-embeddings", "128")}) {
    Words other = pretrain;
    other.insert(other.end(), {flag, value});
    expect_error(run(other), 2, {flag, "config.json"});
  }
}

/// GPT-2's tokenizer in two files, as Megatron's scripts name them.
class Gpt3Lines : public Gpt2Lines {
 protected:
  void SetUp() override {
    Gpt2Lines::SetUp();
    // Bytes as GPT-2 spells them, and one merge.
    nlohmann::json vocab = nlohmann::json::object();
    for (int byte = 33; byte < 127; ++byte)
      vocab[std::string(1, static_cast<char>(byte))] = vocab.size();
    for (const char* more : {"\u0120", "\u010a", "th", "<|endoftext|>"}) vocab[more] = vocab.size();
    std::ofstream(*this / "gpt2-vocab.json") << vocab.dump();
    std::ofstream(*this / "gpt2-merges.txt") << "#version: 0.2\nt h\n";
    std::ofstream rows(*this / "rows.jsonl");
    for (int i = 0; i < 40; ++i)
      rows << R"({"text": "the quick brown fox jumps over the lazy dog, then it sleeps"})" << "\n";
  }
};

/// data_convert_gpt_pretrain.sh and pretrain_gpt3_15B_ptd.sh of MindSpeed-LLM, in small: no model
/// is named anywhere.
TEST_F(Gpt3Lines, FlagsAloneDescribeWhatIsTrained) {
  ok(
      words_of("preprocess --input rows.jsonl --output-prefix gpt_text_sentence --tokenizer-type "
               "GPT2BPETokenizer --vocab-file gpt2-vocab.json --merge-file gpt2-merges.txt "
               "--append-eod --workers 1 --log-interval 1000"));
  const std::string script =
      "pretrain --tensor-model-parallel-size 1 --pipeline-model-parallel-size 1 "
      "--sequence-parallel --num-layers 2 --hidden-size 32 --num-attention-heads 4 --seq-length 32 "
      "--max-position-embeddings 32 --tokenizer-type GPT2BPETokenizer --transformer-impl local "
      "--micro-batch-size 1 --global-batch-size 2 --train-iters 3 --weight-decay 0.1 --adam-beta1 "
      "0.9 --adam-beta2 0.95 --initial-loss-scale 4096 --init-method-std 0.006 --clip-grad 1.0 "
      "--lr 6.0e-3 --lr-decay-style cosine --min-lr 6.0e-6 --lr-warmup-fraction .001 "
      "--lr-decay-iters 430000 --no-load-optim --no-load-rng --no-gradient-accumulation-fusion "
      "--no-masked-softmax-fusion --attention-softmax-in-fp32 --attention-dropout 0.0 "
      "--hidden-dropout 0.0 --use-flash-attn --no-bias-gelu-fusion --data-path "
      "gpt_text_sentence_text_document --vocab-file gpt2-vocab.json --merge-file gpt2-merges.txt "
      "--split 949,50,1 --log-interval 1 --eval-interval 5000 --eval-iters 1 "
      "--distributed-backend nccl --dtype fp32 --save ";
  ok(words_of(script + "one"));
  ASSERT_EQ(losses("one").size(), 3u);
  EXPECT_NEAR(losses("one").front(), std::log(98.0), 0.05);  // what random weights know
  EXPECT_LT(losses("one").back(), losses("one").front());
  const nlohmann::json config = json_in("one/config.json");
  EXPECT_EQ(config["model_type"], "gpt2");
  EXPECT_EQ(config["vocab_size"], 98);
  EXPECT_EQ(config["n_inner"], 128);
  EXPECT_EQ(config["initializer_range"], 0.006);
  const ProgramResult answer = ask(*this / "one", "the");  // its own tokenizer lies in it
  EXPECT_EQ(answer.exit_code, 0) << answer.err;

  // The same model on two ranks: nothing but the flags says what it is.
  ok(on_two(words_of(script + "two --tensor-model-parallel-size 2")));
  for (size_t step = 0; step < 3; ++step)
    EXPECT_NEAR(losses("two")[step], losses("one")[step], 1e-4 * losses("one")[step]) << step;
  ok(words_of("plan " + script + "never --global-batch-size 8"));

  // A later flag counts: the kind of a Llama.
  ok(words_of(script + "llama --normalization RMSNorm --swiglu --position-embedding-type rope "
                       "--disable-bias-linear --untie-embeddings-and-output-weights"));
  const nlohmann::json llama = json_in("llama/config.json");
  EXPECT_EQ(llama["model_type"], "llama");
  EXPECT_EQ(llama["intermediate_size"], 64);
  EXPECT_EQ(llama["tie_word_embeddings"], false);

  // Megatron's older flag means rotary embedding.
  const std::string rotary =
      " --normalization RMSNorm --swiglu --use-rotary-position-embeddings --disable-bias-linear ";
  ok(words_of(script + "rotary" + rotary));
  EXPECT_EQ(json_in("rotary/config.json")["model_type"], "llama");
  ok(words_of(script + "qwen" + rotary + "--add-qkv-bias"));
  EXPECT_EQ(json_in("qwen/config.json")["model_type"], "qwen2");

  // What no family has is not left out silently.
  const std::string biased = " --normalization RMSNorm --swiglu --position-embedding-type rope ";
  const auto refused = [&](const std::string& more, const Words& words) {
    expect_error(run(words_of(script + "x " + more)), 2, words);
  };
  refused("--no-position-embedding", {"--no-position-embedding", "rope"});
  refused(biased + "--add-qkv-bias", {"--add-qkv-bias", "--disable-bias-linear"});
  refused(biased + "--qk-layernorm", {"--qk-layernorm", "--disable-bias-linear"});
  refused(rotary + "--add-qkv-bias --add-dense-bias", {"--add-qkv-bias and --add-dense-bias"});
  refused(rotary + "--qk-layernorm --add-qkv-bias", {"--qk-layernorm and --add-qkv-bias"});
  expect_error(run(words_of(script + "x --num-experts 4")), 2, {"--num-experts", "config.json"});
  expect_error(run(words_of(script + "x --tuner lora")), 2, {"LoRA needs a model that exists"});
  expect_error(run(words_of(script + "x --multi-head-latent-attention")), 2,
               {"no model is named", "multi_head_latent_attention"});
}

/// Numbers of 4 bits are those of the matrices as they are multiplied, not as files hold them.
TEST_F(Gpt2Lines, QloraIsLoraOnTheDequantisedModel) {
  const std::string tuned = "--tuner lora --target_modules all-linear --lora_rank 4 --max_steps 3";
  ok({"convert", "model", "in_4_bits", "--to", "hf", "--quantization_bit", "4"});
  ok({"convert", "in_4_bits", "dequantised", "--to", "hf", "--dtype", "fp32"});
  EXPECT_EQ(header_of("dequantised").at("transformer.h.0.attn.c_attn.weight").at("shape").dump(),
            "[32,96]");
  const auto of = [&](const std::string& model, const std::string& run, const std::string& more) {
    Words line = train_line(run, tuned + more);
    const auto at = std::find(line.begin(), line.end(), "--model");
    *(at + 1) = (*this / model).string();
    return line;
  };
  ok(of("model", "quantised", " --quantization_bit 4"));
  ok(of("in_4_bits", "as_it_lies", ""));
  ok(of("dequantised", "dense", ""));
  EXPECT_EQ(losses("quantised"), losses("dense"));
  EXPECT_EQ(losses("as_it_lies"), losses("dense"));
  EXPECT_NE(losses("quantised"), std::vector<double>());
  for (const char* run_dir : {"quantised", "as_it_lies"}) {
    EXPECT_EQ(content_of(*this / run_dir / "adapter_model.safetensors"),
              content_of(*this / "dense/adapter_model.safetensors"))
        << run_dir;
  }
  ok({"merge", "--model", "model", "--adapters", "quantised", "--output", "merged",
      "--quantization_bit", "4"});
  ok({"merge", "--model", "dequantised", "--adapters", "dense", "--output", "merged_dense"});
  EXPECT_EQ(content_of(*this / "merged/model.safetensors"),
            content_of(*this / "merged_dense/model.safetensors"));
}

}  // namespace
}  // namespace danlu::test
