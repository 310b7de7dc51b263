// models/tensor_io.h: tensors to and from weight files, and the errors about them.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "base/error.h"
#include "models/causal_lm.h"
#include "parallel/store.h"
#include "weights/layout.h"
#include "weights/source_base.h"
#include "weights/tensor_source.h"

namespace danlu::models {

using weights::shape_text;

/// The tensor in the file's dtype, on the CPU, owning its memory. Errors: as TensorSource::read.
at::Tensor read_tensor(const weights::TensorSource& source, const std::string& name);

/// Whether no element of a floating tensor is infinite or NaN. On the CPU at the speed of reading.
bool all_finite(const at::Tensor& tensor);

/// Errors: ModelError "[weights] <name> holds <value> at element <first + index> <what>" unless
/// all_finite(piece).
void refuse_non_finite(
    const at::Tensor& piece, int64_t first, const std::string& name, const std::string& what,
    const std::string& hint = tr("the file is damaged or comes from a diverged run"));
/// The same of a tensor that was cast from another type to its own.
void refuse_overflow(const at::Tensor& cast, int64_t first, const std::string& name);

/// Fills a parameter (any floating dtype and device) from the tensor of that name without a second
/// copy; a rank reads what it holds. Errors: ModelError naming tensor, file and element if a value
/// is not finite, in the file or in the parameter's dtype; or if the shapes differ.
void read_into(const weights::TensorSource& source, const std::string& name,
               const Parameter& parameter);
/// What read_into would leave there, in a tensor of its own.
at::Tensor read_as(const weights::TensorSource& source, const std::string& name,
                   const Parameter& parameter);

/// Errors: ModelError naming the first five of each list, and how many there are; nothing if all
/// are empty.
void refuse_tensor_lists(
    const std::string& where, const std::vector<std::string>& missing,
    const std::vector<std::string>& unknown, const std::vector<std::string>& other,
    const std::string& hint = tr("check that config.json and the weight files belong together"));

/// Normal(0, deviation) f32 values on the CPU, a function of `seed` alone.
at::Tensor normal_values(const std::vector<int64_t>& shape, double deviation, uint64_t seed);

/// Tensors that go beside a model's own, as they are but for their type, and what else files have.
struct MoreTensors {
  std::shared_ptr<const weights::TensorSource> source = {};
  std::vector<std::string> names = {};
  /// Further names of the model's own parameters: the new name, and whose values stand under it.
  std::vector<std::pair<std::string, std::string>> copies = {};
  std::set<std::string> wide = {};  ///< of all names, those that are written in f32
  std::string left_out = {};        ///< what names of the model's own begin with, and not in files
};

/// How files hold these tensors, all of one type.
using StoredAs =
    std::function<std::vector<weights::StoredTensor>(const std::vector<weights::TensorInfo>&)>;

/// Writes `parameters` and `more`, cast to `dtype`, as <base_name>.safetensors (shards when large);
/// each as it is, or as stored_as has them.
/// Every rank of parallel::WholeTensors calls it: the first writes, the others give their pieces.
/// Errors: ModelError, with nothing written, for one that holds what is not finite then.
void write_tensors(const std::filesystem::path& directory, const std::vector<Parameter>& parameters,
                   DType dtype, const std::string& base_name,
                   const parallel::Mesh& mesh = parallel::Mesh::single(),
                   parallel::ParameterStore* store = nullptr, const MoreTensors& more = {},
                   const StoredAs& stored_as = {});

}  // namespace danlu::models
