// That the cases of mesh_test.cpp are those that are promised; nothing is trained.
#include "train/mesh_cases.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

namespace danlu::train {
namespace mesh_test {
namespace {

std::set<std::string> names_of(const std::vector<Case>& list) {
  std::set<std::string> names;
  for (const Case& c : list) names.insert(name_of({c, 0}));
  EXPECT_EQ(names.size(), list.size()) << "a case stands there twice";
  return names;
}

TEST(MeshCases, SlowOnesIncludeTheQuick) {
  const std::set<std::string> slow = names_of(slow_cases());
  for (const std::string& name : names_of(quick_cases()))
    EXPECT_TRUE(slow.count(name) > 0) << name << " is quick only";
}

TEST(MeshCases, OneFamilyHasEveryMeshWithEveryScheme) {
  const std::set<std::string> slow = names_of(slow_cases());
  int64_t meshes = 0;
  for (const char* mesh :
       {"tp1_dp2", "tp1_dp4", "tp2_dp1", "tp2_dp1_sp", "tp2_dp2", "tp2_dp2_sp", "tp2_dp4",
        "tp2_dp4_sp", "tp4_dp1", "tp4_dp1_sp", "tp4_dp2", "tp4_dp2_sp"}) {
    const bool has_data_axis = std::string(mesh).find("dp1") == std::string::npos;
    for (int zero = 0; zero <= (has_data_axis ? 3 : 0); ++zero) {
      for (const char* tuning : {"", "_lora", "_dora"}) {
        for (const char* files : {"", "_files"}) {
          const std::string name = fmt::format("qwen2{}_{}_zero{}{}", tuning, mesh, zero, files);
          EXPECT_TRUE(slow.count(name) > 0) << name;
          ++meshes;
        }
      }
    }
  }
  EXPECT_EQ(meshes, (8 * 4 + 4) * 3 * 2);
}

TEST(MeshCases, EveryPairOfValuesIsThere) {
  std::set<danlu::test::FactorPair> wanted;
  for (const Case& c : possible_cases()) wanted.merge(danlu::test::pairs_of(factors_of(c)));
  // Of values: 9 families, 3 tunings, axes of 3, 4 stages, off and on twice, 3 ways to recompute.
  // Not there: both biases with 2 tunings; 4 x 4 ranks; 1 x 1 rank; stages 1 to 3 without a data
  // axis; sequence parallelism without a tensor axis.
  const std::vector<size_t> values = {9, 3, 3, 3, 4, 2, 2, 3};
  size_t pairs = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    for (size_t j = i + 1; j < values.size(); ++j) pairs += values[i] * values[j];
  }
  EXPECT_EQ(wanted.size(), pairs - 2 - 1 - 1 - 3 - 1);
  for (const Case& c : slow_cases()) {
    // Hybrid shares are another scheme.
    if (c.shape.sharers > 0) continue;
    for (const danlu::test::FactorPair& pair : danlu::test::pairs_of(factors_of(c)))
      wanted.erase(pair);
  }
  EXPECT_THAT(wanted, testing::IsEmpty());
}

TEST(MeshCases, EveryFamilyHasEveryTuningAndStage) {
  const std::vector<Case> slow = slow_cases();
  const auto has = [&](const std::string& family, const auto& wanted) {
    return std::any_of(slow.begin(), slow.end(),
                       [&](const Case& c) { return c.name == family && wanted(c); });
  };
  for (const std::string family : {"qwen2", "llama_bias", "llama_biases", "llama_tied", "qwen3",
                                   "internlm2", "baichuan2", "baichuan_alibi", "mistral"}) {
    for (const Tuning tuning : {Tuning::kFull, Tuning::kLora, Tuning::kDora}) {
      EXPECT_EQ(has(family, [&](const Case& c) { return c.tuning == tuning; }),
                family != "llama_biases" || tuning == Tuning::kFull)
          << family << static_cast<int>(tuning);
    }
    for (int zero = 0; zero < 4; ++zero) {
      EXPECT_TRUE(has(family, [&](const Case& c) { return static_cast<int>(c.sharding) == zero; }))
          << family << zero;
    }
  }
}

TEST(MeshCases, RowsThatCoverAreFewAndTheFirst) {
  const std::vector<danlu::test::FactorRow> rows = {{0, 0, 0}, {0, 0, 1}, {0, 1, 0}, {0, 1, 1},
                                                    {1, 0, 0}, {1, 0, 1}, {1, 1, 0}, {1, 1, 1}};
  EXPECT_EQ(danlu::test::covering_rows(rows), (std::vector<size_t>{0, 3, 5, 6}));
  EXPECT_EQ(danlu::test::covering_rows({}), std::vector<size_t>());
}

}  // namespace
}  // namespace mesh_test
}  // namespace danlu::train
