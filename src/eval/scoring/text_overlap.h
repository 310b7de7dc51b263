// eval/scoring/text_overlap.h: how much of a written answer is in the answer that was wanted: BLEU
// and ROUGE, with the conventions of the systems whose lines ask for them.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace danlu::eval {

/// The words that ROUGE compares: runs of ASCII letters and digits, with a fraction and "%" behind
/// them ("3.14", "50%"), the signs among +#&._%- that stand together between such runs, and any
/// other character alone, blanks too. That is how jieba cuts texts without Chinese, but for the few
/// names with signs in its dictionary (C++); Chinese characters, of which jieba makes words by its
/// dictionary, are a word each.
std::vector<std::string> words_for_overlap(std::string_view text);

/// The characters of a text.
std::vector<std::string> characters_of(std::string_view text);

/// BLEU of up to four of `found` in a row, where `wanted` is the only reference: 0 to 1. Orders of
/// which nothing agrees count 1/2, 1/4, … of one agreement (NLTK's smoothing method 3; arXiv
/// P02-1040 has none).
double bleu4(const std::vector<std::string>& found, const std::vector<std::string>& wanted);

/// F-measures, 0 to 1.
struct Rouge {
  double one = 0, two = 0, longest = 0;
};

/// What text is a sentence, of which ROUGE-L is made.
enum class RougeKind {
  kWhole,     ///< the longest common subsequence of the whole texts (the package rouge-chinese)
  kSentences  ///< the words of those of all pairs of sentences, which "." ends (the package rouge)
};

/// ROUGE-1 and -2 over the different words and pairs of words in a row, and ROUGE-L. All 0 where
/// one of the texts has no word. Errors: DataError for texts of so many words that the subsequence
/// would not fit into memory.
Rouge rouge_of(const std::vector<std::string>& found, const std::vector<std::string>& wanted,
               RougeKind kind);

/// Whose conventions hold.
enum class OverlapStyle {
  kLlamaFactory,  ///< BLEU of characters, ROUGE of whole texts; a text without words counts 0
  kSwift          ///< both of words, ROUGE by sentences; rows without words are left out
};

struct Overlap {
  double bleu4 = 0, rouge1 = 0, rouge2 = 0, rougeL = 0;  ///< means over rows, 0 to 100
};

struct ComparedTexts {
  std::string found, wanted;
};

Overlap overlap_of(const std::vector<ComparedTexts>& rows, OverlapStyle style);

}  // namespace danlu::eval
