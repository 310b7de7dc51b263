// Damaged, incomplete and ill-matched models: exit code 4, and the place by name.
#include <cmath>
#include <cstring>
#include <limits>

#include "cli/bad_input.h"

namespace danlu::test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

class BadModel : public BadInput {
 protected:
  /// The answer asked of a copy of the good model whose weight file was rewritten by `damage`.
  template <typename Damage>
  ProgramResult ask_with_weights(Damage damage) const {
    const fs::path model = (*this) / "model";
    fs::remove_all(model);
    copy_model();
    write_content(model / "model.safetensors", damage(content_of(model / "model.safetensors")));
    return ask(model);
  }
  /// `danlu inspect` of a weight file with this content.
  ProgramResult look_at_weights(const std::string& content) const {
    return run({"inspect", write("w.safetensors", content)});
  }
  ProgramResult ask_with_config(const std::string& from, const std::string& to) const {
    const fs::path model = (*this) / "model";
    fs::remove_all(model);
    copy_model();
    write_content(model / "config.json", content_of(good("config.json")));
    replace_in_file(model / "config.json", from, to);
    return ask(model);
  }
};

TEST_F(BadModel, TheGoodOneAnswers) {
  const ProgramResult result = ask(good("model"));
  EXPECT_EQ(result.exit_code, 0) << result.err;
}

TEST_F(BadModel, MissingParts) {
  expect_error(ask((*this) / "nowhere"), 4, {"[--model]", "nowhere", "hint: give a local"});
  const std::vector<std::pair<std::string, std::string>> parts = {
      {"config.json", "no config.json"},
      {"model.safetensors", "no weights here; looked for model.safetensors"},
      {"tokenizer.json", "no tokenizer here"}};
  for (const auto& [file, words] : parts) {
    const fs::path model = copy_model("without-" + file);
    fs::remove(model / file);
    expect_error(ask(model), 4, {model.string(), words});
  }
}

TEST_F(BadModel, OneBelowTheNamedDirectoryIsSuggested) {
  fs::create_directories((*this) / "above/.hidden");
  copy_model("above/mg2hf");
  fs::copy((*this) / "above/mg2hf", (*this) / "above/.hidden/model", fs::copy_options::recursive);
  const std::string where = "hint: did you mean above/mg2hf? ";
  const std::vector<std::vector<std::string>> commands = {
      {"infer", "--model", "above", "--prompt", "hi"},
      {"verify", "above", "--golden", good("model") / "model.safetensors"},
      {"eval", "--model", "above", "--tasks", "mine", "--include_path", "mine.yaml", "--data_dir",
       "."},
      {"sft", "--model", "above", "--dataset", good("good.jsonl")},
      {"convert", "above", "mcore", "--to", "mcore"}};
  write("mine.yaml", R"(task: mine
dataset_kwargs: {data_files: {test: rows.jsonl}}
test_split: test
output_type: generate_until
doc_to_text: "{{q}}"
doc_to_target: "{{a}}"
metric_list: [{metric: exact_match}]
)");
  write("rows.jsonl", R"({"q": "1", "a": "2"})");
  for (const auto& words : commands) expect_error(run(words), 4, {"above", where});
  fs::create_directories((*this) / "shelf");
  fs::copy((*this) / "above", (*this) / "shelf", fs::copy_options::recursive);
  for (const auto& words : std::vector<std::vector<std::string>>{
           {"inspect", "shelf"},
           {"plan", "shelf"},
           {"tokenize", "--tokenizer", "shelf", "hi"},
           {"render", "--tokenizer", "shelf", "--input", good("good.jsonl")},
           {"preprocess", "--model", "shelf", "--input", good("good.jsonl"), "--output-prefix",
            "o"}})
    expect_error(run(words), 4, {"shelf", "hint: did you mean shelf/mg2hf? "});
  // Beside weights of other names, and where a file of the model is named.
  write("above/other.bin", "x");
  expect_error(run(commands[0]), 4, {"above", where});
  expect_error(run({"infer", "--model", "above/mg2hf/config.json", "--prompt", "hi"}), 4,
               {"config.json", "hint: did you mean ", "above/mg2hf? "});
  copy_model("above/second");
  expect_error(run(commands[0]), 4,
               {"2 models lie below it, of which one is given: above/mg2hf, above/second"});
}

TEST_F(BadModel, AQuantizationIsSuggestedByItsNumber) {
  for (const auto& [typed, meant] : std::vector<std::pair<std::string, std::string>>{
           {"q4", "q4_0"}, {"int4", "q4_0"}, {"q8", "q8_0"}, {"8bit", "q8_0"}, {"q8-0", "q8_0"}}) {
    expect_error(run({"infer", "--model", good("model"), "--prompt", "x", "--quantize", typed}), 2,
                 {"got '" + typed + "'", "hint: did you mean '" + meant + "'?"});
  }
  EXPECT_THAT(run({"infer", "--quantize", "int2"}).err, Not(HasSubstr("did you mean")));
}

TEST_F(BadModel, EmptyTruncatedAndOversizedWeights) {
  const std::string all = content_of(good("model") / "model.safetensors");
  expect_error(look_at_weights(""), 4, {"w.safetensors", "0 bytes", "hint: "});
  expect_error(look_at_weights(all.substr(0, 50)), 4, {"w.safetensors", "the header needs"});
  expect_error(look_at_weights(all + std::string(64, '\0')), 4,
               {"w.safetensors", "describes 144512 bytes", "holds 144576"});
  expect_error(
      ask_with_weights([](const std::string& good) { return good.substr(0, good.size() - 100); }),
      4, {"model.safetensors", "describes 144512 bytes", "holds 144412", "cut off or damaged"});
}

TEST_F(BadModel, WrongMagic) {
  // A header length no machine can hold, an error page saved as weights.
  std::string all = content_of(good("model") / "model.safetensors");
  all[7] = '\x40';
  expect_error(look_at_weights(all), 4, {"w.safetensors", "beyond the limit"});
  expect_error(look_at_weights("<html>404</html>"), 4, {"not a valid safetensors file"});
  const fs::path model = copy_model("page");
  fs::remove(model / "model.safetensors");
  write_content(model / "pytorch_model.bin", "<html>404</html>");
  expect_error(
      ask(model), 4,
      {"pytorch_model.bin", "neither a safetensors, a torch nor a GGUF file", "hint: an HTML"});
}

TEST_F(BadModel, AGitLfsPointerSaysWhatToRun) {
  const std::string pointer =
      "version https://git-lfs.github.com/spec/v1\noid sha256:0123456789abcdef\nsize 988097824\n";
  const std::vector<std::pair<std::string, std::string>> parts = {
      {"model.safetensors", "not the weights"},
      {"tokenizer.json", "not the tokenizer"},
      {"config.json", "not config.json"}};
  for (const auto& [file, words] : parts) {
    const fs::path model = copy_model("pointer-" + file);
    write_content(model / file, pointer);
    expect_error(ask(model), 4,
                 {(model / file).string() + ": this is a Git LFS pointer, " + words,
                  "run `git lfs pull` in " + model.string()});
  }
  // Training looks before anything is prepared.
  expect_error(train(good("good.jsonl"), {"--model", "pointer-model.safetensors"}), 4,
               {"this is a Git LFS pointer, not the weights"});
  expect_error(run({"tokenize", "--model", "pointer-tokenizer.json", "hi"}), 4,
               {"this is a Git LFS pointer, not the tokenizer"});
}

TEST_F(BadModel, NanWeight) {
  expect_error(ask_with_weights([](std::string all) {
                 const float nan = std::numeric_limits<float>::quiet_NaN();
                 std::memcpy(all.data() + all.size() - sizeof nan, &nan, sizeof nan);
                 return all;
               }),
               4, {"holds nan at element", "model.safetensors", "hint: the file is damaged"});
}

TEST_F(BadModel, ChineseErrorsHaveNoEnglishWords) {
  const fs::path model = copy_model();
  const auto said = [&](const std::vector<std::string>& arguments) {
    return run_danlu(arguments, {.environment = {{"DANLU_LANG", "zh"}, {"OMP_NUM_THREADS", "1"}},
                                 .directory = ((*this) / "").string()})
        .err;
  };
  std::string all = content_of(model / "model.safetensors");
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::memcpy(all.data() + all.size() - sizeof nan, &nan, sizeof nan);
  write_content(model / "model.safetensors", all);
  EXPECT_THAT(said({"infer", "--model", "model", "--prompt", "hi", "--max_new_tokens", "1"}),
              HasSubstr("为 nan（在 model/model.safetensors 中）"));
  const auto tokenized = [&](const std::string& content) {
    write_content(model / "tokenizer.json", content);
    return said({"tokenize", "--model", "model", "hi"});
  };
  EXPECT_THAT(tokenized("{\"model\": {} 7}"),
              HasSubstr("tokenizer.json:1:14: 此处应为 ',' 或 '}'"));
  EXPECT_THAT(tokenized("{\"model\" {}}"), HasSubstr("tokenizer.json:1:10: 此处应为 ':'"));
  EXPECT_THAT(tokenized("7"), HasSubstr("tokenizer.json:1:1: 此处应为对象"));
}

TEST_F(BadModel, TensorOfAnotherShape) {
  expect_error(ask_with_config("\"intermediate_size\": 48", "\"intermediate_size\": 40"), 4,
               {"model.layers.0.mlp.gate_proj.weight is [48, 32]", "the config asks for [40, 32]",
                "hint: "});
}

TEST_F(BadModel, UnknownArchitecture) {
  expect_error(ask_with_config("\"qwen2\"", "\"mamba\""), 4,
               {"config.json", "unsupported architecture", "supported: llama, aquila, qwen2"});
}

TEST_F(BadModel, Divisibility) {
  expect_error(ask_with_config("\"num_attention_heads\": 4", "\"num_attention_heads\": 5"), 4,
               {"config.json", "num_attention_heads=5 must divide hidden_size=32"});
  write("config.json", content_of(good("config.json")));
  replace_in_file((*this) / "config.json", "\"num_key_value_heads\": 2",
                  "\"num_key_value_heads\": 3");
  expect_error(run({"inspect", "config.json"}), 4,
               {"config.json", "num_key_value_heads=3 must divide num_attention_heads=4"});
  replace_in_file((*this) / "config.json", "\"hidden_size\": 32", "\"hidden_size\": \"big\"");
  expect_error(run({"inspect", "config.json"}), 4,
               {"config.json", "hidden_size must be a whole number", "got \"big\""});
}

TEST_F(BadModel, ConfigAndTokenizerThatEndTooSoon) {
  copy_model();
  const std::vector<std::pair<std::string, std::vector<std::string>>> readers = {
      {"config.json", {"inspect", "model/config.json"}},
      {"tokenizer.json", {"tokenize", "--model", "model", "hi"}}};
  for (const auto& [name, command] : readers) {
    const fs::path file = (*this) / "model" / name;
    const std::string all = content_of(file);
    write_content(file, all.substr(0, all.size() / 2));
    expect_error(run(command), 4, {"model/" + name + ":"});
    write_content(file, "");
    expect_error(run(command), 4, {"model/" + name + ":1:1: "});
  }
}

TEST_F(BadModel, VocabularySmallerThanTheTokenizer) {
  write("config.json", content_of(good("config.json")));
  replace_in_file((*this) / "config.json", "\"vocab_size\": 320", "\"vocab_size\": 200");
  expect_error(run({"init", "--config", "config.json", "--tokenizer", good("tokenizer"), "--output",
                    "made"}),
               4, {"has 280 ids, but vocab_size is 200", "hint: set vocab_size to 280"});
  EXPECT_FALSE(fs::exists((*this) / "made"));

  const ProgramResult made = run({"init", "--config", "config.json", "--output", "made"});
  ASSERT_EQ(made.exit_code, 0) << made.err;
  fs::copy(good("tokenizer"), (*this) / "made");
  expect_error(ask((*this) / "made"), 4, {"the tokenizer has 280 ids", "only 200", "hint: "});
  expect_error(train(good("good.jsonl"), {"--model", "made"}), 4, {"280 ids", "vocab_size is 200"});
  EXPECT_FALSE(fs::exists((*this) / "run" / "checkpoint-1"));
}

TEST_F(BadModel, ExpertsThatAreMissing) {
  const fs::path model = copy_model("experts");
  replace_in_file(model / "config.json", "\"qwen2\"",
                  "\"qwen2_moe\", \"num_experts\": 4, \"num_experts_per_tok\": 2, "
                  "\"moe_intermediate_size\": 24, \"shared_expert_intermediate_size\": 40");
  replace_in_file(model / "config.json", "Qwen2ForCausalLM", "Qwen2MoeForCausalLM");
  const std::string missing =
      "missing: model.layers.0.mlp.gate.weight, model.layers.0.mlp.experts.0.gate_proj.weight";
  expect_error(ask(model), 4, {missing, "(34 in all)", "hint: "});
  expect_error(train(good("good.jsonl"), {"--model", model}), 4, {missing});
  EXPECT_FALSE(fs::exists((*this) / "run" / "checkpoint-1"));
}

TEST_F(BadModel, PromptLongerThanTheWindow) {
  std::string words;
  for (int i = 0; i < 100; ++i) words += "fox ";
  expect_error(ask(good("model"), words), 3,
               {"tokens, the model's window holds 64", "hint: shorten the prompt"});

  // In a file the row is named and marked, and the others are answered.
  const fs::path rows = write("rows.jsonl",
                              "{\"instruction\": \"hi\", \"output\": \"x\"}\n"
                              "{\"instruction\": \"" +
                                  words + "\", \"output\": \"x\"}\n");
  const ProgramResult mixed = run({"infer", "--model", good("model"), "--dataset", rows, "--output",
                                   "answers.jsonl", "--max_new_tokens", "1"});
  EXPECT_EQ(mixed.exit_code, 0) << mixed.err;
  EXPECT_THAT(mixed.err, HasSubstr("warning: 1 row(s) cannot be answered"));
  EXPECT_THAT(mixed.err, HasSubstr("rows.jsonl:2: "));
  EXPECT_THAT(content_of((*this) / "answers.jsonl"), HasSubstr("the model's window holds 64"));

  // With nothing to answer it is an error.
  const fs::path long_only =
      write("long.jsonl", "{\"instruction\": \"" + words + "\", \"output\": \"x\"}\n");
  expect_error(run({"infer", "--model", good("model"), "--dataset", long_only, "--output",
                    "none.jsonl", "--max_new_tokens", "1"}),
               3, {"long.jsonl:1: ", "the model's window holds 64"});
  EXPECT_FALSE(fs::exists((*this) / "none.jsonl"));
}

}  // namespace
}  // namespace danlu::test
