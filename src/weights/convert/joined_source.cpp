#include "weights/convert/joined_source.h"

#include <algorithm>
#include <string_view>

namespace danlu::weights {
namespace {

constexpr std::string_view kMaster = "master.";

class JoinedSource final : public TensorSource {
 public:
  JoinedSource(std::shared_ptr<const TensorSource> model, std::shared_ptr<const TensorSource> state,
               bool weights_from_masters, bool adds_masters)
      : model_(std::move(model)),
        state_(std::move(state)),
        from_masters_(weights_from_masters && state_),
        infos_(model_->tensors()) {
    if (!state_) return;
    for (TensorInfo& info : infos_) {
      if (is_from_master(info.name)) info.dtype = DType::kF32;
    }
    infos_.insert(infos_.end(), state_->tensors().begin(), state_->tensors().end());
    for (TensorInfo info : model_->tensors()) {
      if (!adds_masters) break;
      info.name.insert(0, kMaster);
      if (!state_->find(info.name)) infos_.push_back(std::move(info));
    }
    std::sort(infos_.begin(), infos_.end(),
              [](const TensorInfo& a, const TensorInfo& b) { return a.name < b.name; });
  }

  const std::vector<TensorInfo>& tensors() const override { return infos_; }
  void read(const std::string& name, std::span<std::byte> out) const override {
    const auto [source, inner] = of(name);
    source->read(inner, out);
  }
  void read_range(const std::string& name, int64_t begin, int64_t end,
                  std::span<std::byte> out) const override {
    const auto [source, inner] = of(name);
    source->read_range(inner, begin, end, out);
  }
  void read_rect(const std::string& name, const Rect& rect, std::byte* out,
                 int64_t out_stride) const override {
    const auto [source, inner] = of(name);
    source->read_rect(inner, rect, out, out_stride);
  }
  std::span<const std::byte> mapped(const std::string& name) const override {
    const auto [source, inner] = of(name);
    return source->mapped(inner);
  }
  Storage storage(const std::string& name) const override {
    const auto [source, inner] = of(name);
    return source->storage(inner);
  }
  std::optional<Nf4Form> nf4_form(const std::string& name) const override {
    const auto [source, inner] = of(name);
    return source->nf4_form(inner);
  }
  Nf4Codes read_nf4(const std::string& name) const override {
    const auto [source, inner] = of(name);
    return source->read_nf4(inner);
  }
  std::filesystem::path file_of(const std::string& name) const override {
    const auto [source, inner] = of(name);
    return source->file_of(inner);
  }
  const Json& metadata() const override { return model_->metadata(); }
  void forget() const override {
    model_->forget();
    if (state_) state_->forget();
  }

  std::vector<std::filesystem::path> files() const override {
    auto all = model_->files();
    if (state_) {
      const auto its = state_->files();
      all.insert(all.end(), its.begin(), its.end());
      std::sort(all.begin(), all.end());
    }
    return all;
  }

 private:
  bool is_from_master(const std::string& name) const {
    return from_masters_ && model_->find(name) && state_->find(std::string(kMaster) + name);
  }
  std::pair<const TensorSource*, std::string> of(const std::string& name) const {
    if (is_from_master(name)) return {state_.get(), std::string(kMaster) + name};
    if (!state_ || model_->find(name)) return {model_.get(), name};
    if (name.starts_with(kMaster) && !state_->find(name))
      return {model_.get(), name.substr(kMaster.size())};
    return {state_.get(), name};
  }

  std::shared_ptr<const TensorSource> model_, state_;
  bool from_masters_;
  std::vector<TensorInfo> infos_;
};

}  // namespace

std::shared_ptr<const TensorSource> join_optimizer(std::shared_ptr<const TensorSource> model,
                                                   std::shared_ptr<const TensorSource> state,
                                                   bool weights_from_masters) {
  return std::make_shared<JoinedSource>(std::move(model), std::move(state), weights_from_masters,
                                        /*adds_masters=*/true);
}

std::shared_ptr<const TensorSource> join_tensors(std::shared_ptr<const TensorSource> first,
                                                 std::shared_ptr<const TensorSource> second) {
  return std::make_shared<JoinedSource>(std::move(first), std::move(second),
                                        /*weights_from_masters=*/false, /*adds_masters=*/false);
}

}  // namespace danlu::weights
