#include "eval/data/choose_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "eval/make_archive.h"
#include "support/temporary_directory.h"
#include "support/throws.h"

namespace danlu::eval {
namespace {

namespace fs = std::filesystem;
using test::put_file;
using test::TemporaryDirectory;
using ::testing::AllOf;
using ::testing::HasSubstr;

Layout choice_of_csv() {
  Layout layout;
  layout.name = "the authors' data.tar";
  layout.files = {{"dev", {"dev/{subject}_dev.csv"}}, {"test", {"test/{subject}_test.csv"}}};
  layout.columns = {"q", "answer"};
  return layout;
}

Layout choice_of_hub() {
  Layout layout;
  layout.name = "Hugging Face cais/mmlu";
  layout.files = {{"dev", {"{subject}/dev-*.jsonl"}}, {"test", {"{subject}/test-*.jsonl"}}};
  return layout;
}

class ChoosingLayouts : public ::testing::Test {
 protected:
  void put_csv(const std::string& where, const std::vector<std::string>& subjects,
               const std::string& answer = "A") {
    for (const std::string& subject : subjects) {
      put_file(dir_ / where / "dev" / (subject + "_dev.csv"), "q," + answer + "\n");
      put_file(dir_ / where / "test" / (subject + "_test.csv"), "q," + answer + "\n");
    }
  }
  void put_hub(const std::string& where, const std::vector<std::string>& subjects) {
    for (const std::string& subject : subjects) {
      for (const char* split : {"dev", "test"}) {
        put_file(dir_ / where / subject / (split + std::string("-00000-of-00001.jsonl")),
                 R"({"q": "q", "answer": "hub"})");
      }
    }
  }
  ChosenLayout choose(const std::string& path) {
    return choose_layout(DataTree::open(dir_ / path), layouts_, wanted_);
  }
  std::string answer_at(const std::string& path, const std::string& subject) {
    const ChosenLayout chosen = choose(path);
    return chosen.tree.rows(layouts_[chosen.index], "test", subject)[0]["answer"];
  }
  std::string error_at(const std::string& path) {
    return test::error_of<DataError>([&] { choose(path); });
  }

  TemporaryDirectory dir_;
  std::vector<Layout> layouts_ = {choice_of_csv(), choice_of_hub()};
  WantedData wanted_{"mmlu", {"art", "law", "biology"}, {"dev", "test"}, "fetch it there"};
};

TEST_F(ChoosingLayouts, TakesTheOneThatIsThere) {
  put_csv("csv", wanted_.subjects);
  put_hub("hub", wanted_.subjects);
  EXPECT_EQ(choose("csv").index, 0u);
  EXPECT_EQ(choose("csv/test").index, 0u);
  EXPECT_EQ(choose("hub").index, 1u);
  EXPECT_EQ(answer_at("hub", "law"), "hub");
}

TEST_F(ChoosingLayouts, AWholeOneGoesBeforeANearerPart) {
  put_csv("", {"law"});
  put_hub("deep/er", wanted_.subjects);
  EXPECT_EQ(choose("").index, 1u);
}

TEST_F(ChoosingLayouts, AnotherBenchmarkWithTheSameNamesIsNotTaken) {
  // As C-Eval beside MMLU: the same form of names, some of the subjects.
  put_csv("ceval/formal_ceval", {"biology", "marxism"}, "C");
  put_csv("mmlu", wanted_.subjects, "M");
  EXPECT_EQ(answer_at("", "biology"), "M");
  wanted_ = {"ceval", {"biology", "marxism"}, {"test"}, ""};
  EXPECT_EQ(answer_at("", "biology"), "C");
}

TEST_F(ChoosingLayouts, ADirectoryOfItsNameDecidesBetweenEquals) {
  layouts_ = {choice_of_csv()};
  wanted_.subjects = {};
  layouts_[0].files = {{"test", {"test.csv"}}};
  wanted_.splits = {"test"};
  put_file(dir_ / "arith/test.csv", "q,1\n");
  put_file(dir_ / "MMLU/test.csv", "q,2\n");
  EXPECT_EQ(answer_at("", ""), "2");
  wanted_.benchmark = "gsm8k";
  EXPECT_THAT(error_at(""), AllOf(HasSubstr("twice"), HasSubstr("arith"), HasSubstr("MMLU")));
}

TEST_F(ChoosingLayouts, NothingThereNamesTheLayoutsAndTheirFiles) {
  put_file(dir_ / "x/readme.csv", "1");
  EXPECT_THAT(
      error_at("x"),
      AllOf(HasSubstr("no data of mmlu"),
            HasSubstr("dev/art_dev.csv, test/art_test.csv (the authors' data.tar)"),
            HasSubstr("art/test-*.jsonl (Hugging Face cais/mmlu)"), HasSubstr("fetch it there")));
}

TEST_F(ChoosingLayouts, MissingSubjectsAndShotsAreNamed) {
  put_csv("csv", {"law", "art"});
  fs::remove(dir_ / "csv/dev/art_dev.csv");
  EXPECT_THAT(error_at("csv"),
              AllOf(HasSubstr("2 of 3 subjects of mmlu are missing"), HasSubstr("dev/art_dev.csv"),
                    HasSubstr("dev/biology_dev.csv"), HasSubstr("test/biology_test.csv"),
                    HasSubstr("fetch it there"), ::testing::Not(HasSubstr("law"))));
  wanted_.subjects = {"law", "art"};
  wanted_.splits = {"test"};
  EXPECT_EQ(choose("csv").index, 0u) << "without shots they are enough";
}

TEST_F(ChoosingLayouts, SubjectsThatAreThereAreTakenWhereAPartIsEnough) {
  put_csv("csv", {"law", "art"});
  fs::remove(dir_ / "csv/dev/art_dev.csv");
  wanted_.takes_part = true;
  EXPECT_THAT(choose("csv").left_out, ::testing::ElementsAre("art", "biology"));
  EXPECT_THAT(choose("csv").in_part, ::testing::ElementsAre("art (dev)"));
  put_csv("csv", wanted_.subjects);
  EXPECT_THAT(choose("csv").left_out, ::testing::IsEmpty());
  fs::remove_all(dir_ / "csv/test");
  put_file(dir_ / "csv/test/nothing.csv", "");
  EXPECT_THAT(error_at("csv"), HasSubstr("no files of the split 'test' of mmlu are there"));
}

TEST_F(ChoosingLayouts, ASplitWithoutFilesIsNamedAsThat) {
  put_csv("csv", wanted_.subjects);
  fs::remove_all(dir_ / "csv/dev");
  EXPECT_THAT(error_at("csv"),
              AllOf(HasSubstr("no files of the split 'dev' of mmlu are there"),
                    HasSubstr("dev/{subject}_dev.csv"), HasSubstr("--num_fewshot 0")));
}

TEST_F(ChoosingLayouts, ArchivesCompleteWhatIsMissing) {
  put_csv("d", {"law"});
  std::vector<test::ArchiveMember> members;
  for (const std::string& subject : wanted_.subjects) {
    members.push_back({"data/dev/" + subject + "_dev.csv", "q,Z\n"});
    members.push_back({"data/test/" + subject + "_test.csv", "q,Z\n"});
  }
  test::make_archive(dir_ / "d/data.tar", members);
  EXPECT_EQ(answer_at("d", "law"), "Z") << "a part of the one is not mixed with the other";
  EXPECT_EQ(answer_at("d/data.tar", "law"), "Z");
}

TEST_F(ChoosingLayouts, ABrokenArchiveIsAnErrorOnlyWhereSomethingIsMissing) {
  put_csv("d/csv", wanted_.subjects);
  put_file(dir_ / "d/other.zip", "half of it");
  EXPECT_EQ(choose("d").index, 0u);
  fs::remove(dir_ / "d/csv/dev/law_dev.csv");
  EXPECT_THAT(error_at("d"), AllOf(HasSubstr("other.zip"), HasSubstr("damaged or cut off")));
}

}  // namespace
}  // namespace danlu::eval
