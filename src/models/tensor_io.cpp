#include "models/tensor_io.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/nonzero.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/finite.h"
#include "device/dtype.h"
#include "ops/optimizer.h"
#include "parallel/whole_tensors.h"

namespace danlu::models {
namespace {

/// Elements looked at and cast in one go.
constexpr int64_t kPieceElements = int64_t{1} << 22;

std::string shortened(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < std::min<size_t>(names.size(), 5); ++i) text += (i ? ", " : "") + names[i];
  if (names.size() > 5) text += tr(", … ({} in all)", names.size());
  return text;
}

}  // namespace

bool all_finite(const at::Tensor& tensor) {
  const at::NoGradGuard no_grad;
  return ops::all_finite(tensor);
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

namespace {

/// A rectangle of a tensor in a file, read and looked at a few rows at a time.
class RectReader {
 public:
  RectReader(const weights::TensorSource& source, const weights::TensorInfo& info)
      : source_(source),
        info_(info),
        columns_(arch::matrix_of(info.shape).cols),
        file_(tr("in {}", source.file_of(info.name).string())) {}

  /// Fills `target` [rect.rows, rect.cols].
  void read(const arch::Rect& rect, const at::Tensor& target) {
    if (rect.rows * rect.cols == 0) return;
    // A row larger than a piece is cut as well.
    const int64_t wide = std::min(rect.cols, kPieceElements);
    const int64_t high = std::max<int64_t>(1, kPieceElements / wide);
    for (int64_t row = 0; row < rect.rows; row += high) {
      for (int64_t col = 0; col < rect.cols; col += wide) {
        const arch::Rect piece{rect.row + row, std::min(high, rect.rows - row), rect.col + col,
                               std::min(wide, rect.cols - col)};
        read_piece(piece, target.narrow(0, row, piece.rows).narrow(1, col, piece.cols));
      }
    }
  }

 private:
  void read_piece(const arch::Rect& piece, const at::Tensor& target) {
    const int64_t count = piece.rows * piece.cols;
    if (!buffer_.defined() || buffer_.numel() < count)
      buffer_ = at::empty({count}, at::TensorOptions(device::scalar_type_of(info_.dtype)));
    const at::Tensor read = buffer_.narrow(0, 0, count).view({piece.rows, piece.cols});
    source_.read_rect(info_.name, piece, static_cast<std::byte*>(buffer_.data_ptr()), piece.cols);
    require_finite(read, piece, [&](const at::Tensor& bad, int64_t place) {
      refuse_non_finite(bad, place, info_.name, file_);
    });
    target.copy_(read);
    const DType kept = device::dtype_of(target.scalar_type());
    if (!is_floating(info_.dtype) || largest_finite(kept) >= largest_finite(info_.dtype)) return;
    require_finite(target, piece, [&](const at::Tensor& bad, int64_t place) {
      refuse_overflow(bad, place, info_.name);
    });
  }

  /// Calls refuse(first bad element, its number in the whole tensor) if there is one.
  template <typename Refuse>
  void require_finite(const at::Tensor& values, const arch::Rect& piece, const Refuse& refuse) {
    if (all_finite(values)) return;
    const at::Tensor flat = values.flatten();
    const int64_t i = at::nonzero(at::isfinite(flat).logical_not())[0][0].item<int64_t>();
    const int64_t row = piece.row + i / piece.cols, col = piece.col + i % piece.cols;
    refuse(flat.narrow(0, i, 1), row * columns_ + col);
  }

  const weights::TensorSource& source_;
  const weights::TensorInfo& info_;
  const int64_t columns_;  ///< of the whole matrix
  const std::string file_;
  at::Tensor buffer_;
};

void read_pieces(const weights::TensorSource& source, const std::string& name,
                 const Parameter& parameter, const at::Tensor& target) {
  const at::NoGradGuard no_grad;
  const weights::TensorInfo* info = source.find(name);
  if (!info) throw ModelError(tr("[weights] there is no tensor '{}'", name));
  if (info->shape != parameter.spec.shape) {
    throw ModelError(tr("[weights] {} is {} in {}, but must be {}", name, shape_text(info->shape),
                        source.file_of(name).string(), shape_text(parameter.spec.shape)));
  }
  if (target.numel() == 0) return;
  RectReader reader(source, *info);
  const int64_t rows = target.dim() == 0 ? 1 : target.size(0);
  parallel::for_each_rect(parameter, target.view({rows, -1}),
                          [&](const parallel::HeldRect& held, const at::Tensor& part) {
                            reader.read(held.rect, part);
                          });
}

}  // namespace

void read_into(const weights::TensorSource& source, const std::string& name,
               const Parameter& parameter) {
  read_pieces(source, name, parameter, parameter.tensor.detach());
}

at::Tensor read_as(const weights::TensorSource& source, const std::string& name,
                   const Parameter& parameter) {
  const at::Tensor read =
      at::empty(parameter.tensor.sizes(), parameter.tensor.options().requires_grad(false));
  read_pieces(source, name, parameter, read);
  return read;
}

void refuse_tensor_lists(const std::string& where, const std::vector<std::string>& missing,
                         const std::vector<std::string>& unknown,
                         const std::vector<std::string>& other, const std::string& hint) {
  if (missing.empty() && unknown.empty() && other.empty()) return;
  std::string text = "[" + where + "]";
  const char* separator = " ";
  const auto add = [&](const char* title, const std::vector<std::string>& names) {
    if (names.empty()) return;
    text += separator + std::string(title) + shortened(names);
    separator = "; ";
  };
  add("missing: ", missing);
  add("unknown: ", unknown);
  add("", other);
  throw ModelError(text, hint);
}

at::Tensor normal_values(const std::vector<int64_t>& shape, double deviation, uint64_t seed) {
  const at::NoGradGuard no_grad;
  const at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  return at::empty(shape, at::TensorOptions(at::kFloat)).normal_(0.0, deviation, generator);
}

namespace {

/// Puts what a file holds together from whole tensors, a section at a time.
class SectionWriter {
 public:
  SectionWriter(const parallel::WholeTensors& wholes, const MoreTensors& more, DType dtype)
      : wholes_(wholes), more_(more), dtype_(dtype) {
    std::map<std::string, size_t> number_of;
    for (const parallel::WholeTensors::Description& tensor : wholes.all()) {
      number_of.emplace(tensor.name, infos_.size());
      const size_t begin = tensor.name.starts_with(more.left_out) ? more.left_out.size() : 0;
      add(tensor.name.substr(begin), tensor.shape, infos_.size());
    }
    const size_t own = infos_.size();
    for (const auto& [name, of] : more.copies) {
      const size_t number = number_of.at(of);
      add(name, std::vector<int64_t>(infos_[number].shape), number);
    }
    for (size_t i = 0; i < more.names.size(); ++i)
      add(more.names[i], more.source->find(more.names[i])->shape, own + i);
  }

  /// All tensors, in the order of their numbers.
  const std::vector<weights::TensorInfo>& infos() const { return infos_; }

  void write(const weights::Section& section, const weights::BytesSink& sink) const {
    const weights::Piece& first = section.pieces.front();
    const bool is_whole = section.pieces.size() == 1 && !first.transposed &&
                          first.of == weights::matrix_of(infos_[first.global].shape);
    at::Tensor all;
    if (is_whole) {
      all = cast(first.global);
    } else {
      const at::ScalarType type = device::scalar_type_of(infos_[first.global].dtype);
      all = at::empty({section.rows, section.cols}, at::TensorOptions(type));
      for (const weights::Piece& piece : section.pieces) {
        const at::Tensor part = cast(piece.global)
                                    .view({weights::matrix_of(infos_[piece.global].shape).rows, -1})
                                    .narrow(0, piece.of.row, piece.of.rows)
                                    .narrow(1, piece.of.col, piece.of.cols);
        all.narrow(0, piece.row, piece.stored_rows())
            .narrow(1, piece.col, piece.stored_cols())
            .copy_(piece.transposed ? part.t() : part);
      }
    }
    sink({static_cast<const std::byte*>(all.data_ptr()), all.nbytes()});
  }

 private:
  void add(const std::string& name, const std::vector<int64_t>& shape, size_t number) {
    infos_.push_back({name, more_.wide.count(name) ? DType::kF32 : dtype_, shape});
    numbers_.push_back(number);
  }

  at::Tensor cast(size_t index) const {
    const size_t own = wholes_.all().size(), number = numbers_[index];
    const at::Tensor whole = number < own ? wholes_.whole(number)
                                          : read_tensor(*more_.source, more_.names[number - own]);
    const weights::TensorInfo& info = infos_[index];
    const at::Tensor held = whole.to(at::kCPU, device::scalar_type_of(info.dtype)).contiguous();
    if (whole.scalar_type() == held.scalar_type()) {
      refuse_non_finite(held, 0, info.name, "and is not saved");
    } else {
      refuse_overflow(held, 0, info.name);
    }
    return held;
  }

  const parallel::WholeTensors& wholes_;
  const MoreTensors& more_;
  DType dtype_;
  std::vector<weights::TensorInfo> infos_;
  std::vector<size_t> numbers_;  ///< of each: its number among the model's own, or more
};

}  // namespace

void write_tensors(const std::filesystem::path& directory, const std::vector<Parameter>& parameters,
                   DType dtype, const std::string& base_name, const parallel::Mesh& mesh,
                   parallel::ParameterStore* store, const MoreTensors& more,
                   const StoredAs& stored_as) {
  const at::NoGradGuard no_grad;
  const parallel::WholeTensors wholes(mesh, parameters, store);
  if (!wholes.asks()) return wholes.serve();
  std::filesystem::create_directories(directory);
  const SectionWriter writer(wholes, more, dtype);
  const std::vector<weights::TensorInfo>& infos = writer.infos();
  std::vector<weights::StoredTensor> stored;
  if (stored_as) {
    stored = stored_as(infos);
  } else {
    for (size_t i = 0; i < infos.size(); ++i)
      stored.push_back(weights::whole_tensor(0, infos[i].name, i, infos[i]));
  }
  std::vector<weights::TensorInfo> in_files;
  for (const weights::StoredTensor& tensor : stored) in_files.push_back(tensor.info);
  weights::SaveOptions options;
  options.base_name = base_name;
  const weights::TensorParts give = [&](size_t index, const weights::BytesSink& sink) {
    for (const weights::Section& section : stored[index].sections) writer.write(section, sink);
  };
  weights::save_safetensors(directory, in_files, give, options);
}

}  // namespace danlu::models
