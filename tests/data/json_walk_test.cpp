// JSON taken apart in one pass, held against the JSON library's parser.
#include "data/readers/json_walk.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "base/file.h"
#include "base/json_text.h"
#include "data/readers/json_records.h"
#include "data/readers/record_limits.h"
#include "data/readers/row_json.h"
#include "preprocess_fakes.h"
#include "support/shared_data.h"

namespace danlu::data {
namespace {

using ::testing::ElementsAre;

const std::vector<std::string>& seeds() {
  static const std::vector<std::string> kSeeds = {
      R"({"instruction": "a \"b\"\\", "input": "", "n": [1, -2, 3.5e+7, 0, -0.25E-3, 1e2]})",
      R"([true, false, null, [], {}, [[{"a": {"b": [1]}}]], "\u4f60\ud83d\ude00\u0000\n\t/\/"])",
      "{\"汉字\": \"𝄞 é 你好，世界\", \"eight by\": \"te12345678\"}",
      R"(18446744073709551615)",
      R"(-9223372036854775808)",
      R"(18446744073709551616)",
      R"(1e308)",
      R"("")",
      "\r\n\t {\"a\" :\n1 , \"b\":\ttrue }  ",
  };
  return kSeeds;
}

/// Expects of `text` what the library says of it.
void expect_as_library(const std::string& text) {
  RowRefusal refusal;
  const auto ours = parse_row_text(text, &refusal);
  // The other parser takes the last value of a key that comes twice; a row may not have one.
  if (refusal.why.find("twice") != std::string::npos) return;
  const Json theirs = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  ASSERT_EQ(ours.has_value(), !theirs.is_discarded()) << text;
  if (!ours) return;
  ASSERT_EQ(*ours, theirs) << text;
  ASSERT_EQ(ours->dump(), theirs.dump()) << text;
}

TEST(JsonWalk, TakesAndRefusesWhatTheLibraryDoes) {
  std::mt19937 random(1);
  const std::string bytes =
      "{}[]\",:\\/ \n\t0123456789.-+eEabfnrtu\x01\x7F\x80\xBF\xC2\xE4\xED\xF0\xFF";
  const auto pick = [&](size_t count) { return random() % count; };
  for (const std::string& seed : seeds()) {
    expect_as_library(seed);
    for (int round = 0; round < 20'000; ++round) {
      std::string text = seed;
      for (size_t change = 0; change <= pick(3) && !text.empty(); ++change) {
        const size_t at = pick(text.size());
        const char byte = bytes[pick(bytes.size())];
        switch (pick(4)) {
          case 0:
            text.erase(at, 1 + pick(3));
            break;
          case 1:
            text.insert(at, 1, byte);
            break;
          case 2:
            text.insert(at, text.substr(pick(text.size()), 1 + pick(6)));
            break;
          default:
            text[at] = byte;
        }
      }
      expect_as_library(text);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(JsonWalk, SaysOfEveryBeginningThatItIsCut) {
  for (const std::string& seed : seeds()) {
    const size_t begin = seed.find_first_not_of(" \r\n\t");
    const size_t end = seed.find_last_not_of(" \r\n\t") + 1;
    JsonEvents none;
    const auto walk = [&](size_t size, bool is_all) {
      return JsonWalker(std::string_view(seed).substr(0, size), begin, is_all, none).walk();
    };
    for (size_t size = begin; size < end; ++size)
      ASSERT_EQ(walk(size, false), JsonWalk::kCut) << seed.substr(0, size);
    EXPECT_EQ(walk(end, true), JsonWalk::kWhole);
    // A number that ends the text may go on.
    const bool is_number = seed[begin] == '-' || std::isdigit(seed[begin]);
    EXPECT_EQ(walk(end, false), is_number ? JsonWalk::kCut : JsonWalk::kWhole) << seed;
  }
}

TEST(JsonWalk, ReadsRealRowsAsTheLibraryDoes) {
  DANLU_REQUIRES_SHARED();
  for (const char* name : {"alpaca_zh_demo.json", "glaive_toolcall_zh_demo.json"}) {
    const Json rows = read_json_file(test::unpacked("instruct") / name);
    ASSERT_GT(rows.size(), 100u);
    for (const Json& row : rows) {
      expect_as_library(row.dump());
      expect_as_library(row.dump(2, ' ', /*ensure_ascii=*/true));
      if (HasFatalFailure()) return;
    }
  }
}

/// A text that comes in pieces of `piece` bytes.
class Pieces : public ByteStream {
 public:
  Pieces(std::string text, size_t piece) : text_(std::move(text)), piece_(piece) {}
  size_t read(char* to, size_t size) override {
    const size_t take = std::min({size, piece_, text_.size() - at_});
    text_.copy(to, take, at_);
    at_ += take;
    return take;
  }
  uint64_t file_bytes_read() const override { return at_; }

 private:
  std::string text_;
  size_t piece_, at_ = 0;
};

/// The records, and "!" behind them if the text is malformed.
std::vector<std::string> records_of(const std::string& text, size_t piece = 1 << 20) {
  JsonRecords records(std::make_unique<Pieces>(text, piece));
  std::vector<std::string> all;
  std::string_view record;
  while (records.next(&record)) all.emplace_back(record);
  EXPECT_FALSE(records.next(&record));
  if (records.malformed()) all.emplace_back("!");
  return all;
}

TEST(JsonRecords, AreTheElementsOfOneListOrWhatStandsOneAfterTheOther) {
  EXPECT_THAT(records_of("[{\"a\": 1}, 2 ,\n[3]]\n"), ElementsAre("{\"a\": 1}", "2", "[3]"));
  EXPECT_THAT(records_of("[1, 2]"), ElementsAre("1", "2"));
  EXPECT_THAT(records_of("[1, 2]\n\n"), ElementsAre("1", "2"));
  EXPECT_THAT(records_of("[1, 2]\n[3]\n"), ElementsAre("[1, 2]", "[3]"));
  EXPECT_THAT(records_of("[]"), ElementsAre());
  EXPECT_THAT(records_of(" \n"), ElementsAre());
  EXPECT_THAT(records_of("{}\n\n {\"a\": 2} \r\n3"), ElementsAre("{}", "{\"a\": 2}", "3"));
  EXPECT_THAT(records_of("{\"a\":\n1} {}{}\"x\"4 5"),
              ElementsAre("{\"a\":\n1}", "{}", "{}", "\"x\"", "4", "5"));
}

TEST(JsonRecords, OfLinesEndWithThem) {
  EXPECT_THAT(records_of("{}\n{} {}\n"), ElementsAre("{}", "!"));
  EXPECT_THAT(records_of("{}\n{\"a\":\n1}\n"), ElementsAre("{}", "!"));
  EXPECT_THAT(records_of("[1]\n[2,\n3]\n"), ElementsAre("[1]", "!"));
}

TEST(JsonRecords, OfMalformedTextEndWhereItIs) {
  for (const char* text :
       {"[1 2]", "[1,, 2]", "[1,]", "[1]]", "[1], 2", "[1", "[1,", "1,2", "01", "truefalse",
        "1true", "{\"a\": 1", "{\"a\": \"\xC3\"}", "{\"a\": NaN}"}) {
    EXPECT_EQ(records_of(text).back(), "!") << text;
  }
  EXPECT_THAT(records_of("[,1]"), ElementsAre("!"));
  EXPECT_THAT(records_of("["), ElementsAre("!"));
}

TEST(JsonRecords, DoNotDependOnHowTheBytesCome) {
  for (const std::string text :
       {"[{\"q\": \"a\\\"]\", \"r\": [1.5, true]},\n \"\\ud83d\\ude00 汉字\", 17, null ]\n ",
        "{\"q\": 1}\n\n{\"q\": \"汉\"}  \n12\n", "[1, \"a\"]\n[2]", "{\"a\":\n[]} 7 8 \"x\""}) {
    const std::vector<std::string> whole = records_of(text);
    ASSERT_NE(whole.back(), "!");
    for (const size_t piece : {1, 2, 3, 5, 7}) EXPECT_EQ(records_of(text, piece), whole) << text;
  }
}

TEST(JsonRecords, OfAnyLengthAreGivenWhole) {
  // Around the sizes in which the reader takes bytes.
  std::string text;
  std::vector<std::string> expected;
  for (size_t size : {10, 262'130, 262'144, 1, 262'145, 700'000, 3'000'000, 5}) {
    expected.push_back("{\"q\":\"" + std::string(size, 'x') + "\"}");
    text += expected.back() + "\n";
  }
  EXPECT_TRUE(records_of(text) == expected);
  std::string list = "[" + text;
  std::replace(list.begin(), list.end(), '\n', ',');
  list.back() = ']';
  EXPECT_TRUE(records_of(list) == expected);
}

}  // namespace
}  // namespace danlu::data
