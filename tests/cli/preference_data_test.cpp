// Data of preference training, process rewards and reinforcement learning by the program: the
// guide's YAML line by line, MindSpeed's flags, and how such rows are shown.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "cli/bad_input.h"
#include "support/shared_data.h"

namespace danlu::test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Ids = std::vector<int32_t>;

class PreferenceData : public BadInput {
 protected:
  void SetUp() override {
    DANLU_REQUIRES_SHARED();
    BadInput::SetUp();
    tokenizer_ = unpacked("tokenizers") / "qwen2_5";
  }

  /// The sequences of a Megatron data set of int32.
  std::vector<Ids> stored(const std::string& prefix, const std::string& field) const {
    const std::string name = (*this / (prefix + "_packed_" + field + "_document")).string();
    const std::string index = content_of(name + ".idx"), tokens = content_of(name + ".bin");
    constexpr size_t kHeader = 9 + 8 + 1;  // magic, version, type
    EXPECT_GE(index.size(), kHeader + 16) << name;
    uint64_t count = 0;
    std::memcpy(&count, index.data() + kHeader, sizeof count);
    std::vector<Ids> sequences;
    size_t at = 0;
    for (uint64_t i = 0; i < count; ++i) {
      int32_t length = 0;
      std::memcpy(&length, index.data() + kHeader + 16 + 4 * i, sizeof length);
      Ids ids(static_cast<size_t>(length));
      std::memcpy(ids.data(), tokens.data() + at, 4 * ids.size());
      at += 4 * ids.size();
      sequences.push_back(std::move(ids));
    }
    EXPECT_EQ(at, tokens.size()) << name;
    return sequences;
  }

  Ids tokens_of(const std::string& text) const {
    const ProgramResult result =
        ok({"tokenize", "--model", tokenizer_, "--json", "--no-special", text});
    return nlohmann::json::parse(result.out).get<Ids>();
  }

  fs::path tokenizer_;
};

TEST_F(PreferenceData, TheGuidesYamlOfReinforcementLearning) {
  fs::create_directories((*this) / "orz_math_57k");
  write("orz_math_57k/train.jsonl", R"({"problem": "What is 1+1?", "answer": "2"})"
                                    "\n"
                                    R"({"problem": "And 6*7?", "answer": "42"})"
                                    "\n");
  write("grpo_pe_nlp.yaml",
        "input: " + ((*this) / "orz_math_57k" / "train.jsonl").string() +
            "\ntokenizer_name_or_path: " + tokenizer_.string() +
            "\noutput_prefix: " + ((*this) / "qwen2.5_7b_orz_57k" / "orz").string() +
            "\ncache_dir: " + ((*this) / "cache_dir").string() +
            "\nhandler_name: R1AlpacaStyleInstructionHandler\n"
            "tokenizer_type: HuggingFaceTokenizer\n"
            "workers: 8\n"
            "log_interval: 1000\n"
            "prompt_type: qwen_r1\n"
            "dataset_additional_keys: [labels]\n"
            "map_keys: {\"prompt\":\"problem\", \"query\":\"\", \"response\": "
            "\"answer\", \"system\":\"\"}\n");
  const ProgramResult result = ok({"preprocess", "grpo_pe_nlp.yaml"});
  EXPECT_THAT(result.out, HasSubstr("next      danlu rlhf --rlhf_type=grpo"));
  const std::string prefix = "qwen2.5_7b_orz_57k/orz";
  const auto prompt_of = [&](const std::string& problem) {
    return "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\n"
           "A conversation between User and Assistant. The user asks a question, and the Assistant "
           "solves it. The assistant first thinks about the reasoning process in the mind and then "
           "provides the user with the answer. The reasoning process and answer are enclosed "
           "within "
           "<think> </think> and <answer> </answer> tags, respectively, i.e., <think> reasoning "
           "process here </think><answer> answer here </answer>Put your final answer within "
           "\\\\boxed{}. " +
           problem + "<|im_end|>\n<|im_start|>assistant\n";
  };
  const auto ids = stored(prefix, "input_ids");
  EXPECT_THAT(ids,
              ElementsAre(tokens_of(prompt_of("What is 1+1?")), tokens_of(prompt_of("And 6*7?"))));
  EXPECT_THAT(stored(prefix, "attention_mask"),
              ElementsAre(Ids(ids[0].size(), 1), Ids(ids[1].size(), 1)));
  EXPECT_THAT(stored(prefix, "labels"), ElementsAre(tokens_of("2"), tokens_of("42")));
  EXPECT_THAT(ok({"preprocess", "grpo_pe_nlp.yaml"}).out, HasSubstr("up to date"));
}

// Every key of MindSpeed-RL's data configuration with its default.
TEST_F(PreferenceData, AllKeysOfMindSpeedsDataConfiguration) {
  write(
      "math.jsonl",
      R"({"prompt": [{"role": "user", "content": "1+1?"}], "reward_model": {"ground_truth": "2"}})"
      "\n");
  write("math_17k.yaml", "input: math.jsonl\ntokenizer_name_or_path: " + tokenizer_.string() +
                             "\noutput_prefix: out/math\n"
                             "handler_name: Math17kAlpacaStyleInstructionHandler\n"
                             "tokenizer_type: HuggingFaceTokenizer\ntokenizer_not_use_fast: true\n"
                             "vocab_file: null\nmerge_file: null\nappend_eod: false\n"
                             "prompt_type: empty\nenable_thinking: false\n"
                             "map_keys: {\"prompt\": \"prompt\", \"query\": \"\", \"response\": "
                             "\"reward_model\", \"system\": \"\"}\n"
                             "dataset_additional_keys: [labels]\n"
                             "seq_length: null\npack: false\nneat_pack: false\n"
                             "placeholder_token: ки\nreward_tokens: []\n"
                             "split_sentences: false\nkeep_newlines: false\n"
                             "make_vocab_size_divisible_by: 128\npad_vocab_size_to: null\n"
                             "workers: 1\nn_subs: 1\nlog_interval: 100\nstreaming: false\n"
                             "overwrite_cache: false\nseed: 1234\ndataset_impl: mmap\n");
  ok({"preprocess", "math_17k.yaml"});
  EXPECT_THAT(stored("out/math", "input_ids"), ElementsAre(tokens_of("1+1?")));
  EXPECT_THAT(stored("out/math", "labels"), ElementsAre(tokens_of("2")));
}

TEST_F(PreferenceData, MindSpeedsPairwiseFlags) {
  write("orca.jsonl",
        R"({"system": "Be terse.", "question": "Capital of France?", "chosen": "Paris",)"
        R"( "rejected": "Lyon"})"
        "\n");
  ok({"preprocess", "--input", "orca.jsonl", "--tokenizer-type", "PretrainedFromHF",
      "--tokenizer-name-or-path", tokenizer_, "--output-prefix", "out/orca", "--workers", "4",
      "--log-interval", "1000", "--handler-name", "AlpacaStylePairwiseHandler", "--prompt-type",
      "qwen", "--map-keys", R"({"prompt":"question","query":"","system":"system"})"});
  const Ids prompt = tokens_of(
      "<|im_start|>system\nBe terse.<|im_end|>\n<|im_start|>user\nCapital of France?<|im_end|>\n"
      "<|im_start|>assistant\n");
  for (const auto& [side, answer] : {std::pair("chosen", "Paris"), {"rejected", "Lyon"}}) {
    Ids ids = prompt, labels(prompt.size(), -100);
    for (const int32_t id : tokens_of(std::string(answer) + "<|im_end|>")) {
      ids.push_back(id);
      labels.push_back(id);
    }
    EXPECT_THAT(stored("out/orca", std::string(side) + "_input_ids"), ElementsAre(ids));
    EXPECT_THAT(stored("out/orca", std::string(side) + "_labels"), ElementsAre(labels));
  }
}

TEST_F(PreferenceData, MindSpeedsProcessRewardFlags) {
  write("prm.jsonl", R"({"input": "1+1? It is 2\nки\nSo 3\nки", "value": ["+", "-"]})"
                     "\n");
  ok({"preprocess", "--input", "prm.jsonl", "--tokenizer-name-or-path", tokenizer_,
      "--output-prefix", "out/prm", "--handler-name", "AlpacaStyleProcessRewardHandler",
      "--placeholder-token", "ки", "--reward-tokens", "+", "-"});
  const Ids ids = stored("out/prm", "input_ids").at(0), labels = stored("out/prm", "labels").at(0);
  EXPECT_EQ(ids, tokens_of("1+1? It is 2\nки\nSo 3\nки"));
  const int32_t mark = tokens_of("ки").at(0);
  Ids judged;
  for (size_t i = 0; i < ids.size(); ++i) {
    EXPECT_EQ(labels[i] == -100, ids[i] != mark) << i;
    if (ids[i] == mark) judged.push_back(labels[i]);
  }
  EXPECT_EQ(judged, (Ids{tokens_of("+").at(0), tokens_of("-").at(0)}));
}

TEST_F(PreferenceData, InspectAndRenderShowBothAnswersWithTheirMasks) {
  const fs::path rows =
      write("pairs.jsonl", R"({"prompt": "Capital of France?", "chosen": "Paris",)"
                           R"( "rejected": "Lyon"})"
                           "\n");
  const ProgramResult seen = ok({"inspect", rows, "--model", tokenizer_});
  EXPECT_THAT(seen.out, HasSubstr("pairs: query/response (prompt,chosen), rejected"));
  EXPECT_THAT(seen.out, HasSubstr("[CHOSEN]\n[INPUT]  <|im_start|>system"));
  EXPECT_THAT(seen.out, HasSubstr("]Paris<|im_end|>"));
  EXPECT_THAT(seen.out, HasSubstr("[REJECTED]\n[INPUT]  <|im_start|>system"));
  EXPECT_THAT(seen.out, HasSubstr("]Lyon<|im_end|>"));
  const fs::path row = write("row.json", content_of(rows));
  const ProgramResult shown = ok({"render", "--model", tokenizer_, "--input", row});
  EXPECT_THAT(shown.out, testing::StartsWith("[CHOSEN]\n[TEMPLATE] "));
  EXPECT_THAT(shown.out, AllOf(HasSubstr("]Paris<|im_end|>"), HasSubstr("\n[REJECTED]\n"),
                               HasSubstr("]Lyon<|im_end|>")));
  const auto json =
      nlohmann::json::parse(ok({"render", "--model", tokenizer_, "--input", row, "--json"}).out);
  EXPECT_EQ(json["chosen"]["input_ids"].size(), json["chosen"]["labels"].size());
  EXPECT_NE(json["chosen"]["input_ids"], json["rejected"]["input_ids"]);
}

TEST_F(PreferenceData, InstructionTuningRefusesTheseRowsAndNamesTheCommand) {
  const std::pair<const char*, const char*> rows[] = {
      {R"({"prompt": "q", "chosen": "a", "rejected": "b"})", "danlu rlhf --rlhf_type dpo"},
      {R"({"query": "q", "response": "a", "rejected_response": "b"})",
       "danlu posttrain --stage dpo"}};
  for (const auto& [row, command] : rows)
    expect_error(train(write("rows.jsonl", std::string(row) + "\n")), 2,
                 {"preference pairs belong to preference training", command});
  expect_error(train(good("good.jsonl"), {"--handler-name", "R1AlpacaStyleInstructionHandler"}), 2,
               {"R1AlpacaStyleInstructionHandler", "prompts for reinforcement learning",
                "danlu rlhf --rlhf_type grpo"});
  ok({"preprocess", "--input", write("pairs.jsonl", std::string(rows[0].first) + "\n"),
      "--tokenizer", good("model"), "--output-prefix", "out/pairs"});
  expect_error(train((*this) / "out" / "pairs"), 2,
               {"these samples are preference pairs", "danlu rlhf --rlhf_type dpo"});
}

}  // namespace
}  // namespace danlu::test
