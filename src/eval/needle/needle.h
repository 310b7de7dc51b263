// eval/needle/needle.h: NeedleBench's items, each made when it is asked for: a long one takes
// megabytes.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "eval/item.h"
#include "eval/needle/needle_data.h"

namespace danlu::eval {

/// The items of one leaf of needle_tasks. Thread-safe if the data are.
///
/// An item's doc: "kind", "language", "length" (tokens), "depth" (percent; null for m_rt),
/// "repeat", "question", "needles", "keywords" with "depths" of the same number, "reference" (s_rt:
/// the needle, else none), "context_tokens" (of the text with its needles). Its
/// target: the keyword, or a list of them. Its one call holds the whole text.
class NeedleSource {
 public:
  /// Errors: UsageError if the plan has no such leaf; DataError as NeedleData; that a language has
  /// fewer needles of different keywords than m_rt has depths, or texts that are too short: all
  /// that a run would meet later; of texts that the model counts, which need not be there yet, only
  /// that their files are.
  NeedleSource(std::shared_ptr<const NeedleData> data, const std::string& leaf);

  /// Errors: DataError: all texts together are shorter than the longest item.
  void check_texts() const;

  int64_t size() const { return static_cast<int64_t>(cells_.size()); }
  /// REQUIRES: 0 <= index < size(). Repeats outermost, then language, needles, length, depth: the
  /// first items of a limit cover everything, and neighbours begin alike.
  Item item(int64_t index) const;

 private:
  struct Cell {
    int64_t repeat = 0;
    const NeedleLanguage* language = nullptr;
    int64_t num_needles = 1;
    int64_t length = 0;
    double depth = -1;  ///< m_rt: -1
  };
  /// What stands in an item's text, and where.
  struct Hidden {
    std::vector<std::string> texts, keywords;
    std::vector<double> depths;          ///< of texts
    std::vector<double> keyword_depths;  ///< of keywords
    std::string question, reference;
  };
  void check_needles() const;
  Hidden hide(const Cell& cell) const;
  Hidden hide_one(const Cell& cell) const;
  Hidden hide_chain(const Cell& cell) const;
  Hidden hide_everywhere(const Cell& cell) const;

  std::shared_ptr<const NeedleData> data_;
  NeedleKind kind_ = NeedleKind::kSingleRetrieval;
  const NeedlePlan::Window* window_ = nullptr;
  std::vector<Cell> cells_;
};

/// Needle i stands after the last sentence that ends at or before depths[i] percent of the
/// haystack's tokens. REQUIRES: depths ascend.
std::string with_needles(const Haystack& haystack, const std::vector<std::string>& needles,
                         const std::vector<double>& depths);

}  // namespace danlu::eval
