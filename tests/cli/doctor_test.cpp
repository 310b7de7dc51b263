// `danlu doctor` and `danlu devices`, and the lines of guides (a), (b) and (d) about cards,
// processors and queues.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cli/bad_input.h"
#include "cli/guide_lines.h"
#include "support/shared_data.h"

namespace danlu::test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

/// Nothing leaves the machine.
const Values kAlone = {{"HF_HUB_OFFLINE", "1"}};

nlohmann::ordered_json json_of(const ProgramResult& result) {
  return nlohmann::ordered_json::parse(result.out, nullptr, /*allow_exceptions=*/false);
}

TEST(DoctorCommand, ThisMachineIsWell) {
  const ProgramResult result = run_danlu({"doctor", "--json"}, {.environment = kAlone});
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  const auto all = json_of(result);
  EXPECT_EQ(all["exit_code"], 0);
  std::set<std::string> names;
  for (const auto& check : all["checks"]) {
    names.insert(check["name"].get<std::string>());
    EXPECT_NE(check["verdict"], "failed") << check;
  }
  for (const char* name :
       {"cpu",       "quota", "numa",     "memory", "shm",      "limits", "disk", "locks",
        "network",   "hub",   "clock",    "ports",  "libtorch", "cuda",   "npu",  "cann",
        "torch_npu", "hccl",  "affinity", "queue",  "visible",  "media"})
    EXPECT_TRUE(names.count(name)) << name;
}

TEST(DoctorCommand, SaysWhichLibtorchTheEngineHas) {
  const ProgramResult result = run_danlu({"doctor", "--only", "libtorch"});
  EXPECT_EQ(result.exit_code, 0) << result.out;
  EXPECT_THAT(result.out, AllOf(HasSubstr("the engine opens; libtorch "), HasSubstr("1 ok")));
}

TEST(DoctorCommand, WhatFailsIsExitCode5WithWhatToDo) {
  ProgramSettings settings;
  settings.environment = {{"CPU_AFFINITY_CONF", "fast"}};
  const ProgramResult result = run_danlu({"env", "--only", "affinity"}, settings);
  EXPECT_EQ(result.exit_code, 5);
  EXPECT_THAT(result.out, AllOf(HasSubstr("FAILED"), HasSubstr("'fast'"), HasSubstr("npu0:0-15")));
  settings.environment["DANLU_LANG"] = "zh";
  EXPECT_THAT(run_danlu({"doctor", "--only", "affinity"}, settings).out,
              AllOf(HasSubstr("失败"), HasSubstr("无法读懂")));
  expect_error(run_danlu({"doctor", "--only", "libtorhc"}), 2, {"'libtorhc'", "mean libtorch?"});
}

TEST(DoctorCommand, LoadsNoLibtorchIntoItself) {
  const ProgramResult result =
      run_danlu({"doctor", "--only", "cpu"}, {.environment = {{"LD_DEBUG", "files"}}});
  EXPECT_FALSE(opened_libraries(result).empty());
  for (const std::string& library : opened_libraries(result))
    EXPECT_THAT(library, Not(HasSubstr("libtorch"))) << "only the check of libtorch opens it";
}

// --- guides (a) and (b) --------------------------------------------------------------------------

/// The lines of a guide behind the one that ends in `prompt`, up to the end of its block.
std::string answer_in(const std::string& guide, const std::string& prompt) {
  std::ifstream file(shared_dir() / "guides" / guide);
  std::string text, line;
  while (std::getline(file, line) && !line.ends_with(prompt)) {
  }
  while (std::getline(file, line) && !line.starts_with("```")) text += line + "\n";
  return text;
}

/// Cards as a guide's npu-smi prints them, and some of what is to be read there.
struct PrintedCards {
  std::string guide, version;
  Words shown;  ///< somewhere in the tables
  int64_t last_hbm_mb;
  Words processors;
};

class CardsOfGuides : public BadInput, public testing::WithParamInterface<PrintedCards> {};

TEST_P(CardsOfGuides, AndTheirLinks) {
  DANLU_REQUIRES_SHARED();
  const auto& [guide, version, texts, last_hbm_mb, processors] = GetParam();
  const std::string info = answer_in(guide, " npu-smi info"),
                    topology = answer_in(guide, " npu-smi info -t topo");
  ASSERT_THAT(info, HasSubstr("910B"));
  ASSERT_THAT(topology, HasSubstr("144-167"));
  write("info.txt", info);
  write("topo.txt", topology);
  const fs::path folder = fs::path(*this / "bin");
  fs::create_directories(folder);
  const fs::path tool =
      write("bin/npu-smi", "#!/bin/sh\ncd '" + folder.parent_path().string() +
                               "'\n[ \"$*\" = info ] && exec cat info.txt\n"
                               "[ \"$*\" = 'info -t topo' ] && exec cat topo.txt\n"
                               "exit 1\n");
  fs::permissions(tool, fs::perms::owner_all);
  const Values path = {{"PATH", folder.string() + ":/usr/bin:/bin"}};
  const ProgramResult shown = run_danlu({"devices"}, {.environment = path});
  EXPECT_EQ(shown.exit_code, 0) << shown.out << shown.err;
  EXPECT_THAT(shown.out, AllOf(HasSubstr(version), HasSubstr("NPU7  HCCS"), HasSubstr("HCCS: ")));
  for (const std::string& text : texts) EXPECT_THAT(shown.out, HasSubstr(text));
  // As the guides type npu-smi's own lines.
  EXPECT_EQ(run_danlu({"devices", "info"}, {.environment = path}).out, shown.out);
  EXPECT_EQ(run_danlu({"devices", "info", "-t", "topo"}, {.environment = path}).out, shown.out);
  expect_error(run_danlu({"devices", "infos"}, {.environment = path}), 2, {"'infos'"});
  const auto json = json_of(run_danlu({"devices", "--json"}, {.environment = path}));
  ASSERT_EQ(json["npus"].size(), 8u);
  EXPECT_EQ(json["npus"][7]["hbm_mb"]["used"], last_hbm_mb);
  for (size_t row = 0; row < 8; ++row) {
    for (size_t column = 0; column < 8; ++column)
      EXPECT_EQ(json["npu_links"]["links"][row][column], row == column ? "X" : "HCCS");
  }
  EXPECT_EQ(json["npu_links"]["processors"], processors);
}

INSTANTIATE_TEST_SUITE_P(Of, CardsOfGuides,
                         testing::Values(PrintedCards{kAlpacaGuide,
                                                      "24.1.rc1",
                                                      {"910B1", "98.7 W", "0000:C1:00.0", "96-119"},
                                                      3305,
                                                      {"144-167", "0-23", "144-167", "0-23",
                                                       "96-119", "48-71", "96-119", "48-71"}},
                                         PrintedCards{kSwiftGuide,
                                                      "24.1.rc1.b030",
                                                      {"910B3", "103.8 W", "0000:42:00.0", "48-71"},
                                                      3315,
                                                      {"144-167", "144-167", "96-119", "96-119",
                                                       "0-23", "0-23", "48-71", "48-71"}}),
                         [](const auto& info) { return info.param.guide.substr(0, 1); });

TEST(VisibleCards, OfEachLineOfGuideB) {
  DANLU_REQUIRES_SHARED();
  std::map<std::string, int64_t> lines;
  for (const std::string& line : commands_of(kSwiftGuide, "ASCEND_RT_VISIBLE_DEVICES")) {
    Words words = words_of(line);
    ++lines[environment_of(words)["ASCEND_RT_VISIBLE_DEVICES"]];
  }
  EXPECT_EQ(lines, (std::map<std::string, int64_t>{{"0", 3}, {"0,1,2,3", 3}}));
  for (const auto& [value, count] : lines) {
    const ProgramResult doctor = run_danlu({"doctor", "--only", "visible"},
                                           {.environment = {{"ASCEND_RT_VISIBLE_DEVICES", value}}});
    EXPECT_EQ(doctor.exit_code, 0) << doctor.out;
    EXPECT_THAT(doctor.out, HasSubstr(value == "0" ? "cards 0 are seen" : "cards 0, 1, 2, 3 are"));
  }
}

// --- guide (d) -----------------------------------------------------------------------------------

TEST_F(BadInput, GuideDsAffinityAndQueue) {
  DANLU_REQUIRES_SHARED();
  std::ifstream file(shared_dir() / "guides/d_mindspeed_mm.txt");
  const std::string guide(std::istreambuf_iterator<char>(file), {});
  for (const char* line : {"export TASK_QUEUE_ENABLE=2", "\nCPU_AFFINITY_CONF=1,npu0:0-0"})
    ASSERT_THAT(guide, HasSubstr(line));
  ProgramSettings settings;
  settings.environment = {{"TASK_QUEUE_ENABLE", "2"}, {"CPU_AFFINITY_CONF", "1,npu0:0-0"}};
  const ProgramResult doctor = run_danlu({"doctor", "--only", "affinity,queue"}, settings);
  EXPECT_EQ(doctor.exit_code, 0);
  EXPECT_THAT(doctor.out, AllOf(HasSubstr("TASK_QUEUE_ENABLE=2: "), HasSubstr("rank 0 of 1: 0")));
}

/// Where the system lets nobody have processor 0, the line is for another one.
std::string first_allowed_processor() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (!line.starts_with("Cpus_allowed_list:")) continue;
    const std::string list = line.substr(line.find_first_of("0123456789"));
    return list.substr(0, list.find_first_of("-,"));
  }
  return "0";
}

TEST_F(BadInput, ATrainingStaysOnTheProcessorsOfItsRank) {
  const std::string processor = first_allowed_processor();
  const std::string value = "1,npu0:" + processor + "-" + processor;
  ProgramSettings settings;
  settings.directory = (*this / "").string();
  settings.environment = {{"CPU_AFFINITY_CONF", value}};
  const std::vector<std::string> words = {"sft",
                                          "--model",
                                          good("model").string(),
                                          "--dataset",
                                          good("good.jsonl").string(),
                                          "--max_steps",
                                          "1",
                                          "--output_dir",
                                          "run",
                                          "--dtype",
                                          "fp32",
                                          "--tuner",
                                          "full"};
  const ProgramResult bound = run_danlu(words, settings);
  EXPECT_EQ(bound.exit_code, 0) << bound.err;
  // One processor, hence one thread.
  EXPECT_THAT(bound.out + bound.err, HasSubstr("1 threads, fp32; processors " + processor +
                                               " (CPU_AFFINITY_CONF=" + value));
  settings.environment["CPU_AFFINITY_CONF"] = "1,npu0:one";
  expect_error(run_danlu(words, settings), 2, {"[CPU_AFFINITY_CONF]", "'npu0:one'"});
}

TEST_F(BadInput, RanksOfALaunchHaveAThreadForEachOfTheirProcessors) {
  cpu_set_t allowed;
  ASSERT_EQ(::sched_getaffinity(0, sizeof allowed, &allowed), 0);
  if (!CPU_ISSET(0, &allowed) || !CPU_ISSET(1, &allowed))
    GTEST_SKIP() << "processors 0 and 1 are not this process's";
  if (run_danlu({"doctor", "--only", "quota"}).out.find("control group") != std::string::npos)
    GTEST_SKIP() << "the control group grants less than its processors";
  // Four ranks would each have a quarter of the threads; rank 0 is given two processors.
  ProgramSettings settings;
  settings.directory = (*this / "").string();
  settings.environment = {{"CPU_AFFINITY_CONF", "2,npu0:0-1"}, {"OMP_NUM_THREADS", ""}};
  std::vector<std::string> words = {"launch", "--nproc_per_node", "4",
                                    "sft",    "--model",          good("model").string()};
  words.insert(words.end(), {"--dataset", good("good.jsonl").string(), "--max_steps", "1",
                             "--output_dir", "run", "--dtype", "fp32", "--tuner", "full"});
  const ProgramResult result = run_danlu(words, settings);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out + result.err,
              HasSubstr("2 threads, fp32; processors 0-1 (CPU_AFFINITY_CONF=2,npu0:0-1)"));
}

}  // namespace
}  // namespace danlu::test
