#include "parallel/mesh.h"

namespace danlu::parallel {
namespace {

class AloneGroup : public Group {
 public:
  int64_t rank() const override { return 0; }
  int64_t size() const override { return 1; }
  void all_reduce_sum(at::Tensor&) const override {}
  at::Tensor all_gather(const at::Tensor& tensor, int64_t) const override { return tensor; }
  at::Tensor reduce_scatter_sum(const at::Tensor& tensor, int64_t) const override { return tensor; }
  void broadcast(at::Tensor&, int64_t) const override {}
  void barrier() const override {}
};

}  // namespace

const Group& Group::alone() {
  static const AloneGroup group;
  return group;
}

const Mesh& Mesh::single() {
  static const Mesh mesh;
  return mesh;
}

}  // namespace danlu::parallel
