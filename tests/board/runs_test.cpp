#include "board/runs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "board/run_files.h"
#include "board/run_folder.h"

namespace danlu::board {
namespace {

using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

class RunsTest : public ::testing::Test {
 protected:
  void look() {
    runs_.take(Runs::search({folder_.path()}));
    while (runs_.read_on()) continue;
  }
  std::vector<std::string> names() {
    std::vector<std::string> names;
    const Json list = runs_.list();
    for (const Json& run : list["runs"]) names.push_back(run["name"]);
    return names;
  }
  std::string id_of(const std::string& name) {
    const Json list = runs_.list();
    for (const Json& run : list["runs"]) {
      if (run["name"] == name) return run["id"];
    }
    return "";
  }

  const test::TemporaryDirectory folder_;
  const std::filesystem::path a_ = folder_ / "a";
  Runs runs_{{folder_.path()}};
};

TEST_F(RunsTest, RunsAreFoundBelowAndCheckpointsAreNone) {
  put_settings(a_);
  put(a_ / "logging.jsonl", step_line(1, 2));
  put(a_ / "checkpoint-5" / "logging.jsonl", "");
  put(folder_ / "model" / "v0-2026" / "train.log", "");
  put(folder_ / "model" / "v0-2026" / "args.json", "{}");
  put(folder_ / "data" / "args.json", "{}");
  std::filesystem::create_directory_symlink(a_, folder_ / "last");
  look();
  EXPECT_THAT(names(), UnorderedElementsAre("a", "model/v0-2026"));
}

TEST_F(RunsTest, TheSummaryFollowsTheFiles) {
  put_settings(a_, R"({"model":"m","dataset":["d1","d2"]})");
  put(a_ / "logging.jsonl", step_line(1, 2) + step_line(2, 1.5, 60));
  look();
  const Json run = *runs_.run(id_of("a"));
  EXPECT_EQ(run["step"], 2);
  EXPECT_EQ(run["max_steps"], 60);
  EXPECT_EQ(run["last"]["loss"], 1.5);
  EXPECT_EQ(run["spark"], Json({2.0, 1.5}));
  EXPECT_EQ(run["about"]["verb"], "sft");
  EXPECT_EQ(run["about"]["dataset"], "d1, d2");
  EXPECT_EQ(run["state"], "stopped");
}

TEST_F(RunsTest, ChangesNameTheRunsThatHaveChanged) {
  put(a_ / "logging.jsonl", step_line(1, 2));
  put(folder_ / "b" / "logging.jsonl", step_line(1, 2));
  look();
  const uint64_t before = runs_.newest_change();
  EXPECT_FALSE(runs_.changes(before));
  append(a_ / "logging.jsonl", step_line(2, 1));
  look();
  const Json changes = *runs_.changes(before);
  ASSERT_EQ(changes["runs"].size(), 1u);
  EXPECT_EQ(changes["runs"][0]["name"], "a");
  EXPECT_EQ(changes["runs"][0]["step"], 2);
  EXPECT_TRUE(changes["gone"].empty());
}

TEST_F(RunsTest, CurvesGoOnWhereTheClientIs) {
  put(a_ / "logging.jsonl", step_line(1, 2) + step_line(2, 1));
  look();
  const std::string id = id_of("a");
  const Json first = *runs_.curves(id, {});
  EXPECT_FALSE(first["continues"]);
  EXPECT_EQ(first["curves"]["loss"]["y"], Json({2.0, 1.0}));
  append(a_ / "logging.jsonl", step_line(3, 0.5));
  look();
  const Json more =
      *runs_.curves(id, {.names = {"loss"}, .generation = first["generation"], .after = 2});
  EXPECT_TRUE(more["continues"]);
  EXPECT_EQ(more["curves"],
            Json({{"loss", {{"x", {2, 3}}, {"y", {1.0, 0.5}}, {"thinned", false}}}}));
  replace(a_ / "logging.jsonl", step_line(1, 7));
  look();
  const Json anew = *runs_.curves(id, {.generation = first["generation"], .after = 3});
  EXPECT_FALSE(anew["continues"]);
  EXPECT_EQ(anew["curves"]["loss"]["y"], Json({7.0}));
}

TEST_F(RunsTest, NothingIsGivenForAnIdThatIsNone) {
  put(a_ / "logging.jsonl", step_line(1, 2));
  look();
  for (const char* id : {"", "..", "a", "../../etc", "0000000000000000"}) {
    EXPECT_FALSE(runs_.run(id)) << id;
    EXPECT_FALSE(runs_.curves(id, {})) << id;
    EXPECT_FALSE(runs_.settings(id)) << id;
    EXPECT_FALSE(runs_.log(id, "train.log", 100)) << id;
    EXPECT_FALSE(runs_.samples(id, 0, 10)) << id;
  }
}

TEST_F(RunsTest, NamesAndLinesOfAnyBytesBecomeJson) {
  const auto odd = folder_ / "\xff<img src=x onerror=alert(1)>";
  put(odd / "logging.jsonl", "{\"lo\xff\":1,\"loss\":1,\"global_step\":1}\n" + step_line(2, 1));
  put(odd / "train.log", "\xfe\x1b[31m</script>\n");
  put(odd / "args.json", "{\"model\":\"\xff\"}");
  look();
  const std::string list = dump_text(runs_.list());
  EXPECT_NO_THROW((void)parse_json(list, "list"));
  const std::string id = runs_.list()["runs"][0]["id"];
  for (const Json& json : {*runs_.run(id), *runs_.curves(id, {}), *runs_.settings(id),
                           *runs_.log(id, "train.log", 1000)})
    EXPECT_NO_THROW((void)parse_json(dump_text(json), "answer"));
}

TEST_F(RunsTest, LookingWritesNothing) {
  put_settings(a_);
  put(a_ / "logging.jsonl", step_line(1, 2));
  put(a_ / "checkpoint-1" / "DONE", R"({"files":{"a":5}})");
  for (const auto& path : {a_ / "checkpoint-1", a_, folder_.path()})
    std::filesystem::permissions(
        path, std::filesystem::perms::owner_read | std::filesystem::perms::owner_exec);
  const auto before = std::filesystem::last_write_time(a_);
  look();
  (void)runs_.run(id_of("a"));
  EXPECT_EQ(std::filesystem::last_write_time(a_), before);
  for (const auto& path : {folder_.path(), a_, a_ / "checkpoint-1"})
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
}

TEST(RunFiles, CheckpointsSayWhatTheyAre) {
  const test::TemporaryDirectory run;
  put(run / "checkpoint-20" / "DONE", R"({"step":20,"resumable":true,"files":{"a":5,"b":7}})");
  put(run / "checkpoint-3" / "model.safetensors", "x");
  put(run / "checkpoint-x" / "DONE", "{}");
  std::filesystem::create_symlink("checkpoint-20", run / "best");
  const Json list = checkpoints_of(run);
  ASSERT_EQ(list.size(), 2u);
  EXPECT_EQ(list[0]["name"], "checkpoint-3");
  EXPECT_FALSE(list[0]["complete"]);
  EXPECT_EQ(list[1]["bytes"], 12);
  EXPECT_TRUE(list[1]["resumable"]);
  EXPECT_TRUE(list[1]["best"]);
  EXPECT_FALSE(list[1]["last"]);
}

TEST(RunFiles, SettingsSayWhatWasGiven) {
  const test::TemporaryDirectory run;
  put_settings(run, R"({"lr":0.1,"seed":42})");
  EXPECT_EQ(settings_of(run),
            parse_json(R"({"args":{"lr":0.1,"seed":42},"given":["lr","model"],"verb":"sft"})", ""));
  put(run / "args.json", "[]");
  put(run / "sft_args.json", "{");
  EXPECT_EQ(settings_of(run)["args"], Json::object());
}

TEST(RunFiles, OnlyLogsOfTheRunAreGiven) {
  const test::TemporaryDirectory run;
  put(run / "train.log", "one\ntwo\nthree\n");
  put(run / "rank-10.log", "r\n");
  put(run / "rank-2.log", "r\n");
  put(run / "rank-x.log", "secret\n");
  put(run / "args.json", "{}");
  std::filesystem::create_symlink("args.json", run / "rank-3.log");
  EXPECT_THAT(log_names(run), ElementsAre("train.log", "rank-2.log", "rank-10.log"));
  for (const char* name : {"args.json", "rank-3.log", "rank-x.log", "../train.log", ""})
    EXPECT_FALSE(log_tail(run, name, 100)) << name;
  EXPECT_EQ((*log_tail(run, "train.log", 100))["text"], "one\ntwo\nthree\n");
  const Json end = *log_tail(run, "train.log", 8);
  EXPECT_EQ(end["text"], "three\n");
  EXPECT_TRUE(end["cut"]);
}

TEST(RunFiles, SamplesComeFromTheEndPageByPage) {
  const test::TemporaryDirectory run;
  std::string text;
  for (int i = 0; i < 10; ++i) text += fmt::format("{{\"step\":{}}}\n", i);
  put(run / "samples.jsonl", text + R"({"step":10,)");  // being written
  std::vector<int> seen;
  uint64_t before = 0;
  for (int page = 0; page < 4; ++page) {
    const Json json = samples_of(run, before, 3);
    for (const Json& sample : json["samples"]) seen.push_back(sample["step"]);
    before = json["before"];
    if (before == 0) break;
  }
  EXPECT_THAT(seen, ElementsAre(9, 8, 7, 6, 5, 4, 3, 2, 1, 0));
  EXPECT_EQ(before, 0u);
}

}  // namespace
}  // namespace danlu::board
