// `danlu infer` with reward models: what its training's evaluation says of the same rows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "cli/preference_lines.h"
#include "cli/served_program.h"
#include "support/raw_http.h"

namespace danlu::test {
namespace {

using testing::HasSubstr;

class InferScores : public PreferenceLines {
 protected:
  std::vector<Json> rows(const std::string& name) const {
    std::ifstream file(*this / name);
    std::vector<Json> found;
    for (std::string text; std::getline(file, text);) found.push_back(Json::parse(text));
    return found;
  }
  /// What a chat with the server of these arguments comes to.
  static double served_reward(const std::vector<std::string>& arguments, const Json& messages) {
    const ServedProgram server(arguments);
    RawClient client(server.port());
    client.send(raw_request("POST", "/v1/chat/completions", Json{{"messages", messages}}.dump()));
    const Json answer = Json::parse(client.response().body);
    return answer.at("choices")[0].at("message").at("content").get<double>();
  }
};

TEST_F(InferScores, PairsAreScoredAsInTheEvaluationOfTheTraining) {
  std::string held;
  for (const char* chosen : {"yes, yyyyy", "no", "yes"})
    held += Json{{"prompt", "another"}, {"chosen", chosen}, {"rejected", "no, nn"}}.dump() + "\n";
  write("held.jsonl", held);
  for (const std::string tuner : {"full", "lora", "beside"}) {
    SCOPED_TRACE(tuner);
    // LLaMA-Factory's head lies beside the model's files.
    const std::vector<std::string> begin =
        tuner == "beside"
            ? std::vector<std::string>{"train", "--stage",   "rm",  "--finetuning_type",
                                       "full",  "--do_eval", "true"}
            : std::vector<std::string>{"rlhf", "--rlhf_type", "rm", "--tuner", tuner};
    ok(line(begin, "pairs.jsonl", tuner,
            {"--val_ratio", "0", "--val_dataset", "held.jsonl", "--lr", "1e-2"}));
    std::vector<std::string> asked = {"infer",         tuner == "lora" ? "--adapters" : "--model",
                                      tuner,           "--dataset",
                                      "held.jsonl",    "--dtype",
                                      "fp32",          "--output",
                                      tuner + ".jsonl"};
    if (tuner == "beside") asked.insert(asked.end(), {"--task_type", "seq_cls"});
    const ProgramResult result = ok(asked);
    const Json evaluation = evaluation_of(tuner);
    const std::vector<Json> found = rows(tuner + ".jsonl");
    ASSERT_EQ(found.size(), 3u);
    double margin = 0, chosen = 0, right = 0;
    for (const Json& row : found) {
      const double lead =
          row.at("chosen_reward").get<double>() - row.at("rejected_reward").get<double>();
      margin += lead / 3;
      right += lead > 0 ? 1.0 / 3 : 0;
      chosen += row.at("chosen_reward").get<double>() / 3;
      EXPECT_EQ(row.at("rejected_response"), "no, nn");
    }
    EXPECT_EQ(found[0].at("messages").back().at("content"), "yes, yyyyy");
    EXPECT_NE(margin, 0);
    EXPECT_NEAR(margin, evaluation.at("eval_margin").get<double>(), 1e-5);
    EXPECT_NEAR(chosen, evaluation.at("eval_rewards/chosen").get<double>(), 1e-5);
    EXPECT_NEAR(right, evaluation.at("eval_accuracy").get<double>(), 1e-6);
    EXPECT_THAT(result.err, HasSubstr("(3 pairs)"));
    std::vector<std::string> served = {asked[1], (*this / tuner).string(), "--dtype", "fp32"};
    if (tuner == "beside") served.insert(served.end(), {"--task_type", "seq_cls"});
    EXPECT_NEAR(served_reward(served, found[0].at("messages")),
                found[0].at("chosen_reward").get<double>(), 1e-5);
  }
  // Answers alone are scored as those of pairs are.
  write("answers.jsonl", R"({"query": "another", "response": "yes, yyyyy"})"
                         "\n");
  ok({"infer", "--model", "full", "--dataset", "answers.jsonl", "--dtype", "fp32", "--output",
      "alone.jsonl"});
  EXPECT_NEAR(rows("alone.jsonl")[0].at("reward").get<double>(),
              rows("full.jsonl")[0].at("chosen_reward").get<double>(), 1e-5);
  ProgramSettings here;
  here.directory = (*this / "").string();
  const ProgramResult chat = run_danlu({"infer", "--model", "full"}, here);
  EXPECT_EQ(chat.exit_code, 2) << chat.err;
  EXPECT_THAT(chat.err, HasSubstr("a reward model does not chat"));
}

}  // namespace
}  // namespace danlu::test
