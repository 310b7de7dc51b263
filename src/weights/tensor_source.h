// weights/tensor_source.h: tensors on disk as lazy views, whatever the file format.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "arch/shard.h"
#include "base/dtype.h"
#include "base/json.h"
#include "base/nf4.h"
#include "base/number_blocks.h"

namespace danlu::weights {

struct TensorInfo {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  int64_t num_elements() const;
  size_t size_bytes() const {
    return static_cast<size_t>(num_elements()) * dtype_size_bytes(dtype);
  }
};

/// How files hold a tensor.
struct Storage {
  std::string type;  ///< "BF16", "Q4_K"; "Q4_K, Q6_K" where parts differ
  uint64_t size_bytes = 0;
};

/// How a matrix in NF4 is made (base/nf4.h).
struct Nf4Form {
  int64_t block = kNf4Block;
  bool doubly = false;         ///< factors are quantised too
  DType dtype = DType::kBF16;  ///< of what was quantised
  bool operator==(const Nf4Form&) const = default;
};

using arch::matrix_of;
using arch::Rect;

/// Named tensors of a checkpoint. Opening reads headers only; data is mapped. Thread-safe.
class TensorSource {
 public:
  virtual ~TensorSource() = default;
  /// Sorted by name.
  virtual const std::vector<TensorInfo>& tensors() const = 0;
  /// nullptr if there is no such tensor.
  const TensorInfo* find(const std::string& name) const;
  /// Copies the tensor, row-major contiguous, into `out` (exactly size_bytes()), in the file's
  /// dtype. Errors: ModelError (no such tensor), IoError, InternalError (wrong size of `out`).
  virtual void read(const std::string& name, std::span<std::byte> out) const = 0;
  /// Elements [begin, end) of the flattened row-major tensor.
  virtual void read_range(const std::string& name, int64_t begin, int64_t end,
                          std::span<std::byte> out) const = 0;
  /// A rectangle of the tensor's matrix, row by row; rows begin `out_stride` elements apart in
  /// `out`. Errors: as read_range; InternalError if it reaches outside.
  virtual void read_rect(const std::string& name, const Rect& rect, std::byte* out,
                         int64_t out_stride) const;
  /// Lets the system take back memory that holds what was read so far: streaming a checkpoint
  /// larger than memory then leaves a small process.
  virtual void forget() const {}
  /// The mapped bytes where they lie contiguous in a file; empty span where they do not. Their
  /// address is not aligned to the element size: formats do not promise it.
  virtual std::span<const std::byte> mapped(const std::string& name) const = 0;
  /// Other than dtype and size_bytes() say where reading decodes what a file holds (GGUF's blocks).
  /// Errors: ModelError (no such tensor).
  virtual Storage storage(const std::string& name) const;
  /// How files hold the matrix in NF4, where they do: reading it decodes, in the type that was
  /// quantised. Errors: ModelError (no such tensor).
  virtual std::optional<Nf4Form> nf4_form(const std::string& /*name*/) const { return {}; }
  /// REQUIRES: it has a form.
  virtual Nf4Codes read_nf4(const std::string& name) const;
  /// File that holds the tensor, for messages.
  virtual std::filesystem::path file_of(const std::string& name) const = 0;
  /// Every file that tensors are read from, sorted. A tensor may lie in several.
  virtual std::vector<std::filesystem::path> files() const;
  /// `__metadata__` of safetensors; empty elsewhere.
  virtual const Json& metadata() const = 0;
};

/// The tensors of a source whose numbers are blocks (base/number_blocks.h), as they are stored.
struct BlockTensors {
  std::map<std::string, BlockType> types;
  /// Under the same names: U8 [rows, bytes of a row].
  std::shared_ptr<const TensorSource> bytes;
};

/// Tensors in types of blocks that no product takes as they are: their numbers are held dense.
struct WidenedBlocks {
  std::vector<std::string> types = {};  ///< "Q5_K"
  int64_t tensors = 0, elements = 0;
};

/// One *.safetensors file. Errors: ModelError per reference format page
/// (docs/formats/safetensors.md).
std::shared_ptr<const TensorSource> open_safetensors(const std::filesystem::path& file);
/// One torch zip or legacy `.pt`/`.bin` file; tensors found at any depth of dicts, keys joined by
/// '.'. Nothing in the file is executed (docs/formats/torch_pickle.md).
std::shared_ptr<const TensorSource> open_torch_file(const std::filesystem::path& file);
/// A HF directory or a single weight file: model.safetensors, its index, pytorch_model.bin, its
/// index, adapter_model.safetensors / .bin, in this order. Errors: ModelError if there is
/// none, for a Git LFS pointer, a missing shard, a tensor listed but absent; IoError (unreadable).
std::shared_ptr<const TensorSource> open_weights(const std::filesystem::path& path);
/// The same with tensors that are decoded as they are read (blocks of FP8, NF4) as files hold them.
std::shared_ptr<const TensorSource> open_stored_weights(const std::filesystem::path& path);
/// Whether a directory holds a model's weights (adapters alone are none) under a name that
/// open_weights takes.
bool has_weights(const std::filesystem::path& directory);

/// Writes safetensors, one tensor after the other, into one file or shards, atomically.
struct SaveOptions {
  uint64_t max_shard_bytes = 5'000'000'000;
  std::string base_name = "model";  ///< model.safetensors, model-00001-of-0000N.safetensors
};
/// Gives the bytes of tensor `index` (contiguous, in the declared dtype); called once per tensor,
/// in file order.
using TensorBytes = std::function<std::span<const std::byte>(size_t index)>;
/// The same in parts: gives the sink the bytes of tensor `index`, in order. Only while the sink is
/// being given them must they be there.
using BytesSink = std::function<void(std::span<const std::byte> part)>;
using TensorParts = std::function<void(size_t index, const BytesSink& sink)>;
/// Into an existing directory; index.json when there is more than one shard. Checks free space
/// first.
void save_safetensors(const std::filesystem::path& directory,
                      const std::vector<TensorInfo>& tensors, const TensorBytes& bytes_of,
                      const SaveOptions& options = {});
void save_safetensors(const std::filesystem::path& directory,
                      const std::vector<TensorInfo>& tensors, const TensorParts& give,
                      const SaveOptions& options = {});

/// Whether a file of this name goes with a model when its weights are saved elsewhere: config,
/// generation and tokenizer files.
bool is_carried_over(const std::string& name);
/// The folder of a Hugging Face directory whose templates are carried over too.
inline constexpr const char* kMoreTemplates = "additional_chat_templates";
/// Copies config.json-like and tokenizer files (config, generation_config, tokenizer*,
/// special_tokens_map, vocab, merges, chat_template*, *.model, added_tokens) from one HF directory
/// to another; weights stay, and code too unless a config's auto_map needs it. Files already in
/// `to` are kept. `from` may be a file that describes a model: it goes as config.json, alone.
/// Errors: IoError.
void carry_over_files(const std::filesystem::path& from, const std::filesystem::path& to);

}  // namespace danlu::weights
