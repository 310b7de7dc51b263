// infer/page_pool.h: the pages of a cache (ops/pages.h), who holds them, and how many there may be.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <list>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ops/pages.h"

namespace danlu::infer {

/// A page is held by as many sequences as have begun alike. A page that nobody holds keeps its
/// content until it is taken, if the pool was asked to keep it. Not thread-safe.
class PagePool {
 public:
  /// max_pages > 0: their memory is taken now, in one piece, and there are never more. 0: it grows
  /// by some 16 MiB at a time, and goes when no page is held or kept. Where the device's attention
  /// wants all pages in one slab (ops/backend.h) they move to a larger one instead: by a quarter.
  PagePool(const ops::PageShape& shape, at::ScalarType dtype, const at::Device& device,
           int64_t max_pages);

  /// A page of one holder, whose content means nothing; none where all max_pages are held. Free
  /// ones come first, then of those that are kept the one that nobody has held for longest.
  std::optional<int32_t> take();
  /// REQUIRES: the page is held or kept.
  void hold(int32_t page);
  /// REQUIRES of these: the page is held.
  void give_back(int32_t page);
  /// From now on the page is kept when nobody holds it; or no more.
  void keep(int32_t page, bool is_kept = true) { is_kept_[static_cast<size_t>(page)] = is_kept; }
  /// Held and kept pages of a pool without a limit are at most `pages` together: with 10, of which
  /// 8 are held, 2 are kept. 0: none is kept.
  void keep_up_to(int64_t pages) { kept_pages_ = pages; }
  /// Told of a kept page before its content is lost.
  void on_loss(std::function<void(int32_t page)> told) { on_loss_ = std::move(told); }
  int64_t holders(int32_t page) const { return holders_[static_cast<size_t>(page)]; }
  /// `to` becomes as `from`.
  void copy(int32_t from, int32_t to);

  /// Whether so many more can be taken.
  bool has(int64_t pages) const { return max_pages_ == 0 || num_held_ + pages <= max_pages_; }
  int64_t max_pages() const { return max_pages_; }
  int64_t num_held() const { return num_held_; }
  int64_t page_bytes() const;
  const ops::Pages& pages() const { return pages_; }

 private:
  void add_slab();
  void enlarge_slab();
  void lose(int32_t page);
  void lose_oldest();
  /// Whether a pool without a limit has as many pages as it may keep.
  bool is_full_of_kept() const {
    return max_pages_ == 0 && !idle_.empty() &&
           num_held_ + static_cast<int64_t>(idle_.size()) >= kept_pages_;
  }

  at::TensorOptions options_;
  bool wants_one_slab_;
  int64_t max_pages_, num_held_ = 0, kept_pages_ = 0;
  ops::Pages pages_;
  std::vector<int32_t> holders_;  ///< of each page; 0: free
  std::vector<int32_t> free_;     ///< the next to be taken last
  std::vector<bool> is_kept_;     ///< of each page
  std::list<int32_t> idle_;       ///< kept and not held; the next to be taken first
  std::unordered_map<int32_t, std::list<int32_t>::iterator> idle_at_;
  std::function<void(int32_t)> on_loss_;
};

}  // namespace danlu::infer
