#include "parallel/agree.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <cstring>
#include <exception>

#include "base/error.h"

namespace danlu::parallel {

std::string text_from(const Group& group, int64_t root, const std::string& text) {
  at::Tensor size = at::full({1}, static_cast<int64_t>(text.size()), at::kLong);
  group.broadcast(size, root);
  at::Tensor bytes = at::empty({std::max<int64_t>(1, size.item<int64_t>())}, at::kByte);
  if (group.rank() == root) std::memcpy(bytes.data_ptr(), text.data(), text.size());
  group.broadcast(bytes, root);
  return {static_cast<const char*>(bytes.data_ptr()), static_cast<size_t>(size.item<int64_t>())};
}

int64_t largest_of(const Group& group, int64_t number) {
  at::Tensor largest = at::full({1}, number, at::kLong);
  group.all_reduce_max(largest);
  return largest.item<int64_t>();
}

void together(const Group& group, const std::function<void()>& body) {
  std::exception_ptr own;
  std::string what;
  try {
    body();
  } catch (const CommError&) {
    throw;  // the others are not there to be told
  } catch (const std::exception& error) {
    own = std::current_exception();
    what = error.what();
  }
  const int64_t ranks = group.size();
  const int64_t first = ranks - largest_of(group, own ? ranks - group.rank() : 0);
  if (first < ranks) what = text_from(group, first, what);
  if (own) std::rethrow_exception(own);
  if (first < ranks) throw IoError(tr("rank {}: {}", first, what));
}

}  // namespace danlu::parallel
