// parallel/whole_tensors.h: what ranks of the tensor axis hold in pieces, put together to be
// written.
#pragma once
#include <vector>

#include "parallel/parameter.h"

namespace danlu::parallel {

/// The first rank of the tensor axis asks for tensors, in any order; the others serve it. The
/// tensors live as long as this does.
class WholeTensors {
 public:
  /// `parts`: the same parameters in the same order on every rank.
  WholeTensors(const Mesh& mesh, std::vector<Parameter> parts);
  /// Lets the others go.
  ~WholeTensors();
  WholeTensors(const WholeTensors&) = delete;
  WholeTensors& operator=(const WholeTensors&) = delete;

  bool asks() const { return mesh_.tensor().rank() == 0; }
  /// REQUIRES: asks(). Tensor `index` whole, on its device.
  at::Tensor whole(size_t index) const;
  /// REQUIRES: !asks(). Gives pieces until the first rank has all that it wants.
  void serve() const;

 private:
  /// Undefined on ranks that serve.
  at::Tensor gather(size_t index) const;

  const Mesh& mesh_;
  const std::vector<Parameter> parts_;
  mutable bool failed_ = false;
};

}  // namespace danlu::parallel
