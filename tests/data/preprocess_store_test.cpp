// Tokens on disk between commits: what a kill may take and what it may not.
#include "data/preprocess_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "data/preprocess_run.h"
#include "preprocess_fakes.h"

namespace danlu::data {
namespace {

using ::testing::ElementsAre;

void append(TokenStore* store, std::vector<int32_t> tokens) {
  const std::vector<int32_t> lengths{static_cast<int32_t>(tokens.size())};
  store->append(0, tokens, lengths);
}

std::vector<int32_t> tokens_of(const TokenStore& store) {
  const auto stream = store.stream(0);
  return {stream.tokens().begin(), stream.tokens().end()};
}

TEST(TokenStore, ForgetsWhatWasWrittenAfterTheLastCommit) {
  const TestDirectory directory;
  {
    TokenStore store(directory / "s", "key", 1);
    EXPECT_TRUE(store.cursor().is_null());
    append(&store, {1, 2});
    store.commit(7);
    append(&store, {3, 4, 5});
    store.flush();
  }
  TokenStore store(directory / "s", "key", 1);
  EXPECT_EQ(store.cursor(), Json(7));
  append(&store, {6});
  store.flush();
  EXPECT_THAT(tokens_of(store), ElementsAre(1, 2, 6));
  EXPECT_THAT(store.stream(0).lengths(), ElementsAre(2, 1));
}

TEST(TokenStore, StartsAnewForAnotherKey) {
  const TestDirectory directory;
  {
    TokenStore store(directory / "s", "key", 1);
    append(&store, {1, 2});
    store.commit(7);
  }
  TokenStore store(directory / "s", "other", 1);
  EXPECT_TRUE(store.cursor().is_null());
  EXPECT_TRUE(tokens_of(store).empty());
}

TEST(TokenStore, StartsAnewWhereTheDiskLostWhatTheJournalPromises) {
  for (const char* damage : {"short file", "broken journal"}) {
    const TestDirectory directory;
    {
      TokenStore store(directory / "s", "key", 1);
      append(&store, {1, 2});
      store.commit(7);
    }
    if (damage == std::string("short file")) {
      fs::resize_file(directory / "s/0.tokens", 4);
    } else {
      directory.write("s/journal.json", "{\"key\": \"key\", ");
    }
    TokenStore store(directory / "s", "key", 1);
    EXPECT_TRUE(store.cursor().is_null()) << damage;
    EXPECT_TRUE(tokens_of(store).empty()) << damage;
  }
}

/// Two small data sets, encoded into `store` with a commit after every batch.
class DamagedJournal : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string rows = "instruction,input,output\n";
    for (int i = 0; i < 40; ++i) {
      rows += fmt::format("q{},,{}\n", i, i % 9 == 4 ? "" : std::string(1 + i % 5, 'a'));
    }
    directory_.write("a.csv", rows);
    directory_.write("b.csv", rows);
    settings_.tokenizer = std::make_shared<ByteTokenizer>();
    settings_.chat_encoder = std::make_shared<ByteChatEncoder>();
    plan_ = plan_datasets({directory_ / "a.csv", directory_ / "b.csv"}, {});
  }
  /// What the store then holds, and the report.
  std::pair<std::vector<int32_t>, Json> encode() {
    TokenStore store(directory_ / "s", "key", 2);
    RunSettings run;
    run.show_progress = false;
    run.commit_interval_s = 0;
    const PreprocessReport report = encode_datasets(plan_, settings_, run, &store);
    return {tokens_of(store), report.to_json()};
  }
  fs::path journal() const { return directory_ / "s/journal.json"; }

  TestDirectory directory_;
  EncodeSettings settings_;
  std::vector<PlannedDataset> plan_;
};

TEST_F(DamagedJournal, MeansStartingAnewWhateverHasTheWrongType) {
  const auto whole = encode();
  const Json good = read_json_file(journal());
  EXPECT_EQ(encode(), whole) << "nothing is damaged yet";
  // Every value, and every object and array that it lies in.
  std::set<std::string> places;
  const Json leaves = good.flatten();
  for (const auto& [pointer, value] : leaves.items()) {
    for (std::string at = pointer; places.insert(at).second && !at.empty();) {
      at.resize(at.rfind('/'));
    }
  }
  for (const std::string& at : places) {
    const Json& old = good[Json::json_pointer(at)];
    for (const Json& other : {Json(nullptr), Json("x"), Json(-1), Json(1.5), Json::array(),
                              Json{{"x", "y"}}, Json::array({1, "x"})}) {
      const bool same_type = old.is_number() == other.is_number() &&
                             old.is_string() == other.is_string() &&
                             old.is_array() == other.is_array();
      if (same_type && !old.is_object()) continue;
      Json damaged = good;
      damaged[Json::json_pointer(at)] = other;
      write_json_file(journal(), damaged);
      EXPECT_EQ(encode(), whole) << at << " = " << other.dump();
    }
  }
}

TEST_F(DamagedJournal, MeansStartingAnewWhereItsPartsDoNotFitTogether) {
  const auto whole = encode();
  const Json good = read_json_file(journal());
  const auto expect_anew = [&](const char* at, const Json& value) {
    Json damaged = good;
    damaged[Json::json_pointer(at)] = value;
    write_json_file(journal(), damaged);
    EXPECT_EQ(encode(), whole) << at << " = " << value.dump();
  };
  expect_anew("/cursor/dataset", 3);
  expect_anew("/cursor/row", -1);
  expect_anew("/cursor/report/lengths/count", 7);
  expect_anew("/cursor/report/lengths/sum", 7);
  expect_anew("/sizes/0", good["sizes"][0].get<int64_t>() - 1);
  expect_anew("/sizes/0", good["sizes"][0].get<int64_t>() - 4);
  expect_anew("/sizes/1", good["sizes"][1].get<int64_t>() - 4);
  expect_anew("/sizes/3", 0);
}

}  // namespace
}  // namespace danlu::data
