// parallel/whole_tensors.h: what ranks of the tensor axis hold in pieces, put together to be
// written.
#pragma once
#include <optional>
#include <vector>

#include "parallel/parameter.h"
#include "parallel/store.h"

namespace danlu::parallel {

/// The first rank asks for tensors, in any order; the others serve it: those of its tensor axis,
/// over Mesh::saving(), so that passes may go on meanwhile; where a store shares parameters those
/// of the data axis too, which passes then have to wait for. The tensors live as long as this does.
class WholeTensors {
 public:
  /// `parts`: the same parameters in the same order on every rank. store: theirs, or none.
  WholeTensors(const Mesh& mesh, std::vector<Parameter> parts, ParameterStore* store = nullptr);
  /// Lets the others go.
  ~WholeTensors();
  WholeTensors(const WholeTensors&) = delete;
  WholeTensors& operator=(const WholeTensors&) = delete;

  bool asks() const { return mesh_.tensor().rank() == 0 && (!store_ || mesh_.data().rank() == 0); }
  // Errors of both: CommError; BrokenExchange where this rank fails in their midst.
  /// REQUIRES: asks(). Tensor `index` whole, on its device, until the next is asked for.
  at::Tensor whole(size_t index) const;
  /// REQUIRES: !asks(). Gives pieces until the first rank has all that it wants.
  void serve() const;

 private:
  bool is_alone() const { return mesh_.tensor().is_alone() && !store_; }
  /// The first rank's number, on every rank.
  int64_t agree(int64_t number) const;
  /// Undefined on ranks that serve.
  at::Tensor gather(size_t index) const;
  /// Has the unit of a parameter there, and no other.
  void open_unit_of(const Parameter& part) const;
  void close_unit() const;

  const Mesh& mesh_;
  const std::vector<Parameter> parts_;
  ParameterStore* store_;  ///< where it shares parameters
  mutable std::optional<size_t> open_;
  mutable bool failed_ = false;
};

}  // namespace danlu::parallel
