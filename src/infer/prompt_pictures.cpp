#include "infer/prompt_pictures.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <atomic>

#include "base/error.h"
#include "base/threads.h"

namespace danlu::infer {
namespace {

std::vector<arch::VisualSpan> spans_of(const std::vector<PromptPicture>& pictures) {
  std::vector<arch::VisualSpan> spans;
  for (const PromptPicture& picture : pictures)
    spans.push_back({picture.begin, picture.grid, picture.is_video, picture.second_per_grid});
  return spans;
}

[[noreturn]] void refuse_placeholders(int64_t placeholders, int64_t expected) {
  throw DataError(tr("[pictures] the prompt has {} placeholders of visual tokens, its pictures and "
                     "videos have {}",
                     placeholders, expected),
                  tr("a picture stands where <image> is written, a video where <video> is"));
}

}  // namespace

uint64_t content_of_its_own() {
  static std::atomic<uint64_t> next{0};
  return kOwnContent | next++;
}

void check_pictures(const arch::ModelConfig& config, std::span<const text::TokenId> ids,
                    const std::vector<PromptPicture>& pictures) {
  if (!config.vision) {
    if (pictures.empty()) return;
    throw DataError(tr("[pictures] the model reads text alone, and the prompt has a picture"),
                    tr("name a model that sees pictures, such as Qwen2.5-VL"));
  }
  const arch::VisionConfig& vision = *config.vision;
  const auto is_placeholder = [&](text::TokenId id) {
    return id > 0 && (id == vision.image_token || id == vision.video_token);
  };
  const int64_t found = std::count_if(ids.begin(), ids.end(), is_placeholder);
  int64_t expected = 0, before = 0;
  bool is_in_place = true;
  for (const PromptPicture& picture : pictures) {
    const int64_t count = picture.grid.visual_tokens(vision.merge_size);
    const int64_t id = picture.is_video ? vision.video_token : vision.image_token;
    expected += count;
    is_in_place &= picture.begin >= before && picture.begin + count <= std::ssize(ids);
    before = picture.begin + count;
    for (int64_t i = picture.begin; is_in_place && i < before; ++i)
      is_in_place &= ids[static_cast<size_t>(i)] == id;
  }
  if (found != expected || !is_in_place) refuse_placeholders(found, expected);
}

PromptPictures::PromptPictures(const arch::ModelConfig& config, int64_t length,
                               std::vector<PromptPicture> pictures)
    : length_(length),
      merge_size_(config.vision->merge_size),
      pictures_(std::move(pictures)),
      positions_(arch::visual_positions(*config.vision, length, spans_of(pictures_))) {}

std::shared_ptr<PromptPictures> PromptPictures::of(const arch::ModelConfig& config, int64_t length,
                                                   const std::vector<PromptPicture>& pictures) {
  if (pictures.empty()) return nullptr;
  return std::make_shared<PromptPictures>(config, length, pictures);
}

int64_t PromptPictures::tokens_of(const PromptPicture& picture) const {
  return picture.grid.visual_tokens(merge_size_);
}

int64_t PromptPictures::patches() const {
  int64_t count = 0;
  for (const PromptPicture& picture : pictures_) count += picture.grid.patches();
  return count;
}

std::array<int64_t, 3> PromptPictures::position(int64_t place) const {
  if (place >= length_) {
    const int64_t next = positions_.next + place - length_;
    return {next, next, next};
  }
  const auto i = static_cast<size_t>(place);
  return {positions_.axes[0][i], positions_.axes[1][i], positions_.axes[2][i]};
}

void PromptPictures::load(int64_t from) {
  std::vector<at::Tensor> made(pictures_.size());
  parallel_for(made.size(), default_thread_count(), [&](size_t i) {
    const PromptPicture& picture = pictures_[i];
    if (picture.begin + tokens_of(picture) > from) {
      made[i] = picture.pixels();
    } else if (picture.pass_by) {
      picture.pass_by();
    }
  });
  held_ = std::move(made);
}

void PromptPictures::release() { held_.clear(); }

at::Tensor PromptPictures::pixels(size_t index) const {
  const bool is_held = !held_.empty() && held_[index].defined();
  return is_held ? held_[index] : pictures_[index].pixels();
}

std::vector<text::TokenId> PictureNames::named(const std::vector<text::TokenId>& ids,
                                               const PromptPictures* pictures) {
  std::vector<text::TokenId> result = ids;
  if (!pictures) return result;
  for (const PromptPicture& picture : pictures->all()) {
    const media::Grid& grid = picture.grid;
    const Identity identity(picture.content, grid.t, grid.h, grid.w, picture.is_video,
                            picture.second_per_grid);
    std::fill_n(result.begin() + picture.begin, pictures->tokens_of(picture), name_of(identity));
  }
  return result;
}

text::TokenId PictureNames::name_of(const Identity& picture) {
  const auto [found, is_new] = names_.try_emplace(picture, Name{next_, 0});
  if (is_new) {
    --next_;
  } else {
    by_use_.erase(found->second.last_used);
  }
  found->second.last_used = ++uses_;
  by_use_.emplace(uses_, picture);
  const text::TokenId id = found->second.id;
  if (names_.size() > most_) {
    names_.erase(by_use_.begin()->second);
    by_use_.erase(by_use_.begin());
  }
  return id;
}

void PassTokens::add(std::span<const text::TokenId> ids, int64_t start,
                     const PromptPictures* pictures) {
  const int64_t end = start + std::ssize(ids);
  if (pictures) add_pictures(start, end, *pictures);
  ids_.insert(ids_.end(), ids.begin(), ids.end());
  for (int64_t place = start; place < end; ++place) {
    const std::array<int64_t, 3> position =
        pictures ? pictures->position(place) : std::array<int64_t, 3>{place, place, place};
    positions_[0].push_back(position[0]);
    if (!has_axes_) continue;
    positions_[1].push_back(position[1]);
    positions_[2].push_back(position[2]);
  }
}

void PassTokens::add_pictures(int64_t begin, int64_t end, const PromptPictures& pictures) {
  for (size_t i = 0; i < pictures.all().size(); ++i) {
    const PromptPicture& picture = pictures.all()[i];
    const int64_t count = pictures.tokens_of(picture);
    const int64_t first = std::max(begin, picture.begin);
    const int64_t last = std::min(end, picture.begin + count);
    if (first >= last) continue;
    if (!has_axes_) positions_[1] = positions_[2] = positions_[0];
    has_axes_ = true;
    parts_.push_back({&pictures, i});
    visuals_.grids.push_back(picture.grid);
    for (int64_t place = first; place < last; ++place) {
      visuals_.visual_rows.push_back(num_visual_ + place - picture.begin);
      visuals_.token_rows.push_back(size() + place - begin);
    }
    num_visual_ += count;
  }
}

models::ForwardInput PassTokens::input() const {
  models::ForwardInput input;
  const at::TensorOptions options(at::kLong);
  input.ids_N = at::tensor(ids_, options);
  if (!has_axes_) {
    input.positions_N = at::tensor(positions_[0], options);
    return input;
  }
  std::vector<at::Tensor> axes, pixels;
  for (const std::vector<int64_t>& axis : positions_) axes.push_back(at::tensor(axis, options));
  input.positions_N = at::stack(axes);
  auto visuals = std::make_shared<models::Visuals>(visuals_);
  for (const Part& part : parts_) pixels.push_back(part.of->pixels(part.index));
  visuals->pixels_PX = at::cat(pixels);
  input.visuals = visuals;
  return input;
}

}  // namespace danlu::infer
