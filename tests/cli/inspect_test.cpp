// `danlu inspect`: each kind of thing is recognised and described, unsupported ones too.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "cli/run_program.h"
#include "support/shared_data.h"
#include "support/temporary_directory.h"

namespace danlu::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

namespace fs = std::filesystem;

using Folder = TemporaryDirectory;

void write(const fs::path& file, const std::string& content) {
  fs::create_directories(file.parent_path());
  std::ofstream(file, std::ios::binary) << content;
}

/// config.json of a two-layer Qwen2 with these values for the keys that tests change.
std::string config_json(const std::string& model_type = "qwen2", int layers = 2,
                        int vocabulary = 97) {
  return R"({"model_type": ")" + model_type +
         R"(", "hidden_size": 32, "intermediate_size": 56, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 128, "num_hidden_layers": )" +
         std::to_string(layers) + R"(, "vocab_size": )" + std::to_string(vocabulary) + "}";
}

/// model.safetensors with all-zero F32 tensors of that model, byte by byte as the format says.
void write_weights(const fs::path& file) {
  std::map<std::string, std::vector<int>> shapes = {{"model.embed_tokens.weight", {97, 32}},
                                                    {"model.norm.weight", {32}},
                                                    {"lm_head.weight", {97, 32}}};
  for (const char* layer : {"model.layers.0.", "model.layers.1."}) {
    for (const char* norm : {"input_layernorm", "post_attention_layernorm"})
      shapes[std::string(layer) + norm + ".weight"] = {32};
    for (const auto& [name, rows, columns] :
         std::initializer_list<std::tuple<const char*, int, int>>{{"self_attn.q_proj", 32, 32},
                                                                  {"self_attn.k_proj", 16, 32},
                                                                  {"self_attn.v_proj", 16, 32},
                                                                  {"self_attn.o_proj", 32, 32},
                                                                  {"mlp.gate_proj", 56, 32},
                                                                  {"mlp.up_proj", 56, 32},
                                                                  {"mlp.down_proj", 32, 56}}) {
      shapes[std::string(layer) + name + ".weight"] = {rows, columns};
      const bool has_bias = std::string(name).find("self_attn") == 0 &&
                            std::string(name).find("o_proj") == std::string::npos;
      if (has_bias) shapes[std::string(layer) + name + ".bias"] = {rows};
    }
  }
  std::string header;
  size_t position = 0;
  for (const auto& [name, shape] : shapes) {
    const size_t end = position + 4u * static_cast<size_t>(shape[0]) *
                                      (shape.size() > 1 ? static_cast<size_t>(shape[1]) : 1);
    header += (header.empty() ? "{\"" : ",\"") + name + R"(":{"dtype":"F32","shape":[)" +
              std::to_string(shape[0]) + (shape.size() > 1 ? "," + std::to_string(shape[1]) : "") +
              R"(],"data_offsets":[)" + std::to_string(position) + "," + std::to_string(end) + "]}";
    position = end;
  }
  header += "}";
  std::string length;
  for (int i = 0; i < 8; ++i) length.push_back(static_cast<char>(header.size() >> (8 * i) & 0xff));
  write(file, length + header + std::string(position, '\0'));
}

void write_model(const fs::path& directory, const std::string& config = config_json()) {
  write(directory / "config.json", config);
  write_weights(directory / "model.safetensors");
}

std::string inspect(std::vector<std::string> arguments, int exit_code = 0) {
  arguments.insert(arguments.begin(), "inspect");
  const ProgramResult result = run_danlu(arguments);
  EXPECT_EQ(result.exit_code, exit_code) << result.err;
  return result.out + result.err;
}

TEST(Inspect, AModelDirectory) {
  const Folder directory;
  write_model(directory / "m");
  const std::string text = inspect({(directory / "m").string()});
  EXPECT_THAT(
      text,
      AllOf(HasSubstr("Hugging Face model directory"), HasSubstr("qwen2 (Qwen2ForCausalLM)"),
            HasSubstr(
                "2 layers, width 32, 4 heads of 8 (2 KV), FFN 56, vocabulary 97, positions 128"),
            HasSubstr("q/k/v bias"), HasSubstr("names and shapes fit config.json"),
            HasSubstr("2 x  F32  [56, 32]             model.layers.*.mlp.gate_proj.weight"),
            HasSubstr("tokenizer   none here")));
  EXPECT_THAT(inspect({(directory / "m").string(), "--tensors"}),
              HasSubstr("model.layers.1.mlp.gate_proj.weight  (model.safetensors)"));
}

TEST(Inspect, WeightsThatDoNotFitTheConfigAreNamed) {
  const Folder directory;
  write_model(directory / "m", config_json("qwen2", 1, 98));
  EXPECT_THAT(
      inspect({(directory / "m").string()}),
      AllOf(HasSubstr(
                "wrong shape: model.embed_tokens.weight is [97, 32], config.json says [98, 32]"),
            HasSubstr("unknown: model.layers.1.input_layernorm.weight [32]")));
}

TEST(Inspect, AnUnsupportedModelIsStillDescribed) {
  const Folder directory;
  write_model(directory / "m", config_json("gpt_neox"));
  EXPECT_THAT(inspect({(directory / "m").string()}),
              AllOf(HasSubstr("unsupported architecture \"gpt_neox\""),
                    HasSubstr("model.embed_tokens.weight")));
}

TEST(Inspect, ExpertsOfAModelAreCounted) {
  const Folder directory;
  std::string config = config_json("qwen2_moe");
  config.insert(1, R"("num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 24,
                      "shared_expert_intermediate_size": 40, "mlp_only_layers": [0], )");
  write(directory / "config.json", config);
  EXPECT_THAT(inspect({(directory / "config.json").string()}),
              HasSubstr("experts     8 of width 24, 2 for each token, a shared one of width 40, "
                        "in 1 of 2 layers"));
}

TEST(Inspect, ASingleFileAndAConfigAlone) {
  const Folder directory;
  write_model(directory / "m");
  EXPECT_THAT(inspect({(directory / "m" / "model.safetensors").string()}),
              HasSubstr("weight file"));
  EXPECT_THAT(inspect({(directory / "m" / "config.json").string()}),
              HasSubstr("model configuration"));
}

TEST(Inspect, ARunAndItsCheckpoints) {
  const Folder directory;
  for (const char* name : {"checkpoint-9", "checkpoint-10"})
    std::filesystem::create_directories(directory / name / "optim");
  write(directory / "checkpoint-9" / "DONE", "{}");
  write(directory / "logging.jsonl", "{\"loss\": 2}\n{\"loss\": 1}\n");
  std::filesystem::create_directory_symlink("checkpoint-9", directory / "best");
  const std::string text = inspect({directory.path().string()});
  EXPECT_THAT(text,
              AllOf(HasSubstr("training run"), HasSubstr("checkpoint-9: complete, can be resumed"),
                    HasSubstr("checkpoint-10: incomplete"), HasSubstr("best        checkpoint-9"),
                    HasSubstr("log ends    {\"loss\": 1}\n")));
  EXPECT_LT(text.find("checkpoint-9"), text.find("checkpoint-10"));
}

TEST(Inspect, AnAdapter) {
  DANLU_REQUIRES_SHARED();
  const std::string text = inspect({(shared_dir() / "golden" / "lora_llama").string()});
  EXPECT_THAT(text, AllOf(HasSubstr("PEFT adapter directory"), HasSubstr("LoRA, rank 8, alpha 16"),
                          HasSubstr("21,696 parameters in 42 tensors")));
}

TEST(Inspect, ADataSetAndOneOfItsSequences) {
  DANLU_REQUIRES_SHARED();
  const std::string prefix =
      (shared_dir() / "data/megatron_indexed/dailiuyao/my-gpt2_text_document").string();
  for (const char* ending : {"", ".idx", ".bin"}) {
    EXPECT_THAT(inspect({prefix + ending}),
                HasSubstr("sequences: 35, documents: 35, tokens: 215743"));
  }
  EXPECT_THAT(
      inspect({prefix, "--sample", "1", "--model", (unpacked("tokenizers") / "gpt2").string()}),
      HasSubstr("Albedo (; ) is the measure of the diffuse reflection"));
}

constexpr const char* kRows =
    "{\"instruction\": \"fox?\", \"input\": \"\", \"output\": \"dog\"}\n"
    "{\"instruction\": \"cat?\", \"input\": null, \"output\": \"cow\", \"score\": 2}\n"
    "{\"instruction\": \"yak?\", \"output\": \"emu\", \"score\": 0.5}\n";

TEST(Inspect, RowsTheirColumnsAndTheirLayout) {
  const Folder directory;
  write(directory / "a.jsonl", kRows);
  EXPECT_THAT(inspect({(directory / "a.jsonl").string()}),
              AllOf(HasSubstr("a.jsonl: data set\n"), HasSubstr("files       1 jsonl file, "),
                    HasSubstr("rows        3\n"), HasSubstr("columns     instruction  string\n"),
                    HasSubstr("input        null (1), string (1), missing (1)\n"),
                    HasSubstr("output       string\n"),
                    HasSubstr("score        integer (1), number (1), missing (1)\n"),
                    HasSubstr("layout      alpaca (instruction,input,output)"),
                    HasSubstr("row 0       {\"instruction\": \"fox?\"")));
  EXPECT_THAT(inspect({(directory / "a.jsonl").string(), "--sample", "2"}),
              HasSubstr("row 2       {\"instruction\": \"yak?\""));
  EXPECT_THAT(inspect({(directory / "a.jsonl").string() + "#2"}), HasSubstr("rows        2\n"));
}

TEST(Inspect, RowsOfEveryFileTypeAndOfDirectories) {
  const Folder directory;
  write(directory / "d/a.json", R"([{"query": "fox", "response": "dog"}])");
  write(directory / "d/b.csv", "query,response\nfox,dog\ncat,cow\n");
  write(directory / "d/notes.md", "hello");
  const std::string text = inspect({(directory / "d").string()});
  EXPECT_THAT(text, AllOf(HasSubstr("1 csv file, 1 json file"), HasSubstr("(ignored: 1 .md)"),
                          HasSubstr("rows        3\n"),
                          HasSubstr("layout      query/response (query,response)")));
  write(directory / "t.txt", "one\ntwo\n");
  EXPECT_THAT(inspect({(directory / "t.txt").string()}),
              AllOf(HasSubstr("rows        2\n"), HasSubstr("row 0       one\n"),
                    Not(HasSubstr("columns"))));
  write(directory / "odd.jsonl", "{\"foo\": [1]}\n[2]\n");
  EXPECT_THAT(
      inspect({(directory / "odd.jsonl").string()}),
      AllOf(HasSubstr("foo  array (1), missing (1)\n"), HasSubstr("1 row is no object but: array"),
            HasSubstr("layout      not recognised: [dataset] no known layout")));
}

TEST(Inspect, RowsThatCannotBeRead) {
  const Folder directory;
  write(directory / "bad.jsonl", std::string(kRows) + "{oops\n");
  EXPECT_THAT(inspect({(directory / "bad.jsonl").string()}, 3), HasSubstr("bad.jsonl:4:"));
  write(directory / "empty.jsonl", "");
  EXPECT_THAT(inspect({(directory / "empty.jsonl").string()}, 3), HasSubstr("the file is empty"));
  write(directory / "a.jsonl", kRows);
  EXPECT_THAT(inspect({(directory / "a.jsonl").string(), "--sample", "3"}, 2),
              HasSubstr("there are rows 0 to 2, got 3"));
}

TEST(Inspect, ARowAsTrainingSeesIt) {
  DANLU_REQUIRES_SHARED();
  const Folder directory;
  write(directory / "a.jsonl", kRows);
  // The answer and its end-of-turn token carry loss, what is before them does not.
  EXPECT_THAT(inspect({(directory / "a.jsonl").string(), "--model",
                       (unpacked("tokenizers") / "qwen2_5").string()}),
              AllOf(HasSubstr("<|im_start|>user\nfox?<|im_end|>"), HasSubstr("[LABELS] [-100 * "),
                    HasSubstr("]dog<|im_end|>")));
}

// What it says of the template is what a run would do with this directory.
TEST(Inspect, TheTemplateThatIsReallyUsed) {
  DANLU_REQUIRES_SHARED();
  const Folder directory;
  const auto template_line = [&](const std::string& tokenizer, const std::string& config) {
    const fs::path model = directory / tokenizer;
    fs::copy(unpacked("tokenizers") / tokenizer, model, fs::copy_options::recursive);
    write(model / "config.json", config);
    const std::string text = inspect({model.string()});
    const size_t at = text.find("  template    ");
    return text.substr(at, text.find('\n', at) - at);
  };
  EXPECT_EQ(template_line("qwen2_5", config_json()), "  template    tokenizer_config.json (jinja)");
  // The llama family is many models' with templates of their own: it has no default.
  EXPECT_EQ(template_line("yi", config_json("llama")),
            "  template    none; conversations need --template NAME (plain text needs none)");
  std::string baichuan = config_json("baichuan");
  baichuan.replace(baichuan.find("\"num_key_value_heads\": 2, "), 26, "");
  EXPECT_EQ(template_line("baichuan2", baichuan),
            "  template    baichuan2, the default of the model's family");
}

TEST(Inspect, AGgufFileOfLlamaCpp) {
  DANLU_REQUIRES_SHARED();
  const fs::path file = shared_dir() / "data" / "models" / "stories260K" / "stories260K.gguf";
  EXPECT_THAT(inspect({file.string()}),
              AllOf(HasSubstr("48 tensors"), HasSubstr("general.architecture = \"llama\""),
                    HasSubstr("tokenizer.ggml.tokens = \"(512 of string)\""),
                    HasSubstr("tokenizer   in the file: llama, default, 512 tokens"),
                    HasSubstr("template    none"), HasSubstr("tensor types = {\"F32\":48}"),
                    HasSubstr("5 x  F32  [64, 64]             blk.*.attn_q.weight")));
}

TEST(Inspect, WhatItCannotTell) {
  const Folder directory;
  EXPECT_THAT(inspect({}, 2), HasSubstr("[inspect] name a path"));
  EXPECT_THAT(inspect({(directory / "none").string()}, 8),
              HasSubstr("no such file, directory or data set prefix"));
  fs::create_symlink("loop", directory / "loop");
  EXPECT_THAT(inspect({(directory / "loop").string()}, 8),
              HasSubstr("loop: its symbolic links lead back to themselves"));
  fs::remove(directory / "loop");
  EXPECT_THAT(inspect({directory.path().string()}, 4), HasSubstr("no weights here"));
  write(directory / "text.bin", "hello");
  EXPECT_THAT(inspect({(directory / "text.bin").string()}, 4),
              HasSubstr("neither a safetensors, a torch nor a GGUF file"));
}

}  // namespace
}  // namespace danlu::test
