// text/tokenizer/scratch_pool.h: working memory lent to concurrent encode calls.
#pragma once
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "text/tokenizer/model.h"

namespace danlu::text {

/// Thread-safe. Holds as many scratches as there were calls at the same time.
class ScratchPool {
 public:
  class Loan {
   public:
    Loan(ScratchPool& pool, std::unique_ptr<Scratch> scratch)
        : pool_(pool), scratch_(std::move(scratch)) {}
    ~Loan() { pool_.give(std::move(scratch_)); }
    Loan(const Loan&) = delete;
    Loan& operator=(const Loan&) = delete;
    Scratch& operator*() { return *scratch_; }

   private:
    ScratchPool& pool_;
    std::unique_ptr<Scratch> scratch_;
  };

  Loan take() {
    {
      const std::lock_guard lock(mutex_);
      if (!idle_.empty()) {
        auto scratch = std::move(idle_.back());
        idle_.pop_back();
        return {*this, std::move(scratch)};
      }
    }
    return {*this, std::make_unique<Scratch>()};
  }

 private:
  void give(std::unique_ptr<Scratch> scratch) {
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(scratch));
  }
  std::mutex mutex_;
  std::vector<std::unique_ptr<Scratch>> idle_;
};

}  // namespace danlu::text
