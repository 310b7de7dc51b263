// Adapters beside a model: requests of several in one pass are answered as by models that have each
// alone.
#include "models/adapters.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>

#include "base/rng.h"
#include "infer/engine_answers.h"
#include "infer/followers.h"
#include "infer/tested_device.h"
#include "models/tensor_io.h"
#include "models/weight_files.h"
#include "parallel/comm/local.h"
#include "support/throws.h"
#include "support/tiny_model.h"

namespace danlu::infer {
namespace adapters_test {

using Model = std::unique_ptr<models::CausalLM>;
using testing::HasSubstr;

Model loaded(const std::filesystem::path& directory, const models::Quantisation& quantisation = {},
             at::ScalarType dtype = at::kFloat) {
  const auto source = weights::open_checkpoint_source(directory, {.all_tensors = true});
  return models::load_model(source, parallel::Mesh::single(), dtype, tested_device(), {}, {},
                            quantisation);
}

weights::PeftConfig adapter_of(int64_t rank, const std::vector<std::string>& targets) {
  weights::PeftConfig lora = settings::new_adapters();
  lora.rank = rank;
  lora.alpha = 6;
  weights::set_targets(lora, targets);
  return lora;
}

/// Random, and far from the identity.
void write_adapter(const std::filesystem::path& base, const std::filesystem::path& to,
                   const weights::PeftConfig& lora, uint64_t seed) {
  const Model model = loaded(base);
  models::add_lora(*model, lora, seed);
  const at::NoGradGuard no_grad;
  for (const parallel::Parameter& p : model->adapter_parameters()) {
    at::Tensor tensor = p.tensor;
    tensor.add_(models::normal_values(tensor.sizes().vec(), 0.2, seed++).to(tensor.device()));
  }
  models::save_adapter(*model, to, base.string());
}

/// A model and three adapters of other ranks, scales and targets.
struct Setting {
  test::TemporaryDirectory directory;
  std::array<std::string, 4> names = {"base", "a", "b", "c"};

  explicit Setting(const std::string& family, const std::vector<std::string>& b_targets,
                   bool dora = true) {
    Json config = test::tiny_config(family);
    test::write_tiny_model(directory / "base", config);
    write_adapter(directory / "base", directory / "a", adapter_of(4, {"all-linear"}), 10);
    weights::PeftConfig b = adapter_of(2, b_targets);
    b.rslora = true;
    write_adapter(directory / "base", directory / "b", b, 20);
    weights::PeftConfig c = adapter_of(8, {"down_proj", "o_proj"});
    c.dora = dora;
    write_adapter(directory / "base", directory / "c", c, 30);
  }
  /// As `danlu infer --adapters` has it: the model with that adapter in it.
  Model alone(size_t which, const models::Quantisation& quantisation = {},
              at::ScalarType dtype = at::kFloat) const {
    Model model = loaded(directory / "base", quantisation, dtype);
    if (which > 0) models::load_adapter(*model, directory / names[which]);
    return model;
  }
  std::array<AdapterPtr, 4> beside(const models::CausalLM& model) const {
    std::array<AdapterPtr, 4> adapters;
    for (size_t i = 1; i < names.size(); ++i)
      adapters[i] = models::load_beside(model, directory / names[i]);
    return adapters;
  }
};

/// Greedy; all begin alike, so that pages are shared, and must not be by other adapters.
std::vector<EngineRequest> mixed_requests(size_t count) {
  PythonRandom rng(3);
  const auto ids = [&](size_t size) {
    std::vector<text::TokenId> all(size);
    for (text::TokenId& id : all) id = static_cast<text::TokenId>(rng.below(90));
    return all;
  };
  const std::vector<text::TokenId> common = ids(70);
  std::vector<EngineRequest> requests;
  for (size_t i = 0; i < count; ++i) {
    std::vector<text::TokenId> prompt(common.begin(),
                                      common.begin() + (i % 3 == 0 ? 0 : 35 + 5 * (i % 7)));
    const std::vector<text::TokenId> own = ids(1 + rng.below(20));
    prompt.insert(prompt.end(), own.begin(), own.end());
    requests.push_back(request(std::move(prompt), 1 + static_cast<int64_t>(rng.below(30))));
    requests.back().num_logprobs = 1;
  }
  return requests;
}

/// What models give that have each adapter alone.
std::vector<Whole> expected_of(const Setting& setting, std::vector<EngineRequest> requests,
                               bool deterministic, const models::Quantisation& quantisation = {},
                               at::ScalarType dtype = at::kFloat) {
  std::vector<Whole> answers(requests.size());
  for (size_t which = 0; which < 4; ++which) {
    const Model model = setting.alone(which, quantisation, dtype);
    for (size_t i = which; i < requests.size(); i += 4) {
      Engine engine(*model, {.deterministic = deterministic, .prefix_caching = false});
      answers[i] = answers_of(engine, {requests[i]})[0];
    }
  }
  return answers;
}

void give_adapters(const std::array<AdapterPtr, 4>& adapters,
                   std::vector<EngineRequest>& requests) {
  for (size_t i = 0; i < requests.size(); ++i) requests[i].adapter = adapters[i % 4];
}

class Adapters : public testing::TestWithParam<std::pair<std::string, std::vector<std::string>>> {};

TEST_P(Adapters, MixedInOnePassAreAnsweredAsEachAlone) {
  const Setting setting(GetParam().first, GetParam().second);
  std::vector<EngineRequest> requests = mixed_requests(24);
  const std::vector<Whole> expected = expected_of(setting, requests, false);
  const Model base = setting.alone(0);
  give_adapters(setting.beside(*base), requests);
  Engine engine(*base, {});
  expect_alike(answers_of(engine, requests), expected);
  EXPECT_GT(engine.counts().prefix_hit, 0);
  // Prompts in parts, some begun anew, two adapters at a time.
  Engine narrow(*base,
                {.max_sequences = 8, .max_batched_tokens = 20, .max_adapters = 2, .max_pages = 14});
  expect_alike(answers_of(narrow, requests), expected);
  // The adapters change something.
  give_adapters({}, requests);
  Engine plain(*base, {});
  const std::vector<Whole> without = answers_of(plain, requests);
  size_t same = 0;
  for (size_t i = 0; i < requests.size(); ++i) same += without[i].ids == expected[i].ids ? 1u : 0u;
  EXPECT_LT(same, 16u);
}

TEST_P(Adapters, DeterministicAnswersAreEqualToTheBit) {
  const Setting setting(GetParam().first, GetParam().second);
  std::vector<EngineRequest> requests = mixed_requests(24);
  const std::vector<Whole> expected = expected_of(setting, requests, true);
  const Model base = setting.alone(0);
  give_adapters(setting.beside(*base), requests);
  Engine engine(*base, {.deterministic = true});
  const std::vector<Whole> answers = answers_of(engine, requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(answers[i].ids, expected[i].ids) << "request " << i;
    EXPECT_EQ(answers[i].logprobs, expected[i].logprobs) << "request " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Families, Adapters,
    testing::Values(std::pair{"llama", std::vector<std::string>{"q_proj", "lm_head"}},
                    std::pair{"qwen2", std::vector<std::string>{"q_proj", "v_proj"}},
                    std::pair{"qwen2_moe", std::vector<std::string>{"up_proj"}},
                    std::pair{"deepseek_v3", std::vector<std::string>{"kv_b_proj"}},
                    std::pair{"minicpm3", std::vector<std::string>{"q_a_proj"}}),
    [](const auto& info) { return info.param.first; });

TEST(AdaptersBeside, RanksThatExchangeRowsAreRefusedByName) {
  const Setting setting("qwen2_moe", {"up_proj"});
  const auto source =
      weights::open_checkpoint_source(setting.directory / "base", {.all_tensors = true});
  const std::array<std::pair<parallel::MeshShape, const char*>, 3> cases = {
      {{{.data = 2, .expert = 2}, "experts that processes share"},
       {{.tensor = 2, .expert_dealers = 2}, "experts that processes share"},
       {{.tensor = 2, .sequence_parallel = true}, "--sequence_parallel"}}};
  for (const auto& [shape, why] : cases) {
    parallel::run_local_ranks(2, [&, &shape = shape, &why = why](parallel::World& world) {
      const parallel::Mesh mesh(world, shape);
      const Model model = models::load_model(source, mesh, at::kFloat, tested_device());
      EXPECT_THAT(
          test::error_of<UsageError>([&] { models::load_beside(*model, setting.directory / "a"); }),
          HasSubstr(why));
    });
  }
}

/// What is not sent to other ranks stays right with all kinds of adapters, DoRA's lengths too.
TEST(AdaptersBeside, PartsOfAModelTakeThem) {
  const Setting setting("qwen2", {"q_proj", "v_proj"});
  std::vector<EngineRequest> requests = mixed_requests(24);
  const std::vector<Whole> expected = expected_of(setting, requests, false);
  const auto source =
      weights::open_checkpoint_source(setting.directory / "base", {.all_tensors = true});
  parallel::run_local_ranks(2, [&](parallel::World& world) {
    const parallel::Mesh mesh(world, {.tensor = 2});
    const Model part = models::load_model(source, mesh, at::kFloat, tested_device());
    const std::array<AdapterPtr, 4> adapters = setting.beside(*part);
    const std::vector<AdapterPtr> beside(adapters.begin() + 1, adapters.end());
    if (world.rank() > 0) return follow(*part, mesh.all(), world, beside);
    Followers followers(mesh.all(), world, beside);
    std::vector<EngineRequest> asked = requests;
    give_adapters(adapters, asked);
    Engine engine(*part, {.max_batched_tokens = 60}, &followers);
    expect_alike(answers_of(engine, asked), expected);
    followers.end();
  });
}

/// Factors of blocks are rounded to 8 bits: where one stands between two of them, the last bit of
/// a sum decides, and moves a log-probability by as much as a step of 8 bits does.
void expect_nearly_alike(const std::vector<Whole>& answers, const std::vector<Whole>& alone) {
  size_t same = 0;
  for (size_t i = 0; i < answers.size(); ++i) {
    const auto [end, unused] = std::mismatch(answers[i].ids.begin(), answers[i].ids.end(),
                                             alone[i].ids.begin(), alone[i].ids.end());
    const auto alike = static_cast<size_t>(end - answers[i].ids.begin());
    same += alike == alone[i].ids.size();
    for (size_t t = 0; t < alike; ++t)
      EXPECT_NEAR(answers[i].logprobs[t], alone[i].logprobs[t], 0.05) << "request " << i;
  }
  EXPECT_GE(same + 2, answers.size());
}

TEST(AdaptersBeside, WeightsInBlocksTakeThem) {
  const Setting setting("qwen2", {"q_proj"}, /*dora=*/false);
  const models::Quantisation q8 = {.make = BlockType::kQ8_0};
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    std::vector<EngineRequest> requests = mixed_requests(24);
    const std::vector<Whole> expected = expected_of(setting, requests, true, q8, dtype);
    const Model base = setting.alone(0, q8, dtype);
    give_adapters(setting.beside(*base), requests);
    Engine engine(*base, {.deterministic = true});
    const std::vector<Whole> answers = answers_of(engine, requests);
    for (size_t i = 0; i < requests.size(); ++i) EXPECT_EQ(answers[i].ids, expected[i].ids) << i;
    if (dtype == at::kBFloat16) continue;  // ties would be decided by rounding
    Engine together(*base, {});
    expect_nearly_alike(answers_of(together, requests), expected);
  }
}

TEST(AdaptersBeside, AModelWithOneOfItsOwnAndModulesToSaveAreRefused) {
  const Setting setting("llama", {"q_proj"});
  const Model own = setting.alone(1);
  EXPECT_THAT(
      test::error_of<UsageError>([&] { models::load_beside(*own, setting.directory / "b"); }),
      HasSubstr("has adapters already"));
  weights::PeftConfig saving = adapter_of(4, {"q_proj"});
  saving.modules_to_save = {"lm_head"};
  write_adapter(setting.directory / "base", setting.directory / "saving", saving, 1);
  const Model base = setting.alone(0);
  EXPECT_THAT(
      test::error_of<ModelError>([&] { models::load_beside(*base, setting.directory / "saving"); }),
      HasSubstr("modules_to_save 'lm_head'"));
  const AdapterPtr b = models::load_beside(*base, setting.directory / "b");
  EXPECT_EQ(b->largest_rank, 2);
  EXPECT_NE(b->id, models::load_beside(*base, setting.directory / "b")->id);
}

TEST(AdaptersBeside, NoneSharesPagesWithAnother) {
  const Setting setting("llama", {"q_proj", "v_proj"});
  const Model base = setting.alone(0);
  const std::array<AdapterPtr, 4> adapters = setting.beside(*base);
  PythonRandom rng(9);
  std::vector<text::TokenId> prompt(100);
  for (text::TokenId& id : prompt) id = static_cast<text::TokenId>(rng.below(90));
  Engine engine(*base, {.max_pages = 100});
  for (const int64_t cached : {0, 99}) {  // the last token is always computed
    for (const AdapterPtr& adapter : adapters) {
      EngineRequest asked = request(prompt, 1);
      asked.adapter = adapter;
      EXPECT_EQ(answers_of(engine, {asked})[0].cached, cached);
    }
  }
}

TEST(AdaptersBeside, NobodyStarvesForWantOfRoomForAnAdapter) {
  const Setting setting("llama", {"q_proj"});
  const Model base = setting.alone(0);
  const auto adapters = setting.beside(*base);
  Engine engine(*base, {.max_sequences = 4, .max_adapters = 1});
  const auto add = [&](size_t which) {
    EngineRequest asked = request({1, 2, 3}, 8);
    asked.adapter = adapters[which];
    return engine.add(asked);
  };
  add(1);
  const RequestHandle other = add(2);
  // Requests of the first adapter keep coming.
  for (int step = 0; step < 40; ++step) {
    add(1);
    for (const EngineOutput& output : engine.step()) {
      if (output.handle == other && output.finished) return;
    }
  }
  FAIL() << "the second adapter's request was not answered";
}

}  // namespace adapters_test
}  // namespace danlu::infer
