#include "models/tensor_io.h"

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/nonzero.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>

#include "base/error.h"
#include "base/finite.h"
#include "device/dtype.h"

namespace danlu::models {
namespace tensor_io_detail {

/// Elements looked at and cast in one go.
constexpr int64_t kPieceElements = int64_t{1} << 22;

std::string shortened(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < std::min<size_t>(names.size(), 5); ++i) text += (i ? ", " : "") + names[i];
  if (names.size() > 5) text += tr(", … ({} in all)", names.size());
  return text;
}

}  // namespace tensor_io_detail

bool all_finite(const at::Tensor& tensor) {
  const at::NoGradGuard no_grad;
  if (!tensor.device().is_cpu() || !tensor.is_contiguous())
    return at::isfinite(tensor).all().item<bool>();
  const DType dtype = device::dtype_of(tensor.scalar_type());
  const auto* bytes = static_cast<const std::byte*>(tensor.data_ptr());
  const auto item = static_cast<int64_t>(dtype_size_bytes(dtype));
  std::atomic<bool> finite = true;
  at::parallel_for(0, tensor.numel(), tensor_io_detail::kPieceElements,
                   [&](int64_t begin, int64_t end) {
                     const auto count = static_cast<size_t>(end - begin);
                     if (first_non_finite(bytes + begin * item, dtype, count) < count)
                       finite = false;
                   });
  return finite;
}

void refuse_non_finite(const at::Tensor& piece, int64_t first, const std::string& name,
                       const std::string& what, const std::string& hint) {
  if (all_finite(piece)) return;
  const at::Tensor flat = piece.detach().flatten();
  const int64_t index = at::nonzero(at::isfinite(flat).logical_not())[0][0].item<int64_t>();
  throw ModelError(tr("[weights] {} holds {:g} at element {} {}", name, flat[index].item<double>(),
                      first + index, what),
                   hint);
}

void refuse_overflow(const at::Tensor& cast, int64_t first, const std::string& name) {
  const bool half = cast.scalar_type() == at::kHalf;
  refuse_non_finite(
      cast, first, name,
      tr("after the cast to {}",
         half ? "fp16 (larger than 65504)" : dtype_name(device::dtype_of(cast.scalar_type()))),
      half ? tr("use bf16 or fp32") : tr("use fp32"));
}

at::Tensor read_tensor(const weights::TensorSource& source, const std::string& name) {
  const weights::TensorInfo* info = source.find(name);
  if (!info) throw ModelError(tr("[weights] there is no tensor '{}'", name));
  at::Tensor tensor =
      at::empty(info->shape, at::TensorOptions(device::scalar_type_of(info->dtype)));
  source.read(name, {static_cast<std::byte*>(tensor.data_ptr()), info->size_bytes()});
  return tensor;
}

void read_into(const weights::TensorSource& source, const std::string& name, at::Tensor target) {
  using namespace tensor_io_detail;
  const at::NoGradGuard no_grad;
  const weights::TensorInfo* info = source.find(name);
  if (!info) throw ModelError(tr("[weights] there is no tensor '{}'", name));
  if (at::IntArrayRef(info->shape) != target.sizes()) {
    throw ModelError(tr("[weights] {} is {} in {}, but must be {}", name, shape_text(info->shape),
                        source.file_of(name).string(), shape_text(target.sizes().vec())));
  }
  const at::Tensor flat = target.view({-1});
  const int64_t total = flat.numel();
  const std::string file = "in " + source.file_of(name).string();
  at::Tensor buffer = at::empty({std::min(total, kPieceElements)},
                                at::TensorOptions(device::scalar_type_of(info->dtype)));
  for (int64_t begin = 0; begin < total; begin += kPieceElements) {
    const int64_t count = std::min(kPieceElements, total - begin);
    const at::Tensor piece = buffer.narrow(0, 0, count);
    source.read_range(name, begin, begin + count,
                      {static_cast<std::byte*>(buffer.data_ptr()),
                       static_cast<size_t>(count) * dtype_size_bytes(info->dtype)});
    refuse_non_finite(piece, begin, name, file);
    const at::Tensor part = flat.narrow(0, begin, count);
    part.copy_(piece);
    const DType kept = device::dtype_of(target.scalar_type());
    if (is_floating(info->dtype) && largest_finite(kept) < largest_finite(info->dtype))
      refuse_overflow(part, begin, name);
  }
}

void refuse_tensor_lists(const std::string& where, const std::vector<std::string>& missing,
                         const std::vector<std::string>& unknown,
                         const std::vector<std::string>& other, const std::string& hint) {
  if (missing.empty() && unknown.empty() && other.empty()) return;
  std::string text = "[" + where + "]";
  const char* separator = " ";
  const auto add = [&](const char* title, const std::vector<std::string>& names) {
    if (names.empty()) return;
    text += separator + std::string(title) + tensor_io_detail::shortened(names);
    separator = "; ";
  };
  add("missing: ", missing);
  add("unknown: ", unknown);
  add("", other);
  throw ModelError(text, hint);
}

at::Tensor normal_values(const std::vector<int64_t>& shape, double deviation, uint64_t seed) {
  const at::NoGradGuard no_grad;
  at::Generator generator = at::globalContext().defaultGenerator(at::kCPU).clone();
  generator.set_current_seed(seed);
  return at::empty(shape, at::TensorOptions(at::kFloat)).normal_(0.0, deviation, generator);
}

void write_tensors(const std::filesystem::path& directory, const std::vector<NamedTensor>& tensors,
                   DType dtype, const std::string& base_name) {
  const at::NoGradGuard no_grad;
  std::vector<weights::TensorInfo> infos;
  for (const NamedTensor& named : tensors)
    infos.push_back({named.name, dtype, named.tensor.sizes().vec()});
  at::Tensor held;
  const auto bytes_of = [&](size_t index) -> std::span<const std::byte> {
    held = tensors[index].tensor.detach().to(at::kCPU, device::scalar_type_of(dtype)).contiguous();
    if (tensors[index].tensor.scalar_type() == held.scalar_type()) {
      refuse_non_finite(held, 0, tensors[index].name, "and is not saved");
    } else {
      refuse_overflow(held, 0, tensors[index].name);
    }
    return {static_cast<const std::byte*>(held.data_ptr()), infos[index].size_bytes()};
  };
  weights::SaveOptions options;
  options.base_name = base_name;
  weights::save_safetensors(directory, infos, bytes_of, options);
}

std::string torch_dtype_name(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "float32";
    case DType::kF16:
      return "float16";
    case DType::kBF16:
      return "bfloat16";
    case DType::kF64:
      return "float64";
    default:
      throw UsageError(
          tr("[weights] models are saved in fp32, bf16, fp16 or fp64, not {}", dtype_name(dtype)));
  }
}

}  // namespace danlu::models
