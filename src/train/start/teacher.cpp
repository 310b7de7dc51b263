#include "train/start/teacher.h"

#include <fmt/format.h>

#include "base/error.h"
#include "device/select.h"
#include "ops/pointwise.h"
#include "settings/model_source.h"
#include "settings/options/media_flags.h"
#include "train/rollouts/judges.h"

namespace danlu::train {
namespace {

bool has_teacher(const TrainConfig& config) {
  return config.objective.kind == settings::ObjectiveKind::kDistillation;
}

std::string teacher_named(const TrainConfig& config) {
  return fmt::format("{} {}", config.flag("teacher_model"), config.objective.reference.string());
}

weights::CheckpointSource opened_teacher(const TrainConfig& config) {
  settings::ModelSource source;
  source.path = config.objective.reference;
  return settings::open_model(source);
}

/// The numbers of a pixel, and how many of them are a patch; sizes of pictures are chosen once.
bool give_the_same_pixels(const media::ImageProcessor& one, const media::ImageProcessor& other) {
  media::ImageProcessor alike = other;
  alike.min_pixels = one.min_pixels;
  alike.max_pixels = one.max_pixels;
  alike.do_resize = one.do_resize;
  alike.filter = one.filter;
  return one == alike;
}

/// Teacher and model are given the pixels that the model's processor makes.
void require_same_pictures(const TrainConfig& config, const arch::ModelConfig& model) {
  const weights::CheckpointSource teacher = opened_teacher(config);
  const std::string hint = tr("a teacher for pictures is of the same family as the model");
  const auto& own = model.vision;
  const auto& other = teacher.config.vision;
  if (!other)
    throw ModelError(
        tr("[train] {}: rows have pictures, and the teacher sees none", teacher_named(config)),
        hint);
  const bool has_same_patches = own && own->patch_size == other->patch_size &&
                                own->temporal_patch_size == other->temporal_patch_size &&
                                own->merge_size == other->merge_size &&
                                own->channels == other->channels;
  const data::MediaFlags& flags = config.data.media;
  const auto by = data::media_settings_of(settings::processor_directory(config), flags),
             by_other = data::media_settings_of(teacher.companions, flags);
  if (has_same_patches && by && by_other &&
      give_the_same_pixels(by->processor, by_other->processor))
    return;
  throw ModelError(tr("[train] {}: the teacher's pictures are cut or normalised in another way "
                      "than the model's",
                      teacher_named(config)),
                   hint);
}

void require_answerable_rows(const TrainConfig& config, const PreparedText& text,
                             const PreparedData& data) {
  if (!config.objective.draws()) return;
  const auto refuse = [&](const std::string& what) {
    throw UsageError(tr("[train] {}: answers to {} are not drawn", config.flag("lmbda"), what),
                     tr("--lmbda 0 learns from the answers of the rows"));
  };
  if (data.most_patches > 0) refuse(tr("pictures"));
  if (config.data.pack_sequences) refuse(tr("packs of samples"));
  if (!text.tokenizer) refuse(tr("rows of ids without a tokenizer"));
}

}  // namespace

void require_comparing(const TrainConfig& config, const at::Device& device) {
  if (ops::computes_numbers(device)) return;
  if (config.objective.entropy_power)
    throw DeviceError(tr("[train] --device {}: {} is not there on this device yet",
                         device::name_of(device), config.flag("use_eaft_loss")));
  if (!has_teacher(config) || config.objective.distillation.topk == 0) return;
  throw DeviceError(tr("[train] --device {}: {} is not there on this device yet",
                       device::name_of(device), config.flag("gkd_logits_topk")),
                    tr("without it all tokens of the vocabulary are compared"));
}

void require_teachers_tokens(const TrainConfig& config, const PreparedText& text) {
  if (!has_teacher(config) || !text.tokenizer) return;
  require_same_tokens(*text.tokenizer, teacher_named(config), opened_teacher(config).companions,
                      tr("a teacher is of the same family: its tokens are the model's"));
}

void require_teachable_rows(const TrainConfig& config, const arch::ModelConfig& model,
                            const PreparedText& text, const PreparedData& data) {
  if (!has_teacher(config)) return;
  require_answerable_rows(config, text, data);
  if (data.most_patches > 0) require_same_pictures(config, model);
}

}  // namespace danlu::train
