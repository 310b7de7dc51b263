#include "eval/run/journal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "eval/make_archive.h"
#include "support/file_size_limit.h"
#include "support/temporary_directory.h"
#include "support/throws.h"

namespace danlu::eval {
namespace {

namespace fs = std::filesystem;
using test::TemporaryDirectory;
using ::testing::HasSubstr;

const Json kJournalIdentity = {{"model", "m"}, {"size", 7}};

Call journal_call(int i) {
  Call call;
  call.context = "context " + std::to_string(i) + "\n\"\xE4\xB8\xAD\"";
  call.continuation = " A";
  return call;
}

Answer journal_answer(int i) {
  Answer answer;
  answer.log_likelihood = -std::sqrt(i + 2.0);
  answer.is_greedy = i % 2 == 0;
  answer.num_tokens = i + 1;
  answer.whole_log_likelihood = -std::exp(i);
  answer.num_whole_tokens = 10 * i;
  answer.num_cut_tokens = i;
  answer.text = "line\n" + std::to_string(i) + "\t\"\\ \xE4\xB8\xAD";
  return answer;
}

void expect_same_answer(const Answer& a, const Answer& b) {
  EXPECT_EQ(std::bit_cast<uint64_t>(a.log_likelihood), std::bit_cast<uint64_t>(b.log_likelihood));
  EXPECT_EQ(std::bit_cast<uint64_t>(a.whole_log_likelihood),
            std::bit_cast<uint64_t>(b.whole_log_likelihood));
  EXPECT_EQ(a.is_greedy, b.is_greedy);
  EXPECT_EQ(a.num_tokens, b.num_tokens);
  EXPECT_EQ(a.num_whole_tokens, b.num_whole_tokens);
  EXPECT_EQ(a.num_cut_tokens, b.num_cut_tokens);
  EXPECT_EQ(a.text, b.text);
}

void add_to_journal(const fs::path& path, int begin, int end, JournalRank rank = {}) {
  Journal journal(path, kJournalIdentity, rank);
  for (int i = begin; i < end; ++i) journal.add(journal_call(i), journal_answer(i));
}

TEST(Journal, GivesBackWhatItWasTold) {
  const TemporaryDirectory dir;
  const fs::path path = dir / "new/answers.jsonl";
  add_to_journal(path, 0, 20);
  const Journal journal(path, kJournalIdentity);
  EXPECT_EQ(journal.size(), 20u);
  for (int i = 0; i < 20; ++i) {
    const auto found = journal.find(journal_call(i));
    ASSERT_TRUE(found);
    expect_same_answer(*found, journal_answer(i));
  }
  EXPECT_FALSE(journal.find(journal_call(20)));
}

TEST(Journal, KeepsEveryDoubleAndEveryByte) {
  const TemporaryDirectory dir;
  using Limits = std::numeric_limits<double>;
  std::vector<double> numbers = {
      0.0, -0.0, 0.1, Limits::denorm_min(), Limits::max(), -Limits::infinity(), -1e-300};
  for (uint64_t x = 88172645463325252u; numbers.size() < 500;) {
    x ^= x << 13, x ^= x >> 7, x ^= x << 17;
    if (const double number = std::bit_cast<double>(x); std::isfinite(number))
      numbers.push_back(number);
  }
  std::string bytes;
  for (int c = 0; c < 256; ++c) bytes += static_cast<char>(c);
  const auto nth = [&](size_t i) {
    Answer answer;
    answer.log_likelihood = numbers[i];
    answer.whole_log_likelihood = -numbers[i];
    answer.text = i % 2 ? bytes : "";
    return answer;
  };
  {
    Journal journal(dir / "a.jsonl", kJournalIdentity);
    for (size_t i = 0; i < numbers.size(); ++i) journal.add(journal_call(int(i)), nth(i));
  }
  const Journal journal(dir / "a.jsonl", kJournalIdentity);
  for (size_t i = 0; i < numbers.size(); ++i)
    expect_same_answer(*journal.find(journal_call(int(i))), nth(i));
}

TEST(Journal, CutAtAnyByteKeepsWholeLinesAndGoesOn) {
  const TemporaryDirectory dir;
  const fs::path path = dir / "a.jsonl", file = dir / "a.0.jsonl";
  add_to_journal(path, 0, 4);
  const std::string whole = test::file_text(file);
  for (size_t size = 0; size <= whole.size(); ++size) {
    test::put_file(file, whole.substr(0, size));
    // The first line is the header.
    const auto lines = std::count(whole.begin(), whole.begin() + std::ptrdiff_t(size), '\n');
    const size_t left = lines == 0 ? 0 : size_t(lines) - 1;
    {
      Journal journal(path, kJournalIdentity);
      ASSERT_EQ(journal.size(), left) << "cut at " << size;
      for (int i = 0; i < 4; ++i)
        ASSERT_EQ(journal.find(journal_call(i)).has_value(), size_t(i) < left);
      for (int i = int(left); i < 4; ++i) journal.add(journal_call(i), journal_answer(i));
    }
    ASSERT_EQ(test::file_text(file), whole) << "cut at " << size;
  }
}

TEST(Journal, DamagedLinesAreAskedAgain) {
  const TemporaryDirectory dir;
  const fs::path path = dir / "a.jsonl", file = dir / "a.0.jsonl";
  add_to_journal(path, 0, 3);
  std::string text = test::file_text(file);
  // As a file system leaves blocks that power took: zeros.
  const size_t second = text.find('\n', text.find('\n') + 1) + 1;
  for (size_t i = second; text[i] != '\n'; ++i) text[i] = '\0';
  test::put_file(file, text);
  const Journal journal(path, kJournalIdentity);
  EXPECT_TRUE(journal.find(journal_call(0)));
  EXPECT_FALSE(journal.find(journal_call(1)));
  EXPECT_TRUE(journal.find(journal_call(2)));
}

TEST(Journal, AnotherIdentityIsSetAsideAndNeverMixed) {
  const TemporaryDirectory dir;
  const fs::path path = dir / "a.jsonl";
  add_to_journal(path, 0, 3);
  const std::string first = test::file_text(dir / "a.0.jsonl");
  for (int i = 1; i <= 2; ++i) {
    Journal journal(path, {{"model", "other"}, {"size", i}});
    EXPECT_EQ(journal.size(), 0u);
    journal.add(journal_call(0), journal_answer(9));
  }
  EXPECT_EQ(test::file_text(dir / "a.0.jsonl.other-1"), first);
  EXPECT_TRUE(fs::exists(dir / "a.0.jsonl.other-2"));
  // A file that somebody else wrote is not cut to nothing.
  test::put_file(dir / "a.0.jsonl", "notes of mine");
  EXPECT_EQ(Journal(path, kJournalIdentity).size(), 0u);
  EXPECT_EQ(test::file_text(dir / "a.0.jsonl.other-3"), "notes of mine");
}

TEST(Journal, ReadsTheFilesOfAnyNumberOfRanks) {
  const TemporaryDirectory dir;
  const fs::path path = dir / "a.jsonl";
  for (int rank = 0; rank < 4; ++rank) add_to_journal(path, 10 * rank, 10 * rank + 5, {rank, 4});
  test::put_file(dir / "a.x.jsonl", "no rank's");
  test::put_file(dir / "a.00.jsonl", "no rank's");
  Journal zero(path, kJournalIdentity, {0, 2});
  Journal one(path, kJournalIdentity, {1, 2});
  EXPECT_EQ(zero.size(), 20u);
  EXPECT_EQ(one.size(), 20u);
  one.add(journal_call(99), journal_answer(99));
  zero.remove();
  EXPECT_FALSE(fs::exists(dir / "a.0.jsonl"));
  EXPECT_FALSE(fs::exists(dir / "a.2.jsonl"));
  EXPECT_TRUE(fs::exists(dir / "a.1.jsonl"));
  one.remove();
  std::set<std::string> left;
  for (const auto& entry : fs::directory_iterator(dir.path()))
    left.insert(entry.path().filename().string());
  EXPECT_EQ(left, (std::set<std::string>{"a.x.jsonl", "a.00.jsonl"}));
}

TEST(Journal, BelongsToOneRunAtATime) {
  const TemporaryDirectory dir;
  const fs::path path = dir / "a.jsonl";
  const Journal journal(path, kJournalIdentity);
  EXPECT_THAT(test::error_of<IoError>([&] { Journal second(path, kJournalIdentity); }),
              HasSubstr("process " + std::to_string(::getpid())));
}

TEST(Journal, AFullDiskIsNamedAndWhatWasAddedIsKept) {
  const TemporaryDirectory dir;
  const fs::path path = dir / "a.jsonl";
  const int added = test::with_file_size_limit(2000, [&] {
    Journal journal(path, kJournalIdentity);
    int count = 0;
    try {
      for (;; ++count) journal.add(journal_call(count), journal_answer(count));
    } catch (const IoError& error) {
      const bool is_named = std::string(error.what()).find("a.0.jsonl") != std::string::npos;
      // Each later one fails too, and spoils nothing.
      try {
        journal.add(journal_call(77), journal_answer(77));
      } catch (const IoError&) {
        return is_named ? count : -1;
      }
    }
    return -2;
  });
  ASSERT_GT(added, 2);
  ASSERT_LT(added, 20);
  const std::string text = test::file_text(dir / "a.0.jsonl");
  EXPECT_EQ(text.back(), '\n');
  Journal journal(path, kJournalIdentity);
  EXPECT_EQ(journal.size(), size_t(added));
  for (int i = 0; i < added; ++i)
    expect_same_answer(*journal.find(journal_call(i)), journal_answer(i));
}

TEST(Journal, EveryFieldOfACallTellsItApart) {
  std::vector<Call> calls(1, journal_call(1));
  const auto vary = [&](auto change) {
    calls.push_back(calls.front());
    change(calls.back());
  };
  vary([](Call& c) { c.kind = CallKind::kGeneration; });
  vary([](Call& c) { c.context += ' '; });
  // The same bytes, divided elsewhere.
  vary([](Call& c) { c.context += c.continuation, c.continuation.clear(); });
  vary([](Call& c) { c.repeat = 1; });
  vary([](Call& c) { c.has_own_bos = true; });
  vary([](Call& c) { c.rules.until = {"a", "b"}; });
  vary([](Call& c) { c.rules.until = {"ab"}; });
  vary([](Call& c) { c.rules.max_tokens = 1; });
  vary([](Call& c) { c.rules.do_sample = true; });
  vary([](Call& c) { c.rules.temperature = 0.5; });
  vary([](Call& c) { c.rules.top_p = 0.5; });
  vary([](Call& c) { c.rules.top_k = 5; });
  vary([](Call& c) { c.rules.num_beams = 4; });
  std::set<std::string> keys;
  for (const Call& call : calls) keys.insert(call_key(call));
  EXPECT_EQ(keys.size(), calls.size());
  EXPECT_EQ(call_key(calls.front()), call_key(journal_call(1)));
}

TEST(Journal, AnAnswerIsThatOfThePictureThatWasThere) {
  const TemporaryDirectory dir;
  Call call = journal_call(1);
  call.images = {"a.png"};
  const auto holds = [](uint64_t content) {
    return [content](const std::string&) { return content; };
  };
  Journal(dir / "a.jsonl", kJournalIdentity, {}, holds(1)).add(call, journal_answer(1));
  EXPECT_TRUE(Journal(dir / "a.jsonl", kJournalIdentity, {}, holds(1)).find(call));
  EXPECT_FALSE(Journal(dir / "a.jsonl", kJournalIdentity, {}, holds(2)).find(call));
  int asked = 0;
  Journal journal(dir / "a.jsonl", kJournalIdentity, {}, [&](const std::string& image) {
    EXPECT_EQ(image, "a.png");
    return static_cast<uint64_t>(++asked);
  });
  EXPECT_TRUE(journal.find(call));
  EXPECT_TRUE(journal.find(call));
  EXPECT_EQ(asked, 1);
}

}  // namespace
}  // namespace danlu::eval
