#include "optim/grad_buffer.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <map>
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
      throw InternalError("[grad_buffer] parameter " + parameter.name() + " is not contiguous");
    sizes.push_back(parameter.tensor.numel());
  }
  return sizes;
}

}  // namespace grad_buffer_detail

GradBuffer::GradBuffer(std::vector<Parameter> parameters, const parallel::Mesh& mesh)
    : parameters_(std::move(parameters)),
      mesh_(mesh),
      layout_(grad_buffer_detail::sizes_of(parameters_)) {
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

std::vector<GradBuffer::Span> GradBuffer::spans_of(size_t index) const {
  std::vector<Span> spans;
  int64_t offset = layout_.offset(static_cast<int64_t>(index));
  for (const parallel::Piece& piece : parameters_[index].pieces) {
    const int64_t size = piece.rect.rows * piece.rect.cols;
    spans.push_back({offset, size, piece.copies});
    offset += size;
  }
  return spans;
}

void GradBuffer::reduce() {
  const at::NoGradGuard no_grad;
  sum_copies();
  if (mesh_.data().is_alone()) return;
  // An exchange needs as much memory again as what is exchanged.
  constexpr int64_t kSlice = int64_t{16} << 20;
  for (int64_t at = 0; at < flat_.numel(); at += kSlice) {
    at::Tensor slice = flat_.narrow(0, at, std::min(kSlice, flat_.numel() - at));
    mesh_.data().all_reduce_sum(slice);
  }
}

void GradBuffer::sum_copies() {
  // Few and small: norms, adapters, shared key heads. One exchange for each size of group.
  std::map<int64_t, std::vector<at::Tensor>> by_copies;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (!parameters_[i].sums_over_copies) continue;
    for (const Span& span : spans_of(i)) {
      if (span.copies > 1)
        by_copies[span.copies].push_back(flat_.narrow(0, span.offset, span.size));
    }
  }
  for (auto& [copies, parts] : by_copies) {
    at::Tensor joined = at::cat(parts);
    mesh_.copies(copies).all_reduce_sum(joined);
    int64_t at = 0;
    for (at::Tensor& part : parts) {
      part.copy_(joined.narrow(0, at, part.numel()));
      at += part.numel();
    }
  }
}

double GradBuffer::norm(double scale) const {
  std::vector<Span> spans;
  std::vector<int64_t> sizes;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    for (const Span& span : spans_of(i)) {
      spans.push_back(span);
      sizes.push_back(span.size);
    }
  }
  const FlatLayout pieces(sizes);  // where chunks end
  std::vector<double> sums(pieces.chunks().size());
  if (flat_.device().is_cpu()) {
    const float* values = flat_.data_ptr<float>();
    for_each_chunk(pieces, [&](size_t i) {
      const Chunk& chunk = pieces.chunks()[i];
      sums[i] =
          sum_of_squares(values + spans[static_cast<size_t>(chunk.index)].offset + chunk.begin,
                         chunk.end - chunk.begin);
    });
  } else {
    for (size_t i = 0; i < sums.size(); ++i) {
      const Chunk& chunk = pieces.chunks()[i];
      sums[i] = flat_
                    .narrow(0, spans[static_cast<size_t>(chunk.index)].offset + chunk.begin,
                            chunk.end - chunk.begin)
                    .to(at::kDouble)
                    .square()
                    .sum()
                    .item<double>();
    }
  }
  double total = 0;
  for (size_t i = 0; i < sums.size(); ++i) {
    const int64_t copies = spans[static_cast<size_t>(pieces.chunks()[i].index)].copies;
    total += sums[i] / static_cast<double>(copies);
  }
  at::Tensor everywhere = at::full({1}, total, at::kDouble);
  mesh_.tensor().all_reduce_sum(everywhere);
  return std::sqrt(everywhere.item<double>()) * scale;
}

std::vector<std::string> GradBuffer::non_finite(size_t limit) const {
  std::vector<std::string> names;
  for (size_t i = 0; i < slices_.size() && names.size() < limit; ++i) {
    if (!slices_[i].isfinite().all().item<bool>()) names.push_back(parameters_[i].name());
  }
  return names;
}

}  // namespace danlu::optim
