// models/weight_files.h: the weights of a model, from files, from a seed, and into files.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>

#include "models/causal_lm.h"
#include "weights/convert/checkpoint_source.h"
#include "weights/tensor_source.h"

namespace danlu::models {

/// Which matrices are held in blocks (ops/quantized_linear.h). Of a model on the CPU that is whole
/// and only answers: blocks are not trained, saved, merged or cut. Rows that are no multiple of a
/// type's block, and a head whose rows are used at length one, stay dense.
struct Quantisation {
  /// Matrices that a file holds in blocks stay as they are there; nullptr: they are read as dense.
  std::shared_ptr<const weights::BlockTensors> blocks = {};
  /// Dense ones become blocks of this type, Q8_0 or Q4_0; of a head and an embedding always Q8_0.
  std::optional<BlockType> make = {};
};

/// Fills every parameter from `source` (any floating dtype; cast): a rank reads what it holds.
/// Non-finite values are an error. Errors: ModelError naming the missing, unknown or wrongly shaped
/// tensor with both shapes.
void load(CausalLM& model, const weights::TensorSource& source,
          const Quantisation& quantisation = {});

/// Normal(0, initializer_range) for matrices, ones for norms, zeros for biases, from `seed` (each
/// tensor's stream depends on its name only).
void initialize(CausalLM& model, uint64_t seed);

/// The model of a source that was opened with all_tensors, in the dtype asked for, or the files'
/// when empty; of a pipeline's `stage` what that holds. Adapters that lie beside it are loaded too.
/// before_weights: called when the model is there and nothing is read yet.
std::unique_ptr<CausalLM> load_model(const weights::CheckpointSource& source,
                                     const parallel::Mesh& mesh,
                                     std::optional<at::ScalarType> dtype, const at::Device& device,
                                     const std::function<void(CausalLM&)>& before_weights = {},
                                     const std::optional<arch::Stage>& stage = {},
                                     const Quantisation& quantisation = {});
/// The same of a path that describes itself; `adapter` may be empty.
std::unique_ptr<CausalLM> load_model(const std::filesystem::path& path, const parallel::Mesh& mesh,
                                     std::optional<at::ScalarType> dtype, const at::Device& device,
                                     const std::filesystem::path& adapter = {});

/// In training after TrainingMemory::settle(), in another thread beside passes too, until the next
/// update. On every rank of the tensor axis and of the pipeline, and of the data axis where it
/// shares parameters, of which the first writes (the others' paths are not used): writes model
/// weights in `dtype` with config.json (sizes, torch_dtype updated); carries over tokenizer and
/// other files from `carry_from` if not empty.
void save(const CausalLM& model, const std::filesystem::path& directory, DType dtype,
          const std::filesystem::path& carry_from);

/// What the parameters take: bytes of memory, and how many of it are in blocks.
struct HeldBytes {
  int64_t all = 0, in_blocks = 0;
};
HeldBytes held_bytes(const CausalLM& model);

}  // namespace danlu::models
