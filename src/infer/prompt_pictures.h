// infer/prompt_pictures.h: pictures and videos of prompts: what tells them apart, where they stand,
// and their part of a pass.
#pragma once
#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <tuple>
#include <vector>

#include "arch/model_config.h"
#include "arch/visual_positions.h"
#include "media/grid.h"
#include "models/causal_lm.h"
#include "text/tokenizer.h"

namespace danlu::infer {

/// Set in numbers of pictures that are like no other, and in none of a picture's content.
inline constexpr uint64_t kOwnContent = uint64_t{1} << 63;
/// A number that no other call gives.
uint64_t content_of_its_own();

/// A picture or a video among the ids of a prompt.
struct PromptPicture {
  int64_t begin = 0;  ///< its first placeholder's place; they are neighbours
  media::Grid grid;   ///< in patches
  bool is_video = false;
  double second_per_grid = 1;  ///< of a video: seconds between neighbours in time
  /// Makes the patches, f32 [P, X] on the host, when a pass needs them. Errors: DataError where the
  /// file cannot be read; the request then fails alone.
  std::function<at::Tensor()> pixels;
  /// Called in its place where no pass needs the patches; may be empty.
  std::function<void()> pass_by = {};
  /// Equal where pixels are: keys and values of one picture stand for all with its number, kind and
  /// grid. Who does not know leaves it as it is, and nothing is shared.
  uint64_t content = content_of_its_own();
};

/// Errors: DataError if the model sees no pictures, or the placeholders among `ids` are not those
/// of `pictures`, in order.
void check_pictures(const arch::ModelConfig& config, std::span<const text::TokenId> ids,
                    const std::vector<PromptPicture>& pictures);

/// The pictures of one sequence, and the rotary positions that follow from them.
class PromptPictures {
 public:
  /// length: tokens of the prompt. REQUIRES: check_pictures found nothing.
  PromptPictures(const arch::ModelConfig& config, int64_t length,
                 std::vector<PromptPicture> pictures);
  /// Null for no pictures.
  static std::shared_ptr<PromptPictures> of(const arch::ModelConfig& config, int64_t length,
                                            const std::vector<PromptPicture>& pictures);

  const std::vector<PromptPicture>& all() const { return pictures_; }
  int64_t tokens_of(const PromptPicture& picture) const;
  int64_t patches() const;
  /// In time, height and width, of any place of the sequence; after the prompt alike on all axes.
  std::array<int64_t, 3> position(int64_t place) const;

  /// Makes the pixels of pictures that a pass from place `from` on needs, and holds them until
  /// release(). Errors: those of PromptPicture::pixels.
  void load(int64_t from);
  void release();
  /// The pixels of one picture: those that are held, else they are made.
  at::Tensor pixels(size_t index) const;

 private:
  int64_t length_, merge_size_;
  std::vector<PromptPicture> pictures_;
  arch::VisualPositions positions_;
  std::vector<at::Tensor> held_;
};

/// Ids in which the placeholders of different pictures differ: caches compare these. A picture that
/// nobody has shown for long is forgotten and gets another name, which no other had.
class PictureNames {
 public:
  explicit PictureNames(size_t most = 4096) : most_(most) {}
  /// Placeholders become negative numbers, one for each picture of its own.
  std::vector<text::TokenId> named(const std::vector<text::TokenId>& ids,
                                   const PromptPictures* pictures);

 private:
  using Identity = std::tuple<uint64_t, int64_t, int64_t, int64_t, bool, double>;
  struct Name {
    text::TokenId id;
    uint64_t last_used;
  };
  text::TokenId name_of(const Identity& picture);

  size_t most_;
  std::map<Identity, Name> names_;
  std::map<uint64_t, Identity> by_use_;
  uint64_t uses_ = 0;
  text::TokenId next_ = -2;
};

/// The tokens of a pass over several sequences.
class PassTokens {
 public:
  /// ids[i] stands at place start + i of a sequence that has `pictures` (nullptr: none), which
  /// lives until input().
  void add(std::span<const text::TokenId> ids, int64_t start, const PromptPictures* pictures);
  int64_t size() const { return static_cast<int64_t>(ids_.size()); }
  /// ids, positions and pictures; the rest is the caller's. Errors: those of PromptPicture::pixels.
  models::ForwardInput input() const;

 private:
  void add_pictures(int64_t begin, int64_t end, const PromptPictures& pictures);

  struct Part {
    const PromptPictures* of;
    size_t index;
  };
  std::vector<int64_t> ids_;
  /// Axes two and three have numbers only where a picture is in the pass.
  std::array<std::vector<int64_t>, 3> positions_;
  bool has_axes_ = false;
  std::vector<Part> parts_;
  models::Visuals visuals_;
  int64_t num_visual_ = 0;
};

}  // namespace danlu::infer
