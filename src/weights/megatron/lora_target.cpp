#include "weights/megatron/lora_target.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include "base/error.h"
#include "weights/megatron/lora_names.h"
#include "weights/source_base.h"

namespace danlu::weights::megatron {
namespace {

/// A rectangle of a tensor of the other form, and where it lies in one of this.
struct Block {
  std::string tensor;
  int64_t row = 0, col = 0, rows = 0, cols = 0;
  int64_t from_row = 0, from_col = 0;
};

/// Matrices that are zero but for blocks of another source's.
class Blocks final : public SourceBase<std::vector<Block>> {
 public:
  Blocks(std::shared_ptr<const TensorSource> from,
         std::vector<std::pair<TensorInfo, std::vector<Block>>> tensors)
      : from_(std::move(from)) {
    set_tensors(std::move(tensors));
  }
  void read(const std::string& name, std::span<std::byte> out) const override {
    read_range(name, 0, infos_[index(name)].num_elements(), out);
  }
  void read_range(const std::string& name, int64_t begin, int64_t end,
                  std::span<std::byte> out) const override {
    const TensorInfo& info = infos_[index(name)];
    check_range(info, begin, end, out.size());
    const auto item = static_cast<int64_t>(dtype_size_bytes(info.dtype));
    for_each_rect(matrix_of(info.shape).cols, begin, end, [&](const Rect& rect, int64_t before) {
      read_rect(name, rect, out.data() + before * item, rect.cols);
    });
  }
  void read_rect(const std::string& name, const Rect& rect, std::byte* out,
                 int64_t out_stride) const override {
    const size_t at = index(name);
    check_rect(infos_[at], rect);
    const auto item = static_cast<int64_t>(dtype_size_bytes(infos_[at].dtype));
    for (int64_t row = 0; row < rect.rows; ++row) {
      std::memset(out + row * out_stride * item, 0, static_cast<size_t>(rect.cols * item));
    }
    for (const Block& block : locations_[at]) {
      const int64_t row = std::max(rect.row, block.row), col = std::max(rect.col, block.col);
      const int64_t rows = std::min(rect.row + rect.rows, block.row + block.rows) - row;
      const int64_t cols = std::min(rect.col + rect.cols, block.col + block.cols) - col;
      if (rows <= 0 || cols <= 0) continue;
      from_->read_rect(
          block.tensor,
          {row - block.row + block.from_row, rows, col - block.col + block.from_col, cols},
          out + ((row - rect.row) * out_stride + col - rect.col) * item, out_stride);
    }
  }
  std::span<const std::byte> mapped(const std::string&) const override { return {}; }
  std::filesystem::path file_of(const std::string& name) const override {
    return from_->file_of(locations_[index(name)].front().tensor);
  }
  std::vector<std::filesystem::path> files() const override { return from_->files(); }
  void forget() const override { from_->forget(); }

 private:
  size_t index(const std::string& name) const {
    return index_of(name, from_->tensors().empty() ? std::filesystem::path()
                                                   : from_->file_of(from_->tensors().front().name));
  }

  std::shared_ptr<const TensorSource> from_;
};

/// The modules that a stored matrix is made of, in its order; empty: it is no linear layer's.
std::vector<size_t> globals_of(const StoredTensor& stored) {
  std::vector<size_t> parts;
  if (!matrix_name(stored.info.name) || stored.info.shape.size() != 2) return parts;
  for (const Piece& piece : stored.sections.front().pieces) {
    if (std::find(parts.begin(), parts.end(), piece.global) == parts.end())
      parts.push_back(piece.global);
  }
  return parts;
}

std::string key_of_module(const std::string& key) { return key.substr(0, key.rfind('.')); }

class Fuser {
 public:
  Fuser(const ModelLayout& model, std::shared_ptr<const TensorSource> adapter,
        const PeftConfig& peft)
      : model_(model), adapter_(std::move(adapter)), peft_(peft) {}

  FusedAdapters fuse() {
    if (peft_.dora) refuse(adapter_->tensors().front().name, tr("is part of a DoRA adapter"));
    collect();
    find_groups();
    std::vector<std::pair<TensorInfo, std::vector<Block>>> tensors;
    for (const std::vector<size_t>& group : groups_) add(group, tensors);
    FusedAdapters fused;
    fused.rank = rank_;
    fused.alpha = alpha();
    fused.modules.assign(names_.begin(), names_.end());
    fused.record = record();
    fused.tensors = std::make_shared<Blocks>(adapter_, std::move(tensors));
    return fused;
  }

 private:
  [[noreturn]] void refuse(const std::string& tensor, const std::string& why) const {
    throw ModelError(tr("{}: {} {}, which MindSpeed's LoRA has no form for",
                        adapter_->file_of(tensor).string(), tensor, why),
                     tr("danlu merge puts it into the model, which Megatron's format can hold"));
  }
  const std::string& module(size_t global) const { return modules_.at(global); }
  bool is_adapted(size_t global) const { return ranks_.contains(module(global)); }

  /// The adapted modules and their ranks.
  void collect() {
    for (const TensorInfo& info : model_.layout.globals)
      modules_.push_back(arch::module_of(info.name));
    const DType dtype = adapter_->tensors().front().dtype;
    for (const TensorInfo& info : adapter_->tensors()) {
      const auto name = parse_adapter_name(info.name);
      const bool is_a = name && name->part == AdapterPart::kLoraA;
      if (!is_a && !(name && name->part == AdapterPart::kLoraB))
        refuse(info.name, tr("is neither an A nor a B of a linear layer"));
      if (info.dtype != dtype)
        refuse(info.name, tr("is {} beside {}", dtype_name(info.dtype), dtype_name(dtype)));
      if (is_a) ranks_[name->module] = info.shape.at(0);
    }
    dtype_ = dtype;
  }

  /// Each fused matrix once, though every tensor rank stores a part of it.
  void find_groups() {
    std::set<std::string> found;
    for (size_t i = 0; i < model_.layout.tensors.size(); ++i) {
      const std::vector<size_t> parts = globals_of(model_.layout.tensors[i]);
      int64_t rank = 0;
      for (const size_t part : parts) rank += is_adapted(part) ? ranks_.at(module(part)) : 0;
      if (rank == 0) continue;
      names_.insert(arch::last_name(key_of_module(model_.traits[i].key)));
      if (!found.insert(module(parts.front())).second) continue;
      groups_.push_back(parts);
      rank_ = std::max(rank_, rank);
      for (const size_t part : parts) known_.insert(module(part));
    }
    for (const auto& [module, rank] : ranks_) {
      if (known_.contains(module)) continue;
      const std::string a = adapter_tensor_name(module, AdapterPart::kLoraA);
      // GroupedMLP's weight1 and weight2 are parameters, not linear layers that could carry
      // adapters.
      if (std::find(modules_.begin(), modules_.end(), module) != modules_.end())
        refuse(a, tr("is for an expert that is stored with others in one matrix"));
      refuse(a, tr("is for no matrix of this model"));
    }
  }

  void add(const std::vector<size_t>& group,
           std::vector<std::pair<TensorInfo, std::vector<Block>>>& tensors) const {
    const int64_t cols = matrix_of(model_.layout.globals[group.front()].shape).cols;
    std::vector<Block> common;
    std::map<size_t, Block> lower;
    int64_t at = 0;
    for (const size_t part : group) {
      if (!is_adapted(part)) continue;
      const int64_t rank = ranks_.at(module(part));
      const int64_t rows = matrix_of(model_.layout.globals[part].shape).rows;
      common.push_back({adapter_tensor_name(module(part), AdapterPart::kLoraA), at, 0, rank, cols});
      lower[part] = {adapter_tensor_name(module(part), AdapterPart::kLoraB), 0, at, rows, rank};
      at += rank;
    }
    // A part without an adapter has a B of zeros.
    const Block none{common.front().tensor, 0, 0, 0, 0};
    for (const size_t part : group) {
      const int64_t rows = matrix_of(model_.layout.globals[part].shape).rows;
      tensors.push_back(
          {{adapter_tensor_name(module(part), AdapterPart::kLoraA), dtype_, {rank_, cols}},
           common});
      tensors.push_back(
          {{adapter_tensor_name(module(part), AdapterPart::kLoraB), dtype_, {rows, rank_}},
           {lower.contains(part) ? lower.at(part) : none}});
    }
  }

  /// The record of rank and modules; Python's None where these do not say it all.
  torch_file::PyValue record() const {
    using torch_file::PyValue;
    std::set<std::string> targets;
    for (const auto& [module, rank] : ranks_) targets.insert(arch::last_name(module));
    bool says_all = peft_.rank_pattern.empty() && peft_.alpha_pattern.empty();
    for (const auto& group : groups_) {
      for (const size_t part : group)
        says_all &= is_adapted(part) == targets.contains(arch::last_name(module(part)));
    }
    if (!says_all) return PyValue::none();
    PyValue names = PyValue::list();
    for (const std::string& name : targets) names.append(PyValue::string(name));
    PyValue record = PyValue::dict();
    record.put("r", PyValue::integer(peft_.rank))
        .put("alpha", PyValue::real(peft_.alpha))
        .put("rslora", PyValue::boolean(peft_.rslora))
        .put("modules", std::move(names));
    return record;
  }

  double alpha() const {
    const bool plain = !peft_.rslora && peft_.rank_pattern.empty() && peft_.alpha_pattern.empty();
    if (plain && rank_ % peft_.rank == 0)
      return peft_.alpha * static_cast<double>(rank_ / peft_.rank);
    const double scale = peft_.scale_of(ranks_.begin()->first);
    for (const auto& [module, rank] : ranks_) {
      if (peft_.scale_of(module) == scale) continue;
      refuse(adapter_tensor_name(module, AdapterPart::kLoraA),
             tr("has the scale {:g} beside {:g}", peft_.scale_of(module), scale));
    }
    return scale * static_cast<double>(rank_);
  }

  const ModelLayout& model_;
  std::shared_ptr<const TensorSource> adapter_;
  const PeftConfig& peft_;
  std::vector<std::string> modules_;      ///< beside model_.layout.globals
  std::map<std::string, int64_t> ranks_;  ///< by adapted module
  std::set<std::string> names_, known_;
  std::vector<std::vector<size_t>> groups_;
  DType dtype_ = DType::kF32;
  int64_t rank_ = 0;
};

/// The layout of a model with adapters, rank by rank.
class Adder {
 public:
  Adder(const FusedAdapters& adapters, bool alone, const ModelLayout& model)
      : rank_(adapters.rank), alone_(alone), from_(model) {
    out_.layout.files = model.layout.files;
    if (!alone) out_.layout.globals = model.layout.globals;
    for (const TensorInfo& info : adapters.tensors->tensors()) {
      index_.emplace(info.name, out_.layout.globals.size());
      out_.layout.globals.push_back(info);
    }
  }

  ModelLayout build() {
    for (const Rank& rank : from_.ranks) {
      out_.ranks.push_back(rank);
      for (Chunk& chunk : out_.ranks.back().chunks) fill(chunk);
    }
    return std::move(out_);
  }

 private:
  std::string module(size_t global) const {
    return arch::module_of(from_.layout.globals[global].name);
  }
  size_t global(size_t of, AdapterPart part) const {
    return index_.at(adapter_tensor_name(module(of), part));
  }
  bool is_adapted(const StoredTensor& stored) const {
    const std::vector<size_t> parts = globals_of(stored);
    return !parts.empty() &&
           index_.contains(adapter_tensor_name(module(parts.front()), AdapterPart::kLoraA));
  }

  void fill(Chunk& chunk) {
    const std::vector<size_t> before = std::exchange(chunk.tensors, {});
    std::set<std::string> adapted;  // modules by Megatron's names
    for (const size_t i : before) {
      if (is_adapted(from_.layout.tensors[i])) adapted.insert(key_of_module(from_.traits[i].key));
    }
    for (const size_t i : before) {
      const StoredTensor& stored = from_.layout.tensors[i];
      const std::string& key = from_.traits[i].key;
      const std::string of = key_of_module(key);
      const bool is_below = adapted.contains(of);
      ParameterTraits traits = from_.traits[i];
      if (is_below) traits.key = of + ".base_layer" + key.substr(of.size());
      if (!alone_) put(chunk, stored, std::move(traits));
      if (is_adapted(stored)) {
        put_adapter(chunk, stored, *matrix_name(key), from_.traits[i].is_expert);
      } else if (is_below && matrix_name(key)) {
        throw ModelError(tr("[megatron] {} has no adapter, and other experts beside it have",
                            module(globals_of(stored).front())),
                         tr("experts one by one (--experts sequential) may have adapters apart"));
      }
    }
  }

  void put(Chunk& chunk, StoredTensor stored, ParameterTraits traits) {
    stored.info.name = chunk.key + "." + traits.key;
    chunk.tensors.push_back(out_.layout.tensors.size());
    out_.layout.tensors.push_back(std::move(stored));
    out_.traits.push_back(std::move(traits));
  }

  void put_adapter(Chunk& chunk, const StoredTensor& base, const MatrixName& of, bool is_expert) {
    const Section& section = base.sections.front();
    const Piece& first = section.pieces.front();
    // Rows of the model's matrices are cut over ranks (column parallel), or their columns.
    const bool cuts_columns =
        section.cols != matrix_of(from_.layout.globals[first.global].shape).cols;
    Section a{.rows = rank_, .cols = section.cols};
    Piece upper = first;
    upper.global = global(first.global, AdapterPart::kLoraA);
    upper.of = {0, rank_, first.of.col, first.of.cols};
    upper.row = 0;
    upper.col = 0;
    upper.replica = first.replica || (!cuts_columns && !seen_.insert(upper.global).second);
    a.pieces.push_back(upper);
    Section b{.rows = section.rows, .cols = rank_};
    for (const Piece& piece : section.pieces) {
      Piece lower = piece;
      lower.global = global(piece.global, AdapterPart::kLoraB);
      lower.of.col = 0;
      lower.of.cols = rank_;
      lower.col = 0;
      lower.replica |= cuts_columns && piece.of.col > 0;
      b.pieces.push_back(lower);
    }
    put_part(chunk, base.file, {of.a(), is_expert}, std::move(a));
    put_part(chunk, base.file, {of.b(), is_expert}, std::move(b));
  }

  void put_part(Chunk& chunk, size_t file, ParameterTraits traits, Section section) {
    StoredTensor stored;
    stored.file = file;
    const DType dtype = out_.layout.globals[section.pieces.front().global].dtype;
    stored.info = {traits.key, dtype, {section.rows, section.cols}};
    stored.sections.push_back(std::move(section));
    put(chunk, std::move(stored), std::move(traits));
  }

  int64_t rank_;
  bool alone_;
  const ModelLayout& from_;
  std::map<std::string, size_t> index_;
  std::set<size_t> seen_;
  ModelLayout out_;
};

}  // namespace

FusedAdapters fuse_adapters(const ModelLayout& model, std::shared_ptr<const TensorSource> adapter,
                            const PeftConfig& peft) {
  return Fuser(model, std::move(adapter), peft).fuse();
}

UnfusedAdapters unfuse_adapters(const ModelLayout& model, std::shared_ptr<const TensorSource> fused,
                                const torch_file::PyValue& record, const std::string& where) {
  UnfusedAdapters out;
  out.peft.rank = record.get("r", where).as_int(where + ": r");
  out.peft.alpha = record.get("alpha", where).as_float(where + ": alpha");
  out.peft.rslora = record.get("rslora", where).as_bool(where + ": rslora");
  for (const auto& name : record.get("modules", where).as_items(where + ": modules"))
    out.peft.target_modules.push_back(name.as_string(where + ": modules"));
  const std::vector<std::string>& targets = out.peft.target_modules;
  const int64_t rank = out.peft.rank;
  std::map<std::string, std::pair<TensorInfo, std::vector<Block>>> tensors;
  const auto put = [&](const std::string& name, int64_t rows, int64_t cols, const Block& block) {
    const TensorInfo* info = fused->find(name);
    const Rect all = info ? matrix_of(info->shape) : Rect{};
    if (!info || rank < 1 || block.from_row + rows > all.rows || block.from_col + cols > all.cols)
      throw ModelError(tr("{}: does not fit the adapters that are there: {}", where, name));
    tensors[name] = {{name, info->dtype, {rows, cols}}, {block}};
  };
  for (const StoredTensor& stored : model.layout.tensors) {
    int64_t at = 0;
    for (const size_t part : globals_of(stored)) {
      const TensorInfo& base = model.layout.globals[part];
      const std::string module = arch::module_of(base.name);
      const std::string a = adapter_tensor_name(module, AdapterPart::kLoraA);
      const std::string b = adapter_tensor_name(module, AdapterPart::kLoraB);
      const bool is_target =
          std::find(targets.begin(), targets.end(), arch::last_name(module)) != targets.end();
      if (!is_target || !fused->find(a)) continue;
      const Rect matrix = matrix_of(base.shape);
      put(a, rank, matrix.cols, {a, 0, 0, rank, matrix.cols, at, 0});
      put(b, matrix.rows, rank, {b, 0, 0, matrix.rows, rank, 0, at});
      at += rank;
    }
  }
  std::vector<std::pair<TensorInfo, std::vector<Block>>> all;
  for (auto& [name, tensor] : tensors) all.push_back(std::move(tensor));
  out.tensors = std::make_shared<Blocks>(std::move(fused), std::move(all));
  return out;
}

void add_adapters(const FusedAdapters& adapters, bool alone, ModelLayout& model) {
  model = Adder(adapters, alone, model).build();
}

}  // namespace danlu::weights::megatron
