#include "cli/bad_input.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace danlu::test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr const char* kConfig = R"({"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"],
 "vocab_size": 320, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
 "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64,
 "rope_theta": 10000.0, "rms_norm_eps": 1e-6, "tie_word_embeddings": false,
 "hidden_act": "silu", "torch_dtype": "float32"})";

ProgramResult run_in(const fs::path& folder, const std::vector<std::string>& arguments) {
  ProgramSettings settings;
  // A cache of its own: what a user has cached may neither help nor hinder.
  settings.environment = {{"OMP_NUM_THREADS", "1"},
                          {"XDG_CACHE_HOME", (folder / "cache").string()}};
  settings.directory = folder.string();
  return run_danlu(arguments, settings);
}

/// Removed when the test program ends.
struct GoodThings {
  const TemporaryDirectory folder;
  GoodThings() {
    write_content(folder / "config.json", kConfig);
    std::string text, rows;
    for (int i = 0; i < 60; ++i) {
      text += "the quick brown fox " + std::to_string(i) + " jumps over the lazy dog\n";
      if (i < 8) rows += R"({"instruction": "fox?", "output": "dog )" + std::to_string(i) + "\"}\n";
    }
    write_content(folder / "text.txt", text);
    write_content(folder / "good.jsonl", rows);
    must({"tokenizer", "train", "--input", "text.txt", "--vocab_size", "280", "--chat_template",
          "chatml", "--output", "tokenizer"});
    must({"init", "--config", "config.json", "--tokenizer", "tokenizer", "--output", "model"});
  }
  void must(const std::vector<std::string>& arguments) const {
    const ProgramResult result = run_in(folder, arguments);
    if (result.exit_code != 0)
      throw std::runtime_error("danlu " + arguments[0] + ": " + result.err);
  }
};

const GoodThings& good_things() {
  static const GoodThings things;
  return things;
}

}  // namespace

void BadInput::SetUp() { good_things(); }

fs::path BadInput::good(const std::string& name) { return good_things().folder / name; }

ProgramResult BadInput::run(const std::vector<std::string>& arguments) const {
  return run_in(folder_, arguments);
}

ProgramResult BadInput::ok(const std::vector<std::string>& arguments) const {
  ProgramResult result = run(arguments);
  EXPECT_EQ(result.exit_code, 0) << arguments[0] << "\n" << result.err;
  return result;
}

ProgramResult BadInput::ask(const fs::path& model, const std::string& prompt) const {
  return run({"infer", "--model", model.string(), "--prompt", prompt, "--max_new_tokens", "1"});
}

ProgramResult BadInput::train(const fs::path& dataset, const std::vector<std::string>& more) const {
  std::vector<std::string> arguments = {"sft",
                                        "--model",
                                        good("model").string(),
                                        "--dataset",
                                        dataset.string(),
                                        "--output_dir",
                                        "run",
                                        "--no-version-dir",
                                        "--tuner",
                                        "full",
                                        "--dtype",
                                        "fp32",
                                        "--batch_size",
                                        "2",
                                        "--save_steps",
                                        "1",
                                        "--max_steps",
                                        "2"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return run(arguments);
}

fs::path BadInput::copy_model(const std::string& name) const {
  fs::copy(good("model"), folder_ / name, fs::copy_options::recursive);
  return folder_ / name;
}

fs::path BadInput::write(const std::string& name, const std::string& content) const {
  write_content(folder_ / name, content);
  return folder_ / name;
}

std::string content_of(const fs::path& file) {
  std::ostringstream text;
  text << std::ifstream(file, std::ios::binary).rdbuf();
  return text.str();
}

void write_content(const fs::path& file, const std::string& content) {
  fs::create_directories(file.parent_path());
  std::ofstream(file, std::ios::binary) << content;
}

void replace_in_file(const fs::path& file, const std::string& from, const std::string& to) {
  std::string text = content_of(file);
  const size_t at = text.find(from);
  ASSERT_NE(at, text.npos) << file << " does not hold " << from;
  write_content(file, text.replace(at, from.size(), to));
}

std::vector<std::pair<std::string, std::string>> contents_below(const fs::path& directory) {
  std::vector<std::pair<std::string, std::string>> contents;
  for (const auto& entry : fs::recursive_directory_iterator(directory)) {
    if (entry.is_regular_file()) contents.emplace_back(entry.path(), content_of(entry.path()));
  }
  std::sort(contents.begin(), contents.end());
  return contents;
}

void expect_error(const ProgramResult& result, int exit_code,
                  const std::vector<std::string>& words) {
  EXPECT_EQ(result.exit_code, exit_code) << result.err;
  EXPECT_THAT(result.err, HasSubstr("error: "));
  for (const std::string& word : words) EXPECT_THAT(result.err, HasSubstr(word));
}

}  // namespace danlu::test
