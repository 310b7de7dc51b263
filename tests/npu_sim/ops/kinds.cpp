#include "ops/kinds.h"

namespace npu_sim {

Live seen_as(const Run& run, const Tensor& t, const std::vector<int64_t>& dims) {
  Live live = run.at(t.slot);
  if (!broadcast_to(live.view, dims, &live.view))
    throw TaskError{507035, "shapes do not go together"};
  return live;
}

Around around(const std::vector<int64_t>& dims, int64_t axis) {
  Around a;
  for (size_t i = 0; i < dims.size(); ++i) {
    const auto k = static_cast<int64_t>(i);
    if (k < axis) a.outer *= dims[i];
    if (k == axis) a.middle = dims[i];
    if (k > axis) a.inner *= dims[i];
  }
  return a;
}

std::vector<int64_t> ids_below(const Live& t, int64_t limit, const char* name) {
  std::vector<int64_t> ids = read<int64_t>(t);
  for (const int64_t id : ids) {
    if (id < 0 || id >= limit) {
      throw TaskError{507035, std::string("'") + name + "' holds " + std::to_string(id) +
                                  ", the table has " + std::to_string(limit) + " rows"};
    }
  }
  return ids;
}

}  // namespace npu_sim
