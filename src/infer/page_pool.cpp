#include "infer/page_pool.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <limits>

#include "base/cache_pages.h"
#include "base/error.h"
#include "ops/backend.h"

namespace danlu::infer {
namespace {

bool wants_one_slab(at::ScalarType dtype, const at::Device& device) {
  const auto wants = ops::backend_of(device.type()).wants_one_slab;
  return wants && wants(dtype);
}

}  // namespace

static_assert(kTokensOfPage == ops::kPageTokens);

PagePool::PagePool(const ops::PageShape& shape, at::ScalarType dtype, const at::Device& device,
                   int64_t max_pages)
    : options_(at::TensorOptions(dtype).device(device)),
      wants_one_slab_(wants_one_slab(dtype, device)),
      max_pages_(max_pages) {
  pages_.shape = shape;
  if (shape.elements() <= 0 || max_pages < 0 || max_pages > std::numeric_limits<int32_t>::max())
    throw InternalError("[page_pool] pages of nothing, or a limit that no table can name");
  pages_.per_slab = max_pages > 0 ? max_pages : pages_of_slab(page_bytes());
  if (max_pages > 0) add_slab();
}

int64_t PagePool::page_bytes() const {
  return pages_.shape.elements() * static_cast<int64_t>(options_.dtype().itemsize());
}

void PagePool::enlarge_slab() {
  constexpr int64_t kShare = 4;
  const at::Tensor old = pages_.slabs.front();
  const int64_t pages = old.size(0) + std::max(old.size(0) / kShare, pages_of_slab(page_bytes()));
  const at::Tensor larger = at::empty({pages, pages_.shape.elements()}, options_);
  larger.narrow(0, 0, old.size(0)).copy_(old);
  pages_.slabs.front() = larger;
  pages_.per_slab = pages;
}

void PagePool::add_slab() {
  // Tensors of inference mode could not be written to outside of it.
  const c10::InferenceMode as_any_tensor(false);
  const int64_t first = pages_.count();
  if (wants_one_slab_ && first > 0) {
    enlarge_slab();
  } else {
    pages_.slabs.push_back(at::empty({pages_.per_slab, pages_.shape.elements()}, options_));
  }
  if (pages_.count() > std::numeric_limits<int32_t>::max())
    throw InternalError("[page_pool] more pages than a table can name");
  holders_.resize(static_cast<size_t>(pages_.count()), 0);
  is_kept_.resize(static_cast<size_t>(pages_.count()), false);
  for (int64_t page = pages_.count() - 1; page >= first; --page)
    free_.push_back(static_cast<int32_t>(page));
}

std::optional<int32_t> PagePool::take() {
  if (!has(1)) return {};
  if (free_.empty() && !idle_.empty() && (max_pages_ > 0 || is_full_of_kept())) lose_oldest();
  if (free_.empty()) add_slab();
  const int32_t page = free_.back();
  free_.pop_back();
  holders_[static_cast<size_t>(page)] = 1;
  ++num_held_;
  return page;
}

void PagePool::lose(int32_t page) {
  is_kept_[static_cast<size_t>(page)] = false;
  if (on_loss_) on_loss_(page);
}

void PagePool::lose_oldest() {
  const int32_t oldest = idle_.front();
  idle_.pop_front();
  idle_at_.erase(oldest);
  lose(oldest);
  free_.push_back(oldest);
}

void PagePool::hold(int32_t page) {
  int64_t holders = ++holders_[static_cast<size_t>(page)];
  if (holders > 1) return;
  const auto idle = idle_at_.find(page);
  if (idle == idle_at_.end())
    throw InternalError("[page_pool] a page is held whose content means nothing");
  idle_.erase(idle->second);
  idle_at_.erase(idle);
  ++num_held_;
}

void PagePool::give_back(int32_t page) {
  const auto index = static_cast<size_t>(page);
  if (index >= holders_.size() || holders_[index] == 0)
    throw InternalError("[page_pool] a page that nobody holds is given back");
  if (--holders_[index] > 0) return;
  --num_held_;
  if (is_kept_[index] && (max_pages_ > 0 || kept_pages_ > 0)) {
    if (is_full_of_kept()) lose_oldest();
    idle_at_[page] = idle_.insert(idle_.end(), page);
    return;
  }
  if (is_kept_[index]) lose(page);
  free_.push_back(page);
  if (num_held_ > 0 || !idle_.empty() || max_pages_ > 0) return;
  pages_.slabs.clear();
  pages_.per_slab = pages_of_slab(page_bytes());
  holders_.clear();
  is_kept_.clear();
  free_.clear();
}

void PagePool::copy(int32_t from, int32_t to) { pages_.page(to).copy_(pages_.page(from)); }

}  // namespace danlu::infer
