// Tokens on disk between commits: what a kill may take and what it may not.
#include "data/preprocess_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace danlu::data
