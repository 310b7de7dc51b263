// What this version has not is said, where the scripts, files and rows of other systems ask for it:
// nothing of it is passed over in silence.
#include "cli/bad_input.h"
#include "cli/guide_lines.h"

namespace danlu::test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kTextAlone = "the model reads text alone";

class NotHere : public BadInput {
 protected:
  ProgramResult preprocess(const fs::path& rows, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> words = {"preprocess",  "--input",         rows,   "--tokenizer",
                                      good("model"), "--output_prefix", "ids/x"};
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
  }
};

// --- pictures, audio, video ----------------------------------------------------------------------

TEST_F(NotHere, PicturesInAnyLayoutAreAnErrorOfEveryTextVerb) {
  const std::vector<std::pair<const char*, const char*>> layouts = {
      // MindSpeed-MM and LLaMA-Factory
      {R"({"messages": [{"role": "user", "content": "<image>Who?"},
           {"role": "assistant", "content": "They."}], "images": ["1.jpg"]})",
       "column \"images\" holds pictures"},
      // LLaVA and ShareGPT4V
      {R"({"id": "0", "image": "coco/1.jpg", "conversations": [
           {"from": "human", "value": "<image>\nWhat?"}, {"from": "gpt", "value": "A dog."}]})",
       "column \"image\" holds pictures"},
      {R"({"instruction": "Hear.", "input": "", "output": "A dog.", "audio": {"path": "a.wav"}})",
       "column \"audio\" holds audio"},
      {R"({"query": "<video> What?", "response": "A dog.", "clip": "a.MP4"})",
       "column \"clip\" names a file that a placeholder"},
      {R"({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": "x"}]},
           {"role": "assistant", "content": "A dog."}]})",
       "a message holds \"image_url\""}};
  for (const auto& [row, what] : layouts) {
    std::string line(row);
    std::erase(line, '\n');
    const fs::path rows = write("rows.jsonl", line + "\n");
    expect_error(preprocess(rows), 3,
                 {"rows.jsonl:1: ", what, kTextAlone, "hint: pictures need a model such as"});
  }
  const fs::path rows = (*this) / "rows.jsonl";
  expect_error(train(rows), 3, {"rows.jsonl:1: ", "image_url", kTextAlone});
  expect_error(run({"infer", "--model", good("model"), "--dataset", rows, "--max_new_tokens", "1"}),
               3, {"rows.jsonl:1: ", kTextAlone});
  EXPECT_FALSE(fs::exists((*this) / "ids"));
  const fs::path asked = write("asked.json", R"({"images": ["1.jpg"],
      "messages": [{"role": "user", "content": "<image>Who?"}]})");
  expect_error(run({"render", "--model", good("model"), "--input", asked}), 3,
               {"asked.json: column \"images\"", kTextAlone});
  write("asked.json", R"([{"role": "user", "content": [{"type": "image", "image": "1.jpg"}]}])");
  expect_error(run({"render", "--model", good("model"), "--input", asked}), 3,
               {"asked.json: a message holds \"image\"", kTextAlone});
}

// LLaVA's file has rows without pictures; the layout is told from the first rows.
TEST_F(NotHere, APictureFarDownIsFoundToo) {
  std::string rows;
  for (int i = 0; i < 100; ++i)
    rows += R"({"instruction": "a", "input": "<image>", "output": "b", "images": []})"
            "\n";
  rows += R"({"instruction": "a", "input": "", "output": "b", "images": ["1.jpg"]})"
          "\n";
  expect_error(preprocess(write("rows.jsonl", rows)), 3, {"rows.jsonl:101: ", kTextAlone});
}

TEST_F(NotHere, TextAboutPicturesIsText) {
  const fs::path rows =
      write("rows.jsonl", R"({"instruction": "Write <image> in HTML.", "input": "",)"
                          R"( "output": "<img>", "images": [], "image": "", "audio": null})"
                          "\n");
  const ProgramResult result = preprocess(rows);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  // A column that was named is what is read; what is beside it is known not to be.
  const fs::path captions =
      write("captions.jsonl", "{\"text\": \"a dog in the sun\", \"image\": \"1.jpg\"}\n");
  std::vector<std::string> words = {"preprocess",  "--input",         captions, "--tokenizer",
                                    good("model"), "--output_prefix", "ids/c"};
  expect_error(run(words), 3, {"column \"image\" holds pictures"});
  words.insert(words.end(), {"--json-keys", "text"});
  const ProgramResult named = run(words);
  EXPECT_EQ(named.exit_code, 0) << named.err;
}

TEST_F(NotHere, MultimodalFlagsAndCommands) {
  expect_error(run({"chat", "--model", good("model"), "--mm-model", "model.json"}), 2,
               {"--mm-model is not available", "danlu infer"});
  for (const char* verb : {"sft", "posttrain"}) {
    expect_error(run({verb, "--model", good("model"), "--dataset", good("good.jsonl"), "--mm-model",
                      "model.json"}),
                 2, {"model.json describes a model that sees pictures", "qwen2"});
  }
  expect_error(run({"pretrain_sora.py"}), 2, {"make pictures or videos are not part"});
  expect_error(run({"llava_instruct_2_mllm_demo_format.py"}), 2, {"danlu convert-rows llava"});
  write("dataset_info.json", R"({"mllm": {"file_name": "rows.json", "formatting": "sharegpt",
      "columns": {"messages": "messages", "audios": "sounds"}}})");
  write("rows.json", R"([{"messages": [{"role": "user", "content": "a"}], "sounds": []}])");
  expect_error(preprocess("mllm"), 2, {"\"audios\": sound is not read"});
}

// --- reinforcement learning ----------------------------------------------------------------------

TEST_F(NotHere, FilesForReinforcementLearningAreCalledSo) {
  // MindSpeed-RL's layout, whose first names say nothing.
  write("grpo.yaml",
        "defaults:\n  - model:\n      - qwen25_7b\nmegatron_training:\n  model: qwen25_7b\n"
        "actor_config:\n  model: qwen25_7b\nrl_config:\n  adv_estimator: group_norm\n");
  expect_error(run({"posttrain", "grpo.yaml"}), 2,
               {"grpo.yaml:6", "actor_config", "describes reinforcement learning"});
}

// --- commands ------------------------------------------------------------------------------------

TEST_F(NotHere, CommandsOfOtherSystemsGetAnAnswerOfTheirOwn) {
  const std::vector<std::pair<const char*, const char*>> answers = {
      {"web-ui", "danlu board DIR"},
      {"web_ui", "danlu board DIR"},
      {"dpo", "danlu rlhf"},
      {"ppo", "danlu rlhf"},
      {"distill", "danlu sample"},
      {"torchrun", "no launcher"},
      {"megatron", "names of its own"},
      {"preprocess_data.py", "danlu preprocess"},
      {"pretrain_gpt.py", "danlu pretrain"},
      {"posttrain_gpt.py", "danlu posttrain"},
      {"inference.py", "danlu infer"}};
  for (const auto& [name, answer] : answers) {
    const ProgramResult result = run({name, "--model", "x"});
    expect_error(result, 2, {std::string("danlu has no command '") + name + "'", answer, "hint: "});
    EXPECT_THAT(listed_commands(), Not(testing::Contains(name)));
  }
  // Whole lines of guides behind danlu's name: what is to be typed instead is told from them.
  const std::pair<Words, const char*> lines[] = {
      {{"python", "convert_ckpt.py", "--x"},
       "type danlu convert instead of python convert_ckpt.py"},
      {{"python3", "./preprocess_data.py"}, "type danlu preprocess instead of python3 ./preproc"},
      {{"/usr/bin/python3", "x.py"}, "the line that starts python or torchrun names the command"},
      {{"swift", "sft", "--model_type", "x"}, "type danlu sft instead of swift sft"},
      {{"torchrun", "--nproc_per_node", "8", "pretrain_gpt.py", "--x"},
       "type danlu launch --nproc_per_node 8 pretrain instead of torchrun"},
      {{"accelerate", "launch", "train.py"}, "type danlu launch instead of accelerate launch"},
      {{"megatron", "sft", "--x"}, "type danlu sft instead of megatron sft"},
      {{"bash", "examples/mcore/tune.sh"}, "it is no shell"},
      {{"wget", "-c", "https://x"}, "type danlu download instead of wget"},
      {{"huggingface-cli", "download", "Qwen/X"},
       "type danlu download instead of huggingface-cli download"},
      {{"git", "lfs", "clone", "https://x"}, "type danlu download instead of git lfs clone"},
      {{"deepspeed", "train.py"}, "type danlu launch --nproc N train instead of deepspeed"},
      {{"npu-smi", "info", "-t", "topo"}, "type danlu devices instead of npu-smi"},
      {{"pip", "install", "torch"}, "nothing is to be installed"}};
  for (const auto& [words, answer] : lines)
    expect_error(run(words), 2, {"danlu has no command '" + words[0] + "'", answer});
  const std::pair<const char*, const char*> scripts[] = {
      {"train.py", "put train in its place"},
      {"examples/train.py", "put train in its place"},
      {"convert_ckpt.py", "put convert in its place"},
      {"tools/preprocess_data.py", "danlu preprocess"},
      {"other.py", "runs no Python scripts"}};
  for (const auto& [name, answer] : scripts)
    expect_error(run({"launch", "--nproc_per_node=2", "--master_port=29555", name}), 2,
                 {name, answer});
  expect_error(run({"launch", "--nproc_per_node=2", "python", "train.py"}), 2,
               {"danlu has no command 'python': it runs no Python", "leave it out"});
  EXPECT_EQ(run({"pt", "--help"}).exit_code, 0);
}

// --- the guides' words ---------------------------------------------------------------------------

TEST_F(NotHere, PreprocessTakesTextWhereNoHandlerIsNamed) {
  const fs::path rows =
      write("rows.jsonl",
            R"({"instruction": "fox?", "input": "", "output": "dog", "text": "### fox? dog"})"
            "\n");
  const ProgramResult text = preprocess(rows);
  ASSERT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.err, AllOf(HasSubstr("column \"text\" is taken"),
                              HasSubstr("--handler-name AlpacaStyleInstructionHandler")));
  EXPECT_TRUE(fs::exists((*this) / "ids" / "x_text_document.idx"));
  const ProgramResult pairs =
      run({"preprocess", "--input", rows, "--tokenizer", good("model"), "--output_prefix", "ids/y",
           "--handler-name", "AlpacaStyleInstructionHandler"});
  ASSERT_EQ(pairs.exit_code, 0) << pairs.err;
  EXPECT_TRUE(fs::exists((*this) / "ids" / "y_packed_input_ids_document.idx"));
  // Pre-training from the rows themselves reads them as preprocess does; tuning reads the pairs.
  const ProgramResult pretrained = run({"pretrain", "--model", good("model"), "--data-path", rows,
                                        "--output_dir", "run", "--dry_run", "--seq-length", "4"});
  EXPECT_THAT(pretrained.err, HasSubstr("detected: text (text)"));
  EXPECT_THAT(train(rows, {"--dry_run"}).err, HasSubstr("detected: alpaca"));
}

TEST_F(NotHere, ATokenizerModelThatIsATokenizerJson) {
  const std::string named = good("model") / "tokenizer.model";
  const ProgramResult result = run({"preprocess", "--input", good("good.jsonl"),
                                    "--tokenizer-model", named, "--output_prefix", "ids/x"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("tokenizer.model is not there: "));
  EXPECT_THAT(result.err, HasSubstr("tokenizer.json is taken"));
  const ProgramResult trained =
      train(good("good.jsonl"), {"--dry_run", "--tokenizer-name-or-path", named});
  EXPECT_EQ(trained.exit_code, 0) << trained.err;
  const ProgramResult converted = run({"convert", "--load-dir", good("model"), "--save-dir", "mg",
                                       "--to", "mcore", "--tokenizer-model", named});
  EXPECT_EQ(converted.exit_code, 0) << converted.err;
  expect_error(run({"tokenize", "--model", "nowhere/tokenizer.model"}), 4,
               {"nowhere/tokenizer.model: no such file"});
}

TEST_F(NotHere, AModelWithoutTokenizerNamesTheFlag) {
  const fs::path bare = copy_model("bare");
  for (const char* name : {"tokenizer.json", "tokenizer_config.json"}) fs::remove(bare / name);
  expect_error(ask(bare), 4, {"bare: no tokenizer here", "--tokenizer DIR"});
  expect_error(
      run({"sft", "--model", bare, "--dataset", good("good.jsonl"), "--output_dir", "run"}), 2,
      {"rows of text need a tokenizer", "hint: ", "--tokenizer DIR"});
}

TEST_F(NotHere, OneWayToShardIsNamed) {
  expect_error(
      train(good("good.jsonl"), {"--fsdp", "full_shard auto_wrap", "--deepspeed", "default-zero2"}),
      2, {"--fsdp and --deepspeed", "give one", "hint: "});
}

TEST_F(NotHere, ABadDeepSpeedFileIsABadFlag) {
  const fs::path file = write("ds.json", "{\"train_batch_size\": 2,}");
  expect_error(train(good("good.jsonl"), {"--deepspeed", file}), 2, {"[deepspeed] ", "ds.json:1"});
  write("ds.json", "{\"scheduler\": {\"type\": 3}}");
  expect_error(train(good("good.jsonl"), {"--deepspeed", file}), 2, {"[deepspeed] ", "\"type\""});
}

TEST_F(NotHere, ErrorsNameTheFlagAsGiven) {
  expect_error(run({"infer", "--ckpt_dir", "nowhere", "--prompt", "hi"}), 4,
               {"[--ckpt_dir] nowhere: no such directory"});
  expect_error(
      run({"infer", "--model", good("model"), "--ckpt_dir", good("model"), "--prompt", "x"}), 2,
      {"[--ckpt_dir] ", "no adapter_config.json there"});
}

TEST_F(NotHere, AGgufWithoutATokenizerNamesTheFlagThatHelps) {
  ASSERT_EQ(run({"convert", good("model"), "whole.gguf", "--to", "gguf"}).exit_code, 0);
  // The key that holds the list is another one now.
  std::string bytes = content_of(*this / "whole.gguf");
  const size_t at = bytes.find("tokenizer.ggml.tokens");
  ASSERT_NE(at, std::string::npos);
  bytes[at] = 'T';
  write_content(*this / "g.gguf", bytes);
  const std::vector<std::vector<std::string>> lines = {
      {"sft", "--model", "g.gguf", "--dataset", good("good.jsonl"), "--output_dir", "run"},
      {"pretrain", "--model", "g.gguf", "--dataset", good("text.txt"), "--output_dir", "run"},
      {"tokenize", "--model", "g.gguf", "hi"},
      {"infer", "--model", "g.gguf", "--prompt", "hi"}};
  for (const std::vector<std::string>& line : lines) {
    const ProgramResult result = run(line);
    EXPECT_NE(result.exit_code, 0);
    EXPECT_THAT(result.err, HasSubstr("--tokenizer")) << result.err;
    EXPECT_THAT(result.err, Not(HasSubstr("SentencePiece")));
  }
}

/// The guides' last step, typed for a model that training here left in that format.
TEST_F(NotHere, WhatIsHuggingFaceAlreadyNeedsNoConversionBack) {
  const fs::path model = copy_model("hf");
  expect_error(
      run({"convert", "--use-mcore-models", "--load-model-type", "mg", "--save-model-type", "hf",
           "--target-tensor-parallel-size", "1", "--load-dir", good("model"), "--save-dir", "hf"}),
      2,
      {"[--load-model-type] says Megatron, but ",
       "hint: it has the wanted format already: danlu chat --model " + good("model").string() +
           "\n"});
  expect_error(run({"convert", "--load-model-type", "mg", "--save-model-type", "mg", "--load-dir",
                    good("model"), "--save-dir", "out"}),
               2, {"hint: leave the flag out: the files say it"});
}

TEST_F(NotHere, WhatWasTokenisedBeforeNamesItsPrefixAndWhoTakesIt) {
  ASSERT_EQ(preprocess(good("good.jsonl")).exit_code, 0);
  const std::string samples = (*this) / "ids" / "x";
  for (const char* ending :
       {"_packed", "_packed_input_ids_document", "_packed_labels_document.idx"})
    expect_error(train(samples + ending), 3,
                 {"of the preprocessed samples " + samples,
                  "hint: danlu sft takes them by their prefix: --data-path " + samples + "\n"});
  const auto pretrain = [&](const std::string& dataset) {
    return run({"pretrain", "--model", good("model"), "--dataset", dataset, "--output_dir", "run"});
  };
  expect_error(pretrain(samples), 3, {"of the preprocessed samples " + samples});

  const std::string text = (*this) / "ids" / "t";
  ASSERT_EQ(run({"preprocess", "--input", good("text.txt"), "--tokenizer", good("tokenizer"),
                 "--output-prefix", text})
                .exit_code,
            0);
  for (const char* ending : {"", "_text_document", "_text_document.bin"})
    expect_error(
        train(text + ending), 3,
        {text + ending + ": tokenised text (.bin, .idx), not rows",
         "hint: danlu pretrain takes it by its prefix: --data-path " + text + "_text_document\n"});
  expect_error(pretrain(text), 3, {"--data-path " + text + "_text_document"});
}

}  // namespace
}  // namespace danlu::test
