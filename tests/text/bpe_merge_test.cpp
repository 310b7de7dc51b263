// Merging of long words by its definition: again and again, of all neighbours that some merge
// joins, those of the lowest rank, and of these the leftmost.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "base/json.h"
#include "text/tokenizer/pipeline_tokenizer.h"

namespace danlu::text {
namespace bpe_merge_test {

struct SmallVocabulary {
  std::vector<std::string> tokens;
  std::vector<std::pair<int, int>> merges;  ///< by rank
  std::map<std::string, int> ids;

  int id_of(const std::string& token) {
    const auto [it, fresh] = ids.emplace(token, static_cast<int>(tokens.size()));
    if (fresh) tokens.push_back(token);
    return it->second;
  }
  std::shared_ptr<const Tokenizer> load() const {
    Json vocab = Json::object(), pairs = Json::array();
    for (size_t id = 0; id < tokens.size(); ++id) vocab[tokens[id]] = id;
    for (const auto& [left, right] : merges)
      pairs.push_back(Json::array({tokens[left], tokens[right]}));
    const Json model = {{"type", "BPE"}, {"vocab", vocab}, {"merges", pairs}};
    return parse_tokenizer_json(Json{{"model", model}}.dump(), "small");
  }
  std::vector<TokenId> encode(const std::string& text) const {
    std::vector<TokenId> word;
    for (const char c : text) word.push_back(ids.at(std::string(1, c)));
    for (;;) {
      size_t best = merges.size(), at = 0;
      for (size_t i = 0; i + 1 < word.size(); ++i) {
        for (size_t rank = 0; rank < best; ++rank) {
          if (merges[rank] == std::pair(word[i], word[i + 1])) best = rank, at = i;
        }
      }
      if (best == merges.size()) return word;
      word[at] = ids.at(tokens[word[at]] + tokens[word[at + 1]]);
      word.erase(word.begin() + static_cast<std::ptrdiff_t>(at) + 1);
    }
  }
};

/// Any two tokens may be joined, and ranks come in any order: merges of such vocabularies undo each
/// other's places far more often than those that were learned from text.
SmallVocabulary random_vocabulary(std::mt19937& rng) {
  SmallVocabulary vocabulary;
  const int letters = 1 + static_cast<int>(rng() % 4);
  for (int i = 0; i < letters; ++i) vocabulary.id_of(std::string(1, static_cast<char>('a' + i)));
  const size_t num_merges = 1 + rng() % 24;
  while (vocabulary.merges.size() < num_merges) {
    const int left = static_cast<int>(rng() % vocabulary.tokens.size());
    const int right = static_cast<int>(rng() % vocabulary.tokens.size());
    const std::pair pair(left, right);
    if (std::find(vocabulary.merges.begin(), vocabulary.merges.end(), pair) !=
        vocabulary.merges.end()) {
      if (rng() % 8 == 0) break;
      continue;
    }
    if (vocabulary.tokens[left].size() + vocabulary.tokens[right].size() > 24) continue;
    vocabulary.id_of(vocabulary.tokens[left] + vocabulary.tokens[right]);
    vocabulary.merges.push_back(pair);
  }
  std::shuffle(vocabulary.merges.begin(), vocabulary.merges.end(), rng);
  return vocabulary;
}

std::string random_word(std::mt19937& rng, int letters) {
  std::string unit;
  const size_t unit_length = rng() % 3 == 0 ? 1 + rng() % 7 : 100 + rng() % 500;
  for (size_t i = 0; i < unit_length; ++i)
    unit += static_cast<char>('a' + rng() % static_cast<unsigned>(letters));
  std::string word;
  while (word.size() < 100 + rng() % 300) word += unit;
  return word;
}

TEST(BpeMerge, LongWordsOfRandomVocabulariesEqualTheDefinition) {
  std::mt19937 rng(20261125);
  for (int round = 0; round < 400; ++round) {
    const SmallVocabulary vocabulary = random_vocabulary(rng);
    const auto tokenizer = vocabulary.load();
    const int letters =
        static_cast<int>(std::count_if(vocabulary.tokens.begin(), vocabulary.tokens.end(),
                                       [](const std::string& token) { return token.size() == 1; }));
    for (int i = 0; i < 4; ++i) {
      const std::string word = random_word(rng, letters);
      ASSERT_EQ(vocabulary.encode(word), tokenizer->encode(word)) << round << ": " << word;
    }
  }
}

/// The last letter decides how the whole word is joined: what stretches were made of before is
/// always wrong.
TEST(BpeMerge, MergesThatReachFarAreFollowed) {
  SmallVocabulary vocabulary;
  for (const char* letter : {"a", "b"}) vocabulary.id_of(letter);
  // b takes an a in front of it, and another one, and so on: 120 merges, the longest first.
  std::string tail = "b";
  for (int i = 0; i < 120; ++i) {
    vocabulary.merges.emplace_back(vocabulary.id_of("a"), vocabulary.id_of(tail));
    tail = "a" + tail;
    vocabulary.id_of(tail);
  }
  std::reverse(vocabulary.merges.begin(), vocabulary.merges.end());
  vocabulary.merges.emplace_back(0, 0);
  vocabulary.id_of("aa");
  const auto tokenizer = vocabulary.load();
  for (const size_t count : {40, 119, 120, 121, 400}) {
    const std::string word = std::string(count, 'a') + "b" + std::string(count, 'a') + "b";
    ASSERT_EQ(vocabulary.encode(word), tokenizer->encode(word)) << count;
  }
}

}  // namespace bpe_merge_test
}  // namespace danlu::text
