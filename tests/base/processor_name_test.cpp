// Names of processors, as kernels of x86 and of Arm write them.
#include "base/processor_name.h"

#include <gtest/gtest.h>

namespace danlu {
namespace {

TEST(ProcessorName, IsWhatTheKernelSays) {
  EXPECT_EQ(processor_name("processor\t: 0\nmodel\t\t: 17\nmodel name\t: AMD EPYC 9R14\n"),
            "AMD EPYC 9R14");
  EXPECT_EQ(processor_name("model name : Kunpeng-920\nCPU implementer\t: 0x48\n"), "Kunpeng-920");
  EXPECT_EQ(processor_name(""), "");
  EXPECT_EQ(processor_name("model name\t:\nprocessor"), "");
}

TEST(ProcessorName, OfAnArmCoreFollowsFromItsNumbers) {
  const std::string kunpeng =
      "processor\t: 0\nBogoMIPS\t: 200.00\nCPU implementer\t: 0x48\nCPU architecture: 8\n"
      "CPU variant\t: 0x1\nCPU part\t: 0xd01\nCPU revision\t: 0\n";
  EXPECT_EQ(processor_name(kunpeng), "TaiShan v110 (Kunpeng 920)");
  EXPECT_EQ(cpuinfo_value(kunpeng, "CPU architecture"), "8");
  EXPECT_EQ(cpuinfo_value(kunpeng, "CPU"), "");
  // The same part of another maker is another core.
  EXPECT_EQ(processor_name("CPU implementer\t: 0x41\nCPU part\t: 0xd40\n"), "Neoverse V1");
  EXPECT_EQ(processor_name("CPU implementer\t: 0x99\nCPU part\t: 0xd01\n"), "Arm 0x99 0xd01");
}

}  // namespace
}  // namespace danlu
