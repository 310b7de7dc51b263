// What npu-smi and nvidia-smi print, read and drawn.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "doctor/machine.h"
#include "doctor/npu_smi.h"
#include "doctor/nvidia_smi.h"
#include "support/shared_data.h"

namespace danlu::doctor {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(NpuInfo, CardsOfAnA2AndTheirProcesses) {
  const NpuInfo info = parse_npu_info(fixture("npu_info_a2.txt"));
  EXPECT_EQ(info.version, "24.1.rc2");
  ASSERT_EQ(info.chips.size(), 2u);
  const NpuChip& second = info.chips[1];
  EXPECT_EQ(second.npu, 1);
  EXPECT_EQ(second.chip, 0);
  EXPECT_FALSE(second.physical);
  EXPECT_EQ(second.name, "910B3");
  EXPECT_EQ(second.health, "Warning");
  EXPECT_DOUBLE_EQ(second.power_w.value(), 101.5);
  EXPECT_EQ(second.temperature_c, 61);
  EXPECT_EQ(second.huge_pages->total, 20);
  EXPECT_EQ(second.bus_id, "0000:C2:00.0");
  EXPECT_EQ(info.chips[0].cores_percent, 7);
  EXPECT_EQ(second.hbm_mb->used, 30759);  // no blank before the '/'
  EXPECT_EQ(second.hbm_mb->total, 65536);
  ASSERT_EQ(info.processes.size(), 1u);
  EXPECT_EQ(info.processes[0].npu, 1);
  EXPECT_EQ(info.processes[0].pid, 4242);
  EXPECT_EQ(info.processes[0].memory_mb, 27400);
}

TEST(NpuInfo, TwoChipsOfAnA3Card) {
  const NpuInfo info = parse_npu_info(fixture("npu_info_a3.txt"));
  ASSERT_EQ(info.chips.size(), 2u);
  EXPECT_EQ(info.chips[1].npu, 3);
  EXPECT_EQ(info.chips[1].chip, 1);
  EXPECT_EQ(info.chips[1].physical, 7);
  EXPECT_FALSE(info.chips[1].power_w);  // '-': the card's is the first chip's
}

TEST(NpuInfo, AnInferenceCardWithoutHbm) {
  const NpuInfo info = parse_npu_info(fixture("npu_info_310p.txt"));
  ASSERT_EQ(info.chips.size(), 1u);
  EXPECT_EQ(info.chips[0].npu, 5);
  EXPECT_FALSE(info.chips[0].power_w);
  EXPECT_FALSE(info.chips[0].hbm_mb);
  EXPECT_EQ(info.chips[0].memory_mb->used, 1704);
  EXPECT_EQ(info.chips[0].cores_percent, 31);
}

TEST(NpuInfo, WhatIsNoTableIsAnErrorThatNamesTheLine) {
  EXPECT_THROW(parse_npu_info("dcmi module initialize failed. ret is -8005\n"), DataError);
  EXPECT_THROW(parse_npu_info(""), DataError);
  std::string cut = fixture("npu_info_a2.txt");
  cut = cut.substr(0, cut.find("| 0                         |"));
  EXPECT_THROW(parse_npu_info(cut), DataError);
  std::string odd = fixture("npu_info_a2.txt");
  odd.replace(odd.find("| 1     910B3"), 3, "| x");
  try {
    parse_npu_info(odd);
    FAIL();
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), HasSubstr("line 10 "));
  }
}

TEST(NpuInfo, DamageIsAnErrorOrATable) {
  // Every byte of each answer once another one, by the numbers of a fixed sequence; and every end.
  uint32_t state = 1;
  const auto next = [&] { return state = state * 1664525 + 1013904223; };
  int tables = 0, errors = 0;
  const auto take = [&](const std::string& text) {
    try {
      describe(parse_npu_info(text));
      ++tables;
    } catch (const DataError&) {
      ++errors;
    }
    try {
      describe(parse_topology(text));
    } catch (const DataError&) {
    }
  };
  for (const char* name : {"npu_info_a2.txt", "npu_info_a3.txt", "npu_topo.txt", "gpu_topo.txt"}) {
    const std::string whole = fixture(name);
    for (size_t i = 0; i < whole.size(); ++i) {
      std::string damaged = whole;
      damaged[i] = static_cast<char>(next() >> 24);
      take(damaged);
      take(whole.substr(0, i));
    }
  }
  EXPECT_GT(tables, 1000);
  EXPECT_GT(errors, 1000);
}

TEST(NpuInfo, IsDrawnWithoutColumnsThatNobodyFills) {
  const std::string drawn = describe(parse_npu_info(fixture("npu_info_a2.txt")));
  EXPECT_THAT(drawn, HasSubstr("30759 / 65536 MB"));
  EXPECT_THAT(drawn, HasSubstr("4242"));
  EXPECT_THAT(describe(parse_npu_info(fixture("npu_info_310p.txt"))), Not(HasSubstr("HBM")));
}

TEST(Links, OfAnA2) {
  const Topology topology = parse_topology(fixture("npu_topo.txt"));
  EXPECT_THAT(topology.devices, ElementsAre("NPU0", "NPU1", "NPU2", "NPU3"));
  EXPECT_THAT(topology.links[1], ElementsAre("HCCS", "X", "PXB", "SYS"));
  EXPECT_THAT(topology.processors, ElementsAre("144-167", "144-155,160", "0-23", "0-23"));
  const std::string drawn = describe(topology);
  EXPECT_THAT(drawn, HasSubstr("NPU1  HCCS  X     PXB   SYS   144-155,160\n"));
  EXPECT_THAT(drawn, HasSubstr("PXB: "));
  EXPECT_THAT(drawn, Not(HasSubstr("PIX: "))) << "no such link is there";
}

TEST(Links, OfAnA3WithoutAffinity) {
  const Topology topology = parse_topology(fixture("npu_topo_a3.txt"));
  EXPECT_THAT(topology.devices, ElementsAre("Phy-ID6", "Phy-ID7"));
  EXPECT_THAT(topology.processors, ElementsAre("", ""));
  EXPECT_THAT(describe(topology), Not(HasSubstr("processors")));
}

TEST(Links, OfCardsWithNvlinkAndANetworkCard) {
  const Topology topology = parse_topology(fixture("gpu_topo.txt"));
  EXPECT_THAT(topology.devices, ElementsAre("GPU0", "GPU1", "NIC0"));
  EXPECT_THAT(topology.links[0], ElementsAre("X", "NV18", "NODE"));
  EXPECT_THAT(topology.processors, ElementsAre("0-31", "32-63", ""));
}

TEST(Links, ATableThatIsNotWholeIsAnError) {
  EXPECT_THROW(parse_topology(""), DataError);
  EXPECT_THROW(parse_topology("NPU0 NPU1\nNPU0 X HCCS\n"), DataError);
  EXPECT_THROW(parse_topology("NPU0 NPU1\nNPU0 HCCS X\nNPU1 X HCCS\n"), DataError);
  EXPECT_THROW(parse_topology("NPU0 NPU1\nNPU0 X\nNPU1 HCCS X\n"), DataError);
}

TEST(GpuCards, OfTheQuery) {
  const auto cards = parse_gpu_cards(fixture("gpu_cards.txt"));
  ASSERT_EQ(cards.size(), 2u);
  EXPECT_EQ(cards[0].name, "NVIDIA H100 80GB HBM3");
  EXPECT_EQ(cards[0].compute_capability, "9.0");
  EXPECT_EQ(cards[0].memory_mb->total, 81559);
  EXPECT_FALSE(cards[1].memory_mb);
  EXPECT_FALSE(cards[1].busy_percent);
  EXPECT_THAT(describe(cards), HasSubstr("512 / 81559 MiB"));
  EXPECT_THROW(parse_gpu_cards("NVIDIA-SMI has failed because it could not talk\n"), DataError);
}

TEST(GpuProcesses, OfTheQuery) {
  const auto processes = parse_gpu_processes("4711, 2048\n4712, [N/A]\n");
  ASSERT_EQ(processes.size(), 2u);
  EXPECT_EQ(processes[0].pid, 4711);
  EXPECT_EQ(processes[0].memory_mb, 2048);
  EXPECT_FALSE(processes[1].memory_mb);
  EXPECT_TRUE(parse_gpu_processes("").empty());
}

}  // namespace
}  // namespace danlu::doctor
