// tests/train/rollout_parts.h: what streams of drawn answers are made of: prompts, rewards,
// answers.
#pragma once
#include <ATen/core/grad_mode.h>
#include <ATen/ops/tensor.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "train/batch_input.h"
#include "train/mesh.h"
#include "train/rollouts/rollout_stream.h"

namespace danlu::train::mesh_test {

using infer::Answer, infer::Request;

/// Ids as numbers between spaces.
class Numbers : public text::Tokenizer {
 public:
  void encode_append(std::string_view, bool, std::vector<text::TokenId>&) const override {}
  std::string decode(std::span<const text::TokenId> ids, bool) const override {
    return fmt::format("{}", fmt::join(ids, " "));
  }
  size_t size() const override { return 90; }
  std::optional<text::TokenId> token_to_id(std::string_view) const override { return {}; }
  std::optional<std::string> id_to_token(text::TokenId) const override { return {}; }
  bool is_special(text::TokenId) const override { return false; }
};

/// The share of odd ids; answers of one token are not judged.
class Odd : public eval::Reward {
 public:
  std::string name() const override { return "odd"; }
  std::vector<eval::Score> scores(std::span<const eval::Completion> all) const override {
    std::vector<eval::Score> scores;
    for (const eval::Completion& one : all) {
      const auto odd =
          std::count_if(one.ids.begin(), one.ids.end(), [](int32_t id) { return id % 2 == 1; });
      if (one.ids.size() < 2) {
        scores.emplace_back();
      } else {
        scores.emplace_back(static_cast<double>(odd) / static_cast<double>(one.ids.size()));
      }
      EXPECT_EQ(one.row.at("of"), one.prompt);
    }
    return scores;
  }
};

/// Prompt i is 3 + i, i + 4, …, and its row says so.
class Prompts : public data::VectorSource {
 public:
  explicit Prompts(int64_t count) : data::VectorSource(made(count)) {}
  std::string columns(int64_t index) const override {
    return Json{{"of", Numbers().decode(get(index).ids, false)}}.dump();
  }

 private:
  static std::vector<data::Sample> made(int64_t count) {
    std::vector<data::Sample> prompts;
    for (int64_t i = 0; i < count; ++i) {
      data::Sample prompt;
      for (int64_t t = 0; t < 2 + i % 4; ++t) {
        prompt.ids.push_back(static_cast<int32_t>(3 + (i + t) % 80));
        prompt.labels.push_back(-100);
      }
      prompts.push_back(prompt);
    }
    return prompts;
  }
};

inline RolloutSettings settings_of(int64_t dp_rank, int64_t dp_size) {
  RolloutSettings settings;
  settings.told.answers = 4;
  settings.told.max_new_tokens = 7;
  settings.told.loss.kl = 0.05;
  settings.batches.micro_batch_size = 2;
  settings.batches.accumulation_steps = 4 / dp_size;
  settings.batches.dp_rank = dp_rank;
  settings.batches.dp_size = dp_size;
  settings.stop_ids = {2, 5, 11, 40};
  settings.seed = 3;
  return settings;
}

inline RolloutParts parts_of(models::CausalLM& policy, StageLinks& links, Generator generate) {
  return {policy,
          links,
          std::make_shared<Prompts>(6),
          [](int64_t index) { return index % 6; },
          std::make_shared<Numbers>(),
          std::move(generate),
          {std::make_shared<Odd>()}};
}

/// A rank of a rollout: its mesh, and how it draws with others.
using DrawingRank =
    std::function<void(const Mesh& mesh, const std::shared_ptr<const DrawingRanks>& ranks)>;

/// rank() on each rank of a mesh, which are threads.
inline void on_drawing_ranks(const MeshShape& shape, const DrawingRank& rank) {
  if (shape.size() == 1)
    return rank(Mesh::single(), std::make_shared<const DrawingRanks>(Mesh::single()));
  parallel::run_local_ranks(shape.size(), [&](parallel::World& world) {
    const Mesh mesh(world, shape);
    rank(mesh, std::make_shared<const DrawingRanks>(world, mesh));
  });
}

/// The same with answers that the policy draws on its mesh.
inline RolloutParts parts_of(models::CausalLM& policy, StageLinks& links,
                             const std::shared_ptr<const DrawingRanks>& ranks) {
  const Drawing drawing = drawing_of(policy, ranks, 3);
  RolloutParts parts = parts_of(policy, links, drawing.generate);
  parts.with_weights = drawing.with_weights;
  parts.ranks = ranks;
  return parts;
}

/// Answer i of all is i + 3, i + 4, …; every third is cut.
inline Generator told() {
  auto number = std::make_shared<int32_t>(0);
  return [number](const std::vector<Request>& requests) {
    std::vector<Answer> answers;
    for (size_t i = 0; i < requests.size(); ++i, ++*number) {
      Answer answer;
      for (int32_t t = 0; t < 1 + *number % 4; ++t)
        answer.ids.push_back(3 + (*number + t * t) % 80);
      if (*number % 3 != 0) {
        answer.reason = infer::FinishReason::kStop;
        answer.stopped_by = 2;
      }
      answers.push_back(answer);
    }
    return answers;
  };
}

struct Made {
  TrainState state = state_of({"llama", "llama", Json::object()}, Mesh::single());
  RolloutStream stream(const RolloutSettings& settings, Generator generate, int64_t consumed = 0) {
    return {parts_of(*state.model, *state.links, std::move(generate)), settings, consumed};
  }
};

/// Log-probabilities of the last `count` tokens by the model as it is, one pass for all.
inline std::vector<float> logprobs_now(const models::CausalLM& model,
                                       const std::vector<int32_t>& ids, size_t count) {
  const at::NoGradGuard no_grad;
  data::Sample sample;
  sample.ids = sample.labels = ids;
  const data::Batch batch = data::make_batch({sample});
  const models::ForwardInput input = evaluation_input(model, batch);
  const at::Tensor hidden = model.forward(input);
  std::vector<int64_t> rows, drawn;
  for (size_t t = ids.size() - count; t < ids.size(); ++t) {
    rows.push_back(static_cast<int64_t>(t) - 1);
    drawn.push_back(ids[t]);
  }
  const at::Tensor logprobs = model
                                  .token_logprobs(hidden, input, at::tensor(rows, at::kLong),
                                                  at::tensor(drawn, at::kLong), {})
                                  .logprobs_M.to(at::kFloat)
                                  .contiguous();
  return {logprobs.data_ptr<float>(), logprobs.data_ptr<float>() + logprobs.numel()};
}

}  // namespace danlu::train::mesh_test
