#include "optim/grad_buffer.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/dtype.h"
#include "base/error.h"
#include "optim/kernels.h"

namespace danlu::optim {
namespace grad_buffer_detail {

/// to[i] += from[i], bf16 or f16.
void add_half(float* to, const at::Tensor& grad, int64_t begin, int64_t count) {
  const auto* from = static_cast<const uint16_t*>(grad.data_ptr()) + begin;
  if (grad.scalar_type() == at::kBFloat16) {
    add_bf16(to, from, count);
    return;
  }
  constexpr int64_t kPiece = 1024;
  float wide[kPiece];
  for (int64_t i = 0; i < count; i += kPiece) {
    const int64_t some = std::min(kPiece, count - i);
    cast_elements(from + i, DType::kF16, wide, DType::kF32, static_cast<size_t>(some));
    for (int64_t j = 0; j < some; ++j) to[i + j] += wide[j];
  }
}

std::vector<int64_t> sizes_of(const std::vector<Parameter>& parameters) {
  std::vector<int64_t> sizes;
  for (const Parameter& parameter : parameters) {
    if (!parameter.tensor.is_contiguous())
      throw InternalError("[grad_buffer] parameter " + parameter.name + " is not contiguous");
    sizes.push_back(parameter.tensor.numel());
  }
  return sizes;
}

}  // namespace grad_buffer_detail

GradBuffer::GradBuffer(std::vector<Parameter> parameters)
    : parameters_(std::move(parameters)), layout_(grad_buffer_detail::sizes_of(parameters_)) {
  const auto device =
      parameters_.empty() ? at::Device(at::kCPU) : parameters_.front().tensor.device();
  flat_ = at::zeros({layout_.total()}, at::TensorOptions(at::kFloat).device(device));
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const auto& tensor = parameters_[i].tensor;
    const int64_t index = static_cast<int64_t>(i);
    slices_.push_back(
        flat_.narrow(0, layout_.offset(index), layout_.size(index)).view(tensor.sizes()));
    tensor.mutable_grad() = tensor.scalar_type() == at::kFloat ? slices_.back() : at::Tensor();
  }
}

void GradBuffer::zero() { flat_.zero_(); }

void GradBuffer::collect() {
  at::NoGradGuard no_grad;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    at::Tensor& grad = parameters_[i].tensor.mutable_grad();
    if (grad.defined() && grad.is_alias_of(flat_)) continue;
    if (grad.defined()) {
      const at::ScalarType type = grad.scalar_type();
      const bool plain_half = (type == at::kBFloat16 || type == at::kHalf) &&
                              grad.device().is_cpu() && grad.is_contiguous();
      if (plain_half) {
        float* to = slices_[i].data_ptr<float>();
        const FlatLayout pieces({grad.numel()});
        for_each_chunk(pieces, [&](size_t c) {
          const Chunk& chunk = pieces.chunks()[c];
          grad_buffer_detail::add_half(to + chunk.begin, grad, chunk.begin,
                                       chunk.end - chunk.begin);
        });
      } else {
        slices_[i].add_(grad);
      }
    }
    grad = parameters_[i].tensor.scalar_type() == at::kFloat ? slices_[i] : at::Tensor();
  }
}

double GradBuffer::norm(double scale) const {
  if (layout_.total() == 0) return 0;
  if (!flat_.device().is_cpu())
    return flat_.to(at::kDouble).square().sum().sqrt().item<double>() * scale;
  std::vector<double> sums(layout_.chunks().size());
  const float* values = flat_.data_ptr<float>();
  for_each_chunk(layout_, [&](size_t i) {
    const Chunk& chunk = layout_.chunks()[i];
    sums[i] = sum_of_squares(values + chunk.offset + chunk.begin, chunk.end - chunk.begin);
  });
  double total = 0;
  for (const double sum : sums) total += sum;
  return std::sqrt(total) * scale;
}

std::vector<std::string> GradBuffer::non_finite(size_t limit) const {
  std::vector<std::string> names;
  for (size_t i = 0; i < slices_.size() && names.size() < limit; ++i) {
    if (!slices_[i].isfinite().all().item<bool>()) names.push_back(parameters_[i].name);
  }
  return names;
}

}  // namespace danlu::optim
