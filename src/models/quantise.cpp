// Weights that are held in blocks.
#include "models/quantise.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "models/tensor_io.h"
#include "ops/nf4.h"

namespace danlu::models {
namespace {

using arch::Role;

bool is_matrix_of_a_product(const arch::ModelConfig& config, const arch::ParamSpec& spec) {
  if (spec.shape.size() != 2 || spec.is_bias || spec.role == Role::kRouter ||
      spec.role == Role::kScore || spec.role == Role::kScoreDense ||
      spec.role == Role::kPositions || spec.role == Role::kTokenTypes)
    return false;
  // Each token of an answer takes it in parts, as it is.
  if (spec.role == Role::kKvUp) return false;
  return spec.role != Role::kHead || !config.norm_head;
}

ops::QuantizedPtr from_blocks(const weights::BlockTensors& blocks, BlockType type,
                              const arch::ParamSpec& spec, c10::Device device) {
  const int64_t rows = spec.shape[0], columns = spec.shape[1];
  const auto row_bytes = static_cast<int64_t>(block_bytes(type, static_cast<size_t>(columns)));
  const auto read_rows = [&](int64_t row, int64_t count, std::byte* to) {
    blocks.bytes->read_rect(spec.name, {row, count, 0, row_bytes}, to, row_bytes);
  };
  const auto weight = std::make_shared<const ops::BlockWeight>(type, rows, columns, read_rows);
  if (const auto row = weight->row_without_scale()) {
    throw ModelError(tr("[weights] {} holds a scale that is no number, in row {}, in {}", spec.name,
                        *row, blocks.bytes->file_of(spec.name).string()),
                     tr("the file is damaged or comes from a diverged run"));
  }
  return weight->to(device);
}

BlockType type_to_make(const arch::ParamSpec& spec, BlockType wanted) {
  // Errors of the embedding and of the head reach every logit undamped.
  const bool is_end = spec.role == Role::kEmbedding || spec.role == Role::kHead;
  return is_end ? BlockType::kQ8_0 : wanted;
}

}  // namespace

bool quantise(const CausalLM::Impl& model, Parameter& parameter,
              const weights::TensorSource& source, const Quantisation& quantisation) {
  if (!quantisation.blocks && !quantisation.make) return false;
  if (model.memory.store() || !ops::multiplies_quantized(model.device.type()) ||
      !parameter.is_whole())
    throw InternalError(
        "[quantize] only a whole model that is not trained, where blocks are multiplied");
  const arch::ParamSpec& spec = parameter.spec;
  if (!is_matrix_of_a_product(model.config, spec)) return false;
  if (quantisation.blocks) {
    const auto found = quantisation.blocks->types.find(spec.name);
    if (found != quantisation.blocks->types.end()) {
      parameter.quantized = from_blocks(*quantisation.blocks, found->second, spec, model.device);
      return true;
    }
  }
  // Towers and mergers keep their type, as in other programs: what is lost there is lost to all
  // that is asked about a picture.
  if (spec.tower_place >= 0) return false;
  if (!quantisation.make || spec.shape[1] % static_cast<int64_t>(kBlockGroup) != 0) return false;
  parameter.quantized = ops::quantized(type_to_make(spec, *quantisation.make),
                                       read_as(source, spec.name, parameter), spec.name);
  return true;
}

HeldBytes held_bytes(const CausalLM& model) {
  HeldBytes held;
  for (const Parameter& parameter : model.parameters()) {
    const int64_t blocks = parameter.quantized ? parameter.quantized->size_bytes() : 0;
    held.all += parameter.quantized ? blocks : static_cast<int64_t>(parameter.tensor.nbytes());
    held.in_blocks += blocks;
  }
  return held;
}

bool holds_nf4(const CausalLM& model) {
  const std::vector<Parameter> all = model.parameters();
  return std::any_of(all.begin(), all.end(), [](const Parameter& parameter) {
    return parameter.quantized && ops::nf4_of(*parameter.quantized);
  });
}

}  // namespace danlu::models
