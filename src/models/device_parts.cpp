#include "models/device_parts.h"

#include <string>
#include <utility>
#include <vector>

#include "arch/gated_delta.h"
#include "base/error.h"
#include "device/select.h"
#include "ops/backend.h"

namespace danlu::models {
namespace {

using ops::Part;

std::vector<std::pair<Part, std::string>> needed_parts(const arch::ModelConfig& config) {
  std::vector<std::pair<Part, std::string>> parts;
  const auto add_if = [&](bool is_there, Part part, const std::string& name) {
    if (is_there) parts.emplace_back(part, name);
  };
  add_if(config.vision.has_value(), Part::kPictures, tr("a vision tower"));
  add_if(config.norm == arch::NormKind::kRmsOffset, Part::kOffsetNorms,
         tr("norms that multiply by 1 + weight"));
  add_if(config.norm == arch::NormKind::kLayer, Part::kLayerNorms, tr("layer norms"));
  add_if(config.activation != arch::Activation::kSilu, Part::kGelu, tr("the activation GELU"));
  add_if(config.attention_softcap > 0 || config.logit_softcap > 0, Part::kSoftcaps,
         tr("caps on scores or logits"));
  add_if(config.attention_chunk > 0 || config.norms_rotated || config.query_growth != 0,
         Part::kChunks, tr("attention in chunks of positions"));
  add_if(arch::has_gated_delta(config), Part::kLinearAttention, tr("linear attention"));
  return parts;
}

}  // namespace

void require_parts(const arch::ModelConfig& config, const c10::Device& device) {
  const auto lacks = ops::backend_of(device.type()).lacks;
  if (!lacks) return;
  for (const auto& [part, name] : needed_parts(config)) {
    if (!lacks(part)) continue;
    throw DeviceError(tr("[model] --device {}: a model of {} needs {}, which is not there on this "
                         "device yet",
                         device::name_of(device), config.family, name),
                      tr("what needs it runs with --device cpu"));
  }
}

void require_routers(const settings::RouterTraining& routers, const c10::Device& device) {
  // Noise is multiplied by an operator of ATen's (ops::jittered).
  if (!(routers.input_jitter > 0) || !ops::backend_of(device.type()).lacks) return;
  throw DeviceError(tr("[train] --device {}: --moe-input-jitter-eps is not there on this device "
                       "yet",
                       device::name_of(device)),
                    tr("what needs it runs with --device cpu"));
}

}  // namespace danlu::models
