#include "weights/layout_source.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "base/error.h"
#include "weights/source_base.h"

namespace danlu::weights {
namespace {

/// Where a rectangle of a global tensor is to be found.
struct Home {
  size_t tensor, section;
  const Piece* piece;
};

Rect overlap(const Rect& a, const Rect& b) {
  const int64_t row = std::max(a.row, b.row), col = std::max(a.col, b.col);
  return {row, std::min(a.row + a.rows, b.row + b.rows) - row, col,
          std::min(a.col + a.cols, b.col + b.cols) - col};
}

/// Reads `part` of a piece's global rectangle from its stored tensor.
void read_part(const StoredTensor& stored, const Section& section, const Piece& piece,
               const TensorSource& file, const Rect& part, std::byte* out, int64_t out_stride) {
  const std::string& name = stored.info.name;
  const size_t item = dtype_size_bytes(stored.info.dtype);
  const int64_t down = part.row - piece.of.row, right = part.col - piece.of.col;
  const Rect in_section = piece.transposed
                              ? Rect{piece.row + right, part.cols, piece.col + down, part.rows}
                              : Rect{piece.row + down, part.rows, piece.col + right, part.cols};
  const auto read_rows = [&](std::byte* to, int64_t stride) {
    if (in_section.cols == section.cols && stride == section.cols) {
      const int64_t begin = section.first + in_section.row * section.cols;
      const int64_t count = in_section.rows * section.cols;
      return file.read_range(name, begin, begin + count, {to, static_cast<size_t>(count) * item});
    }
    const std::span<const std::byte> bytes = file.mapped(name);
    const size_t row_bytes = static_cast<size_t>(in_section.cols) * item;
    for (int64_t r = 0; r < in_section.rows; ++r) {
      const int64_t begin = section.first + (in_section.row + r) * section.cols + in_section.col;
      std::byte* at = to + static_cast<size_t>(r * stride) * item;
      if (bytes.empty()) {
        file.read_range(name, begin, begin + in_section.cols, {at, row_bytes});
      } else {
        std::memcpy(at, bytes.data() + static_cast<size_t>(begin) * item, row_bytes);
      }
    }
  };
  if (!piece.transposed) return read_rows(out, out_stride);
  std::vector<std::byte> turned(static_cast<size_t>(in_section.rows * in_section.cols) * item);
  read_rows(turned.data(), in_section.cols);
  for (int64_t r = 0; r < part.rows; ++r) {
    for (int64_t c = 0; c < part.cols; ++c) {
      std::memcpy(out + static_cast<size_t>(r * out_stride + c) * item,
                  turned.data() + static_cast<size_t>(c * in_section.cols + r) * item, item);
    }
  }
}

class LayoutSource final : public SourceBase<std::vector<Home>> {
 public:
  LayoutSource(Layout layout, std::vector<std::shared_ptr<const TensorSource>> files)
      : layout_(std::move(layout)), files_(std::move(files)) {
    check_files();
    std::vector<std::pair<TensorInfo, std::vector<Home>>> globals;
    for (const TensorInfo& info : layout_.globals) globals.emplace_back(info, std::vector<Home>{});
    for (size_t t = 0; t < layout_.tensors.size(); ++t) {
      const StoredTensor& stored = layout_.tensors[t];
      for (size_t s = 0; s < stored.sections.size(); ++s) {
        for (const Piece& piece : stored.sections[s].pieces) {
          if (piece.replica) continue;
          auto& [info, homes] = globals[piece.global];
          if (!homes.empty() && info.dtype != stored.info.dtype) mixed_dtypes(info, stored);
          info.dtype = stored.info.dtype;
          homes.push_back({t, s, &piece});
        }
      }
    }
    for (auto& [info, homes] : globals) {
      std::sort(homes.begin(), homes.end(),
                [](const Home& a, const Home& b) { return a.piece->of.row < b.piece->of.row; });
    }
    set_tensors(std::move(globals));
  }

  void read(const std::string& name, std::span<std::byte> out) const override {
    const TensorInfo& info = infos_[index_of(name)];
    read_range(name, 0, info.num_elements(), out);
  }
  void read_range(const std::string& name, int64_t begin, int64_t end,
                  std::span<std::byte> out) const override {
    const TensorInfo& info = infos_[index_of(name)];
    check_range(info, begin, end, out.size());
    const int64_t cols = matrix_of(info.shape).cols;
    const size_t item = dtype_size_bytes(info.dtype);
    for_each_rect(cols, begin, end, [&](const Rect& rect, int64_t before) {
      read_rect(name, rect, out.data() + static_cast<size_t>(before) * item, rect.cols);
    });
  }
  void read_rect(const std::string& name, const Rect& rect, std::byte* out,
                 int64_t out_stride) const override {
    const size_t index = index_of(name);
    check_rect(infos_[index], rect);
    const size_t item = dtype_size_bytes(infos_[index].dtype);
    for (const Home& home : locations_[index]) {
      const Rect part = overlap(rect, home.piece->of);
      if (part.rows <= 0 || part.cols <= 0) continue;
      const StoredTensor& stored = layout_.tensors[home.tensor];
      std::byte* to =
          out +
          static_cast<size_t>((part.row - rect.row) * out_stride + part.col - rect.col) * item;
      read_part(stored, stored.sections[home.section], *home.piece, *files_[stored.file], part, to,
                out_stride);
    }
  }
  /// Contiguous only where a global tensor lies whole in one place.
  std::span<const std::byte> mapped(const std::string& name) const override {
    const size_t index = index_of(name);
    const auto& homes = locations_[index];
    if (homes.size() != 1 || homes[0].piece->transposed) return {};
    const StoredTensor& stored = layout_.tensors[homes[0].tensor];
    const Section& section = stored.sections[homes[0].section];
    if (homes[0].piece->of.cols != section.cols) return {};
    const auto bytes = files_[stored.file]->mapped(stored.info.name);
    const size_t item = dtype_size_bytes(stored.info.dtype);
    const int64_t begin = section.first + homes[0].piece->row * section.cols;
    return bytes.empty()
               ? bytes
               : bytes.subspan(static_cast<size_t>(begin) * item, infos_[index].size_bytes());
  }
  Storage storage(const std::string& name) const override {
    Storage all;
    std::set<std::string> types;
    for (const Home& home : locations_[index_of(name)]) {
      const StoredTensor& stored = layout_.tensors[home.tensor];
      const Storage whole = files_[stored.file]->storage(stored.info.name);
      types.insert(whole.type);
      // A product of bytes and elements may not fit 64 bits; the share's rounding is far below one.
      const double share = static_cast<double>(home.piece->of.rows * home.piece->of.cols) /
                           static_cast<double>(stored.info.num_elements());
      all.size_bytes +=
          static_cast<uint64_t>(std::llround(share * static_cast<double>(whole.size_bytes)));
    }
    all.type = fmt::format("{}", fmt::join(types, ", "));
    return all;
  }
  std::filesystem::path file_of(const std::string& name) const override {
    const StoredTensor& stored = layout_.tensors[locations_[index_of(name)].front().tensor];
    return files_[stored.file]->file_of(stored.info.name);
  }
  std::vector<std::filesystem::path> files() const override {
    std::vector<std::filesystem::path> all;
    for (const auto& file : files_) {
      if (!file) continue;
      const auto its = file->files();
      all.insert(all.end(), its.begin(), its.end());
    }
    std::sort(all.begin(), all.end());
    return all;
  }
  void forget() const override {
    for (const auto& file : files_) {
      if (file) file->forget();
    }
  }

 private:
  size_t index_of(const std::string& name) const {
    return SourceBase::index_of(name, layout_.files.empty() ? "" : layout_.files.front());
  }
  [[noreturn]] void mixed_dtypes(const TensorInfo& info, const StoredTensor& stored) const {
    throw ModelError(tr("{}: {} is {}, another part of {} is {}",
                        files_[stored.file]->file_of(stored.info.name).string(), stored.info.name,
                        dtype_name(stored.info.dtype), info.name, dtype_name(info.dtype)));
  }
  /// Every stored tensor is there in the shape the layout gives; its dtype is the file's.
  void check_files() {
    for (StoredTensor& stored : layout_.tensors) {
      const TensorSource& file = *files_[stored.file];
      const TensorInfo* info = file.find(stored.info.name);
      if (!info) no_such_tensor(stored.info.name, layout_.files[stored.file], file.tensors());
      if (info->shape != stored.info.shape) {
        throw ModelError(tr("{}: {} has shape {}, this model at this split needs {}",
                            file.file_of(stored.info.name).string(), stored.info.name,
                            shape_text(info->shape), shape_text(stored.info.shape)));
      }
      stored.info.dtype = info->dtype;
    }
  }

  Layout layout_;
  std::vector<std::shared_ptr<const TensorSource>> files_;
};

}  // namespace

std::shared_ptr<const TensorSource> open_layout(
    Layout layout, std::vector<std::shared_ptr<const TensorSource>> files) {
  return std::make_shared<LayoutSource>(std::move(layout), std::move(files));
}

std::vector<std::string> differing_replicas(
    const Layout& layout, const std::vector<std::shared_ptr<const TensorSource>>& files,
    const TensorSource& globals, size_t limit) {
  std::vector<std::string> lines;
  for (const StoredTensor& stored : layout.tensors) {
    const TensorSource& file = *files[stored.file];
    const size_t item = dtype_size_bytes(file.find(stored.info.name)->dtype);
    for (const Section& section : stored.sections) {
      for (const Piece& piece : section.pieces) {
        const std::string& name = layout.globals[piece.global].name;
        const Rect all = matrix_of(layout.globals[piece.global].shape);
        const bool is_copy = piece.replica && (piece.of.rows > 1 || all.rows == 1);
        if (!is_copy || piece.transposed || globals.find(name)->dtype != stored.info.dtype)
          continue;
        // In bands: a copy may be an embedding of gigabytes.
        const int64_t step =
            std::max<int64_t>(1, (8 << 20) / (piece.of.cols * static_cast<int64_t>(item)));
        for (int64_t row = 0; row < piece.of.rows; row += step) {
          const Rect part{piece.of.row + row, std::min(step, piece.of.rows - row), piece.of.col,
                          piece.of.cols};
          const size_t bytes = static_cast<size_t>(part.rows * part.cols) * item;
          std::vector<std::byte> here(bytes), there(bytes);
          read_part(stored, section, piece, file, part, here.data(), part.cols);
          globals.read_rect(name, part, there.data(), part.cols);
          if (here == there) continue;
          const std::string line =
              tr("{}: {} differs from its copy in {}", file.file_of(stored.info.name).string(),
                 stored.info.name, globals.file_of(name).string());
          // What a file holds once may be the A of several modules.
          if (std::find(lines.begin(), lines.end(), line) == lines.end()) lines.push_back(line);
          if (lines.size() >= limit) return lines;
          break;
        }
      }
    }
  }
  return lines;
}

}  // namespace danlu::weights
