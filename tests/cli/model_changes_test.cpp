// What a line makes of a model, through every verb: positions that are stretched, tokens that the
// tokenizer gains. What was trained so is gone on with, merged and asked so.
#include <gmock/gmock.h>

#include "cli/short_training.h"

namespace danlu::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class ModelChangeLines : public ShortTraining {
 protected:
  void SetUp() override {
    ShortTraining::SetUp();
    make_model({{"model_type", "qwen2"},
                {"architectures", {"Qwen2ForCausalLM"}},
                {"vocab_size", 320},
                {"hidden_size", 32},
                {"intermediate_size", 48},
                {"num_hidden_layers", 2},
                {"num_attention_heads", 4},
                {"num_key_value_heads", 2},
                {"max_position_embeddings", window()},
                {"initializer_range", 0.2},
                {"tie_word_embeddings", false},
                {"torch_dtype", "float32"}});
  }
  virtual int window() const { return 32; }
  Json json_of(const fs::path& file) const { return Json::parse(content_of(*this / file)); }
  /// The beginning of what the model writes.
  std::string answer(const Words& model, const std::string& prompt = "fox fox fox") const {
    Words line = {"infer", "--prompt", prompt, "--max_new_tokens", "12", "--raw"};
    line.insert(line.end(), model.begin(), model.end());
    return ok(line).out;
  }
  /// A copy of model/ whose config.json has these keys.
  void copy_with(const std::string& name, const Json& keys) const {
    fs::copy(*this / "model", *this / name, fs::copy_options::recursive);
    Json config = json_of(fs::path(name) / "config.json");
    config.update(keys);
    write_content(*this / name / "config.json", config.dump());
  }
  /// The line with other words for the model and the rows.
  static Words with(Words line, const std::string& flag, const std::string& value) {
    for (size_t i = 0; i + 1 < line.size(); ++i)
      if (line[i] == flag) line[i + 1] = value;
    return line;
  }
};

// --- positions -----------------------------------------------------------------------------------

const Json kYarn = {
    {"rope_type", "yarn"}, {"original_max_position_embeddings", 32}, {"factor", 3.0}};

TEST_F(ModelChangeLines, StretchedPositionsAreThoseOfAnEditedConfigJson) {
  copy_with("edited", {{"rope_scaling", kYarn}, {"max_position_embeddings", 96}});
  const std::string how = "--tuner lora --lora_rank 4 --max_steps 2 --save_steps 1 ";
  ok(train_line("flagged", how + "--rope_scaling yarn --max_model_len 96"));
  ok(with(train_line("told", how), "--model", "edited"));
  EXPECT_EQ(losses("flagged"), losses("told"));
  expect_same("flagged", "told");
  ok(with(train_line("plain", how), "--max_length", "32"));
  const Json args = json_of("flagged/args.json");
  EXPECT_EQ(Json::parse(args["rope_scaling"].get<std::string>()), kYarn);
  EXPECT_EQ(args["max_model_len"], 96);

  // The adapter is asked on the positions that it was trained on.
  const std::string right = answer({"--model", "edited", "--adapters", "flagged"});
  EXPECT_EQ(answer({"--adapters", "flagged"}), right);
  EXPECT_EQ(answer({"--adapters", "flagged", "--rope_scaling", "yarn"}), right);
  EXPECT_EQ(answer({"--model", "model", "--adapters", "flagged/last"}), right);
  ok({"merge", "--adapters", "flagged", "--output", "merged"});
  EXPECT_EQ(json_of("merged/config.json")["rope_scaling"], kYarn);
  EXPECT_EQ(json_of("merged/config.json")["max_position_embeddings"], 96);
  EXPECT_EQ(answer({"--model", "merged"}), right);
  ok({"convert", "model", "converted", "--to", "hf", "--adapters", "flagged"});
  EXPECT_EQ(json_of("converted/config.json")["rope_scaling"], kYarn);

  // Gone on with, they are what they were.
  const ProgramResult same =
      run(train_line("flagged",
                     "--tuner lora --lora_rank 4 --max_steps 3 --save_steps 1 --rope_scaling yarn "
                     "--max_model_len 96 --resume flagged/checkpoint-2"));
  EXPECT_EQ(same.exit_code, 0) << same.err;
  expect_error(run(train_line("flagged",
                              "--tuner lora --lora_rank 4 --max_steps 4 --save_steps 1 "
                              "--rope_scaling linear --max_model_len 96 --resume "
                              "flagged/checkpoint-3")),
               2, {"rope_scaling: {"});
}

TEST_F(ModelChangeLines, AWholeModelIsSavedWithItsPositions) {
  ok(train_line("whole",
                "--tuner full --max_steps 1 --rope_scaling '{\"type\": \"linear\", "
                "\"factor\": 2}'"));
  const Json config = json_of("whole/config.json");
  EXPECT_EQ(config["rope_scaling"]["factor"], 2);
  EXPECT_EQ(config["max_position_embeddings"], 64);
  answer({"--model", "whole"});
}

TEST_F(ModelChangeLines, ALineThatAsksMayStretchThem) {
  copy_with("edited", {{"rope_scaling", kYarn}, {"max_position_embeddings", 96}});
  const std::string edited = answer({"--model", "edited"}), plain = answer({"--model", "model"});
  EXPECT_NE(edited, plain);
  EXPECT_EQ(answer({"--model", "model", "--rope_scaling", "yarn", "--max_model_len", "96"}),
            edited);
  EXPECT_EQ(
      answer({"--model", "model", "--rope-scaling",
              R"({"rope_type": "yarn", "factor": 3, "original_max_position_embeddings": 32})"}),
      edited);
  EXPECT_EQ(answer({"--model", "model", "--hf-overrides",
                    R"({"rope_scaling": {"rope_type": "yarn", "factor": 3}})"}),
            edited);
  // LLaMA-Factory stretches by 2 where it asks.
  Json twice = kYarn;
  twice["factor"] = 2.0;
  copy_with("twice", {{"rope_scaling", twice}, {"max_position_embeddings", 64}});
  EXPECT_EQ(answer({"--model", "model", "--rope_scaling", "yarn", "--profile", "llamafactory"}),
            answer({"--model", "twice", "--profile", "llamafactory"}));
  copy_with("based", {{"rope_theta", 300.0}});
  EXPECT_EQ(answer({"--model", "model", "--rope-theta", "300"}), answer({"--model", "based"}));
  expect_error(run({"infer", "--model", "model", "--prompt", "a", "--rope_scaling", "yarm",
                    "--max_model_len", "96"}),
               2,
               {"\"yarm\" is neither a kind (linear, dynamic, yarn) nor a JSON object",
                "did you mean yarn?"});
  expect_error(run({"infer", "--model", "model", "--prompt", "a", "--rope_scaling", "yarn"}), 2,
               {"nothing says how far positions are stretched", "the model has 32"});
  expect_error(run({"infer", "--model", "model", "--prompt", "a", "--hf_overrides",
                    R"({"num_hidden_layers": 1})"}),
               2, {"num_hidden_layers: only what says how positions are stretched is taken"});
}

// --- tokens --------------------------------------------------------------------------------------

class NewTokenLines : public ModelChangeLines {
 protected:
  int window() const override { return 64; }
  /// tokens.txt with `count` tokens, and rows that are made of them.
  void make_tokens(int count) const {
    std::string words, rows;
    for (int i = 0; i < count; ++i) words += "<|" + std::to_string(i) + "|>\n";
    for (int i = 0; i < 8; ++i) {
      const std::string token = "<|" + std::to_string(i % count) + "|>";
      rows += R"({"instruction": "fox )" + token + R"(?", "output": ")" + token + token + "\"}\n";
    }
    write("tokens.txt", words);
    write("rows.jsonl", rows);
  }
  Words token_line(const std::string& to, const std::string& more) const {
    return with(train_line(to, more + " --new_special_tokens tokens.txt"), "--dataset",
                "rows.jsonl");
  }
};

// 280 ids and 60 more are beyond the 320 rows of the table.
TEST_F(NewTokenLines, AdaptersTrainSaveAndMergeNewRows) {
  make_tokens(60);
  const std::string how = "--tuner lora --lora_rank 4 --save_steps 1 --max_steps ";
  const ProgramResult made = ok(token_line("run", how + "2"));
  EXPECT_THAT(made.err, HasSubstr("60 new tokens, ids 280 to 339; the vocabulary grows from 320 to "
                                  "384 rows"));
  EXPECT_THAT(made.err, HasSubstr("new tokens: embed_tokens, lm_head trained whole"));
  const Json adapter = json_of("run/adapter_config.json");
  EXPECT_THAT(adapter["modules_to_save"].dump(), HasSubstr("embed_tokens"));
  EXPECT_THAT(adapter["modules_to_save"].dump(), HasSubstr("lm_head"));
  EXPECT_EQ(json_of("run/args.json")["new_special_tokens"].size(), 60u);
  const Json names = json_of("run/tokenizer_config.json")["additional_special_tokens"];
  EXPECT_EQ(names.back(), "<|59|>");
  EXPECT_FALSE(fs::exists(*this / "run/config.json"));
  for (const char* place : {"run", "run/last"}) {
    const ProgramResult ids = ok({"tokenize", "--model", place, "<|0|><|59|>"});
    EXPECT_THAT(ids.out, HasSubstr("280")) << ids.out;
    EXPECT_THAT(ids.out, HasSubstr("339")) << ids.out;
  }

  // Broken off and gone on with: bit for bit.
  ok(token_line("broken", how + "1 --lr_scheduler constant"));
  ok(token_line("broken", how + "2 --lr_scheduler constant --resume broken/checkpoint-1"));
  ok(token_line("straight", how + "2 --lr_scheduler constant"));
  expect_same("broken", "straight");
  expect_error(run(with(token_line("broken", how + "3 --resume broken/checkpoint-2"),
                        "--new_special_tokens", "<|0|>")),
               2, {"new_special_tokens: {"});

  const std::string prompt = "fox <|3|>?", right = answer({"--adapters", "run"}, prompt);
  EXPECT_EQ(answer({"--model", "model", "--adapters", "run/last"}, prompt), right);
  ok({"merge", "--adapters", "run", "--output", "merged"});
  EXPECT_EQ(json_of("merged/config.json")["vocab_size"], 384);
  EXPECT_EQ(answer({"--model", "merged"}, prompt), right);
  ok({"convert", "model", "converted", "--to", "hf", "--adapters", "run"});
  expect_same("converted", "merged");
  EXPECT_EQ(answer({"--model", "converted"}, prompt), right);
  // What was merged is trained further without a word of it.
  ok(with(with(train_line("further", "--tuner full --max_steps 1"), "--model", "merged"),
          "--dataset", "rows.jsonl"));
  EXPECT_EQ(json_of("further/config.json")["vocab_size"], 384);
}

TEST_F(NewTokenLines, RanksAgreeWithOne) {
  make_tokens(60);
  for (const std::string how : {"--tuner full --max_steps 2 ", "--tuner lora --max_steps 2 "}) {
    const std::string tuner = how.substr(8, 4);
    ok(token_line("one_" + tuner, how));
    const std::vector<double> alone = losses("one_" + tuner);
    for (const std::string mesh : {"--tp 2", "--pp 2", "--shard zero3"}) {
      const std::string name = tuner + mesh.substr(2, 2);
      ok(on_two(token_line(name, how + mesh)));
      const std::vector<double> divided = losses(name);
      ASSERT_EQ(divided.size(), alone.size());
      for (size_t step = 0; step < alone.size(); ++step)
        EXPECT_NEAR(divided[step], alone[step], 1e-4 * alone[step]) << name;
    }
  }
  EXPECT_EQ(json_of("one_full/config.json")["vocab_size"], 384);
  EXPECT_THAT(content_of(*this / "one_full/tokenizer.json"), HasSubstr("<|59|>"));
  answer({"--model", "one_full"}, "<|7|>");
}

TEST_F(NewTokenLines, TokensThatFitTakeRowsThatWerePadding) {
  make_tokens(8);
  const ProgramResult made = ok(token_line("run", "--tuner full --max_steps 1"));
  EXPECT_THAT(made.err, HasSubstr("in rows that were padding: the vocabulary stays 320"));
  EXPECT_EQ(json_of("run/config.json")["vocab_size"], 320);
  answer({"--model", "run"}, "<|7|>");
}

TEST_F(NewTokenLines, LlamaFactorysFlagsGrowByItsMultipleOfRows) {
  make_tokens(4);
  Words line = with(train_line("run",
                               "--finetuning_type lora --batch_size 1 --max_steps 1 "
                               "--resize_vocab true"),
                    "--dataset", "rows.jsonl");
  std::string ordinary;
  for (int i = 0; i < 50; ++i) ordinary += (i > 0 ? ",word" : "word") + std::to_string(1000 + i);
  line.insert(line.end(), {"--add_tokens", ordinary, "--add_special_tokens", "<|0|>,<|1|>"});
  EXPECT_THAT(ok(line).err, HasSubstr("the vocabulary grows from 320 to 384 rows"));
  const ProgramResult ids = ok({"tokenize", "--model", "run", "word1049<|0|>"});
  EXPECT_THAT(ids.out, HasSubstr("329"));
  EXPECT_THAT(ids.out, HasSubstr("330"));
  const Json args = json_of("run/args.json");
  EXPECT_EQ(args["add_tokens"].size(), 50u);
  EXPECT_EQ(args["new_special_tokens"], Json({"<|0|>", "<|1|>"}));
  answer({"--adapters", "run"}, "word1001 <|1|>");
}

// The older name of its flag, whose commas divide.
TEST_F(NewTokenLines, LlamaFactorysNewSpecialTokensAreDivided) {
  make_tokens(2);
  Words line =
      with(train_line("run", "--finetuning_type lora --batch_size 1 --max_steps 1"), "--dataset", "rows.jsonl");
  line.insert(line.end(), {"--new_special_tokens", "<|0|>,<|1|>"});
  ok(line);
  EXPECT_EQ(json_of("run/args.json")["new_special_tokens"], Json({"<|0|>", "<|1|>"}));
}

TEST_F(NewTokenLines, WhatCannotBeATokenIsSaid) {
  make_tokens(4);
  expect_error(run(with(token_line("run", "--max_steps 1"), "--new_special_tokens", "none.txt")), 2,
               {"none.txt: no such file"});
  expect_error(run(with(token_line("run", "--max_steps 1"), "--new_special_tokens", " ")), 2,
               {"a token has no character to be seen"});
  ok({"convert", "model", "model.gguf", "--to", "gguf", "--outtype", "f32"});
  expect_error(run(with(token_line("run", "--max_steps 1"), "--model", "model.gguf")), 4,
               {"new tokens cannot be added to a GGUF file"});
  EXPECT_FALSE(fs::exists(*this / "run"));
}

}  // namespace
}  // namespace danlu::test
