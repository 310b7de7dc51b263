#include "train/mesh_cases.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

namespace danlu::train {
namespace mesh_test {

using models::Recompute;
using parallel::Sharding;

namespace {

const char* const kWhole = "qwen2";  ///< GQA, biases: every mesh with every scheme

/// Every dense family with what sets it apart.
const std::vector<Case>& families() {
  const Json none = Json::object();
  static const std::vector<Case> list = {
      {kWhole, "qwen2", none},
      {"llama_bias", "llama", {{"attention_bias", true}}},
      {"llama_biases", "llama", {{"attention_bias", true}, {"mlp_bias", true}}},
      {"llama_tied", "llama", {{"tie_word_embeddings", true}}},
      {"qwen3", "qwen3", none},
      {"internlm2", "internlm2", none},
      {"baichuan2", "baichuan", {{"z_loss_weight", 0.1}}},
      {"baichuan_alibi",
       "baichuan",
       {{"max_position_embeddings", nullptr}, {"model_max_length", 64}}},
      {"mistral", "mistral", {{"sliding_window", 3}}}};
  return list;
}
const Case& deep() {
  static const Case four_layers{"qwen2_deep", "qwen2", {{"num_hidden_layers", 4}}};
  return four_layers;
}

size_t number_of(const std::string& name) {
  const auto& list = families();
  return static_cast<size_t>(
      std::find_if(list.begin(), list.end(), [&](const Case& c) { return c.name == name; }) -
      list.begin());
}

Case of(const std::string& name, Tuning tuning, const MeshShape& shape,
        Sharding sharding = Sharding::kNone, bool in_files = false,
        Recompute recompute = Recompute::kNone) {
  Case c = name == deep().name ? deep() : families().at(number_of(name));
  c.tuning = tuning;
  c.shape = shape;
  c.sharding = sharding;
  c.in_files = in_files;
  c.recompute = recompute;
  return c;
}

bool is_possible(const Case& c) {
  const MeshShape& shape = c.shape;
  // One rank is what the others are compared with.
  if (shape.size() == 1 || shape.size() > 8) return false;
  if (shape.sequence_parallel && shape.tensor == 1) return false;
  if (c.sharding != Sharding::kNone && shape.data == 1) return false;
  // Not both biases and adapters: that model's gradient doubles at step 10, where one rank's own
  // cuts into micro-batches differ by 9.8e-6. llama_bias stands in for it.
  return c.tuning == Tuning::kFull || c.name != std::string("llama_biases");
}

/// Those of one family. Offload to the memory of the host is where a CPU has everything anyway:
/// only files are another place.
std::vector<Case> possible_cases_of(const std::string& family) {
  std::vector<Case> list;
  for (const int64_t tensor : {1, 2, 4}) {
    for (const int64_t data : {1, 2, 4}) {
      for (const bool sequence : {false, true}) {
        const MeshShape shape{.tensor = tensor, .data = data, .sequence_parallel = sequence};
        for (const Sharding sharding :
             {Sharding::kNone, Sharding::kState, Sharding::kGradients, Sharding::kParameters}) {
          for (const bool in_files : {false, true}) {
            for (const Tuning tuning : {Tuning::kFull, Tuning::kLora, Tuning::kDora}) {
              for (const Recompute recompute :
                   {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
                const Case c = of(family, tuning, shape, sharding, in_files, recompute);
                if (is_possible(c)) list.push_back(c);
              }
            }
          }
        }
      }
    }
  }
  return list;
}

/// Shares among neighbours, which others have too.
std::vector<Case> hybrids() {
  const MeshShape dp4{.data = 4, .sharers = 2};
  const MeshShape both{.tensor = 2, .data = 4, .sequence_parallel = true, .sharers = 2};
  std::vector<Case> list;
  for (const Sharding sharding : {Sharding::kState, Sharding::kGradients, Sharding::kParameters})
    list.push_back(of("qwen2", Tuning::kFull, dp4, sharding));
  list.push_back(of("qwen2", Tuning::kLora, both, Sharding::kParameters));
  list.push_back(of("qwen2", Tuning::kFull, both, Sharding::kGradients));
  return list;
}

/// Stages of a layer each, beside the other axes.
std::vector<Case> pipelines() {
  const MeshShape pp2{.pipeline = 2}, pp4{.pipeline = 4};
  const MeshShape with_data{.data = 2, .pipeline = 2}, with_tensor{.tensor = 2, .pipeline = 2};
  const MeshShape all{.tensor = 2, .data = 2, .pipeline = 2, .sequence_parallel = true};
  std::vector<Case> list = {of("qwen2_deep", Tuning::kFull, pp4),
                            of("qwen2_deep", Tuning::kDora, pp4),
                            of("llama_tied", Tuning::kFull, pp2),
                            of("baichuan2", Tuning::kFull, with_tensor),
                            of("baichuan_alibi", Tuning::kLora, pp2),
                            of("qwen2", Tuning::kFull, with_data, Sharding::kParameters, true)};
  for (const Tuning tuning : {Tuning::kFull, Tuning::kLora}) {
    for (const MeshShape& shape : {pp2, with_tensor, with_data, all})
      list.push_back(of("qwen2", tuning, shape));
    for (const auto sharding : {Sharding::kState, Sharding::kGradients, Sharding::kParameters})
      list.push_back(of("qwen2", tuning, all, sharding));
  }
  for (const auto sharding :
       {Sharding::kNone, Sharding::kState, Sharding::kGradients, Sharding::kParameters})
    list.push_back(of("llama_tied", Tuning::kFull, all, sharding));
  list.push_back(
      of("qwen2", Tuning::kFull, with_data, Sharding::kGradients, false, Recompute::kFull));
  return list;
}

}  // namespace

danlu::test::FactorRow factors_of(const Case& c) {
  return {static_cast<int64_t>(number_of(c.name)),
          static_cast<int64_t>(c.tuning),
          c.shape.tensor,
          c.shape.data,
          static_cast<int64_t>(c.sharding),
          c.shape.sequence_parallel,
          c.in_files,
          static_cast<int64_t>(c.recompute)};
}

std::vector<Case> possible_cases() {
  std::vector<Case> list;
  for (const Case& family : families()) {
    const std::vector<Case> of_it = possible_cases_of(family.name);
    list.insert(list.end(), of_it.begin(), of_it.end());
  }
  return list;
}

std::vector<Case> slow_cases() {
  std::vector<Case> list = quick_cases();
  for (const Case& c : possible_cases_of(kWhole)) {
    if (c.recompute == Recompute::kNone) list.push_back(c);
  }
  const std::vector<Case> possible = possible_cases();
  std::vector<danlu::test::FactorRow> rows;
  rows.reserve(possible.size());
  for (const Case& c : possible) rows.push_back(factors_of(c));
  for (const size_t i : danlu::test::covering_rows(rows)) list.push_back(possible[i]);
  std::set<std::string> names;
  std::vector<Case> once;
  for (const Case& c : list) {
    if (names.insert(name_of({c, 0})).second) once.push_back(c);
  }
  return once;
}

std::vector<Case> quick_cases() {
  const MeshShape tp2{.tensor = 2}, tp4{.tensor = 4}, dp2{.data = 2}, dp4{.data = 4};
  const MeshShape sp2{.tensor = 2, .sequence_parallel = true},
      sp4{.tensor = 4, .sequence_parallel = true};
  const MeshShape both{.tensor = 2, .data = 2, .sequence_parallel = true};
  const auto zero3 = Sharding::kParameters;
  std::vector<Case> list = {of("llama_biases", Tuning::kFull, sp4),
                            of("llama_tied", Tuning::kFull, tp4),
                            of("qwen3", Tuning::kFull, tp4),
                            of("qwen3", Tuning::kLora, sp2),
                            of("internlm2", Tuning::kFull, tp4),
                            of("internlm2", Tuning::kDora, sp4),
                            of("baichuan2", Tuning::kFull, tp4),
                            of("baichuan2", Tuning::kLora, sp2),
                            of("baichuan_alibi", Tuning::kFull, sp4),
                            of("mistral", Tuning::kFull, tp2),
                            of("qwen2", Tuning::kFull, dp2, zero3, /*in_files=*/true),
                            of("llama_tied", Tuning::kFull, both, zero3),
                            of("baichuan2", Tuning::kFull, dp2, zero3),
                            of("internlm2", Tuning::kLora, both, zero3)};
  for (const Tuning tuning : {Tuning::kFull, Tuning::kLora, Tuning::kDora}) {
    for (const MeshShape& shape : {tp2, tp4, dp2, dp4, sp2, sp4, both})
      list.push_back(of("qwen2", tuning, shape));
    for (const auto sharding : {Sharding::kState, Sharding::kGradients, zero3}) {
      for (const MeshShape& shape : {dp2, dp4, both})
        list.push_back(of("qwen2", tuning, shape, sharding));
    }
  }
  for (const Tuning tuning : {Tuning::kFull, Tuning::kLora}) {
    for (const auto recompute : {Recompute::kFull, Recompute::kSelective})
      list.push_back(of("qwen2", tuning, both, zero3, false, recompute));
  }
  for (const Case& hybrid : hybrids()) list.push_back(hybrid);
  for (const Case& pipeline : pipelines()) list.push_back(pipeline);
  return list;
}

}  // namespace mesh_test
}  // namespace danlu::train
