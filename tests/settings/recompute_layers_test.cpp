#include "settings/recompute_layers.h"

#include <gtest/gtest.h>

#include <limits>

#include "base/error.h"

namespace danlu::settings {
namespace {

// One letter per layer; '|' after the last of each group of full recomputation.
std::string drawn(const RecomputeFlags& flags, int64_t num_layers) {
  std::string text;
  int64_t at = 0;
  for (const RecomputeGroup& group : recompute_groups(flags, num_layers)) {
    EXPECT_EQ(group.first, at);
    EXPECT_LT(group.first, group.end);
    const bool is_full = group.kind == LayerRecompute::kFull;
    EXPECT_TRUE(is_full || group.end == group.first + 1);
    text.append(static_cast<size_t>(group.end - group.first),
                ".sanbF"[static_cast<int>(group.kind)]);
    if (is_full) text += '|';
    at = group.end;
  }
  EXPECT_EQ(at, num_layers);
  return text;
}

TEST(RecomputeLayers, GroupsOfEachMethod) {
  EXPECT_EQ(drawn({}, 3), "...");
  EXPECT_EQ(drawn({.granularity = "selective"}, 3), "sss");
  EXPECT_EQ(drawn({.granularity = "full"}, 3), "F|F|F|");
  EXPECT_EQ(drawn({.granularity = "full", .method = "uniform", .num_layers = 2}, 5), "FF|FF|F|");
  EXPECT_EQ(drawn({.granularity = "full", .method = "block", .num_layers = 2}, 5), "F|F|...");
  EXPECT_EQ(drawn({.granularity = "full", .method = "block", .num_layers = 2}, 0), "");
}

TEST(RecomputeLayers, MoreThanTheStageHasIsAllOfIt) {
  const int64_t most = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(drawn({.granularity = "full", .method = "block", .num_layers = most}, 2), "F|F|");
  EXPECT_EQ(drawn({.granularity = "full", .method = "uniform", .num_layers = most}, 2), "FF|");
  EXPECT_EQ(drawn({.norm = true, .norm_num_layers = most}, 2), "nn");
}

TEST(RecomputeLayers, PartsTakeLayersThatBlockLeaves) {
  EXPECT_EQ(drawn({.activation_function = true}, 3), "aaa");
  RecomputeFlags flags{.granularity = "full", .method = "block", .num_layers = 1, .norm = true};
  EXPECT_EQ(drawn(flags, 4), "F|nnn");
  flags.norm_num_layers = 2;
  EXPECT_EQ(drawn(flags, 4), "F|nn.");
  // Norms and activations count from the first layer that is left, which may take both.
  flags.activation_function = true;
  EXPECT_EQ(drawn(flags, 4), "F|bba");
  flags.activation_function_num_layers = 1;
  EXPECT_EQ(drawn(flags, 4), "F|bn.");
  EXPECT_EQ(drawn({.activation_function = true, .norm = true}, 2), "bb");
}

TEST(RecomputeLayers, RefusesWhatDoesNotGoTogether) {
  const auto refused = [](const RecomputeFlags& flags) {
    EXPECT_THROW(recompute_groups(flags, 4), UsageError);
  };
  refused({.granularity = "half"});
  refused({.granularity = "full", .method = "blocks", .num_layers = 1});
  refused({.granularity = "full", .method = "block"});
  refused({.granularity = "full", .num_layers = 0});
  refused({.granularity = "selective", .method = "uniform"});
  refused({.num_layers = 2});
  refused({.granularity = "selective", .norm = true});
  refused({.granularity = "full", .method = "uniform", .norm = true});
  refused({.norm = true, .norm_num_layers = -1});
}

}  // namespace
}  // namespace danlu::settings
