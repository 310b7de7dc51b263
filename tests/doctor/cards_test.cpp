// Checks of machines with cards, on folders and recorded answers: no card was near.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "doctor/devices.h"
#include "doctor/machine.h"

namespace danlu::doctor {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

/// Two healthy cards with driver and tool.
class NpuMachine : public Machine {
 protected:
  NpuMachine() {
    for (const char* name : {"davinci0", "davinci1", "davinci_manager", "devmm_svm", "hisi_hdc"})
      write(std::string("dev/") + name, "");
    write("Ascend/driver/version.info", "Version=24.1.rc2\nascendhal_version=7.35.19\n");
    write("proc/self/status", "Cpus_allowed_list:\t0-23\n");
    answer();
  }
  /// npu-smi, which answers by its words.
  void answer(const std::string& info = fixture("npu_info_a2.txt"),
              const std::string& board = "\tFirmware Version  : 7.5.0\n\tCompatibility : OK\n") {
    write("info.txt", info);
    write("topo.txt", fixture("npu_topo.txt"));
    write("board.txt", board);
    write_script("npu-smi", "cd '" + folder_.path().string() +
                                "'\ncase \"$*\" in\n  info) cat info.txt ;;\n"
                                "  'info -t topo') cat topo.txt ;;\n"
                                "  'info -t board -i 0') cat board.txt ;;\n"
                                "  *) echo \"what is $*\"; exit 9 ;;\nesac\n");
  }
  std::string healthy() const {
    std::string info = fixture("npu_info_a2.txt");
    info.replace(info.find("Warning"), 7, "OK     ");
    return info;
  }
};

TEST_F(NpuMachine, IsWellWhenAllIsThere) {
  answer(healthy());
  EXPECT_EQ(check_npu(roots_).verdict, Verdict::kOk) << check_npu(roots_).read;
  EXPECT_THAT(check_npu(roots_).read, AllOf(HasSubstr("2 device files"), HasSubstr("2 chips")));
  EXPECT_EQ(check_driver(roots_).verdict, Verdict::kOk);
  EXPECT_THAT(check_driver(roots_).read,
              AllOf(HasSubstr("driver 24.1.rc2"), HasSubstr("firmware 7.5.0")));
}

TEST_F(NpuMachine, AContainerWithoutOneDevice) {
  answer(healthy());
  fs::remove(folder_ / "dev/hisi_hdc");
  EXPECT_EQ(check_npu(roots_).verdict, Verdict::kFailed);
  EXPECT_THAT(check_npu(roots_).read, HasSubstr("hisi_hdc"));
  EXPECT_THAT(check_npu(roots_).remedy, HasSubstr("--device=/dev/davinci_manager"));
}

TEST_F(NpuMachine, HealthOfEachChip) {
  EXPECT_EQ(check_npu(roots_).verdict, Verdict::kWarning);
  EXPECT_THAT(check_npu(roots_).remedy, HasSubstr("-i 1"));
  std::string info = healthy();
  info.replace(info.find("| OK "), 10, "| Critical");
  answer(info);
  EXPECT_EQ(check_npu(roots_).verdict, Verdict::kFailed);
}

/// npu_affine: ranks divide what is near their cards, in the order in which the run sees the cards.
TEST_F(NpuMachine, RanksAreKeptNearTheirCards) {
  write("sys/devices/system/cpu/online", "0-191\n");
  write("proc/self/status", "Cpus_allowed_list:\t0-191\n");
  roots_.environment["CPU_AFFINITY_CONF"] = "1,npu_affine:1";
  roots_.environment["NPUS_PER_NODE"] = "4";
  EXPECT_EQ(check_affinity(roots_).verdict, Verdict::kOk);
  EXPECT_THAT(check_affinity(roots_).read,
              AllOf(HasSubstr("rank 0 of 4: 144-167"), HasSubstr("rank 2 of 4: 0-11"),
                    HasSubstr("rank 3 of 4: 12-23")));
  roots_.environment["ASCEND_RT_VISIBLE_DEVICES"] = "3,0";
  const NearProcessors near = processors_near_npus(roots_);
  ASSERT_EQ(near.size(), 2u);
  EXPECT_EQ(near[0].back(), 23);
  EXPECT_EQ(near[1].front(), 144);
  write_program("npu-smi", "dcmi module initialize failed. ret is -8005\n", 1);
  EXPECT_EQ(check_affinity(roots_).verdict, Verdict::kWarning);
  EXPECT_THAT(check_affinity(roots_).read,
              AllOf(HasSubstr("equal split"), HasSubstr("rank 3 of 4: 144-191")));
}

TEST_F(NpuMachine, AToolThatFails) {
  write_program("npu-smi", "dcmi module initialize failed. ret is -8005\n", 1);
  EXPECT_EQ(check_npu(roots_).verdict, Verdict::kFailed);
  EXPECT_THAT(check_npu(roots_).read, HasSubstr("-8005"));
  const Devices devices = read_devices(roots_);
  EXPECT_TRUE(devices.has_failure());
  EXPECT_THAT(describe(devices), HasSubstr("FAILED: npu-smi: it ended with code 1"));
}

TEST_F(NpuMachine, DriverThatDoesNotFitItsFirmware) {
  answer(healthy(), "\tFirmware Version  : 7.1.0\n\tCompatibility : Not matched\n");
  EXPECT_EQ(check_driver(roots_).verdict, Verdict::kFailed);
  fs::remove(folder_ / "Ascend/driver/version.info");
  EXPECT_THAT(check_driver(roots_).remedy, HasSubstr("-v /usr/local/Ascend/driver"));
}

TEST_F(NpuMachine, CardsFarFromThisProcess) {
  // NPU2 and NPU3 are near 0-23, the others are not.
  const Finding finding = check_numa(roots_);
  EXPECT_EQ(finding.verdict, Verdict::kNotHere) << "no nodes are named";
  write("sys/devices/system/node/node0/cpulist", "0-23\n");
  write("sys/devices/system/node/node1/cpulist", "144-167\n");
  const Finding far = check_numa(roots_);
  EXPECT_EQ(far.verdict, Verdict::kWarning);
  EXPECT_THAT(far.read, AllOf(HasSubstr("2 NUMA nodes"), HasSubstr("NPU0 (144-167)"),
                              HasSubstr("NPU1"), Not(HasSubstr("NPU2"))));
}

TEST_F(NpuMachine, MemoryOfAProcessThatIsNotHere) {
  EXPECT_EQ(check_stale(roots_).verdict, Verdict::kWarning);
  EXPECT_THAT(check_stale(roots_).read, HasSubstr("NPU 1: process 4242"));
  write("proc/4242/stat", "");
  EXPECT_EQ(check_stale(roots_).verdict, Verdict::kOk);
  // 30759 of 65536 MB, and nobody who says so.
  std::string nobody = fixture("npu_info_a2.txt");
  nobody.erase(nobody.find("| 1       0 "));
  answer(nobody);
  EXPECT_EQ(check_stale(roots_).verdict, Verdict::kWarning);
  EXPECT_THAT(check_stale(roots_).read, HasSubstr("30759 of 65536 MB"));
}

TEST_F(NpuMachine, CannInItsUsualPlaceWithoutItsVariables) {
  write("Ascend/ascend-toolkit/latest/aarch64-linux/ascend_toolkit_install.info",
        "package_name=Ascend-cann-toolkit\nversion=8.2.RC1\n");
  const Finding bare = check_cann(roots_);
  EXPECT_EQ(bare.verdict, Verdict::kFailed);
  EXPECT_THAT(bare.read, AllOf(HasSubstr("CANN 8.2.RC1"), HasSubstr("ASCEND_HOME_PATH is not set"),
                               HasSubstr("libascendcl.so is not there")));
  write("Ascend/ascend-toolkit/latest/lib64/libascendcl.so", "no library");
  EXPECT_THAT(check_cann(roots_).read, HasSubstr("cannot be loaded"));
  roots_.environment["ASCEND_HOME_PATH"] = "/nowhere";
  EXPECT_THAT(check_cann(roots_).read, HasSubstr("ASCEND_HOME_PATH=/nowhere is no directory"));
}

TEST_F(NpuMachine, CannThatIsNotInstalled) {
  EXPECT_EQ(check_cann(roots_).verdict, Verdict::kWarning);
  EXPECT_THAT(check_cann(roots_).remedy, HasSubstr("set_env.sh"));
}

TEST_F(NpuMachine, PairsOfCannAndTorchNpu) {
  EXPECT_EQ(check_torch_npu(roots_).verdict, Verdict::kNotHere);
  const auto pair = [&](const std::string& cann, const std::string& torch) {
    write("Ascend/ascend-toolkit/latest/version.cfg", "version=[" + cann + "]\n");
    fs::remove_all(folder_ / "packages");
    write("packages/torch_npu-" + torch + ".dist-info/METADATA", "");
    return check_torch_npu(roots_).verdict;
  };
  EXPECT_EQ(pair("8.1.RC1", "2.5.1"), Verdict::kOk);
  EXPECT_EQ(pair("8.1.RC1", "2.5.1.post1"), Verdict::kOk);
  EXPECT_EQ(pair("8.1.RC1", "2.7.1"), Verdict::kWarning);
  EXPECT_EQ(pair("8.2.RC1", "2.7.1"), Verdict::kOk);
  EXPECT_EQ(pair("8.5.1", "2.9.0"), Verdict::kOk);
  EXPECT_EQ(pair("9.1.0", "2.7.1"), Verdict::kOk);
  EXPECT_EQ(pair("9.0.0", "2.7.1"), Verdict::kWarning);
  EXPECT_EQ(pair("7.0.0", "2.1.0"), Verdict::kWarning);
}

TEST_F(NpuMachine, VariablesOfHccl) {
  EXPECT_NE(check_hccl(roots_).verdict, Verdict::kFailed);
  roots_.environment["HCCL_CONNECT_TIMEOUT"] = "30";
  EXPECT_EQ(check_hccl(roots_).verdict, Verdict::kFailed);
  roots_.environment["HCCL_CONNECT_TIMEOUT"] = "1200";
  EXPECT_THAT(check_hccl(roots_).read,
              AllOf(HasSubstr("1200 s"), HasSubstr("after 1836 s"), HasSubstr("400 MB")));
  roots_.environment["HCCL_EXEC_TIMEOUT"] = "0";
  roots_.environment["HCCL_BUFFSIZE"] = "50";
  EXPECT_THAT(check_hccl(roots_).read,
              AllOf(HasSubstr("no exchange that hangs"), HasSubstr("100 MB")));
  roots_.environment["HCCL_BUFFSIZE"] = "0";
  EXPECT_EQ(check_hccl(roots_).verdict, Verdict::kFailed);
  roots_.environment.erase("HCCL_BUFFSIZE");
  roots_.environment["HCCL_IF_IP"] = "node0";
  EXPECT_EQ(check_hccl(roots_).verdict, Verdict::kFailed);
  roots_.environment["HCCL_IF_IP"] = "10.0.0.7";
  EXPECT_NE(check_hccl(roots_).verdict, Verdict::kFailed);
}

TEST_F(NpuMachine, NetworkLinks) {
  EXPECT_EQ(check_links(roots_).verdict, Verdict::kNotHere);
  write_script("hccn_tool",
               "case \"$*\" in\n  *-net_health*) echo 'net health status: Success' ;;\n"
               "  '-i 1 -link -g') echo 'link status: DOWN' ;;\n  *) echo 'link status: UP' ;;\n"
               "esac\n");
  EXPECT_EQ(check_links(roots_).verdict, Verdict::kWarning);
  EXPECT_THAT(check_links(roots_).read,
              AllOf(HasSubstr("NPU 1: link DOWN"), Not(HasSubstr("NPU 0"))));
}

TEST_F(NpuMachine, DevicesShowCardsLinksAndProcessors) {
  const Devices devices = read_devices(roots_);
  EXPECT_FALSE(devices.has_failure());
  const std::string text = describe(devices);
  EXPECT_THAT(text, AllOf(HasSubstr("910B3"), HasSubstr("144-155,160"), HasSubstr("(0-23)")));
  const Json json = to_json(devices);
  EXPECT_EQ(json["npus"][1]["hbm_mb"]["used"], 30759);
  EXPECT_EQ(json["npu_links"]["links"][2][3], "SYS");
  EXPECT_TRUE(json["gpu_links"].is_null());
}

TEST_F(Machine, WithoutCardsTheProcessorIsDescribed) {
  write("proc/cpuinfo", "model name : Kunpeng-920\n");
  write("proc/self/status", "Cpus_allowed_list:\t0-3\n");
  write("sys/devices/system/node/node0/cpulist", "0-3\n");
  write("sys/devices/system/node/node0/meminfo", "Node 0 MemTotal:  8388608 kB\n");
  EXPECT_THAT(describe(read_devices(roots_)),
              AllOf(HasSubstr("Runs use the CPU"), HasSubstr("Kunpeng-920"),
                    HasSubstr("4 processors (0-3)"), HasSubstr("8 GiB")));
}

TEST_F(Machine, AKunpengServerHasSeveralNodesASocketAndNoHyperthreads) {
  write(
      "proc/cpuinfo",
      "processor\t: 0\nBogoMIPS\t: 200.00\nFeatures\t: fp asimd evtstrm aes pmull sha1 sha2 crc32 "
      "atomics fphp asimdhp cpuid asimdrdm jscvt fcma dcpop asimddp asimdfhm\n"
      "CPU implementer\t: 0x48\nCPU architecture: 8\nCPU variant\t: 0x1\nCPU part\t: 0xd01\n");
  write("proc/self/status", "Cpus_allowed_list:\t24-71\n");
  for (int node = 0; node < 8; ++node) {
    const std::string folder = "sys/devices/system/node/node" + std::to_string(node);
    write(folder + "/cpulist",
          std::to_string(24 * node) + "-" + std::to_string(24 * node + 23) + "\n");
    write(folder + "/meminfo", "Node " + std::to_string(node) + " MemTotal:       131072000 kB\n");
  }
  EXPECT_THAT(check_cpu(roots_).read,
              AllOf(HasSubstr("TaiShan v110 (Kunpeng 920)"), HasSubstr("asimd asimddp")));
  EXPECT_THAT(check_numa(roots_).read,
              HasSubstr("8 NUMA nodes, this process may run on 2 of them"));
  EXPECT_THAT(check_quota(roots_).read, HasSubstr("48 processors (24-71)"));
  EXPECT_THAT(describe(read_devices(roots_)),
              AllOf(HasSubstr("Kunpeng 920"), HasSubstr("168-191"), HasSubstr("125 GiB")));
}

// --- NVIDIA --------------------------------------------------------------------------------------

TEST_F(Machine, DriverAndDeviceFilesOfNvidia) {
  EXPECT_EQ(check_cuda(roots_).verdict, Verdict::kNotHere);
  write("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module 550.54\n");
  EXPECT_EQ(check_cuda(roots_).verdict, Verdict::kFailed);
  EXPECT_THAT(check_cuda(roots_).remedy, HasSubstr("--gpus all"));
  write("dev/nvidia0", "");
  EXPECT_EQ(check_cuda(roots_).verdict, Verdict::kWarning) << "no nvidia-smi";
  write_program("nvidia-smi", fixture("gpu_cards.txt"));
  EXPECT_EQ(check_cuda(roots_).verdict, Verdict::kOk);
  EXPECT_THAT(check_cuda(roots_).read, AllOf(HasSubstr("H100"), HasSubstr("capability 9.0")));
  write_program("nvidia-smi", "Failed to initialize NVML: Driver/library version mismatch\n", 18);
  EXPECT_EQ(check_cuda(roots_).verdict, Verdict::kFailed);
  EXPECT_THAT(check_cuda(roots_).read, HasSubstr("mismatch"));
}

TEST_F(Machine, UnderWindowsTheDriverHasNoFilesOfLinux) {
  write("dev/dxg", "");
  EXPECT_EQ(check_cuda(roots_).verdict, Verdict::kNotHere) << "a driver of another maker";
  write_program("nvidia-smi",
                "0, NVIDIA GeForce RTX 4090, 00000000:01:00.0, 552.22, 8.9, 900, "
                "24564, 40, [N/A]\n");
  const Finding finding = check_cuda(roots_);
  EXPECT_NE(finding.verdict, Verdict::kFailed) << finding.read;
  EXPECT_THAT(finding.read, AllOf(HasSubstr("that of Windows"), HasSubstr("RTX 4090")));
  write_program("nvidia-smi", "NVIDIA-SMI has failed because it couldn't communicate\n", 9);
  EXPECT_EQ(check_cuda(roots_).verdict, Verdict::kFailed);
}

/// nvidia-smi, which answers by its words.
TEST_F(Machine, DevicesShowGpusLinksAndProcessors) {
  write("cards.txt", fixture("gpu_cards.txt"));
  write("topo.txt", fixture("gpu_topo.txt"));
  write("proc/self/status", "Cpus_allowed_list:\t0-31\n");
  write("sys/devices/system/node/node0/cpulist", "0-31\n");
  write_script("nvidia-smi", "cd '" + folder_.path().string() +
                                 "'\ncase \"$1\" in\n  --query-gpu=*) cat cards.txt ;;\n"
                                 "  topo) cat topo.txt ;;\n"
                                 "  *) echo \"what is $*\"; exit 9 ;;\nesac\n");
  const Devices devices = read_devices(roots_);
  EXPECT_FALSE(devices.has_failure());
  EXPECT_THAT(describe(devices),
              AllOf(HasSubstr("H100"), HasSubstr("512 / 81559 MiB"), HasSubstr("NV18"),
                    HasSubstr("32-63"), HasSubstr("built for CUDA")));
  const Json json = to_json(devices);
  EXPECT_EQ(json["gpus"].size(), 2u);
  EXPECT_EQ(json["gpus"][0]["name"], "NVIDIA H100 80GB HBM3");
  EXPECT_EQ(json["gpu_links"]["links"][0][1], "NV18");
  EXPECT_TRUE(json["npus"].empty());
  EXPECT_THAT(check_numa(roots_).read, HasSubstr("GPU1 (32-63) is near none"));
  write("topo.txt", "no such command\n");
  EXPECT_THAT(describe(read_devices(roots_)), HasSubstr("H100")) << "without their links";
  write_script("nvidia-smi", "echo 'No devices were found'; exit 6\n");
  EXPECT_TRUE(read_devices(roots_).has_failure());
  EXPECT_THAT(describe(read_devices(roots_)), HasSubstr("No devices were found"));
}

// --- network and clock ---------------------------------------------------------------------------

TEST_F(Machine, InterfacesRoutesAndProxies) {
  write("sys/class/net/lo/operstate", "unknown\n");
  EXPECT_THAT(check_network(roots_).read, HasSubstr("no network interface is up"));
  write("sys/class/net/eth0/operstate", "up\n");
  write("sys/class/net/ib0/operstate", "down\n");
  write("proc/net/route",
        "Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT\n"
        "eth0 00000000 0100000A 0003 0 0 0 00000000 0 0 0\n");
  EXPECT_EQ(check_network(roots_).verdict, Verdict::kOk);
  EXPECT_THAT(check_network(roots_).read, AllOf(HasSubstr("eth0"), Not(HasSubstr("ib0"))));
  roots_.environment["https_proxy"] = "http://me:secret@proxy.example:3128/";
  EXPECT_THAT(check_network(roots_).read,
              AllOf(HasSubstr("proxy.example:3128"), Not(HasSubstr("secret"))));
  roots_.environment["GLOO_SOCKET_IFNAME"] = "eth1";
  EXPECT_EQ(check_network(roots_).verdict, Verdict::kFailed);
  EXPECT_THAT(check_network(roots_).remedy, HasSubstr("eth0"));
}

TEST_F(Machine, AHubThatNobodyReaches) {
  EXPECT_EQ(check_hub(roots_).verdict, Verdict::kNotHere);
  roots_.asks_network = true;
  // A port of this machine that is bound, so that nobody else has it, and not listened at.
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ASSERT_EQ(::bind(fd, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size), 0);
  const std::string here = "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
  // All go through a proxy, so that nothing leaves this machine.
  roots_.environment["HF_ENDPOINT"] = "http://" + here;
  roots_.environment["http_proxy"] = roots_.environment["https_proxy"] = "http://" + here;
  const Finding closed = check_hub(roots_);
  EXPECT_EQ(closed.verdict, Verdict::kWarning);
  EXPECT_THAT(closed.read, HasSubstr("127.0.0.1"));
  EXPECT_THAT(closed.remedy, HasSubstr("HF_ENDPOINT"));
  ASSERT_EQ(::listen(fd, 8), 0);
  EXPECT_EQ(check_hub(roots_).verdict, Verdict::kOk) << check_hub(roots_).read;
  ::close(fd);
  roots_.environment["HF_HUB_OFFLINE"] = "1";
  EXPECT_EQ(check_hub(roots_).verdict, Verdict::kNotHere);
}

TEST_F(Machine, AClockThatStandsOrIsKept) {
  EXPECT_EQ(check_clock(roots_).verdict, Verdict::kOk);
  roots_.clock_is_synchronised = false;
  EXPECT_EQ(check_clock(roots_).verdict, Verdict::kWarning);
  write("run/systemd/timesync/synchronized", "");
  EXPECT_EQ(check_clock(roots_).verdict, Verdict::kOk);
  roots_.now_s = 0;
  EXPECT_EQ(check_clock(roots_).verdict, Verdict::kFailed);
}

// --- variables -----------------------------------------------------------------------------------

TEST_F(Machine, AffinityIsShownRankByRank) {
  write("sys/devices/system/cpu/online", "0-7\n");
  write("proc/self/status", "Cpus_allowed_list:\t0-7\n");
  EXPECT_EQ(check_affinity(roots_).verdict, Verdict::kNotHere);
  roots_.environment["CPU_AFFINITY_CONF"] = "1,npu0:0-0";
  roots_.environment["LOCAL_WORLD_SIZE"] = "2";
  EXPECT_EQ(check_affinity(roots_).verdict, Verdict::kOk);
  EXPECT_THAT(check_affinity(roots_).read,
              AllOf(HasSubstr("rank 0 of 2: 0;"), HasSubstr("rank 1 of 2: 4-7")));
  roots_.environment["CPU_AFFINITY_CONF"] = "1,npu0:6-9";
  EXPECT_EQ(check_affinity(roots_).verdict, Verdict::kWarning);
  roots_.environment["CPU_AFFINITY_CONF"] = "<mode>";
  EXPECT_EQ(check_affinity(roots_).verdict, Verdict::kFailed);
}

TEST_F(Machine, TaskQueue) {
  EXPECT_EQ(check_queue(roots_).verdict, Verdict::kNotHere);
  for (const char* level : {"0", "1", "2"}) {
    roots_.environment["TASK_QUEUE_ENABLE"] = level;
    EXPECT_EQ(check_queue(roots_).verdict, Verdict::kOk);
    EXPECT_THAT(check_queue(roots_).read, HasSubstr("no effect"));
  }
  roots_.environment["ASCEND_LAUNCH_BLOCKING"] = "1";
  EXPECT_THAT(check_queue(roots_).read, HasSubstr("overrules"));
  roots_.environment["TASK_QUEUE_ENABLE"] = "3";
  EXPECT_EQ(check_queue(roots_).verdict, Verdict::kWarning);
}

TEST_F(Machine, VisibleDevicesEndAtTheFirstThatIsNone) {
  EXPECT_EQ(check_visible(roots_).verdict, Verdict::kNotHere);
  roots_.environment["ASCEND_RT_VISIBLE_DEVICES"] = "0,2,3";
  EXPECT_EQ(check_visible(roots_).verdict, Verdict::kOk);
  EXPECT_THAT(check_visible(roots_).read, AllOf(HasSubstr("0, 2, 3"), HasSubstr("no effect")));
  for (const char* odd : {"0,2, 3", "0,2,x", "0,2,1", "0,2,", "0,2,-1"}) {
    roots_.environment["ASCEND_RT_VISIBLE_DEVICES"] = odd;
    EXPECT_EQ(check_visible(roots_).verdict, Verdict::kWarning) << odd;
    EXPECT_THAT(check_visible(roots_).read, HasSubstr("are seen: 0, 2;")) << odd;
  }
}

TEST_F(Machine, WhatAContainerWasGivenIsNoListThatARunReads) {
  roots_.environment["ASCEND_VISIBLE_DEVICES"] = "0-3";
  EXPECT_EQ(check_visible(roots_).verdict, Verdict::kOk);
  EXPECT_THAT(check_visible(roots_).read,
              AllOf(HasSubstr("ASCEND_VISIBLE_DEVICES=0-3"), HasSubstr("Ascend Docker Runtime"),
                    HasSubstr("ASCEND_RT_VISIBLE_DEVICES chooses")));
}

}  // namespace
}  // namespace danlu::doctor
