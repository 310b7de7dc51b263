// `danlu convert` as users type it: MindSpeed-LLM's command lines from the guides, the short ones,
// and what goes wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "cli/own_folder.h"
#include "cli/random_model_dir.h"
#include "support/shared_data.h"

namespace danlu::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

class Convert : public OwnFolder {};

// --- the guides ----------------------------------------------------------------------------------

/// The command lines of convert_ckpt.py in a guide, as words after the program's name.
std::vector<std::vector<std::string>> guide_lines(const std::string& guide) {
  std::istringstream text(content_of(shared_dir() / "guides" / guide));
  std::vector<std::vector<std::string>> lines;
  std::string line;
  bool inside = false;
  while (std::getline(text, line)) {
    if (const size_t comment = line.find(" #"); comment != std::string::npos) line.resize(comment);
    const size_t name = line.find("convert_ckpt.py");
    if (name != std::string::npos && line.find("python") != std::string::npos) {
      lines.push_back({});
      inside = true;
      line = line.substr(name + std::string("convert_ckpt.py").size());
    }
    if (!inside) continue;
    std::istringstream words(line);
    std::string word;
    inside = false;
    while (words >> word) {
      inside = word == "\\";
      if (!inside) lines.back().push_back(word);
    }
  }
  return lines;
}

std::string value_of(const std::vector<std::string>& words, const std::string& flag) {
  const auto at = std::find(words.begin(), words.end(), flag);
  return at == words.end() || at + 1 == words.end() ? "" : *(at + 1);
}

/// The guide's absolute paths, below the test's folder.
std::vector<std::string> moved(std::vector<std::string> words, const fs::path& folder) {
  for (std::string& word : words) {
    if (word.starts_with("/")) word = folder.string() + word;
  }
  return words;
}

struct GuideCase {
  const char* guide;
  size_t which;
  ModelShape shape;
  const char* tokenizer;
};

class ConvertGuides : public Convert, public testing::WithParamInterface<GuideCase> {};

TEST_P(ConvertGuides, TheirCommandLinesRunAsTheyAre) {
  DANLU_REQUIRES_SHARED();
  const auto lines = guide_lines(GetParam().guide);
  ASSERT_GT(lines.size(), GetParam().which);
  std::vector<std::string> words = moved(lines[GetParam().which], folder_);
  const fs::path source = folder_ / value_of(words, "--load-dir");
  write_random_model(source, GetParam().shape);
  write_content(source / GetParam().tokenizer, "{\"stands for\": \"a tokenizer\"}");
  words.insert(words.begin(), "convert");
  const ProgramResult result = ok(words);
  EXPECT_THAT(result.err, HasSubstr("every bit read back"));
  const fs::path target = folder_ / value_of(words, "--save-dir");
  EXPECT_EQ(content_of(target / "latest_checkpointed_iteration.txt"), "1");
  EXPECT_TRUE(fs::exists(target / GetParam().tokenizer));
  ok({"convert", target.string(), "back", "--to", "hf"});
  expect_same(source.string(), "back");
}

INSTANTIATE_TEST_SUITE_P(
    Lines, ConvertGuides,
    testing::Values(
        // Llama-2-7B's 32 layers, narrow: the line cuts them 16,16.
        GuideCase{"c_mindspeed_llm_practice.txt",
                  0,
                  {.model_type = "llama", .architecture = "LlamaForCausalLM", .layers = 32},
                  "tokenizer.model"},
        // Qwen2.5-0.5B whole but for its depth.
        GuideCase{"e_mindspeed_llm_guide.txt",
                  0,
                  {.layers = 2,
                   .hidden = 896,
                   .ffn = 4864,
                   .heads = 14,
                   .kv_heads = 2,
                   .vocab = 151936,
                   .tied = true},
                  "tokenizer.json"},
        // Qwen2.5-7B's widths; its vocabulary would be 2 GB.
        GuideCase{
            "e_mindspeed_llm_guide.txt",
            1,
            {.layers = 2, .hidden = 3584, .ffn = 18944, .heads = 28, .kv_heads = 4, .vocab = 2048},
            "tokenizer.json"}),
    [](const auto& info) { return "Line" + std::to_string(info.index); });

TEST_F(Convert, BackToHuggingFaceAsTheGuidesSayIt) {
  write_random_model(*this / "hf", {});
  ok({"convert", "hf", "mg", "--to", "mcore", "--tp", "2"});
  // save-dir is the original directory; the result lies below it.
  ok({"convert", "--use-mcore-models", "--model-type", "GPT", "--load-model-type", "mg",
      "--save-model-type", "hf", "--target-tensor-parallel-size", "1",
      "--target-pipeline-parallel-size", "1", "--add-qkv-bias", "--load-dir", "mg", "--save-dir",
      "hf", "--params-dtype", "bf16"});
  expect_same("hf", "hf/mg2hf");
}

/// Lines that have no other word for it.
TEST_F(Convert, SizesAloneSayWhatToWrite) {
  write_random_model(*this / "hf", {});
  const ProgramResult cut =
      ok({"convert", "hf", "old", "--target-tensor-parallel-size", "2", "--save-to-legacy"});
  EXPECT_THAT(cut.err, HasSubstr("--target-tensor-parallel-size: Megatron's format is written"));
  EXPECT_THAT(ok({"inspect", "old"}).out, HasSubstr("legacy"));
  const ProgramResult back = ok({"convert", "old", "back", "--source-tensor-parallel-size", "2"});
  EXPECT_THAT(back.err,
              HasSubstr("--source-tensor-parallel-size: Hugging Face's format is written"));
  expect_same("hf", "back");
  const auto refused = [&](const std::vector<std::string>& flags,
                           const std::vector<std::string>& words) {
    std::vector<std::string> line = {"convert", "hf", "x"};
    line.insert(line.end(), flags.begin(), flags.end());
    expect_error(run(line), 2, words);
  };
  refused({"--source-pipeline-parallel-size", "2", "--source-tensor-parallel-size", "1",
           "--target-tensor-parallel-size", "2"},
          {"--source-pipeline-parallel-size", "--target-tensor-parallel-size", "--to hf"});
  refused({"--source-tensor-parallel-size", "1", "--save-to-legacy"}, {"--save-to-legacy"});
  refused({"--to", "mcore", "--save-to-legacy"}, {"--save-to-legacy"});
  refused({"--target-tensor-parallel-size", "2", "--save-lora-to-hf"}, {"--save-lora-to-hf"});
  // Adapters alone are asked for, and there are none.
  refused({"--source-tensor-parallel-size", "1", "--save-lora-to-hf"}, {"no adapters"});
  refused({"--to", "hf", "--save-lora-to-hf"}, {"no adapters"});
}

// --- the short form ------------------------------------------------------------------------------

TEST_F(Convert, EveryFormatLeadsToEveryOther) {
  write_random_model(*this / "hf", {.layers = 4, .vocab = 77});
  const std::vector<std::pair<std::string, std::vector<std::string>>> steps = {
      {"core", {"--to", "mcore", "--tp", "2", "--pp", "2", "--vpp", "2"}},
      {"engine",
       {"--to", "mcore", "--pp", "3", "--noop-layers", "0,5", "--transformer-impl",
        "transformer_engine"}},
      {"legacy", {"--to", "legacy", "--pp", "2", "--num-layer-list", "1,3"}},
      {"native", {"--to", "native", "--tp", "2", "--pp", "4"}},
      {"hf2", {"--to", "hf", "--max-shard-size", "40KB"}}};
  std::vector<std::string> sources = {"hf"};
  for (const auto& [name, flags] : steps) {
    for (size_t i = 0; i < sources.size(); ++i) {
      const std::string target = i == 0 ? name : name + "-from-" + sources[i];
      std::vector<std::string> words = {"convert", sources[i], target};
      words.insert(words.end(), flags.begin(), flags.end());
      ok(words);
      expect_same("hf", target);
    }
    sources.push_back(name);
  }
  EXPECT_TRUE(fs::exists(*this / "hf2/model.safetensors.index.json"));
}

TEST_F(Convert, WhatIsDoneAtOnceShowsNoProgress) {
  write_random_model(*this / "hf", {});
  ASSERT_LT(fs::file_size(*this / "hf/model.safetensors"), 1'000'000u);
  const ProgramResult made = ok({"convert", "hf", "mg", "--to", "mcore"});
  EXPECT_THAT(made.err, HasSubstr("checked: every bit"));
  EXPECT_THAT(made.err, Not(HasSubstr("0 MB")));
}

TEST_F(Convert, TypesStayUnlessAskedFor) {
  write_random_model(*this / "hf", {});
  ok({"convert", "hf", "same", "--to", "mcore"});
  EXPECT_THAT(ok({"inspect", "same"}).out, HasSubstr("BF16"));
  ok({"convert", "same", "wide", "--to", "hf", "--dtype", "fp32"});
  EXPECT_THAT(content_of(*this / "wide/config.json"), HasSubstr("\"float32\""));
  ok({"convert", "wide", "narrow", "--to", "hf", "--dtype", "bf16"});
  expect_same("hf", "narrow");
}

TEST_F(Convert, TheNewConfigNamesTheTypeThatIsStored) {
  write_random_model(*this / "hf", {});
  ok({"convert", "hf", "half", "--to", "mcore", "--dtype", "bf16"});
  replace_in_file(*this / "hf/config.json", "bfloat16", "float32");
  ok({"convert", "half", "back", "--to", "hf", "--hf-config", "hf"});
  EXPECT_THAT(content_of(*this / "back/config.json"), HasSubstr("\"bfloat16\""));
}

TEST_F(Convert, MatricesOfEightBitsAreDequantised) {
  DANLU_REQUIRES_SHARED();
  const std::string fp8 = (shared_dir() / "golden/moe/deepseek_v3_fp8").string();
  EXPECT_THAT(ok({"inspect", fp8}).out, HasSubstr("F8_E4M3"));
  ok({"convert", fp8, "narrow", "--to", "hf", "--dtype", "bf16"});
  ok({"convert", fp8, "wide", "--to", "hf", "--dtype", "fp32"});
  for (const char* config : {"narrow/config.json", "wide/config.json"})
    EXPECT_THAT(content_of(*this / config), Not(HasSubstr("quantization_config")));
  // The bias that chooses among experts keeps its type; the others are rounded once.
  const std::string tensors = ok({"inspect", "narrow", "--tensors"}).out;
  EXPECT_THAT(tensors, HasSubstr("F32"));
  EXPECT_THAT(tensors, HasSubstr("BF16"));
  ok({"convert", "wide", "rounded", "--to", "hf", "--dtype", "bf16"});
  expect_same("narrow", "rounded");
}

TEST_F(Convert, LayersThatPredictFurtherAheadGoThroughMegatronsNamesAndMindSpeeds) {
  DANLU_REQUIRES_SHARED();
  const std::string v3 = (shared_dir() / "golden/moe/deepseek_v3").string();
  ok({"convert", v3, "copy", "--to", "hf"});
  EXPECT_THAT(ok({"inspect", "copy", "--tensors"}).out, HasSubstr("layers.3.eh_proj"));
  expect_same(v3, "copy");
  ok({"convert", v3, "native", "--to", "native"});
  ok({"convert", "native", "kept", "--to", "hf"});
  expect_same(v3, "kept");
  ok({"convert", v3, "mindspeed", "--to", "mcore", "--tp", "2", "--ep", "2", "--pp", "3"});
  EXPECT_THAT(content_of(*this / "mindspeed/iter_0000001/mp_rank_01_002_001/model_optim_rng.pt"),
              AllOf(HasSubstr("mtp_layers.0.transformer_layer.self_attention.linear_qb.weight"),
                    HasSubstr("mtp_layers.0.embedding.word_embeddings.weight")));
  ok({"convert", "mindspeed", "engine", "--to", "mcore", "--tp", "1", "--pp", "3",
      "--transformer-impl", "transformer_engine", "--moe-grouped-gemm"});
  EXPECT_THAT(
      content_of(*this / "engine/iter_0000001/mp_rank_00_002/model_optim_rng.pt"),
      testing::AllOf(HasSubstr("mtp.layers.0.transformer_layer.self_attention.linear_q_up_proj"),
                     HasSubstr("mtp.layers.0.eh_proj.weight")));
  ok({"convert", "engine", "back", "--to", "hf"});
  expect_same(v3, "back");
  ok({"convert", "mindspeed", "back2", "--to", "hf"});
  expect_same(v3, "back2");
}

TEST_F(Convert, LatentAttentionGoesThroughMegatronsNamesAndMindSpeeds) {
  DANLU_REQUIRES_SHARED();
  const std::vector<std::pair<std::string, std::string>> models = {{"deepseek_v2_lite", "2,1"},
                                                                   {"deepseek_v2", "1,1"}};
  for (const auto& [name, stages] : models) {
    const std::string model = (shared_dir() / "golden/moe" / name).string(), own = name;
    ok({"convert", model, own + "_mindspeed", "--to", "mcore", "--tp", "2"});
    ok({"convert", own + "_mindspeed", own + "_te", "--to", "mcore", "--tp", "1", "--pp", "2",
        "--num-layer-list", stages, "--transformer-impl", "transformer_engine"});
    ok({"convert", own + "_te", own + "_back", "--to", "hf"});
    expect_same(model, own + "_back");
    EXPECT_THAT(content_of(*this / (own + "_mindspeed/iter_0000001/mp_rank_00/model_optim_rng.pt")),
                HasSubstr("self_attention.linear_kvb.weight"));
    EXPECT_THAT(content_of(*this / (own + "_te/iter_0000001/mp_rank_00_001/model_optim_rng.pt")),
                HasSubstr("self_attention.linear_kv_up_proj.layer_norm_weight"));
  }
}

TEST_F(Convert, FormsStayUnlessAskedFor) {
  write_random_model(*this / "hf", {});
  ok({"convert", "hf", "te", "--to", "mcore", "--transformer-impl", "transformer_engine"});
  ok({"convert", "te", "te2", "--to", "mcore", "--tp", "2"});
  EXPECT_THAT(ok({"inspect", "te2"}).out, HasSubstr("Transformer-Engine names"));
  ok({"convert", "te2", "local", "--to", "mcore", "--transformer-impl", "local"});
  EXPECT_THAT(ok({"inspect", "local"}).out, testing::Not(HasSubstr("Transformer-Engine names")));
}

TEST_F(Convert, PrintsAChecksumPerTensorAndATotal) {
  write_random_model(*this / "hf", {});
  const ProgramResult a = ok({"convert", "hf", "a", "--to", "mcore", "--tp", "2", "--checksums"});
  const ProgramResult b = ok({"convert", "a", "b", "--to", "native", "--pp", "2", "--checksums"});
  EXPECT_EQ(a.out, b.out) << "the same tensors have the same checksums in any format";
  EXPECT_THAT(a.out, HasSubstr("  model.layers.1.mlp.down_proj.weight\n"));
  EXPECT_THAT(a.out,
              HasSubstr("  total of 27 tensors: a checksum, the same in every format and split\n"));
  EXPECT_THAT(run_danlu({"convert", "hf", "g", "--to", "native"},
                        {.environment = {{"DANLU_LANG", "zh"}}, .directory = (*this / "").string()})
                  .out,
              HasSubstr("  共 27 个张量的校验和"));
  EXPECT_EQ(content_of(*this / "a.checksums"), content_of(*this / "b.checksums"));
  EXPECT_EQ(a.out.find(content_of(*this / "a.checksums")), 0u);
  const ProgramResult total = ok({"convert", "hf", "d", "--to", "native"});
  EXPECT_THAT(a.out, testing::EndsWith(total.out)) << "alone, the total is printed";
  EXPECT_FALSE(std::filesystem::exists(*this / "d.checksums"));
  EXPECT_EQ(ok({"convert", "hf", "c", "--to", "mcore", "--no-check"}).out, "");
  expect_error(run({"convert", "hf", "e", "--to", "mcore", "--no-check", "--checksums"}), 2,
               {"[--checksums]", "--no-check"});
}

TEST_F(Convert, NativeCheckpointsCarryTheirConfigAndTokenizer) {
  write_random_model(*this / "hf", {});
  write_content(*this / "hf/tokenizer.json", "{}");
  write_content(*this / "hf/generation_config.json", "{}");
  ok({"convert", "hf", "m", "--to", "mcore"});
  fs::remove_all(*this / "hf");
  ok({"convert", "m", "back", "--to", "hf"});
  for (const char* name : {"config.json", "tokenizer.json", "generation_config.json"})
    EXPECT_TRUE(fs::exists(*this / "back" / name)) << name;
}

TEST_F(Convert, InspectSaysWhatEachOneIs) {
  write_random_model(*this / "hf", {.vocab = 77});
  ok({"convert", "hf", "core", "--to", "mcore", "--tp", "2", "--pp", "2"});
  EXPECT_THAT(
      ok({"inspect", "core"}).out,
      testing::AllOf(
          HasSubstr("core: Megatron checkpoint\n"), HasSubstr("TP2 PP2"),
          HasSubstr("iteration   1\n"), HasSubstr("optimizer   none"),
          HasSubstr("padded_vocab_size 78"), HasSubstr("family      qwen2"),
          HasSubstr("2 x  BF16 [64, 64]             model.layers.*.self_attn.q_proj.weight")));
  fs::remove(*this / "core/config.json");
  EXPECT_THAT(ok({"inspect", "core/iter_0000001"}).out,
              testing::AllOf(HasSubstr("no config.json here"), HasSubstr("4 ranks"),
                             HasSubstr("self_attention.linear_qkv.weight")));
  ok({"convert", "hf", "nat", "--to", "native", "--tp", "2"});
  EXPECT_THAT(ok({"inspect", "nat"}).out,
              testing::AllOf(HasSubstr("nat: native checkpoint\n"), HasSubstr("TP2 PP1"),
                             HasSubstr("names and shapes fit config.json")));
}

// --- what goes wrong -----------------------------------------------------------------------------

class ConvertBad : public Convert {
 protected:
  ConvertBad() {
    write_random_model(*this / "hf", {});
    ok({"convert", "hf", "m", "--to", "mcore", "--tp", "2", "--pp", "2"});
    before_ = contents_below(folder_);
  }
  /// Nothing is written or changed by a command that fails.
  void expect_refused(const std::vector<std::string>& arguments, int exit_code,
                      const std::vector<std::string>& words) {
    expect_error(run(arguments), exit_code, words);
    EXPECT_EQ(contents_below(folder_), before_);
  }
  fs::path rank(const std::string& name) const {
    return folder_ / "m/iter_0000001" / name / "model_optim_rng.pt";
  }
  void changed() { before_ = contents_below(folder_); }

  std::vector<std::pair<std::string, std::string>> before_;
};

TEST_F(ConvertBad, SplitsThatDoNotDivideNameThoseThatDo) {
  expect_refused({"convert", "hf", "x", "--to", "mcore", "--tp", "4"}, 2,
                 {"tensor parallel size 4", "2 KV groups", "1, 2"});
  expect_refused({"convert", "hf", "x", "--to", "mcore", "--pp", "3"}, 2,
                 {"pipeline size 3", "2 layers", "1, 2"});
  expect_refused({"convert", "hf", "x", "--to", "mcore", "--pp", "2", "--num-layer-list", "1,2"}, 2,
                 {"--num-layer-list", "1,2", "2 layers"});
  expect_refused({"convert", "hf", "x", "--to", "mcore", "--ep", "2"}, 2, {"no experts"});
  expect_refused({"convert", "hf", "x", "--to", "mcore", "--vpp", "3"}, 2, {"--vpp", "2 layers"});
  expect_refused({"convert", "hf", "x", "--to", "mcore", "--noop-layers", "7"}, 2, {"slot 7"});
  expect_refused({"convert", "hf", "x", "--to", "hf", "--tp", "2"}, 2, {"not cut over ranks"});
}

TEST_F(ConvertBad, FlagsThatContradictTheFilesShowBoth) {
  expect_refused({"convert", "hf", "x", "--to", "mcore", "--model-type-hf", "qwen"}, 2,
                 {"qwen", "qwen2"});
  expect_refused({"convert", "hf", "x", "--to", "mcore", "--w-pack"}, 2, {"w-pack", "no packed"});
  expect_refused({"convert", "hf", "x", "--to", "mcore", "--load-model-type", "mg"}, 2,
                 {"says Megatron", "Hugging Face, qwen2"});
  expect_refused({"convert", "m", "x", "--to", "hf", "--load-from-legacy"}, 2,
                 {"--load-from-legacy", "Megatron-core"});
  expect_refused({"convert", "hf", "x", "--to", "mcore", "--num-layers", "28"}, 2, {"28", "has 2"});
  expect_refused({"convert", "hf", "x", "--to", "mcore", "--post-norm"}, 2, {"post"});
  // Agreement is silent.
  ok({"convert", "hf", "y", "--to", "mcore", "--add-qkv-bias", "--num-layers", "2"});
}

TEST_F(ConvertBad, MissingAndMixedRanksAreNamed) {
  fs::remove(rank("mp_rank_01_001"));
  changed();
  expect_refused({"convert", "m", "x", "--to", "hf"}, 4,
                 {"mp_rank_01_001", "model_optim_rng.pt is missing"});
  fs::remove_all(rank("mp_rank_01_001").parent_path());
  changed();
  expect_refused({"convert", "m", "x", "--to", "hf"}, 4,
                 {"saved as TP2 PP2", "4 rank folders", "missing: mp_rank_01_001"});
}

TEST_F(ConvertBad, FilesOfTwoSavesAreNotMixed) {
  ok({"convert", "m", "later", "--to", "mcore", "--tp", "2", "--pp", "2", "--target-iteration",
      "9"});
  fs::copy_file(*this / "later/iter_0000009/mp_rank_01_000/model_optim_rng.pt",
                rank("mp_rank_01_000"), fs::copy_options::overwrite_existing);
  changed();
  expect_refused({"convert", "m", "x", "--to", "hf"}, 4, {"iteration 9", "iteration 1"});
}

TEST_F(ConvertBad, TruncatedFilesAreNamed) {
  fs::resize_file(rank("mp_rank_00_001"), fs::file_size(rank("mp_rank_00_001")) / 2);
  changed();
  expect_refused({"convert", "m", "x", "--to", "hf"}, 4, {"mp_rank_00_001", "end record"});
  fs::resize_file(*this / "hf/model.safetensors", 5000);
  changed();
  expect_refused({"convert", "hf", "x", "--to", "mcore"}, 4, {"model.safetensors"});
}

TEST_F(ConvertBad, ABitThatFlippedInATorchFileIsFound) {
  std::string bytes = content_of(rank("mp_rank_00_001"));
  bytes[bytes.size() / 2] ^= 1;
  write_content(rank("mp_rank_00_001"), bytes);
  changed();
  expect_refused({"convert", "m", "x", "--to", "hf"}, 4, {"mp_rank_00_001", "checksum of record"});
  ok({"convert", "m", "x", "--to", "hf", "--no-check"});
}

TEST_F(ConvertBad, OneTokenizerIsNotMixedWithAnother) {
  write_content(*this / "hf/tokenizer.json", "{}");
  fs::create_directory(*this / "other");
  write_content(*this / "other/tokenizer.model", "theirs");
  write_content(*this / "other/config.json", "theirs");
  ok({"convert", "hf", "x", "--to", "mcore", "--tokenizer-model", "other/tokenizer.model"});
  EXPECT_FALSE(fs::exists(*this / "x/tokenizer.json"));
  EXPECT_EQ(content_of(*this / "x/tokenizer.model"), "theirs");
  EXPECT_THAT(content_of(*this / "x/config.json"), HasSubstr("qwen2"));
}

TEST_F(ConvertBad, FlagsThatSayTwoThingsAreRefused) {
  expect_refused({"convert", "hf", "x", "--to", "hf", "--save-model-type", "mg"}, 2,
                 {"contradicts --save-model-type"});
  expect_refused({"convert", "hf", "x", "--to", "mcore", "--use-distributed-optimizer"}, 2,
                 {"--with-optimizer"});
  expect_refused({"convert", "hf", "", "--to", "mcore"}, 2, {"output"});
  expect_refused({"convert", "hf", ".", "--to", "mcore", "--overwrite"}, 2, {"holds the source"});
}

TEST_F(ConvertBad, AnotherModelsConfigIsNoticed) {
  write_random_model(*this / "other", {.hidden = 128});
  changed();
  expect_refused({"convert", "m", "x", "--to", "hf", "--hf-config", "other"}, 4,
                 {"hidden_size is 64", "128"});
  fs::remove(*this / "m/config.json");
  changed();
  ok({"convert", "m", "x", "--to", "hf", "--hf-config", "hf"});
  expect_same("hf", "x");
  // Without it args describe the model.
  ok({"convert", "m", "described", "--to", "hf"});
  ok({"diff", "hf", "described", "--tolerance", "0"});
}

TEST_F(ConvertBad, PlacesAreChecked) {
  expect_refused({"convert", "nowhere", "x", "--to", "hf"}, 4, {"nowhere", "no such file"});
  expect_refused({"convert", "hf", "m", "--to", "mcore"}, 2, {"exists", "--overwrite"});
  expect_refused({"convert", "hf", "hf", "--to", "mcore", "--overwrite"}, 2, {"holds the source"});
  expect_refused({"convert", "hf", "x"}, 2, {"--to"});
  expect_refused({"convert", "hf", "--to", "hf"}, 2, {"where to write"});
  expect_refused({"convert", "hf", "x", "y", "--to", "hf"}, 2, {"y"});
  expect_refused({"convert", "m", "x", "--to", "hf", "--iteration", "7"}, 4,
                 {"iter_0000007", "iter_0000001"});
  expect_refused({"convert", "m", "x", "--to", "mcore", "--with-optimizer"}, 4, {"no optimizer"});
  expect_refused({"convert", "hf", "x", "--to", "peft"}, 2, {"no adapters"});
  expect_refused({"convert", "hf", "x", "--to", "mcore", "--target-iteration", "zero"}, 2,
                 {"zero"});
}

TEST_F(ConvertBad, AdaptersToMergeAreNoSourceOfPeft) {
  expect_refused({"convert", "m", "x", "--to", "peft", "--adapters", "nowhere"}, 2, {"--adapters"});
}

}  // namespace
}  // namespace danlu::test
