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

/// Ways that an axis of `size` can share context, as names end with them.
std::vector<std::string> contexts_of(int64_t size) {
  if (size == 1) return {""};
  if (size == 2) return {"_cp2of1by1", "_cp1of2by2"};
  return {"_cp4of1by1", "_cp1of4by4", "_cp2of2by2", "_cp1of4by2"};
}

TEST(MeshCases, OneFamilyHasEveryMeshWithEveryOrderAndScheme) {
  const std::set<std::string> slow = names_of(slow_cases());
  int64_t count = 0, of_two_axes = 0;
  const auto expect = [&](const std::string& name) { EXPECT_EQ(slow.count(name), 1u) << name; };
  const std::vector<int64_t> sizes = {1, 2, 4};
  for (const int64_t tp : sizes) {
    for (const int64_t pp : sizes) {
      for (const int64_t dp : sizes) {
        for (const int64_t cp : sizes) {
          if (tp * pp * dp * cp > 8 || tp * pp * dp * cp == 1) continue;
          // Names of orders, with the layers of a model that has some for each run.
          std::vector<std::pair<std::string, int64_t>> orders = {{"", pp > 1 ? 4 : 2}};
          if (pp > 1) orders.insert(orders.end(), {{"_vpp2", 2 * pp}, {"_zb", 4}});
          for (const std::string& context : contexts_of(cp)) {
            for (const auto& [order, layers] : orders) {
              for (int zero = 0; zero <= (dp * cp == 1 ? 0 : order == "_zb" ? 1 : 3); ++zero) {
                for (const char* sp : {"", "_sp"}) {
                  if (*sp && tp == 1) continue;
                  const std::string rest =
                      fmt::format("_tp{}{}{}_dp{}{}_zero{}{}", tp,
                                  pp > 1 ? fmt::format("_pp{}", pp) : "", order, dp, sp, zero, "");
                  const std::string model = fmt::format("qwen2_wide_{}layers", layers);
                  for (const char* tuning : {"", "_lora"}) expect(model + tuning + rest + context);
                  count += 2;
                  if (pp * cp > 1) continue;
                  for (const char* other : {"_dora", "_files", "_lora_files", "_dora_files"}) {
                    const std::string both = other;
                    const size_t at = both.find("_files");
                    expect(model + both.substr(0, at) + rest +
                           both.substr(std::min(at, both.size())));
                    ++of_two_axes;
                  }
                }
              }
            }
          }
        }
      }
    }
  }
  EXPECT_EQ(count, 2 * 386);
  EXPECT_EQ(of_two_axes, 4 * (8 * 4 + 4));
}

size_t pairs_of_values(const std::vector<size_t>& values) {
  size_t pairs = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    for (size_t j = i + 1; j < values.size(); ++j) pairs += values[i] * values[j];
  }
  return pairs;
}

/// Pairs that no mesh has: 4 x 4 ranks, of 3 axes and of each with 4 ways to share context by 4;
/// one stage with 2 runs or zero bubble; these with one another; zero bubble with the last two
/// stages of ZeRO; sequence parallelism without a tensor axis.
constexpr size_t kOfNoMesh = (3 + 3 * 4) + 2 + 1 + 2 + 1;

TEST(MeshCases, EveryPairOfValuesIsThereIn16Bits) {
  std::set<danlu::test::FactorPair> held;
  for (const Case& c : narrow_covering_cases()) {
    danlu::test::FactorRow row = factors_of(c);
    row.push_back(c.dtype == at::kHalf);
    held.merge(danlu::test::pairs_of(row));
  }
  // One family, two tunings, no files; two dtypes.
  EXPECT_EQ(held.size(), pairs_of_values({1, 2, 3, 3, 2, 2, 3, 7, 4, 2, 1, 3, 2}) - kOfNoMesh);
}

TEST(MeshCases, EveryPairOfValuesIsThere) {
  std::vector<danlu::test::FactorRow> possible;
  for (const Case& c : possible_cases()) possible.push_back(factors_of(c));
  const size_t wanted = danlu::test::PairTable(possible).count();
  // Numbers of values: 27 families, 3 tunings, 3 tensor axes, 3 pipelines, 2 runs of layers, zero
  // bubble or not, 3 data axes, 7 context axes, 4 stages, off and on twice, 3 ways to recompute.
  // Not there beside what no mesh has: both biases with 2 tunings.
  EXPECT_EQ(wanted, pairs_of_values({27, 3, 3, 3, 2, 2, 3, 7, 4, 2, 2, 3}) - kOfNoMesh - 2);
  // The covering cases alone are asked: an empty table would be a set that has them all.
  std::set<danlu::test::FactorPair> held;
  for (const Case& c : covering_cases()) held.merge(danlu::test::pairs_of(factors_of(c)));
  EXPECT_EQ(held.size(), wanted);
  fmt::print(
      "[ CASES    ] {} of one family, {} that cover {} pairs of {} possible, {} in all; "
      "in 16 bits {}\n",
      whole_cases().size(), covering_cases().size(), wanted, possible.size(), slow_cases().size(),
      narrow_covering_cases().size());
}

TEST(MeshCases, EveryFamilyHasEveryTuningAndStage) {
  const std::vector<Case> slow = slow_cases();
  const auto has = [&](const std::string& family, const auto& wanted) {
    return std::any_of(slow.begin(), slow.end(),
                       [&](const Case& c) { return c.name == family && wanted(c); });
  };
  for (const std::string family :
       {"qwen2",     "llama_bias", "llama_biases",   "llama_tied", "qwen3",
        "internlm2", "baichuan2",  "baichuan_alibi", "mistral",    "phi3",
        "gemma",     "gemma2",     "gemma3",         "glm",        "glm4",
        "chatglm",   "minicpm",    "internlm3",      "internlm",   "minicpm3",
        "bloom",     "gpt2",       "qwen1"}) {
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
