// The checks on folders that say what a machine would.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>

#include "doctor/child.h"
#include "doctor/engine.h"
#include "doctor/machine.h"
#include "support/throws.h"

namespace danlu::doctor {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

TEST_F(Machine, VectorInstructionsAndGovernor) {
  write("proc/cpuinfo",
        "processor\t: 0\nmodel name\t: Xeon 9\nflags\t\t: fpu avx avx2 avx512f amx_bf16 avx2x\n");
  const Finding plain = check_cpu(roots_);
  EXPECT_EQ(plain.verdict, Verdict::kOk);
  EXPECT_THAT(plain.read, AllOf(HasSubstr("Xeon 9"), HasSubstr("avx2 avx512f amx_bf16")));

  write("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave\n");
  EXPECT_EQ(check_cpu(roots_).verdict, Verdict::kWarning);
  EXPECT_THAT(check_cpu(roots_).remedy, HasSubstr("performance"));
  // intel_pstate calls its own choice of speed powersave.
  write("sys/devices/system/cpu/cpu0/cpufreq/scaling_driver", "intel_pstate\n");
  EXPECT_EQ(check_cpu(roots_).verdict, Verdict::kOk);
}

TEST_F(Machine, AProcessorWithoutAvx2IsAWarningOnX86Alone) {
  write("proc/cpuinfo", "model name : Atom\nflags : fpu sse2\n");
  EXPECT_EQ(check_cpu(roots_).verdict, Verdict::kWarning);
  write("proc/cpuinfo", "processor : 0\nFeatures : fp asimd sve bf16\n");
  EXPECT_EQ(check_cpu(roots_).verdict, Verdict::kOk);
  EXPECT_THAT(check_cpu(roots_).read, HasSubstr("asimd sve bf16"));
}

TEST_F(Machine, ThreadsAgainstTheQuota) {
  write("proc/self/status", "Name:\tx\nCpus_allowed_list:\t0-7,16\n");
  EXPECT_THAT(check_quota(roots_).read, AllOf(HasSubstr("9 processors"), HasSubstr("9 threads")));
  // 250 % of a CPU: three threads.
  write("sys/fs/cgroup/cpu.max", "250000 100000\n");
  EXPECT_THAT(check_quota(roots_).read, AllOf(HasSubstr("time of 3"), HasSubstr("3 threads")));
  roots_.environment["OMP_NUM_THREADS"] = "3";
  EXPECT_EQ(check_quota(roots_).verdict, Verdict::kOk);
  roots_.environment["OMP_NUM_THREADS"] = "4";
  EXPECT_EQ(check_quota(roots_).verdict, Verdict::kWarning);
  // What a run refuses.
  for (const char* refused : {"65", "many", "0"}) {
    roots_.environment["OMP_NUM_THREADS"] = refused;
    EXPECT_EQ(check_quota(roots_).verdict, Verdict::kFailed) << refused;
  }
}

TEST_F(Machine, MemoryOfTheContainerNotOfTheMachine) {
  write("proc/meminfo",
        "MemTotal: 67108864 kB\nMemAvailable: 33554432 kB\nSwapTotal: 0 kB\n"
        "HugePages_Total: 512\nHugepagesize: 2048 kB\n");
  write("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
  const Finding whole = check_memory(roots_);
  EXPECT_EQ(whole.verdict, Verdict::kOk);
  // 512 pages of 2 MiB are 1 GiB.
  EXPECT_THAT(whole.read, AllOf(HasSubstr("32 GiB may be taken, of 64 GiB"), HasSubstr("madvise"),
                                HasSubstr("1 GiB set aside")));
  write("sys/fs/cgroup/memory.max", "3221225472\n");
  write("sys/fs/cgroup/memory.current", "1073741824\n");
  EXPECT_EQ(check_memory(roots_).verdict, Verdict::kWarning);
  EXPECT_THAT(check_memory(roots_).read, HasSubstr("2 GiB may be taken"));
  write("sys/fs/cgroup/memory.current", "3221225000\n");
  EXPECT_EQ(check_memory(roots_).verdict, Verdict::kFailed);
}

TEST_F(Machine, LimitsAreTheHardOneOfFilesAndTheSoftOneOfMemory) {
  const auto limits = [&](const std::string& files, const std::string& locked) {
    write("proc/self/limits",
          "Limit                     Soft Limit           Hard Limit           Units\n"
          "Max core file size        0                    unlimited            bytes\n"
          "Max processes             96365                96365                processes\n"
          "Max open files            1024                 " +
              files +
              "   files\n"
              "Max locked memory         " +
              locked +
              "              unlimited  bytes\n"
              "Max address space         unlimited            unlimited            bytes\n");
  };
  limits("1048576", "8388608");
  EXPECT_EQ(check_limits(roots_).verdict, Verdict::kOk);
  EXPECT_THAT(check_limits(roots_).read, HasSubstr("locked memory 8 MiB"));
  limits("4096", "8388608");
  EXPECT_EQ(check_limits(roots_).verdict, Verdict::kWarning);
  // Locked memory matters where there are cards.
  limits("1048576", "65536");
  write("dev/nvidiactl", "");
  EXPECT_EQ(check_limits(roots_).verdict, Verdict::kWarning);
  limits("1048576", "unlimited");
  EXPECT_EQ(check_limits(roots_).verdict, Verdict::kOk);
}

TEST_F(Machine, DiskAndLocksOfAFolderThatWorks) {
  EXPECT_EQ(check_disk(roots_).verdict, Verdict::kNotHere);
  roots_.storage = {folder_ / "runs/to/come"};
  EXPECT_EQ(check_disk(roots_).verdict, Verdict::kOk);
  EXPECT_EQ(check_locks(roots_).verdict, Verdict::kOk);
  EXPECT_TRUE(fs::is_empty(folder_.path())) << "the trial leaves nothing";
}

TEST_F(Machine, AFolderWhereNothingCanBeMade) {
  // /proc takes no files, whoever asks.
  roots_.storage = {"/proc/self"};
  EXPECT_EQ(check_locks(roots_).verdict, Verdict::kWarning);
  EXPECT_THAT(check_locks(roots_).remedy, HasSubstr("--output_dir"));
}

TEST_F(Machine, APortThatSomebodyHas) {
  EXPECT_EQ(check_ports(roots_).verdict, Verdict::kOk);
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  ASSERT_EQ(::listen(fd, 1), 0);  // the system chooses the port
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  ASSERT_EQ(::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size), 0);
  const auto* bytes = reinterpret_cast<const unsigned char*>(&address);
  roots_.environment["MASTER_PORT"] = std::to_string(bytes[2] * 256 + bytes[3]);
  EXPECT_EQ(check_ports(roots_).verdict, Verdict::kWarning);
  ::close(fd);
  EXPECT_EQ(check_ports(roots_).verdict, Verdict::kOk);
  roots_.environment["MASTER_PORT"] = "65536";
  EXPECT_EQ(check_ports(roots_).verdict, Verdict::kFailed);
}

TEST_F(Machine, VariablesThatContradict) {
  EXPECT_EQ(check_environment(roots_).verdict, Verdict::kOk);
  roots_.environment["LANG"] = "zh_CN.GBK";
  EXPECT_EQ(check_environment(roots_).verdict, Verdict::kWarning);
  roots_.environment["LC_ALL"] = "zh_CN.UTF-8";
  EXPECT_EQ(check_environment(roots_).verdict, Verdict::kOk);
  roots_.environment["HF_ENDPOINT"] = "https://hub.example";
  EXPECT_EQ(check_environment(roots_).verdict, Verdict::kOk);
  roots_.environment["HF_HUB_OFFLINE"] = "1";
  EXPECT_EQ(check_environment(roots_).verdict, Verdict::kWarning);
  roots_.environment.erase("HF_HUB_OFFLINE");
  roots_.environment["PYTORCH_NPU_ALLOC_CONF"] = "expandable_segments:True";
  EXPECT_EQ(check_environment(roots_).verdict, Verdict::kOk);
  roots_.environment["PYTORCH_NPU_ALLOC_CONF"] = "expandable_segments:True,max_split_size_mb:256";
  EXPECT_EQ(check_environment(roots_).verdict, Verdict::kWarning);
  roots_.environment["HF_HOME"] = write("a-file", "x").string();
  EXPECT_EQ(check_environment(roots_).verdict, Verdict::kFailed);
}

TEST_F(Machine, AnEngineThatIsMissingOrNoLibrary) {
  roots_.engine = folder_ / "libdanlu_engine.so";
  EXPECT_EQ(check_libtorch(roots_).verdict, Verdict::kFailed);
  EXPECT_THAT(check_libtorch(roots_).read, HasSubstr("is not there"));
  write("libdanlu_engine.so", "no ELF file, but long enough to be read as its head: ............");
  EXPECT_EQ(check_libtorch(roots_).verdict, Verdict::kFailed);
  EXPECT_THAT(check_libtorch(roots_).read, HasSubstr("cannot be loaded"));
}

TEST_F(Machine, DecodersThatAreMissingOrNoLibrary) {
  roots_.engine = folder_ / "libdanlu_engine.so";
  EXPECT_EQ(check_media(roots_).verdict, Verdict::kWarning);
  EXPECT_THAT(check_media(roots_).read, HasSubstr("libdanlu_video.so is not there"));
  write("libdanlu_stills.so", "no ELF file, but long enough to be read as its head: ............");
  EXPECT_THAT(check_media(roots_).read, HasSubstr("libdanlu_stills.so: cannot be loaded"));
  EXPECT_THAT(check_media(roots_).remedy, HasSubstr("libavformat"));
}

TEST(LibtorchBuildText, IsReadFromWhatLibtorchSays) {
  const LibtorchBuild build = parse_torch_config(
      "PyTorch built with:\n  - GCC 13.2\n  - CPU capability usage: AVX512\n"
      "  - CUDA Runtime 12.4\n  - Build settings: BLAS_INFO=mkl, BUILD_TYPE=Release, "
      "TORCH_VERSION=2.6.0, USE_CUDA=ON, USE_NCCL=1, \n");
  EXPECT_EQ(build.version, "2.6.0");
  EXPECT_TRUE(build.has_cuda);
  EXPECT_EQ(build.cuda_runtime, "12.4");
  EXPECT_EQ(build.capability, "AVX512");
  EXPECT_EQ(build.blas, "mkl");
  EXPECT_FALSE(parse_torch_config("TORCH_VERSION=1.13.0, USE_CUDA=0,").has_cuda);
  EXPECT_EQ(parse_torch_config("  - CPU capability usage: NO AVX\n").capability, "");
}

TEST_F(Machine, EveryCheckAnswersOnAnEmptyMachine) {
  const auto results = examine(roots_);
  EXPECT_EQ(results.size(), checks().size());
  for (const Result& result : results) {
    EXPECT_FALSE(result.finding.read.empty()) << result.name;
    // Only the engine, which the folder has not, is needed.
    EXPECT_EQ(result.finding.verdict == Verdict::kFailed, result.name == "libtorch")
        << result.name << ": " << result.finding.read;
    const bool asks = result.finding.verdict == Verdict::kWarning;
    EXPECT_TRUE(!asks || !result.finding.remedy.empty()) << result.name << " says not what to do";
  }
}

TEST(Findings, WhatHelpsAgainstSeveralThingsIsSaidOnce) {
  Finding finding{Verdict::kWarning, "a is short", "ask for more"};
  finding.add(Verdict::kWarning, "b is short", "ask for more");
  finding.add(Verdict::kWarning, "c is old", "replace it");
  EXPECT_EQ(finding.read, "a is short; b is short; c is old");
  EXPECT_EQ(finding.remedy, "ask for more; replace it");
  EXPECT_EQ(describe({{"one", finding}, {"two", finding}, {"three", {Verdict::kOk, "well", ""}}}),
            "warning  one    a is short; b is short; c is old\n"
            "                → ask for more; replace it\n"
            "warning  two    a is short; b is short; c is old\n"
            "ok       three  well\n"
            "1 ok, 2 warnings, 0 failed, 0 not here\n");
}

TEST_F(Machine, OnlyTheNamedChecks) {
  const auto results = examine(roots_, {"shm", "cpu"});
  ASSERT_EQ(results.size(), 2u);
  EXPECT_EQ(results[0].name, "cpu");
  EXPECT_THAT(test::error_of<UsageError>([&] { examine(roots_, {"shn"}); }),
              AllOf(HasSubstr("'shn'"), HasSubstr("did you mean shm?")));
}

// --- what they stand on --------------------------------------------------------------------------

TEST(ProcessorLists, ThereAndBack) {
  EXPECT_THAT(*processors_of("0-3,8"), ElementsAre(0, 1, 2, 3, 8));
  EXPECT_EQ(processor_list({0, 1, 2, 3, 8, 10, 11}), "0-3,8,10-11");
  for (const char* wrong : {"3-1", "a", "1-", "0-99999999"}) EXPECT_FALSE(processors_of(wrong));
}

TEST_F(Machine, AProgramThatHangsIsEnded) {
  write_script("npu-smi", "echo begun; sleep 1000\n");
  const ChildResult result = run_program(*find_program(roots_, "npu-smi"), {}, 0.3);
  EXPECT_TRUE(result.timed_out);
  EXPECT_EQ(result.out, "begun\n");
  EXPECT_THAT(describe_failure(result, 0.3), HasSubstr("within 0.3 s"));
}

TEST_F(Machine, WordsOfAProgramAreNoShells) {
  write_script("echo-words", "printf '%s\\n' \"$@\" \"$LC_ALL\"\n");
  const ChildResult result =
      run_program(*find_program(roots_, "echo-words"), {"$(id)", "a b; c"}, 20);
  EXPECT_TRUE(result.succeeded());
  EXPECT_EQ(result.out, "$(id)\na b; c\nC\n");
}

TEST(Children, TheirDeathIsSeen) {
  const ChildResult killed = ask_child([]() -> std::string { ::abort(); }, 20);
  EXPECT_EQ(killed.signal, SIGABRT);
  const ChildResult thrown = ask_child([]() -> std::string { throw std::runtime_error("no"); }, 20);
  EXPECT_EQ(thrown.exit_code, 1);
  EXPECT_EQ(thrown.out, "no");
  EXPECT_EQ(ask_child([] { return std::string("yes"); }, 20).out, "yes");
}

}  // namespace
}  // namespace danlu::doctor
