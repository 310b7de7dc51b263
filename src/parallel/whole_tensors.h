// parallel/whole_tensors.h: what ranks of the tensor axis hold in pieces, put together to be
// written.
#pragma once
#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <vector>

#include "parallel/parameter.h"
#include "parallel/store.h"

namespace danlu::parallel {

/// The first rank asks for tensors, in any order; the others serve it: those of its tensor axis, of
/// the other stages, and where a store shares parameters those that have the other shares, over
/// Mesh::saving(), so that passes may go on meanwhile, until the next update. The tensors live as
/// long as this does.
class WholeTensors {
 public:
  /// `parts`: of a stage, the same parameters in the same order on every rank of it. store: theirs,
  /// or none. Collective. Errors: as whole().
  WholeTensors(const Mesh& mesh, std::vector<Parameter> parts, ParameterStore* store = nullptr);
  /// Lets the others go.
  ~WholeTensors();
  WholeTensors(const WholeTensors&) = delete;
  WholeTensors& operator=(const WholeTensors&) = delete;

  bool asks() const { return leads_stage() && groups_.pipeline().rank() == 0; }
  struct Description {
    std::string name;
    std::vector<int64_t> shape;
    at::ScalarType dtype;
    int64_t stage;
    size_t index;   ///< among its stage's parts
    int64_t layer;  ///< -1: none
  };
  /// Of every stage, in their order; what two hold is the first one's. Where asks().
  const std::vector<Description>& all() const { return all_; }
  // Errors of both: CommError; BrokenExchange where this rank fails in their midst.
  /// REQUIRES: asks(). Tensor `index` of all() whole, on its device, until the next is asked for.
  at::Tensor whole(size_t index) const;
  /// REQUIRES: !asks(). Gives pieces until the first rank has all that it wants.
  void serve() const;

 private:
  bool is_alone() const { return holders().is_alone() && groups_.pipeline().is_alone() && !store_; }
  /// Of a stage, once.
  const Group& holders() const {
    return groups_.cutting({arch::Axis::kTensor, arch::Axis::kExpert});
  }
  bool leads_stage() const { return groups_.tensor().rank() == 0 && groups_.sharers().rank() == 0; }
  void describe_all();
  /// The first rank's number, on every rank.
  int64_t agree(int64_t number) const;
  /// A part of this stage; undefined unless leads_stage().
  at::Tensor gather(size_t index) const;
  /// As whole(), on every rank; undefined on those that serve.
  at::Tensor fetch(const Description& tensor) const;
  /// This rank's piece of it, which its sharers have put together for the first of them.
  at::Tensor piece(const Parameter& part) const;

  const ModelGroups& groups_;
  const std::vector<Parameter> parts_;
  std::vector<Description> all_;
  ParameterStore* store_;                   ///< where it shares parameters
  mutable std::optional<size_t> gathered_;  ///< unit whose elements `unit_` has
  mutable at::Tensor unit_;
  mutable bool failed_ = false;
};

}  // namespace danlu::parallel
