// The chain of guide (c) to its end, on a narrow model: converted, pretrained, tuned, tuned with
// LoRA, and examined with MMLU by the flags of MindSpeed-LLM's evaluation scripts.
#include <algorithm>
#include <cmath>
#include <map>
#include <sstream>

#include "base/free_port.h"
#include "base/json.h"
#include "cli/guide_lines.h"
#include "cli/launch.h"
#include "support/shared_data.h"
#include "support/slow.h"

namespace danlu::test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

/// What the model said to each question: task and row -> text, or the likelihoods of its choices.
using Said = std::map<std::pair<std::string, int64_t>, Json>;

/// What examinations of the same data differ in.
struct Examined {
  double score = -1;  ///< of all of MMLU
  int64_t num_fewshot = -1;
  Said said;
  std::string chat_template;  ///< in the results
  std::string log;
};

class GuideEvaluation : public Launch {
 protected:
  static constexpr int64_t kSubjects = 57, kRows = 2 * kSubjects, kStemRows = 2 * 19;

  void SetUp() override {
    DANLU_REQUIRES_SHARED();
    Launch::SetUp();
    write_data();
    write_model();
  }

  ProgramResult ok(Words words, const Words& more = {}) const {
    words.insert(words.end(), more.begin(), more.end());
    ProgramResult result = run_words(words);
    EXPECT_EQ(result.exit_code, 0) << testing::PrintToString(words) << result.err;
    return result;
  }

  /// One of MMLU's rows, or a question of a data set of instructions: a few words drawn by number.
  static Words question(size_t number) {
    static const Words kWords = {"fox", "dog", "cat",  "red", "blue",
                                 "one", "two", "tree", "sun", "moon"};
    Words cells;
    for (size_t i = 0; i < 4; ++i) cells.push_back(kWords[(number * (i + 3) + i * i) % 10]);
    return {cells[0] + " " + cells[1] + " " + std::to_string(number) + "?", cells[0], cells[1],
            cells[2], cells[3]};
  }
  static std::string asked(const Words& cells) {
    return cells[0] + "\nA. " + cells[1] + "\nB. " + cells[2] + "\nC. " + cells[3] + "\nD. " +
           cells[4] + "\nAnswer:";
  }
  static std::string csv_row(size_t number, char answer) {
    std::string row;
    for (const std::string& cell : question(number)) row += cell + ",";
    return row + answer + "\n";
  }

  /// The letters of all test rows in turn: half of them are B.
  static char right_answer(size_t row) { return "BACB"[row % 4]; }
  static double share_of_b() {
    int64_t count = 0;
    for (size_t row = 0; row < kRows; ++row) count += right_answer(row) == 'B';
    return static_cast<double>(count) / kRows;
  }

  /// mmlu/{dev,test}/*.csv as the authors' archive holds them, rows of instructions whose answer is
  /// B whatever is asked, and text.
  void write_data() {
    std::istringstream list(ok({"eval", "--tasks", "list"}).out);
    for (std::string line; std::getline(list, line);) {
      const std::string prefix = "  mmlu_";
      if (!line.starts_with(prefix) || line.starts_with("  mmlu_ppl_")) continue;
      subjects_.push_back(line.substr(prefix.size()));
    }
    for (const char* group : {"humanities", "other", "social_sciences", "stem"})
      std::erase(subjects_, group);
    ASSERT_EQ(subjects_.size(), size_t{kSubjects});
    fs::create_directories((*this) / "mmlu/dev");
    fs::create_directories((*this) / "mmlu/test");
    size_t row = 0;
    for (const std::string& subject : subjects_) {
      std::string dev, test;
      for (size_t i = 0; i < 5; ++i) dev += csv_row(100 * row + i, "ABCD"[i % 4]);
      for (size_t i = 0; i < 2; ++i, ++row) test += csv_row(row, right_answer(row));
      write("mmlu/dev/" + subject + "_dev.csv", dev);
      write("mmlu/test/" + subject + "_test.csv", test);
    }
    std::string rows, text, documents;
    for (size_t i = 0; i < 64; ++i) {
      const std::string shown = asked(question(7 * i + 1));
      rows += Json{{"instruction", shown}, {"input", ""}, {"output", "B"}}.dump() + "\n";
      documents += Json{{"text", shown + " " + "ABCD"[i % 4]}}.dump() + "\n";
      text += shown + " A\nThe following are multiple choice questions (with answers) about  " +
              subjects_[i % kSubjects] + ".\n";
    }
    write("rows.jsonl", rows);
    write("documents.jsonl", documents);
    write("text.txt", text);
  }

  /// model/: shaped as Qwen1.5, with the heads and biases of its 0.5B.
  void write_model() const {
    ok({"tokenizer", "train", "--input", "text.txt", "--vocab_size", "400", "--chat_template",
        "chatml", "--output", "tokenizer"});
    write("config.json",
          config_text({.layers = 4, .hidden = 32, .ffn = 48, .kv_heads = 4, .vocab = 416}));
    ok({"init", "--config", "config.json", "--tokenizer", "tokenizer", "--output", "model"});
  }

  /// By the line that the guide prints, with the flags that its script adds for this family.
  void convert() const {
    Words words = words_of(commands_of(kPractice, "python convert_ckpt.py").at(0));
    words.erase(words.begin(), words.begin() + 2);
    const Values mine = {{"--load-dir", "model"},
                         {"--save-dir", "mcore"},
                         {"--num-layer-list", "2,2"},
                         {"--tokenizer-model", "model/tokenizer.json"}};
    for (size_t i = 0; i + 1 < words.size(); ++i) {
      if (const auto found = mine.find(words[i]); found != mine.end()) words[i + 1] = found->second;
    }
    words.insert(words.begin(), "convert");
    ok(words, {"--use-mcore-models", "--add-qkv-bias", "--params-dtype", "bf16"});
  }
  void preprocess() const {
    const Words common = words_of(
        "--tokenizer-type PretrainedFromHF --tokenizer-name-or-path model --workers 4 "
        "--log-interval 1000");
    ok(words_of("preprocess --input documents.jsonl --output-prefix enwiki --json-keys text "
                "--handler-name GeneralPretrainHandler --append-eod"),
       common);
    ok(words_of("preprocess --input rows.jsonl --output-prefix alpaca --prompt-type qwen "
                "--handler-name AlpacaStyleInstructionHandler --tokenizer-not-use-fast"),
       common);
  }

  /// The launcher's words of the scripts, before a line of theirs.
  static Words launched(const std::string& verb, int64_t ranks = 2) {
    Words words = words_of("launch --nnodes 1 --node_rank 0 --master_addr localhost --master_port");
    words.push_back(std::to_string(free_port().value()));
    words.insert(words.end(), {"--nproc_per_node", std::to_string(ranks), verb});
    return words;
  }
  /// What all of the scripts repeat of the model.
  static Words model_flags() {
    return words_of(R"(--use-mcore-models --tensor-model-parallel-size 1
        --pipeline-model-parallel-size 2 --num-layers 4 --hidden-size 32 --ffn-hidden-size 48
        --num-attention-heads 4 --max-position-embeddings 4096 --seq-length 512
        --make-vocab-size-divisible-by 1 --padded-vocab-size 416 --rotary-base 1000000
        --untie-embeddings-and-output-weights --swiglu --disable-bias-linear --add-qkv-bias
        --normalization RMSNorm --norm-epsilon 1e-6 --position-embedding-type rope
        --tokenizer-type PretrainedFromHF --tokenizer-name-or-path model --tokenizer-not-use-fast
        --attention-softmax-in-fp32 --no-masked-softmax-fusion --no-gradient-accumulation-fusion
        --no-load-optim --no-load-rng --transformer-impl local --seed 42 --bf16)");
  }
  static Words training_flags() {
    return words_of(R"(--sequence-parallel --use-flash-attn --use-fused-swiglu --use-fused-rmsnorm
        --use-fused-rotary-pos-emb --attention-dropout 0.0 --hidden-dropout 0.0
        --micro-batch-size 2 --global-batch-size 8 --train-iters 60 --lr 1e-2 --min-lr 1e-3
        --lr-decay-style cosine --lr-warmup-fraction 0.01 --init-method-std 0.01 --clip-grad 1.0
        --weight-decay 1e-1 --adam-beta1 0.9 --adam-beta2 0.95 --initial-loss-scale 4096
        --split 100,0,0 --eval-iters 0 --eval-interval 2000 --save-interval 2000 --log-interval 20
        --distributed-backend nccl)");
  }
  static Words lora_flags() {
    return words_of(R"(--lora-r 16 --lora-alpha 32 --lora-fusion
        --lora-target-modules linear_qkv linear_proj linear_fc1 linear_fc2)");
  }
  void train(const std::string& verb, const Words& more) const {
    Words words = launched(verb);
    for (const Words& part : {model_flags(), training_flags(), more})
      words.insert(words.end(), part.begin(), part.end());
    ok(words);
  }

  /// By the line of MindSpeed-LLM's evaluation scripts. Every run has a folder of results.
  Examined examine(const Words& more, int64_t ranks = 1, const std::string& task = "mmlu") const {
    const std::string output = "examined-" + std::to_string(num_examined_++);
    Words words = launched("eval", ranks);
    const Words line = words_of(R"(--task-data-path mmlu/test/ --max-new-tokens 1
        --evaluation-batch-size 1 --micro-batch-size 1 --use-rotary-position-embeddings
        --exit-on-missing-checkpoint --output_path)");
    for (const Words& part : {model_flags(), {"--task", task}, line, {output}, more})
      words.insert(words.end(), part.begin(), part.end());
    if (std::find(more.begin(), more.end(), "--dtype") != more.end())
      std::erase(words, "--bf16");  // it would disagree
    Examined examined;
    examined.log = ok(words).err;
    for (const auto& entry : fs::directory_iterator((*this) / output)) {
      const std::string name = entry.path().filename();
      const std::string text = content_of(entry.path());
      if (name.starts_with("results_")) read_results(Json::parse(text), task, examined);
      if (!name.starts_with("samples_")) continue;
      std::istringstream lines(text);
      for (std::string row; std::getline(lines, row);) {
        const Json sample = Json::parse(row);
        examined.said[{name.substr(0, name.find("_2")), sample.at("doc_id")}] = sample.at("resps");
      }
    }
    EXPECT_EQ(examined.said.size(), static_cast<size_t>(task == "mmlu" ? kRows : kStemRows));
    return examined;
  }

  static void read_results(const Json& results, const std::string& task, Examined& examined) {
    for (const auto& [name, value] : results.at("results").at(task).items()) {
      if (name.starts_with("exact_match,") || name.starts_with("acc,"))
        examined.score = value.get<double>();
    }
    examined.num_fewshot = results.at("n-shot").begin().value();
    if (results.at("chat_template").is_string())
      examined.chat_template = results.at("chat_template");
  }

  static constexpr const char *kStem = "mmlu_stem", *kPractice = "c_mindspeed_llm_practice.txt";
  Words subjects_;

 private:
  mutable int64_t num_examined_ = 0;
};

/// The numbers that are in a JSON value, texts that are numbers too, in order.
void collect_numbers(const Json& value, std::vector<double>& numbers) {
  if (value.is_array()) {
    for (const Json& part : value) collect_numbers(part, numbers);
  } else if (value.is_number()) {
    numbers.push_back(value.get<double>());
  } else if (value.is_string() && value != "True" && value != "False") {
    numbers.push_back(std::stod(value.get<std::string>()));
  }
}

void expect_same_likelihoods(const Examined& one, const Examined& other, double relative) {
  ASSERT_EQ(one.said.size(), other.said.size());
  for (const auto& [where, said] : one.said) {
    std::vector<double> wanted, got;
    collect_numbers(said, wanted);
    collect_numbers(other.said.at(where), got);
    ASSERT_EQ(wanted.size(), 4u) << where.first << said;
    ASSERT_EQ(got.size(), 4u);
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_LT(wanted[i], -0.01);
      EXPECT_NEAR(got[i], wanted[i], relative * std::fabs(wanted[i])) << where.first;
    }
  }
}

TEST_F(GuideEvaluation, OfTheBaseTheTunedModelAndLora) {
  convert();
  preprocess();
  train("pretrain", words_of("--load mcore --save pretrained --data-path enwiki_text_document"));
  const Words tuning = words_of(R"(--finetune --stage sft --is-instruction-dataset
      --variable-seq-lengths --prompt-type qwen --data-path alpaca)");
  const auto tune = [&](const std::string& paths, const Words& more) {
    Words words = tuning;
    for (const Words& part : {words_of(paths), more})
      words.insert(words.end(), part.begin(), part.end());
    train("posttrain", words);
  };
  tune("--load pretrained --save tuned", {});
  tune("--load mcore --save lora", lora_flags());
  const Words base = {"--load", "mcore"}, chat = {"--prompt-type", "qwen"};
  const auto with = [](Words words, const Words& more) {
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };

  // The converted directory says what Hugging Face's does, on two processes as on one.
  const Examined of_base = examine(base, 2);
  EXPECT_EQ(of_base.num_fewshot, 5);
  EXPECT_THAT(of_base.log, HasSubstr("style mindspeed"));
  EXPECT_EQ(of_base.said, examine({"--load", "model"}).said);
  const Words harness = {"--style", "lm-eval", "--dtype", "fp32"};
  if (is_slow()) {
    for (const char* shots : {"0", "5"}) {
      const Words asked = with(harness, {"--num_fewshot", shots});
      const Examined converted = examine(with(asked, base), shots[0] == '0' ? 2 : 1, kStem);
      EXPECT_EQ(std::to_string(converted.num_fewshot), shots);
      expect_same_likelihoods(converted, examine(with(asked, {"--load", "model"}), 1, kStem), 1e-5);
    }
  }

  // The tuned model has learned that the answer is B: as it was taught, and without that template.
  const Words tuned = {"--load", "tuned"};
  const Examined of_chat = examine(with(tuned, chat), 2);
  EXPECT_NEAR(of_chat.score, share_of_b(), 1e-9);
  EXPECT_THAT(of_chat.chat_template, HasSubstr("qwen"));
  EXPECT_EQ(of_chat.num_fewshot, 5);
  EXPECT_LT(examine(with(base, chat)).score, 0.1);
  const Examined of_tuned = examine(tuned);
  EXPECT_EQ(of_tuned.chat_template, "");
  EXPECT_NE(of_tuned.said, of_base.said);
  EXPECT_LT(of_base.score, 0.1);
  EXPECT_GT(of_tuned.score, 0.25);
  if (is_slow()) {
    EXPECT_GT(examine(with(tuned, {"--num_fewshot", "0"})).score, 0.25);
    EXPECT_EQ(examine(with(with(tuned, chat), {"--no-chat-template"})).said, of_tuned.said);
  }

  // LoRA beside its base says what the merged model says.
  const Words lora = with(with(base, {"--lora-load", "lora"}), lora_flags());
  const Examined of_lora = examine(lora, 2);
  EXPECT_NE(of_lora.said, of_base.said);
  EXPECT_THAT(of_lora.log, Not(HasSubstr("the adapter was trained on")));
  EXPECT_NEAR(examine(with(lora, chat)).score, share_of_b(), 1e-9);
  if (is_slow()) {
    ok({"merge", "--model", "mcore", "--adapters", "lora", "--output", "merged", "--dtype",
        "fp32"});
    const Words zero_shots = with(harness, {"--num_fewshot", "0"});
    expect_same_likelihoods(examine(with(zero_shots, lora), 1, kStem),
                            examine(with(zero_shots, {"--load", "merged"}), 1, kStem), 1e-4);
  }

  // One row's answer that is said otherwise is one row of the score.
  const std::string file = "mmlu/test/" + subjects_[0] + "_test.csv";
  replace_in_file((*this) / file, ",B\n", ",D\n");
  EXPECT_NEAR(examine(with(tuned, chat)).score, share_of_b() - 1.0 / kRows, 1e-9);
}

}  // namespace
}  // namespace danlu::test
