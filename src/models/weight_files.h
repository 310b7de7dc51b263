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

/// Which matrices are held in blocks (ops/quantized_linear.h). Only a whole model on the CPU that
/// only answers can have `blocks` and `make`: they are not trained, saved, merged or cut. Matrices
/// stay dense if their rows are no multiple of a block, and so does a head whose rows are
/// normalised. NF4 (ops/nf4.h) goes with every mesh and device, and adapters are trained on it; of
/// a frozen model's matrices weights::takes_nf4 says which are held so.
struct Quantisation {
  struct Nf4 {
    bool doubly = true;
  };
  /// Matrices that the file holds in blocks, which stay as they are; nullptr: they are made dense.
  std::shared_ptr<const weights::BlockTensors> blocks = {};
  /// The type, Q8_0 or Q4_0, that dense matrices are turned into; head and embedding always Q8_0.
  std::optional<BlockType> make = {};
  bool keeps_nf4 = false;            ///< matrices that files hold in NF4 stay so; else made dense
  std::optional<Nf4> make_nf4 = {};  ///< dense ones are turned into it, and stored ones stay
};

/// Holds the matrices of a model without weights so, which then gets values: load_model does it
/// itself. Frozen parameters alone, before TrainingMemory::keep.
void hold_in_nf4(CausalLM& model, const Quantisation& quantisation);

/// Fills every parameter from `source` (any floating dtype; cast): a rank reads what it holds.
/// Non-finite values are an error. Errors: ModelError naming the missing, unknown or wrongly shaped
/// tensor with both shapes.
void load(CausalLM& model, const weights::TensorSource& source,
          const Quantisation& quantisation = {});

/// Normal(0, initializer_range) for matrices, ones for norms, zeros for biases, from `seed` (each
/// tensor's stream depends on its name only).
void initialize(CausalLM& model, uint64_t seed);

/// Makes a model and loads the weights of `source`, which was opened with all_tensors, and adapters
/// that lie beside them. dtype: empty means the files'. stage: empty means the whole model.
/// before_weights: called when the model exists and no weight is read yet. before_memory: called
/// before that, and before it is settled which matrices are held in NF4: to freeze what is not
/// trained, since a matrix that is trained stays dense. Empty: all of it only answers.
std::unique_ptr<CausalLM> load_model(const weights::CheckpointSource& source,
                                     const parallel::Mesh& mesh,
                                     std::optional<at::ScalarType> dtype, const at::Device& device,
                                     const std::function<void(CausalLM&)>& before_weights = {},
                                     const std::optional<arch::Stage>& stage = {},
                                     const Quantisation& quantisation = {},
                                     const std::function<void(CausalLM&)>& before_memory = {});
/// Opens the model at `path`, whose files describe it, and loads it likewise; `adapter` is the path
/// of adapters, or empty.
std::unique_ptr<CausalLM> load_model(const std::filesystem::path& path, const parallel::Mesh& mesh,
                                     std::optional<at::ScalarType> dtype, const at::Device& device,
                                     const std::filesystem::path& adapter = {});

/// Writes the weights in `dtype` with a config.json that fits them (sizes, torch_dtype), and copies
/// tokenizer and other files from `carry_from`, unless that is empty, with what its weights have of
/// layers that predict further ahead (arch/prediction.h). Collective over the tensor
/// axis and the pipeline, and over the data axis if it shares parameters; the first of these ranks
/// writes, and the paths of the others are not used. In training, call it after
/// TrainingMemory::settle(); it may then run in a thread beside passes until the next update.
void save(const CausalLM& model, const std::filesystem::path& directory, DType dtype,
          const std::filesystem::path& carry_from);

/// Writes the weights of `from`, a directory that save() wrote of a model of `config`, in another
/// type, a tensor at a time, with a config.json that fits them. Errors: ModelError, with nothing
/// written, for one that the type cannot hold.
void save_in_type(const std::filesystem::path& from, const arch::ModelConfig& config, DType dtype,
                  const std::filesystem::path& directory);

/// Bytes of memory that parameters take, and how many of these are blocks.
struct HeldBytes {
  int64_t all = 0, in_blocks = 0;
};
HeldBytes held_bytes(const CausalLM& model);

/// Whether matrices of the model are held in NF4.
bool holds_nf4(const CausalLM& model);

}  // namespace danlu::models
