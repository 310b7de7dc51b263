// weights/hf/renamed_source.h: a source's tensors under other names.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "weights/source_base.h"

namespace danlu::weights {

/// `names`: of a tensor here -> in `from`, which has them all.
class RenamedSource final : public SourceBase<std::string> {
 public:
  using Names = std::map<std::string, std::string>;

  RenamedSource(std::shared_ptr<const TensorSource> from, const Names& names)
      : from_(std::move(from)) {
    std::vector<std::pair<TensorInfo, std::string>> tensors;
    for (const auto& [name, in_file] : names) {
      TensorInfo info = *from_->find(in_file);
      info.name = name;
      tensors.emplace_back(std::move(info), in_file);
    }
    set_tensors(std::move(tensors));
    metadata_ = from_->metadata();
  }
  void read(const std::string& name, std::span<std::byte> out) const override {
    from_->read(in_file(name), out);
  }
  void read_range(const std::string& name, int64_t begin, int64_t end,
                  std::span<std::byte> out) const override {
    from_->read_range(in_file(name), begin, end, out);
  }
  void read_rect(const std::string& name, const Rect& rect, std::byte* out,
                 int64_t out_stride) const override {
    from_->read_rect(in_file(name), rect, out, out_stride);
  }
  std::span<const std::byte> mapped(const std::string& name) const override {
    return from_->mapped(in_file(name));
  }
  Storage storage(const std::string& name) const override { return from_->storage(in_file(name)); }
  std::optional<Nf4Form> nf4_form(const std::string& name) const override {
    return from_->nf4_form(in_file(name));
  }
  Nf4Codes read_nf4(const std::string& name) const override {
    return from_->read_nf4(in_file(name));
  }
  std::filesystem::path file_of(const std::string& name) const override {
    return from_->file_of(in_file(name));
  }
  std::vector<std::filesystem::path> files() const override { return from_->files(); }
  void forget() const override { from_->forget(); }

 private:
  const std::string& in_file(const std::string& name) const {
    return locations_[index_of(name, from_->tensors().empty()
                                         ? std::filesystem::path()
                                         : from_->file_of(from_->tensors().front().name))];
  }
  std::shared_ptr<const TensorSource> from_;
};

}  // namespace danlu::weights
