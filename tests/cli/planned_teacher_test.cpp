// What a run with a teacher says it will need, beside what its ranks count.
#include "base/json.h"
#include "cli/launch.h"
#include "cli/random_model_dir.h"

namespace danlu::test {
namespace {

struct Taught {
  std::string name;
  int64_t processes;
  std::vector<std::string> flags;
};

void PrintTo(const Taught& taught, std::ostream* out) { *out << taught.name; }

class PlannedTeacher : public Launch, public testing::WithParamInterface<Taught> {
 protected:
  void SetUp() override {
    Launch::SetUp();
    // A vocabulary so large that two distributions over it are most of what a step needs.
    make("model", {.layers = 2, .hidden = 64, .ffn = 128, .heads = 4, .kv_heads = 2}, 20000);
    make("teacher", {.layers = 3, .hidden = 96, .ffn = 128, .heads = 4, .kv_heads = 2}, 20000);
    make("wider", {.layers = 3, .hidden = 96, .ffn = 128, .heads = 4, .kv_heads = 2}, 20064);
    std::string rows;
    for (int row = 0; row < 16; ++row) {
      const std::string number = std::to_string(row);
      rows += Json{{"query", "question " + number},
                   {"response",
                    "an answer of so many words that there is something to learn, " + number}}
                  .dump() +
              "\n";
    }
    write("rows.jsonl", rows);
  }
  void make(const std::string& name, const ModelShape& shape, int64_t vocab) {
    Json config = Json::parse(content_of(good("model") / "config.json"));
    config.update(Json::parse(config_text(shape)));
    config["vocab_size"] = vocab;
    write(name + ".json", config.dump());
    ok({"init", "--config", name + ".json", "--tokenizer", good("tokenizer").string(), "--seed",
        "7", "--output", name});
  }
  static std::vector<std::string> line(const std::vector<std::string>& more) {
    std::vector<std::string> words = {
        "rlhf",       "--rlhf_type",         "gkd", "--model", "model", "--dataset",
        "rows.jsonl", "--output_dir",        "run", "--tuner", "full",  "--version_dir",
        "false",      "--val_ratio",         "0",   "--dtype", "fp32",  "--save_strategy",
        "no",         "--max_steps",         "2",   "--lmbda", "0",     "--batch_size",
        "4",          "--global_batch_size", "8"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
};

std::vector<Taught> taught() {
  const std::vector<std::string> teacher = {"--teacher_model", "teacher"};
  const auto with = [](std::vector<std::string> words, const std::vector<std::string>& more) {
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  return {{"alone", 1, teacher},
          {"topk_and_rows", 1, with(teacher, {"--gkd_logits_topk", "64", "--sft_alpha", "0.5"})},
          {"reverse_kl", 1, with(teacher, {"--beta", "1"})},
          {"tp2_of_another_vocabulary", 2, {"--teacher_model", "wider", "--tp", "2"}},
          {"pp2", 2, with(teacher, {"--pp", "2"})},
          {"zero3", 2, with(teacher, {"--shard", "zero3"})}};
}

TEST_P(PlannedTeacher, IsWhatEachRankCounts) {
  const Taught& taught = GetParam();
  const ProgramResult result = taught.processes == 1 ? run_words(line(taught.flags))
                                                     : launch(taught.processes, line(taught.flags));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Json ranks = Json::parse(content_of((*this) / "run" / "memory.json"))["ranks"];
  ASSERT_EQ(ranks.size(), static_cast<size_t>(taught.processes));
  for (const Json& rank : ranks) {
    EXPECT_NEAR(rank["planned"]["total"].get<double>() / rank["counted"]["total"].get<double>(), 1,
                0.15)
        << rank.dump(1);
  }
}

INSTANTIATE_TEST_SUITE_P(Teachers, PlannedTeacher, testing::ValuesIn(taught()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace danlu::test
