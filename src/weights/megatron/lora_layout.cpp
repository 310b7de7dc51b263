#include "weights/megatron/lora_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "weights/megatron/lora_names.h"
#include "weights/source_base.h"

namespace danlu::weights::megatron {
namespace {

class LoraBuilder {
 public:
  LoraBuilder(const ModelLayout& model,
              const std::vector<std::shared_ptr<const TensorSource>>& files)
      : model_(model), files_(files) {
    out_.files = model.layout.files;
  }

  Layout build() {
    for (size_t i = 0; i < model_.layout.tensors.size(); ++i) {
      const StoredTensor& base = model_.layout.tensors[i];
      const auto found = matrix_name(base.info.name);
      if (!found) continue;
      const std::string& name = found->module;
      const TensorInfo* a = files_[base.file]->find(found->a());
      const TensorInfo* b = files_[base.file]->find(found->b());
      if (!a && !b) continue;
      if (!a || !b) {
        throw ModelError(tr("{}: {} has lora_{} but no lora_{}", out_.files[base.file], name,
                            a ? "A" : "B", a ? "B" : "A"));
      }
      if (a->shape.size() != 2 || b->shape.size() != 2 || a->shape[0] != b->shape[1]) {
        throw ModelError(tr("{}: {}: lora_A {} and lora_B {} do not fit each other",
                            out_.files[base.file], name, shape_text(a->shape),
                            shape_text(b->shape)));
      }
      add(base, *a, *b);
    }
    return std::move(out_);
  }

 private:
  /// The adapter tensor `part` of a model matrix; made when it is first met.
  size_t global(size_t of, AdapterPart part, int64_t rows, int64_t cols, int64_t rank) {
    const std::string module = arch::module_of(model_.layout.globals[of].name);
    const std::string name = adapter_tensor_name(module, part);
    const auto [at, is_new] = index_.emplace(name, out_.globals.size());
    if (is_new) {
      out_.globals.push_back({name, DType::kF32, {rows, cols}});
      ranks_.emplace(module, rank);
    } else if (ranks_.at(module) != rank) {
      throw ModelError(tr("{}: rank {} on one tensor parallel rank, {} on another", module,
                          ranks_.at(module), rank));
    }
    return at->second;
  }

  void add(const StoredTensor& base, const TensorInfo& a, const TensorInfo& b) {
    const Section& section = base.sections.front();
    const int64_t rank = a.shape[0];
    const Rect whole = matrix_of(model_.layout.globals[section.pieces.front().global].shape);
    // Rows of the model's matrices are cut over ranks (column parallel), or their columns.
    const bool cuts_columns = section.cols != whole.cols;
    std::set<size_t> seen_a;
    Section b_section{.rows = b.shape[0], .cols = rank};
    for (const Piece& piece : section.pieces) {
      const Rect of = matrix_of(model_.layout.globals[piece.global].shape);
      const size_t b_global = global(piece.global, AdapterPart::kLoraB, of.rows, rank, rank);
      const size_t a_global = global(piece.global, AdapterPart::kLoraA, rank, of.cols, rank);
      const bool first_part = piece.of.col == 0 || cuts_columns;
      if (seen_a.insert(a_global).second && first_part) add_a(base, a, piece, a_global, rank);
      Piece lower = piece;
      lower.global = b_global;
      lower.of.col = 0;
      lower.of.cols = rank;
      // B of a row-parallel matrix is the same on all its ranks.
      lower.replica |= cuts_columns && piece.of.col > 0;
      b_section.pieces.push_back(lower);
    }
    StoredTensor stored;
    stored.file = base.file;
    stored.info = b;
    stored.sections.push_back(std::move(b_section));
    out_.tensors.push_back(std::move(stored));
  }

  void add_a(const StoredTensor& base, const TensorInfo& a, const Piece& piece, size_t a_global,
             int64_t rank) {
    Section section{.rows = rank, .cols = a.shape[1]};
    Piece upper = piece;
    upper.global = a_global;
    upper.of = {0, rank, piece.of.col, piece.of.cols};
    upper.row = 0;
    upper.col = 0;
    // A of a column-parallel matrix is the same on all its ranks.
    const bool is_whole = piece.of.cols == out_.globals[a_global].shape[1];
    upper.replica = piece.replica || (is_whole && !whole_seen_.insert(a_global).second);
    section.pieces.push_back(upper);
    StoredTensor stored;
    stored.file = base.file;
    stored.info = a;
    stored.sections.push_back(std::move(section));
    out_.tensors.push_back(std::move(stored));
  }

  const ModelLayout& model_;
  const std::vector<std::shared_ptr<const TensorSource>>& files_;
  std::map<std::string, size_t> index_;
  std::map<std::string, int64_t> ranks_;
  std::set<size_t> whole_seen_;
  Layout out_;
};

}  // namespace

Layout lora_layout(const ModelLayout& model,
                   const std::vector<std::shared_ptr<const TensorSource>>& files) {
  return LoraBuilder(model, files).build();
}

PeftConfig peft_of(const Layout& lora, double alpha) {
  PeftConfig peft;
  std::set<std::string> targets;
  std::map<int64_t, std::vector<std::string>> by_rank;
  for (const TensorInfo& info : lora.globals) {
    const auto name = parse_adapter_name(info.name);
    if (!name || name->part != AdapterPart::kLoraA) continue;
    targets.insert(arch::last_name(name->module));
    by_rank[info.shape[0]].push_back(name->module);
  }
  peft.target_modules.assign(targets.begin(), targets.end());
  peft.alpha = alpha;
  // The commonest rank is the adapter's; the rest are exceptions.
  const auto common = std::max_element(
      by_rank.begin(), by_rank.end(),
      [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
  if (common != by_rank.end()) peft.rank = common->first;
  for (const auto& [rank, modules] : by_rank) {
    if (rank == peft.rank) continue;
    for (const std::string& module : modules) peft.rank_pattern.emplace_back(module, rank);
  }
  return peft;
}

void rename_base_layers(ModelLayout& model,
                        const std::vector<std::shared_ptr<const TensorSource>>& files) {
  for (StoredTensor& stored : model.layout.tensors) {
    std::string& name = stored.info.name;
    const TensorSource& file = *files[stored.file];
    if (file.find(name)) continue;
    const size_t dot = name.rfind('.');
    const std::string below = name.substr(0, dot) + ".base_layer" + name.substr(dot);
    if (file.find(below)) name = below;
  }
}

}  // namespace danlu::weights::megatron
