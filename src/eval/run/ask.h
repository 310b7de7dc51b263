// eval/run/ask.h: has the calls of items answered: by the journal, else by the model, the work
// divided among ranks.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/progress.h"
#include "eval/item.h"
#include "eval/model.h"
#include "eval/run/journal.h"

namespace danlu::eval {

/// Processes that examine one model together, as one of them sees them.
struct Division {
  int64_t rank = 0, size = 1;
  /// Everybody's text in the order of ranks. Collective; unset where size is 1.
  std::function<std::vector<std::string>(const std::string&)> everybodys = {};
};

class Asker {
 public:
  /// All outlive it; `journal` may be nullptr. num_items: of the whole run, for the estimate.
  Asker(Model& model, Journal* journal, const Division& division, int64_t num_items);

  /// answers[i][j]: to call j of item i, the same on every rank. Of the items each rank asks a run
  /// of neighbours, all calls of an item: what they share is computed once. Collective.
  /// Errors: as Model::answer and Journal::add; CommError.
  std::vector<std::vector<Answer>> ask(const std::vector<Item>& items);

  /// Calls of this rank that the journal had an answer to, so far.
  int64_t num_known() const { return num_known_; }
  void finish() { progress_.finish(); }

 private:
  std::vector<std::vector<Answer>> ask_own(const std::vector<Item>& items, size_t from, size_t end);
  std::vector<std::vector<Answer>> exchanged(std::vector<std::vector<Answer>> own) const;

  Model& model_;
  Journal* journal_;
  Division division_;
  ProgressBar progress_;
  int64_t all_done_ = 0;  ///< items of all ranks, of asks that are over
  int64_t own_done_ = 0;  ///< of this rank, in the one that is not
  int64_t num_known_ = 0;
};

}  // namespace danlu::eval
