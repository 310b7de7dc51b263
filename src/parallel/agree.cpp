#include "parallel/agree.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <cstring>

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

}  // namespace danlu::parallel
