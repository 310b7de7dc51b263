// Training of byte-level BPE vocabularies.
#include <gmock/gmock.h>

#include <map>

#include "base/error.h"
#include "text/tokenizer/bpe_trainer.h"
#include "text/tokenizer/byte_level.h"
#include "text/tokenizer/pipeline_tokenizer.h"
#include "tokenizer_golden.h"

namespace danlu::text {
namespace {

using testing::ElementsAre;

constexpr KnownPattern kPatterns[] = {KnownPattern::kGpt2, KnownPattern::kQwen2,
                                      KnownPattern::kLlama3};

std::vector<std::string> merged_tokens(const TrainedBpe& trained) {
  return {trained.tokens.begin() + 256, trained.tokens.end()};
}

TEST(BpeTrainer, MergesTheMostFrequentPairFirst) {
  // "low" 5, "lower" 2, "newest" 6, "widest" 3. es: 6 + 3 = 9, then est 9; lo: 5 + 2 = 7, low 7;
  // then ne, new, newest (ew 6 and ne 6: the pair of smaller ids first).
  const PieceCounts counts = {{"low", 5}, {"lower", 2}, {"newest", 6}, {"widest", 3}};
  BpeTrainerOptions options;
  options.num_tokens = 256 + 5;
  EXPECT_THAT(merged_tokens(train_bpe(counts, options)),
              ElementsAre("es", "est", "lo", "low", "ew"));
}

TEST(BpeTrainer, EqualsCountingAllPairsAnewEachTime) {
  PieceCounts counts;
  for (const auto& [name, bytes] : test::nasty_texts())
    count_pieces(bytes, KnownPattern::kQwen2, counts);
  BpeTrainerOptions options;
  options.num_tokens = 256 + 150;
  const TrainedBpe trained = train_bpe(counts, options);

  std::map<std::string, std::vector<int32_t>> words;
  std::map<std::string, int32_t> id_of;
  for (int32_t id = 0; id < 256; ++id) id_of[trained.tokens[id]] = id;
  for (const auto& [piece, count] : counts) {
    for (const char c : piece)
      words[piece].push_back(id_of[byte_to_utf8()[static_cast<unsigned char>(c)]]);
  }
  for (int32_t fresh = 256; fresh < 256 + 150; ++fresh) {
    std::map<std::pair<int32_t, int32_t>, uint64_t> pairs;
    for (const auto& [piece, ids] : words) {
      for (size_t i = 0; i + 1 < ids.size(); ++i) pairs[{ids[i], ids[i + 1]}] += counts[piece];
    }
    auto best = pairs.begin();
    for (auto it = pairs.begin(); it != pairs.end(); ++it) {
      if (it->second > best->second) best = it;
    }
    ASSERT_EQ(best->first, trained.merges[fresh - 256]) << "merge " << fresh - 256;
    for (auto& [piece, ids] : words) {
      std::vector<int32_t> next;
      for (size_t i = 0; i < ids.size(); ++i) {
        if (i + 1 < ids.size() && std::pair(ids[i], ids[i + 1]) == best->first) {
          next.push_back(fresh);
          ++i;
        } else {
          next.push_back(ids[i]);
        }
      }
      ids = std::move(next);
    }
  }
}

TEST(BpeTrainer, StopsWhenNoPairIsFrequentEnough) {
  BpeTrainerOptions options;
  options.num_tokens = 1000;
  EXPECT_THAT(merged_tokens(train_bpe({{"abc", 1}, {"ab", 1}}, options)), ElementsAre("ab"));
}

TEST(BpeTrainer, RefusesAVocabularyWithoutRoomForTheBytes) {
  BpeTrainerOptions options;
  options.num_tokens = 255;
  EXPECT_THROW(train_bpe({}, options), UsageError);
}

TEST(BpeTrainer, WritesATokenizerThatRestoresEveryText) {
  PieceCounts counts;
  count_pieces("the cat and the hat and the rat\n你好 你好 你好\n", KnownPattern::kQwen2, counts);
  BpeTrainerOptions options;
  options.num_tokens = 280;
  for (const KnownPattern pattern : kPatterns) {
    const Json file = tokenizer_json_of(train_bpe(counts, options), pattern, {"<|end|>"});
    const auto tokenizer = parse_tokenizer_json(file.dump(), "trained");
    EXPECT_THAT(tokenizer->encode(" the<|end|>"),
                ElementsAre(*tokenizer->token_to_id("Ġthe"), *tokenizer->token_to_id("<|end|>")));
    for (const std::string text : {"the hat", "anything else: 世界 🦙", "\n\t x"}) {
      EXPECT_EQ(text, tokenizer->decode(tokenizer->encode(text)));
    }
  }
}

TEST(BpeTrainer, ChunksAreCutWhereNoPieceCrosses) {
  // Between "b\n" and "c" every pattern cuts; between "a" and "b" none does.
  EXPECT_EQ(3u, safe_cut("ab\ncd", KnownPattern::kQwen2));
  EXPECT_EQ(0u, safe_cut("abcd", KnownPattern::kQwen2));
  EXPECT_EQ(0u, safe_cut("ab\n  ", KnownPattern::kQwen2));
  // GPT-2's looks ahead from spaces: they must stay with what follows.
  EXPECT_EQ(2u, safe_cut("ab\n\ncd", KnownPattern::kGpt2));
  EXPECT_EQ(0u, safe_cut("abcd", KnownPattern::kGpt2));
  EXPECT_EQ(0u, safe_cut("\n\nX", KnownPattern::kGpt2));
  EXPECT_EQ(0u, safe_cut("\u3000\nX", KnownPattern::kGpt2));
  std::string text;
  for (const auto& [name, bytes] : test::nasty_texts()) text += bytes + "\nend\n\n";
  for (const KnownPattern pattern : kPatterns) {
    PieceCounts whole, parts;
    count_pieces(text, pattern, whole);
    for (std::string_view rest = text; !rest.empty();) {
      size_t cut = rest.size() > 3000 ? safe_cut(rest.substr(0, 3000), pattern) : rest.size();
      if (cut == 0) cut = rest.size();
      count_pieces(rest.substr(0, cut), pattern, parts);
      rest.remove_prefix(cut);
    }
    EXPECT_EQ(whole, parts);
  }
}

TEST(BpeTrainer, NoPieceTellsWhereItsTextWasCut) {
  const std::string_view texts[] = {
      "ab\n\ncd\n\n\nef",    "a \nb\t\nc d",        "a\r\n\r\nb\r\nc", "!\n\nb !\n c\n!",
      "1\n \n23\n4567\n8",   "a\u00A0\nb\u3000\nc", "a。\n\u2028\nb",  "a\x85\nb\xE2\x80\nc\xF0\n",
      "e\n\u0301x\n=\u0338", "it'\ns 'll\n'LL\n's", "\n\nX\n \nY",     "a\x1C\nb\x7F\n\x7F",
      "a\v\nb\f\nc \n\n d",
  };
  for (const KnownPattern pattern : kPatterns) {
    for (const std::string_view text : texts) {
      PieceCounts whole;
      count_pieces(text, pattern, whole);
      for (size_t end = 1; end <= text.size(); ++end) {
        const size_t cut = safe_cut(text.substr(0, end), pattern);
        PieceCounts parts;
        count_pieces(text.substr(0, cut), pattern, parts);
        count_pieces(text.substr(cut), pattern, parts);
        EXPECT_EQ(whole, parts) << testing::PrintToString(text) << " at " << cut;
      }
    }
  }
}

}  // namespace
}  // namespace danlu::text
