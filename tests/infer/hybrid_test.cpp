// Answers of models with linear attention: each sequence goes on from a state of its own, whatever
// else is in a pass, however its prompt was cut, and where it has to begin anew.
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "infer/engine_answers.h"
#include "infer/generate.h"
#include "infer/step.h"
#include "models/golden.h"
#include "support/temporary_directory.h"
#include "support/tiny_model.h"

namespace danlu::infer {
namespace hybrid_test {

std::unique_ptr<models::CausalLM> hybrid_model(const std::string& family) {
  const test::TemporaryDirectory directory;
  Json config = test::tiny_config(family);
  config["num_hidden_layers"] = 3;
  config["layer_types"] = {"linear_attention", "full_attention", "linear_attention"};
  test::write_tiny_model(directory.path(), config, 5);
  return models::load_model(directory.path(), parallel::Mesh::single(), at::kFloat,
                            tested_device());
}

/// By full passes, without a cache.
std::vector<text::TokenId> by_whole_passes(const models::CausalLM& model,
                                           const std::vector<text::TokenId>& prompt,
                                           int64_t count) {
  const at::Tensor ids = models::greedy_tokens(
      model, at::tensor(std::vector<int64_t>(prompt.begin(), prompt.end()), at::kLong), count);
  return {ids.data_ptr<int64_t>() + prompt.size(), ids.data_ptr<int64_t>() + ids.numel()};
}

std::vector<EngineRequest> requests() {
  PythonRandom rng(3);
  std::vector<EngineRequest> all;
  for (const size_t length : {40, 3, 25, 40, 30}) {
    all.push_back(request(random_engine_ids(rng, length), 40));
    all.back().num_logprobs = 0;
  }
  all[3].request.prompt = all[0].request.prompt;
  return all;
}

TEST(HybridEngine, AnswersAreThoseOfWholePasses) {
  for (const char* family : {"qwen3_next", "qwen3_5_text", "qwen3_5_moe_text"}) {
    SCOPED_TRACE(family);
    const auto model = hybrid_model(family);
    const std::vector<EngineRequest> asked = requests();
    std::vector<std::vector<text::TokenId>> expected;
    for (const EngineRequest& one : asked)
      expected.push_back(by_whole_passes(*model, one.request.prompt, 40));
    // Prompts in parts, guesses that would have to be taken back, and so few pages that who runs
    // is put back and begins anew.
    for (const EngineSettings& settings :
         {EngineSettings{.max_batched_tokens = 16},
          EngineSettings{.kept_pages = 100, .lookup = {.num_tokens = 4}},
          EngineSettings{.max_pages = 6}}) {
      Engine engine(*model, settings);
      const std::vector<Whole> answers = answers_of(engine, asked);
      for (size_t i = 0; i < asked.size(); ++i) {
        EXPECT_EQ(answers[i].ids, expected[i]) << i;
        EXPECT_EQ(answers[i].cached, 0) << "pages have no state to go on from";
      }
      EXPECT_EQ(engine.counts().guessed, 0);
      if (settings.max_pages > 0) {
        EXPECT_GT(engine.counts().preemptions, 0);
      }
    }
  }
}

TEST(HybridEngine, ChoicesOfAPromptGoOnFromItsState) {
  const auto model = hybrid_model("qwen3_5_text");
  EngineRequest one = requests()[0];
  one.prompt_number = 1;
  one.group = 7;
  Engine engine(*model, {});
  std::map<RequestHandle, Whole> answers;
  for (int choice = 0; choice < 3; ++choice) answers[engine.add(one)];
  while (engine.has_work()) {
    for (const EngineOutput& output : engine.step()) {
      Whole& answer = answers.at(output.handle);
      if (output.token) answer.ids.push_back(*output.token);
      answer.cached += output.cached_tokens > 0 ? 1 : 0;
    }
  }
  const auto expected = by_whole_passes(*model, one.request.prompt, 40);
  int forks = 0;
  for (const auto& [handle, answer] : answers) {
    EXPECT_EQ(answer.ids, expected);
    forks += answer.cached > 0 ? 1 : 0;
  }
  EXPECT_EQ(forks, 2) << "the prompt was read more than once";
}

TEST(HybridEngine, ASecondQuestionOfAConversationIsReadFromItsBeginning) {
  const auto model = hybrid_model("qwen3_5_text");
  std::vector<text::TokenId> text = requests()[0].request.prompt;
  Session session(*model);
  for (int turn = 0; turn < 2; ++turn) {
    Request asked;
    asked.prompt = text;
    asked.max_new_tokens = 6;
    const auto expected = by_whole_passes(*model, text, 6);
    EXPECT_EQ(session.answer(asked).ids, expected);
    text.insert(text.end(), expected.begin(), expected.end());
    text.push_back(9);
  }
}

TEST(HybridCache, GoesBackToNothingAlone) {
  const auto model = hybrid_model("qwen3_5_text");
  SequenceCache cache(*model);
  const SequenceId id = cache.add();
  const at::Tensor first = next_logits(*model, cache, {{id, {5, 9, 2}}});
  EXPECT_THROW(cache.truncate(id, 2), InternalError);
  cache.truncate(id, 0);
  EXPECT_TRUE(next_logits(*model, cache, {{id, {5, 9, 2}}}).equal(first));
}

}  // namespace hybrid_test
}  // namespace danlu::infer
