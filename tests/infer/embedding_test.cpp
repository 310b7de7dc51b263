// Vectors of prompts: the model's hidden states behind the final norm, whatever else is computed.
#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include "base/rng.h"
#include "infer/engine_answers.h"
#include "infer/tested_device.h"
#include "models/tensor_io.h"
#include "models/weight_files.h"
#include "support/shared_data.h"
#include "weights/tensor_source.h"

namespace danlu::infer {
namespace embedding_test {

std::vector<float> floats_of(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.to(at::kFloat).contiguous();
  return {flat.data_ptr<float>(), flat.data_ptr<float>() + flat.numel()};
}

/// Hugging Face's own numbers.
struct Golden {
  std::shared_ptr<const weights::TensorSource> file;
  std::unique_ptr<models::CausalLM> model;
  std::vector<text::TokenId> ids;  ///< of the first sequence
  at::Tensor hidden_TH;

  Golden() {
    const auto directory = test::shared_dir() / "golden" / "llama";
    file = weights::open_safetensors(directory / "golden.safetensors");
    model = models::load_model(directory, parallel::Mesh::single(), at::kFloat, tested_device());
    const std::string last = "hidden_states." + std::to_string(model->config().num_layers);
    hidden_TH = models::read_tensor(*file, last)[0].to(at::kFloat);
    const at::Tensor all = models::read_tensor(*file, "input_ids")[0].to(at::kLong).contiguous();
    for (int64_t i = 0; i < all.numel(); ++i)
      ids.push_back(static_cast<text::TokenId>(all.data_ptr<int64_t>()[i]));
  }
};

EngineRequest vector_of(std::vector<text::TokenId> ids, Pooling pooling) {
  EngineRequest asked = request(std::move(ids), 0);
  asked.pooling = pooling;
  return asked;
}

void expect_near(const std::vector<float>& found, const std::vector<float>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 5e-5) << i;
}

TEST(Embedding, IsTheHiddenStateBehindTheFinalNorm) {
  DANLU_REQUIRES_SHARED();
  const Golden golden;
  const std::vector<float> mean = floats_of(golden.hidden_TH.mean(0));
  const std::vector<float> last = floats_of(golden.hidden_TH[golden.hidden_TH.size(0) - 1]);
  // In one pass, in parts of five tokens beside an answer, and begun anew for want of pages.
  for (const EngineSettings& settings : {EngineSettings{}, EngineSettings{.max_batched_tokens = 5},
                                         EngineSettings{.max_batched_tokens = 7, .max_pages = 3},
                                         EngineSettings{.deterministic = true}}) {
    Engine engine(*golden.model, settings);
    EngineRequest other = request({1, 2, 3}, 40);
    other.num_logprobs = 0;
    const std::vector<Whole> answers = answers_of(
        engine, {other, vector_of(golden.ids, Pooling::kMean),
                 vector_of(golden.ids, Pooling::kLast), vector_of(golden.ids, Pooling::kMean)});
    EXPECT_EQ(answers[0].ids.size(), 40u);
    EXPECT_TRUE(answers[0].embedding.empty());
    expect_near(answers[1].embedding, mean);
    expect_near(answers[2].embedding, last);
    expect_near(answers[3].embedding, mean);
    EXPECT_EQ(answers[3].reason, FinishReason::kStop);
    EXPECT_TRUE(answers[3].ids.empty());
    EXPECT_EQ(engine.counts().pages_used, 0);
  }
}

TEST(Embedding, APrefixThatIsKeptIsReadAgainForIt) {
  DANLU_REQUIRES_SHARED();
  const Golden golden;
  std::vector<text::TokenId> ids;
  while (ids.size() < 70) ids.insert(ids.end(), golden.ids.begin(), golden.ids.end());
  Engine fresh(*golden.model, {.prefix_caching = false});
  const std::vector<float> expected =
      answers_of(fresh, {vector_of(ids, Pooling::kMean)})[0].embedding;
  Engine engine(*golden.model, {.max_pages = 40});
  EngineRequest before = request(ids, 1);
  before.num_logprobs = 0;
  answers_of(engine, {before});
  EXPECT_EQ(answers_of(engine, {before})[0].cached, std::ssize(ids) - 1) << "pages are kept";
  expect_near(answers_of(engine, {vector_of(ids, Pooling::kMean)})[0].embedding, expected);
}

TEST(Embedding, OfTheLastTokenAPrefixThatIsKeptIsNotReadAgain) {
  DANLU_REQUIRES_SHARED();
  const Golden golden;
  std::vector<text::TokenId> ids;
  while (ids.size() < 70) ids.insert(ids.end(), golden.ids.begin(), golden.ids.end());
  const EngineRequest asked = vector_of(ids, Pooling::kLast);
  Engine fresh(*golden.model, {.prefix_caching = false});
  const std::vector<float> expected = answers_of(fresh, {asked})[0].embedding;
  // Drafts are for what draws tokens.
  Engine engine(*golden.model, {.max_pages = 40, .lookup = {.num_tokens = 4}});
  answers_of(engine, {request(ids, 1)});
  const std::vector<Whole> answers = answers_of(engine, {asked, asked});
  for (const Whole& answer : answers) {
    EXPECT_EQ(answer.cached, std::ssize(ids) - 1);
    expect_near(answer.embedding, expected);
  }
}

}  // namespace embedding_test
}  // namespace danlu::infer
