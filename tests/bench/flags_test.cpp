// The command lines of bench/'s programs.
#include "../../bench/flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace danlu::bench {
namespace {

using ::testing::ElementsAre;
using ::testing::ExitedWithCode;

struct Parsed {
  int64_t repeats = 5, threads = 7;
  std::string name = "qwen";
  bool whole = false;
  std::vector<std::string> words;

  explicit Parsed(std::vector<std::string> line) {
    line.insert(line.begin(), "build/bench/some_bench");
    std::vector<char*> argv;
    for (std::string& word : line) argv.push_back(word.data());
    words = parse_flags(static_cast<int>(argv.size()), argv.data(),
                        {{"--repeats", WholeNumber{&repeats}},
                         {"--threads", WholeNumber{&threads, 0}},
                         {"--template", &name},
                         {"--whole", &whole}},
                        2);
  }
};

TEST(BenchFlags, StandAnywhereAmongTheWords) {
  const Parsed parsed(
      {"a", "--threads", "0", "--whole", "b", "--repeats", "12", "--template", "llama2"});
  EXPECT_THAT(parsed.words, ElementsAre("a", "b"));
  EXPECT_EQ(parsed.threads, 0);
  EXPECT_EQ(parsed.repeats, 12);
  EXPECT_EQ(parsed.name, "llama2");
  EXPECT_TRUE(parsed.whole);
  EXPECT_EQ(Parsed({"a"}).repeats, 5);
}

TEST(BenchFlagsDeathTest, WhatIsNotUnderstoodEndsTheProgram) {
  const ExitedWithCode with_2(2);
  EXPECT_EXIT(Parsed({"--repeat", "1"}), with_2, "some_bench: unknown option --repeat");
  EXPECT_EXIT(Parsed({"--threads"}), with_2, "--threads needs a value");
  EXPECT_EXIT(Parsed({"--threads", "x"}), with_2, "must be a whole number from 0 on, got 'x'");
  EXPECT_EXIT(Parsed({"--repeats", "3x"}), with_2, "must be a whole number from 1 on, got '3x'");
  EXPECT_EXIT(Parsed({"--repeats", "0"}), with_2, "--repeats must be a whole number from 1 on");
  EXPECT_EXIT(Parsed({"--repeats", "99999999999999999999"}), with_2, "whole number from 1");
  EXPECT_EXIT(Parsed({"a", "b", "c"}), with_2, "unknown word c");
}

}  // namespace
}  // namespace danlu::bench
