// eval/needle/needle_data.h: NeedleBench's files: long texts, needles, chains of reasoning.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "eval/needle/needle_plan.h"
#include "eval/needle/token_ruler.h"

namespace danlu::eval {

struct Needle {
  std::string text, question, keyword;
};

/// What follows from several needles.
struct NeedleChain {
  std::vector<std::string> needles;
  std::string question, answer;
};

/// A text of sentences: sentence i ends before byte ends[i] of `text`, tokens[i] tokens from its
/// beginning, as far as tokens of parts add up.
struct Haystack {
  std::string text;
  std::vector<size_t> ends;
  std::vector<int64_t> tokens;
  int64_t num_tokens = 0;  ///< of the whole text
};

/// What lies in one data folder. Files are read when they are first asked for, texts counted when
/// they first stand in a haystack. Thread-safe if the ruler is.
///
/// Rows: of a haystack {"text"}; of the needles {"language", "needle", "retrieval_question", "arg2"
/// or "keyword"}; of chains {"derivations": [..], "question", "answer"}. A field may also be called
/// "<field>_<code>", or lie in an object under the language's name or code.
class NeedleData {
 public:
  /// Files are looked for in `folder` and in folders needlebench, NeedleBench, data/needlebench in
  /// it. named_tokenizer: what lengths are counted with; empty: as the plan says, `model` if
  /// nothing of that is there. `model` must outlive it. Errors: DataError if there is no folder;
  /// ModelError as open_token_ruler; UsageError if nothing is there to count with.
  NeedleData(NeedlePlan plan, std::filesystem::path folder,
             const std::filesystem::path& named_tokenizer, const Model* model);

  const NeedlePlan& plan() const { return plan_; }
  const TokenRuler& ruler() const { return *ruler_; }

  /// Needles of one language, in the file's order. Errors of all three: DataError naming the file
  /// that is missing and where it comes from; file, line and field of a row that is not as above,
  /// with the fields that it has; that nothing is there in this language.
  const std::vector<Needle>& needles(const NeedleLanguage& language) const;
  /// Chains of `count` needles.
  std::vector<const NeedleChain*> chains(const NeedleLanguage& language, int64_t count) const;
  /// Errors: DataError: the file of the texts is missing.
  void require_texts(const NeedleLanguage& language) const { (void)find(language.haystack); }
  /// The texts in the order of `repeat`, as many whole sentences as have no more than num_tokens
  /// tokens together. Errors: also DataError if all texts are shorter.
  Haystack haystack(const NeedleLanguage& language, int64_t repeat, int64_t num_tokens) const;

 private:
  struct Essay {
    std::string text;
    std::vector<size_t> ends;     ///< empty: not counted yet
    std::vector<int64_t> tokens;  ///< of each sentence
  };
  struct Files {
    std::vector<Needle> needles;
    std::vector<NeedleChain> chains;
    std::vector<Essay> essays;
  };
  std::filesystem::path find(const std::string& name) const;
  void read_needles(const NeedleLanguage& language, std::vector<Needle>& to) const;
  void read_chains(const NeedleLanguage& language, std::vector<NeedleChain>& to) const;
  /// Sentences of no more than num_tokens tokens, each counted by itself; true if that is all.
  bool collect(const NeedleLanguage& language, int64_t repeat, int64_t num_tokens,
               Haystack& to) const;
  void read_essays(const NeedleLanguage& language, std::vector<Essay>& to) const;

  NeedlePlan plan_;
  std::filesystem::path folder_;
  std::unique_ptr<TokenRuler> ruler_;
  mutable std::mutex mutex_;
  mutable std::map<std::string, Files> files_;  ///< by language
  /// The last one, and what it was asked for with: items of all depths share it.
  mutable std::tuple<std::string, int64_t, int64_t> last_key_;
  mutable Haystack last_;
};

/// The numbers 0 … count - 1 as Python's random.shuffle leaves them, seeded with 0, 1, … repeat one
/// after the other, each time of what the last one left.
std::vector<size_t> needle_order(size_t count, int64_t repeat);

}  // namespace danlu::eval
