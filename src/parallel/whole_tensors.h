// parallel/whole_tensors.h: puts tensors together that ranks hold in parts, so that they can be
// written.
#pragma once
#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <vector>

#include "parallel/parameter.h"
#include "parallel/store.h"

namespace danlu::parallel {

/// The first rank asks for tensors, in any order, and the other ranks serve it with what they hold:
/// parts of the tensor axis, other stages, other shares. They use Mesh::saving(), so passes may go
/// on meanwhile, until the next update. Parameters live at least as long as this object.
class WholeTensors {
 public:
  /// parts: the parameters of this stage that this rank has a part of, in the same order on each of
  /// its ranks; where experts are divided among ranks, each needs to give its own alone. store:
  /// given if it shares them. Collective. Errors: as whole().
  WholeTensors(const Mesh& mesh, std::vector<Parameter> parts, ParameterStore* store = nullptr);
  /// On the first rank, ends serve() of the others.
  ~WholeTensors();
  WholeTensors(const WholeTensors&) = delete;
  WholeTensors& operator=(const WholeTensors&) = delete;

  bool asks() const { return leads_stage() && groups_.pipeline().rank() == 0; }
  struct Description {
    std::string name;
    std::vector<int64_t> shape;
    at::ScalarType dtype;
    int64_t stage;
    size_t index;   ///< in the `parts` of its stage
    int64_t layer;  ///< -1: not in a layer
  };
  /// The tensors of all stages, in the order of the stages. One that two stages hold is listed with
  /// the first. REQUIRES: asks().
  const std::vector<Description>& all() const { return all_; }
  // Errors of both: CommError; BrokenExchange where this rank fails in their midst.
  /// Tensor `index` of all(), put together on its device; valid until the next call. REQUIRES:
  /// asks().
  at::Tensor whole(size_t index) const;
  /// Gives parts until the first rank has all that it wants. REQUIRES: !asks().
  void serve() const;

 private:
  bool is_alone() const { return holders().is_alone() && groups_.pipeline().is_alone() && !store_; }
  /// The ranks of this stage that together hold it once.
  const Group& holders() const {
    return groups_.cutting({arch::Axis::kTensor, arch::Axis::kExpert});
  }
  bool leads_stage() const { return groups_.tensor().rank() == 0 && groups_.sharers().rank() == 0; }
  /// Adds what other ranks hold of experts, as parameters of which this rank has nothing: then all
  /// of the stage have one list.
  void add_experts_of_others(const Group& owners);
  void describe_all();
  /// The first rank's number, on every rank.
  int64_t agree(int64_t number) const;
  /// A part of this stage; undefined unless leads_stage().
  at::Tensor gather(size_t index) const;
  /// The work of whole(), on every rank; undefined on those that serve.
  at::Tensor fetch(const Description& tensor) const;
  /// This rank's part of a parameter, gathered from its sharers on the first of them.
  at::Tensor own_part(const Parameter& part) const;

  const ModelGroups& groups_;
  std::vector<Parameter> parts_;
  std::vector<Description> all_;
  ParameterStore* store_;                   ///< nullptr unless it shares parameters
  mutable std::optional<size_t> gathered_;  ///< the unit whose elements `unit_` has
  mutable at::Tensor unit_;
  mutable bool failed_ = false;
};

}  // namespace danlu::parallel
