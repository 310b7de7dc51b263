// text/tokenizer/scratch_pool.h: working memory lent to concurrent encode calls.
#pragma once
#include <array>
#include <atomic>
#include <memory>
#include <utility>

#include "text/tokenizer/model.h"

namespace danlu::text {

/// Thread-safe. Holds as many scratches as there were calls at the same time (kPlaces at most). A
/// thread is lent the one that it had last, whose cache its processor still holds: with a common
/// stack two threads would swap theirs all the time.
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

  ScratchPool() = default;
  ~ScratchPool() {
    for (Place& place : places_) delete place.scratch.load();
  }
  ScratchPool(const ScratchPool&) = delete;
  ScratchPool& operator=(const ScratchPool&) = delete;

  Loan take() {
    for (size_t i = 0; i < kPlaces; ++i) {
      std::atomic<Scratch*>& place = place_after_own(i);
      if (!place.load(std::memory_order_relaxed)) continue;
      if (Scratch* const scratch = place.exchange(nullptr, std::memory_order_acquire))
        return {*this, std::unique_ptr<Scratch>(scratch)};
    }
    return {*this, std::make_unique<Scratch>()};
  }

 private:
  static constexpr size_t kPlaces = 128;
  struct alignas(64) Place {
    std::atomic<Scratch*> scratch{nullptr};  ///< none while it is lent
  };

  std::atomic<Scratch*>& place_after_own(size_t i) {
    static std::atomic<size_t> num_threads{0};
    thread_local const size_t own = num_threads.fetch_add(1, std::memory_order_relaxed);
    return places_[(own + i) % kPlaces].scratch;
  }

  void give(std::unique_ptr<Scratch> scratch) {
    for (size_t i = 0; i < kPlaces; ++i) {
      Scratch* empty = nullptr;
      if (place_after_own(i).compare_exchange_strong(empty, scratch.get(),
                                                     std::memory_order_release)) {
        (void)scratch.release();
        return;
      }
    }
  }

  std::array<Place, kPlaces> places_;
};

}  // namespace danlu::text
