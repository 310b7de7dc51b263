// weights/source_base.h: what every TensorSource over files shares: a sorted list, look-up and
// range checks.
#pragma once
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "weights/tensor_source.h"

namespace danlu::weights {

/// "[2, 3]"; a scalar is "[]".
std::string shape_text(const std::vector<int64_t>& shape);

/// Keeps tensors sorted by name beside a record of where each lies; the formats add reading.
template <typename Location>
class SourceBase : public TensorSource {
 public:
  const std::vector<TensorInfo>& tensors() const override { return infos_; }
  const Json& metadata() const override { return metadata_; }

 protected:
  /// REQUIRES: names are distinct.
  void set_tensors(std::vector<std::pair<TensorInfo, Location>> tensors) {
    std::sort(tensors.begin(), tensors.end(),
              [](const auto& a, const auto& b) { return a.first.name < b.first.name; });
    for (auto& [info, location] : tensors) {
      infos_.push_back(std::move(info));
      locations_.push_back(std::move(location));
    }
  }
  /// Index into infos_/locations_. Errors: ModelError if there is no such tensor.
  size_t index_of(const std::string& name, const std::filesystem::path& file) const;

  std::vector<TensorInfo> infos_;
  std::vector<Location> locations_;
  Json metadata_ = Json::object();
};

/// Errors: ModelError "<file>: no tensor <name>" with the nearest name as hint.
[[noreturn]] void no_such_tensor(const std::string& name, const std::filesystem::path& file,
                                 const std::vector<TensorInfo>& tensors);

/// Errors: InternalError unless 0 <= begin <= end <= elements and out_bytes is exactly their size.
void check_range(const TensorInfo& info, int64_t begin, int64_t end, size_t out_bytes);

/// Errors: InternalError if the rectangle reaches outside the tensor's matrix.
void check_rect(const TensorInfo& info, const Rect& rect);

/// Elements [begin, end) of a row-major matrix of `cols` columns as rectangles, in order: the tail
/// of a row, whole rows, the head of a row. visit(rect, elements before it).
template <typename Visit>
void for_each_rect(int64_t cols, int64_t begin, int64_t end, const Visit& visit) {
  for (int64_t at = begin; at < end;) {
    const int64_t row = at / cols, col = at % cols;
    const bool whole = col == 0 && end - at >= cols;
    const Rect rect = whole ? Rect{row, (end - at) / cols, 0, cols}
                            : Rect{row, 1, col, std::min(end - at, cols - col)};
    visit(rect, at - begin);
    at += rect.rows * rect.cols;
  }
}

template <typename Location>
size_t SourceBase<Location>::index_of(const std::string& name,
                                      const std::filesystem::path& file) const {
  const TensorInfo* info = find(name);
  if (!info) no_such_tensor(name, file, infos_);
  return static_cast<size_t>(info - infos_.data());
}

/// A source that is one mapped file.
template <typename Location>
class FileSource : public SourceBase<Location> {
 public:
  explicit FileSource(const std::filesystem::path& path) : file_(path) {}
  void read(const std::string& name, std::span<std::byte> out) const override {
    this->read_range(name, 0, this->infos_[index_of(name)].num_elements(), out);
  }
  std::filesystem::path file_of(const std::string& name) const override {
    index_of(name);
    return file_.path();
  }
  void forget() const override { file_.forget(); }

 protected:
  size_t index_of(const std::string& name) const {
    return SourceBase<Location>::index_of(name, file_.path());
  }
  MappedFile file_;
};

}  // namespace danlu::weights
