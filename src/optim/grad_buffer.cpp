#include "optim/grad_buffer.h"

#include <ATen/ATen.h>

#include <cmath>
#include <utility>

#include "base/error.h"
#include "optim/kernels.h"

namespace danlu::optim {
namespace grad_buffer_detail {

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
      const bool plain_bf16 =
          grad.scalar_type() == at::kBFloat16 && grad.device().is_cpu() && grad.is_contiguous();
      if (plain_bf16) {
        const auto* from = reinterpret_cast<const uint16_t*>(grad.data_ptr());
        float* to = slices_[i].data_ptr<float>();
        const FlatLayout pieces({grad.numel()});
        for_each_chunk(pieces, [&](size_t c) {
          const Chunk& chunk = pieces.chunks()[c];
          add_bf16(to + chunk.begin, from + chunk.begin, chunk.end - chunk.begin);
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
