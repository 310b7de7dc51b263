// Parts of a model on ranks that follow the engine of rank 0: answers are those of one rank.
#include "infer/followers.h"

#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <string>
#include <thread>

#include "base/error.h"
#include "base/rng.h"
#include "infer/engine_answers.h"
#include "models/weight_files.h"
#include "parallel/comm/local.h"

namespace danlu::infer {
namespace followers_test {

constexpr int64_t kVocabulary = 61;

Json tiny_config(int64_t kv_heads) {
  return {{"model_type", "llama"},
          {"vocab_size", kVocabulary},
          {"hidden_size", 32},
          {"intermediate_size", 40},
          {"num_hidden_layers", 2},
          {"num_attention_heads", 4},
          {"num_key_value_heads", kv_heads},
          {"max_position_embeddings", 512},
          {"rms_norm_eps", 1e-5},
          {"initializer_range", 0.3}};
}

std::unique_ptr<models::CausalLM> model_on(const Json& json, const parallel::Mesh& mesh) {
  auto model = std::make_unique<models::CausalLM>(arch::family_of(json).parse(json), mesh,
                                                  at::kFloat, at::kCPU);
  models::initialize(*model, 7);
  return model;
}

/// Even and odd ids take turns: what may come depends on what was accepted.
class TakingTurns final : public text::TokenConstraint {
 public:
  std::span<const uint64_t> allowed() override { return {&bits_, 1}; }
  void accept(text::TokenId) override { bits_ = ~bits_; }
  std::unique_ptr<TokenConstraint> clone() const override {
    return std::make_unique<TakingTurns>(*this);
  }

 private:
  uint64_t bits_ = 0x5555555555555555;
};

std::vector<EngineRequest> mixed_requests(size_t count) {
  PythonRandom rng(3);
  const auto random_ids = [&](size_t size) {
    std::vector<text::TokenId> ids(size);
    for (text::TokenId& id : ids) id = static_cast<text::TokenId>(rng.below(kVocabulary));
    return ids;
  };
  const std::vector<text::TokenId> common = random_ids(100);
  std::vector<EngineRequest> requests;
  for (size_t i = 0; i < count; ++i) {
    std::vector<text::TokenId> prompt;
    if (i % 3 == 0) prompt.assign(common.begin(), common.begin() + 40 + 10 * (i % 5));
    const std::vector<text::TokenId> own = random_ids(1 + rng.below(90));
    prompt.insert(prompt.end(), own.begin(), own.end());
    requests.push_back(request(std::move(prompt), 5 + static_cast<int64_t>(rng.below(60))));
    EngineRequest& asked = requests.back();
    asked.request.sampling.do_sample = i % 2 == 1;
    asked.request.sampling.seed = i;
    if (i % 4 != 0) asked.request.stop_ids = {5};
    if (i % 5 == 0) asked.request.rules.presence_penalty = 0.4;
    if (i % 7 == 0) asked.num_prompt_logprobs = 1;
    asked.num_logprobs = 2;
  }
  return requests;
}

/// Constraints are of one answer, so each run has its own.
void constrain_some(std::vector<EngineRequest>& requests) {
  for (size_t i = 0; i < requests.size(); i += 6)
    requests[i].request.rules.constraint = std::make_shared<TakingTurns>();
}

const EngineSettings kNarrow = {
    .max_sequences = 16, .max_batched_tokens = 40, .max_pages = 12, .lookup = {.num_tokens = 3}};

void expect_one_ranks_answers(int64_t ranks, int64_t kv_heads) {
  const Json json = tiny_config(kv_heads);
  const auto whole = model_on(json, parallel::Mesh::single());
  std::vector<EngineRequest> requests = mixed_requests(24);
  constrain_some(requests);
  Engine engine(*whole, kNarrow);
  const std::vector<Whole> expected = answers_of(engine, requests);
  parallel::run_local_ranks(ranks, [&](parallel::World& world) {
    const parallel::Mesh mesh(world, {.tensor = ranks});
    const auto part = model_on(json, mesh);
    if (world.rank() > 0) return follow(*part, mesh.all(), world);
    Followers followers(mesh.all(), world);
    // Two engines one after the other, each with silences.
    for (int round = 0; round < 2; ++round) {
      std::vector<EngineRequest> again = requests;
      constrain_some(again);
      Engine led(*part, kNarrow, &followers);
      expect_alike(answers_of(led, again), expected);
      EXPECT_GT(led.counts().preemptions, 0);
      EXPECT_GT(led.counts().prefix_hit, 0);
      EXPECT_GT(led.counts().guessed_right, 0);
      EXPECT_EQ(led.counts().pages_used, 0);
    }
    followers.end();
  });
}

TEST(Followers, AnswersAreThoseOfOneRank) { expect_one_ranks_answers(2, 2); }

TEST(Followers, KeyHeadsThatRanksShareChangeNothing) { expect_one_ranks_answers(4, 2); }

TEST(Followers, WhoCancelsLeavesNothingBehind) {
  const Json json = tiny_config(2);
  const auto whole = model_on(json, parallel::Mesh::single());
  const std::vector<EngineRequest> requests = mixed_requests(12);
  Engine engine(*whole, kNarrow);
  const std::vector<Whole> expected = answers_of(engine, requests);
  parallel::run_local_ranks(2, [&](parallel::World& world) {
    const parallel::Mesh mesh(world, {.tensor = 2});
    const auto part = model_on(json, mesh);
    if (world.rank() > 0) return follow(*part, mesh.all(), world);
    Followers followers(mesh.all(), world);
    Engine led(*part, kNarrow, &followers);
    PythonRandom rng(1);
    for (int round = 0; round < 20; ++round) {
      std::vector<RequestHandle> handles;
      for (const EngineRequest& asked : requests) handles.push_back(led.add(asked));
      for (uint64_t steps = rng.below(12); steps > 0; --steps) led.step();
      for (const RequestHandle handle : handles) led.cancel(handle);
      EXPECT_FALSE(led.has_work());
      EXPECT_EQ(led.counts().pages_used, 0);
    }
    expect_alike(answers_of(led, requests), expected);
    followers.end();
  });
}

/// Requests of one rank of two that each have an engine: the other's logits are unlike its own.
std::vector<Answer> answers_of_peers(const parallel::Mesh& mesh, int64_t unlike_rank,
                                     const LogitRules& unlike) {
  std::vector<Request> requests(3);
  for (Request& one : requests) {
    one.prompt = {1, 2, 3};
    one.max_new_tokens = 8;
  }
  requests[1].prompt = {4, 5};
  requests[1].sampling = {.do_sample = true, .temperature = 1e-30};
  if (mesh.rank() == unlike_rank) requests[1].rules = unlike;
  return generate(*model_on(tiny_config(2), mesh), requests, 4);
}

TEST(Peers, HaveTheFirstRanksTokens) {
  const std::vector<Answer> expected = answers_of_peers(parallel::Mesh::single(), -1, {});
  const float most = std::numeric_limits<float>::max();
  LogitRules other, failing;
  other.bias = {{11, 1000.0F}};
  failing.bias = {{3, most}, {4, most}};
  parallel::run_local_ranks(2, [&](parallel::World& world) {
    const parallel::Mesh mesh(world, {.tensor = 2});
    for (const LogitRules& unlike : {other, failing}) {
      const std::vector<Answer> found = answers_of_peers(mesh, 1, unlike);
      for (size_t i = 0; i < found.size(); ++i) EXPECT_EQ(found[i].ids, expected[i].ids) << i;
    }
    // Where the first fails, all do, in the same step.
    EXPECT_THROW(answers_of_peers(mesh, 0, failing), Error);
  });
}

TEST(Peers, DoNotAgreeOnMoreThanTokens) {
  parallel::run_local_ranks(2, [&](parallel::World& world) {
    const parallel::Mesh mesh(world, {.tensor = 2});
    const auto part = model_on(tiny_config(2), mesh);
    EngineRequest asked = request({1, 2}, 3);
    EXPECT_THROW(Engine(*part, {.lookup = {.num_tokens = 3}}).add(asked), InternalError);
    asked.num_logprobs = 1;
    EXPECT_THROW(Engine(*part, {}).add(asked), InternalError);
  });
}

TEST(Followers, APictureIsRefusedAndHarmsNobody) {
  const Json json = tiny_config(2);
  parallel::run_local_ranks(2, [&](parallel::World& world) {
    const parallel::Mesh mesh(world, {.tensor = 2});
    const auto part = model_on(json, mesh);
    if (world.rank() > 0) return follow(*part, mesh.all(), world);
    Followers followers(mesh.all(), world);
    Engine led(*part, {}, &followers);
    EngineRequest seeing = request({1, 2}, 3);
    seeing.request.pictures.emplace_back();
    EXPECT_THROW(led.add(seeing), DataError);
    EXPECT_EQ(answers_of(led, mixed_requests(1))[0].reason.has_value(), true);
    followers.end();
  });
}

TEST(Followers, GenerateIsDividedToo) {
  const Json json = tiny_config(2);
  const auto whole = model_on(json, parallel::Mesh::single());
  std::vector<Request> requests;
  for (const EngineRequest& asked : mixed_requests(9)) requests.push_back(asked.request);
  const std::vector<Answer> expected = generate(*whole, requests, 4);
  parallel::run_local_ranks(2, [&](parallel::World& world) {
    const parallel::Mesh mesh(world, {.tensor = 2});
    const auto part = model_on(json, mesh);
    if (world.rank() > 0) return follow(*part, mesh.all(), world);
    Followers followers(mesh.all(), world);
    const std::vector<Answer> answers =
        generate(*part, requests, 4, {}, nullptr, {}, {}, &followers);
    for (size_t i = 0; i < answers.size(); ++i) EXPECT_EQ(answers[i].ids, expected[i].ids) << i;
    // What was cut short leaves the others at rest.
    generate(
        *part, requests, 4, {}, nullptr, [calls = 0]() mutable { return ++calls > 3; }, {},
        &followers);
    followers.end();
  });
}

TEST(Followers, BeamsAreSearchedTogether) {
  const Json json = tiny_config(2);
  const auto whole = model_on(json, parallel::Mesh::single());
  std::vector<Request> requests;
  for (const EngineRequest& asked : mixed_requests(6)) {
    requests.push_back(asked.request);
    requests.back().rules = {};
    requests.back().sampling.num_beams = 3;
    requests.back().max_new_tokens = 12;
  }
  parallel::run_local_ranks(2, [&](parallel::World& world) {
    const parallel::Mesh mesh(world, {.tensor = 2});
    const auto part = model_on(json, mesh);
    if (world.rank() > 0) return follow(*part, mesh.all(), world);
    Followers followers(mesh.all(), world);
    for (const Request& request : requests) {
      EXPECT_EQ(beam_search(*part, request, nullptr, {}, &followers).ids,
                beam_search(*whole, request).ids);
    }
    followers.end();
  });
}

}  // namespace followers_test
}  // namespace danlu::infer
