#include "weights/lora/lora_source.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "weights/cast.h"
#include "weights/hf/save_model.h"
#include "weights/lora/lora_plan.h"
#include "weights/lora/low_rank_update.h"
#include "weights/source_base.h"

namespace danlu::weights {
namespace {

/// Where a tensor of the merged model comes from.
struct Origin {
  const TensorSource* source;  ///< base or adapter
  std::string name;            ///< there
  std::shared_ptr<const LowRankUpdate> update;
  DType dtype;  ///< there
};

class MergedSource final : public SourceBase<Origin> {
 public:
  MergedSource(std::shared_ptr<const TensorSource> base,
               std::shared_ptr<const TensorSource> adapter, const MergePlan& plan,
               std::optional<DType> changed)
      : base_(std::move(base)), adapter_(std::move(adapter)) {
    std::map<std::string, std::pair<TensorInfo, Origin>> all;
    for (const TensorInfo& info : base_->tensors())
      all[info.name] = {info, {base_.get(), info.name, nullptr, info.dtype}};
    for (const MergedTensor& tensor : plan.tensors) {
      TensorInfo info = *base_->find(tensor.base);
      Origin origin{base_.get(), tensor.base, nullptr, info.dtype};
      if (tensor.update || !tensor.replaced_by.empty()) info.dtype = changed.value_or(info.dtype);
      if (tensor.update) {
        origin.update =
            std::make_shared<LowRankUpdate>(base_, adapter_, *tensor.update, info.dtype);
      } else if (!tensor.replaced_by.empty()) {
        origin = {adapter_.get(), tensor.replaced_by, nullptr,
                  adapter_->find(tensor.replaced_by)->dtype};
      }
      info.name = tensor.name;
      all[tensor.name] = {info, origin};
    }
    std::vector<std::pair<TensorInfo, Origin>> tensors;
    tensors.reserve(all.size());
    for (auto& [name, tensor] : all) tensors.push_back(std::move(tensor));
    set_tensors(std::move(tensors));
    metadata_ = base_->metadata();
  }

  void read(const std::string& name, std::span<std::byte> out) const override {
    read_range(name, 0, infos_[index_of(name)].num_elements(), out);
  }
  void read_range(const std::string& name, int64_t begin, int64_t end,
                  std::span<std::byte> out) const override {
    const size_t index = index_of(name);
    const TensorInfo& info = infos_[index];
    const Origin& origin = locations_[index];
    check_range(info, begin, end, out.size());
    if (origin.update) return read_rows(info, *origin.update, begin, end, out.data());
    if (origin.dtype == info.dtype) {
      return origin.source->read_range(origin.name, begin, end, out);
    }
    read_cast(info, origin, begin, end, out.data());
  }
  void read_rect(const std::string& name, const Rect& rect, std::byte* out,
                 int64_t out_stride) const override {
    const size_t index = index_of(name);
    const Origin& origin = locations_[index];
    if (origin.update) {
      check_rect(infos_[index], rect);
      return origin.update->read_rect(rect, out, out_stride);
    }
    if (origin.dtype != infos_[index].dtype)
      return TensorSource::read_rect(name, rect, out, out_stride);
    origin.source->read_rect(origin.name, rect, out, out_stride);
  }
  std::span<const std::byte> mapped(const std::string& name) const override {
    const size_t index = index_of(name);
    const Origin& origin = locations_[index];
    if (origin.update || origin.dtype != infos_[index].dtype) return {};
    return origin.source->mapped(origin.name);
  }
  std::filesystem::path file_of(const std::string& name) const override {
    const Origin& origin = locations_[index_of(name)];
    return origin.source->file_of(origin.name);
  }
  void forget() const override {
    base_->forget();
    adapter_->forget();
  }

 private:
  size_t index_of(const std::string& name) const {
    const TensorInfo* info = find(name);
    if (!info) {
      const auto& all = base_->tensors();
      no_such_tensor(name, all.empty() ? "" : base_->file_of(all.front().name), infos_);
    }
    return static_cast<size_t>(info - infos_.data());
  }

  static void read_rows(const TensorInfo& info, const LowRankUpdate& update, int64_t begin,
                        int64_t end, std::byte* out) {
    const size_t item = dtype_size_bytes(info.dtype);
    for_each_rect(matrix_of(info.shape).cols, begin, end, [&](const Rect& rect, int64_t before) {
      update.read_rect(rect, out + static_cast<size_t>(before) * item, rect.cols);
    });
  }

  static void read_cast(const TensorInfo& info, const Origin& origin, int64_t begin, int64_t end,
                        std::byte* out) {
    constexpr int64_t kChunk = 1 << 20;
    std::vector<std::byte> chunk;
    for (int64_t at = begin; at < end; at += kChunk) {
      const auto count = static_cast<size_t>(std::min(kChunk, end - at));
      chunk.resize(count * dtype_size_bytes(origin.dtype));
      origin.source->read_range(origin.name, at, at + static_cast<int64_t>(count), chunk);
      cast_weights(*origin.source, *origin.source->find(origin.name), chunk.data(),
                   out + static_cast<size_t>(at - begin) * dtype_size_bytes(info.dtype), info.dtype,
                   count);
    }
  }

  std::shared_ptr<const TensorSource> base_, adapter_;
};

}  // namespace

MergedModel merge_adapters(std::shared_ptr<const TensorSource> base,
                           std::shared_ptr<const TensorSource> adapter, const PeftConfig& peft,
                           const arch::ModelConfig& config, std::optional<DType> changed) {
  const MergePlan plan = plan_merge(*base, *adapter, peft, config);
  MergedModel merged{nullptr, config};
  if (plan.unties_head) {
    merged.config.tie_embeddings = false;
    set_tied(merged.config.raw, false);
  }
  merged.source =
      std::make_shared<MergedSource>(std::move(base), std::move(adapter), plan, changed);
  return merged;
}

}  // namespace danlu::weights
