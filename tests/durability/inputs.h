// tests/durability/inputs.h: what the commands of the campaigns read.
#pragma once
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "cli/run_program.h"
#include "cli/seeing_model.h"

namespace danlu::test {

/// Texts, rows, a tokenizer and a small model, made once for all of them; kept with DANLU_KILL.
class Inputs {
 public:
  Inputs() {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "danlu-durability-XXXXXX").string();
    if (!::mkdtemp(pattern.data())) throw std::runtime_error("cannot make " + pattern);
    path_ = std::filesystem::canonical(pattern);
    std::ofstream texts(*this / "texts.txt"), rows(*this / "rows.jsonl");
    for (int i = 0; i < 24; ++i) {
      const std::string n = std::to_string(i);
      texts << "the fox " << n << " jumps over the lazy dog " << i * 7 << " times a day\n";
      rows << R"({"instruction": "what does fox )" << n << R"( do?", "output": "it jumps )" << i * 7
           << R"( times"})" << "\n";
    }
    texts.close();
    rows.close();
    std::ofstream(*this / "config.json")
        << R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 300,
"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
"num_key_value_heads": 2, "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "hidden_act": "silu",
"tie_word_embeddings": false, "bos_token_id": 1, "eos_token_id": 2, "torch_dtype": "float32"})";
    make({"tokenizer", "train", "--input", *this / "texts.txt", "--vocab_size", "290",
          "--chat_template", "chatml", "--output", *this / "tokenizer"});
    make({"init", "--config", *this / "config.json", "--tokenizer", *this / "tokenizer", "--output",
          *this / "model"});
  }
  Inputs(const Inputs&) = delete;
  Inputs& operator=(const Inputs&) = delete;
  ~Inputs() {
    std::error_code ignored;
    if (!std::getenv("DANLU_KILL")) std::filesystem::remove_all(path_, ignored);
  }
  std::string operator/(const std::string& name) const { return path_ / name; }

  static const Inputs& get() {
    static const Inputs inputs;
    return inputs;
  }
  /// Made when it is first asked for. REQUIRES: shared data.
  static const SeeingModel& seeing() {
    static const SeeingModel made = make_seeing_model(get().path_ / "sees");
    return made;
  }
  static void make(const std::vector<std::string>& arguments) {
    const ProgramResult result = run_danlu(arguments, {.timeout_s = 600});
    if (result.exit_code != 0) throw std::runtime_error(result.err);
  }

 private:
  std::filesystem::path path_;
};

}  // namespace danlu::test
