#include "base/rank_place.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

#include "base/error.h"

namespace danlu {
namespace {

/// What a launcher that sets these variables makes of a process.
RankPlace place_with(const std::map<std::string, std::string>& variables) {
  for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
  const auto clear = [&] {
    for (const auto& [name, value] : variables) ::unsetenv(name.c_str());
  };
  try {
    const RankPlace place = rank_place_from_environment();
    clear();
    return place;
  } catch (...) {
    clear();
    throw;
  }
}

TEST(RankPlace, EveryLaunchersVariablesAreRead) {
  EXPECT_EQ(place_with({}).size, 1);
  const std::map<std::string, std::string> launchers[] = {
      {{"RANK", "5"}, {"WORLD_SIZE", "8"}, {"LOCAL_WORLD_SIZE", "4"}},
      {{"SLURM_PROCID", "5"}, {"SLURM_NTASKS", "8"}, {"SLURM_NTASKS_PER_NODE", "4"}},
      {{"OMPI_COMM_WORLD_RANK", "5"},
       {"OMPI_COMM_WORLD_SIZE", "8"},
       {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}}};
  for (auto variables : launchers) {
    variables.insert({{"MASTER_ADDR", "node0"}, {"MASTER_PORT", "29500"}});
    const RankPlace place = place_with(variables);
    EXPECT_EQ(place.rank, 5);
    EXPECT_EQ(place.size, 8);
    EXPECT_EQ(place.local_size, 4);
    EXPECT_EQ(place.master_address, "node0");
    EXPECT_EQ(place.master_port, 29500);
  }
}

TEST(RankPlace, APortWhereTorchrunListensIsNotTaken) {
  const auto place_at = [](const std::string& port, const std::string& says) {
    return place_with({{"RANK", "0"},
                       {"WORLD_SIZE", "2"},
                       {"MASTER_ADDR", "node0"},
                       {"MASTER_PORT", port},
                       {"TORCHELASTIC_USE_AGENT_STORE", says}});
  };
  EXPECT_EQ(place_at("29500", "True").master_port, 30500);
  EXPECT_EQ(place_at("29500", "True").launcher_port, 29500);
  EXPECT_EQ(place_at("65000", "True").master_port, 64000);
  EXPECT_EQ(place_at("29500", "False").master_port, 29500);
  EXPECT_EQ(place_at("29500", "False").launcher_port, 0);
}

TEST(RankPlace, OneProcessInsideAnAllocationOfManyIsAlone) {
  EXPECT_EQ(place_with({{"WORLD_SIZE", "1"}, {"SLURM_NTASKS", "8"}, {"SLURM_PROCID", "3"}}).size,
            1);
}

TEST(RankPlace, WhatIsMissingOrCannotBeIsNamed) {
  const auto refusal = [](const std::map<std::string, std::string>& variables) -> std::string {
    try {
      place_with(variables);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "no error";
  };
  using testing::HasSubstr;
  EXPECT_THAT(refusal({{"SLURM_NTASKS", "2"}}), HasSubstr("SLURM_PROCID is missing: SLURM_NTASKS"));
  EXPECT_THAT(refusal({{"WORLD_SIZE", "2"}, {"RANK", "-1"}}), HasSubstr("RANK=-1"));
  EXPECT_THAT(refusal({{"WORLD_SIZE", "2"}, {"RANK", "1"}, {"MASTER_ADDR", "a"}}),
              HasSubstr("MASTER_PORT is missing"));
  const std::map<std::string, std::string> beyond{
      {"WORLD_SIZE", "8"}, {"RANK", "3"}, {"LOCAL_RANK", "3"}, {"LOCAL_WORLD_SIZE", "2"}};
  EXPECT_THAT(refusal(beyond), HasSubstr("LOCAL_RANK=3: must be a whole number from 0 to 1"));
}

}  // namespace
}  // namespace danlu
