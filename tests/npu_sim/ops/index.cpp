// Tables and indices.
#include "ops/kinds.h"

using namespace npu_sim;

namespace {

/// Rows are moved: numbers of T hold every one of the table's exactly.
template <typename T>
void move_rows(Run& run, const Tensor& table, const std::vector<int64_t>& ids, const Around& r,
               const Tensor& o) {
  const std::vector<T> in = read<T>(bytes(run, table));
  std::vector<T> out;
  out.reserve(at(o.view.numel()));
  for (int64_t i = 0; i < r.outer; ++i) {
    for (const int64_t id : ids) {
      const auto row = in.begin() + (i * r.middle + id) * r.inner;
      out.insert(out.end(), row, row + r.inner);
    }
  }
  write(bytes(run, o), out);
}

/// Rows of a table along an axis: [outer, index..., inner].
void take_rows(Plan& p, const Tensor& table, int64_t axis, const Tensor& index, const Tensor& o) {
  p.dtype(table, kNumbers);
  p.dtype(index, kIds);
  p.same_dtype(table, o);
  std::vector<int64_t> dims(table.dims().begin(), table.dims().begin() + axis);
  dims.insert(dims.end(), index.dims().begin(), index.dims().end());
  dims.insert(dims.end(), table.dims().begin() + axis + 1, table.dims().end());
  p.shape(o, dims);
  const Around r = around(table.dims(), axis);
  p.run([=](Run& run) {
    const std::vector<int64_t> ids = ids_below(bytes(run, index), r.middle, "index");
    if (is_integer(table.view.dtype)) {
      move_rows<int64_t>(run, table, ids, r, o);
    } else {
      move_rows<double>(run, table, ids, r, o);
    }
  });
}

/// Places in `self` that an index of self's rank names along an axis.
std::vector<size_t> places_along(const Live& index, const std::vector<int64_t>& self,
                                 int64_t axis) {
  const std::vector<int64_t> ids = ids_below(index, self[at(axis)], "index");
  const std::vector<int64_t> strides = contiguous_strides(self);
  const std::vector<int64_t>& dims = index.view.dims;
  std::vector<size_t> places(ids.size());
  std::vector<int64_t> where(dims.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    int64_t place = 0;
    for (size_t d = 0; d < dims.size(); ++d) {
      place += strides[d] * (static_cast<int64_t>(d) == axis ? ids[i] : where[d]);
    }
    places[i] = at(place);
    for (size_t d = dims.size(); d-- > 0;) {
      if (++where[d] < dims[d]) break;
      where[d] = 0;
    }
  }
  return places;
}

void check_index_shape(Plan& p, const Tensor& self, const Tensor& index, int64_t axis) {
  p.dtype(index, kIds);
  p.require(index.rank() == self.rank(), "'index' has self's rank");
  for (int64_t d = 0; d < self.rank(); ++d) {
    p.require(d == axis || index.dim(d) <= self.dim(d), "'index' is larger than 'self'");
  }
}

}  // namespace

NPU_SIM_DEFINE(aclnnEmbedding, const aclTensor* weight, const aclTensor* indices,
               const aclTensor* out) {
  NPU_SIM_PLAN(aclnnEmbedding) {
    const Tensor w = p.in(weight, "weight"), i = p.in(indices, "indices");
    p.require(w.rank() == 2, "'weight' has 2 dimensions");
    take_rows(p, w, 0, i, p.out(out, "out"));
  });
}

NPU_SIM_DEFINE(aclnnEmbeddingDenseBackward, const aclTensor* grad, const aclTensor* indices,
               uint64_t numWeights, uint64_t paddingIdx, bool scaleGradByFreq,
               const aclTensor* out) {
  NPU_SIM_PLAN(aclnnEmbeddingDenseBackward) {
    const Tensor g = p.in(grad, "grad"), i = p.in(indices, "indices"), o = p.out(out, "out");
    p.dtype(g, kFloats);
    p.dtype(i, kIds);
    p.same_dtype(g, o);
    p.require(g.rank() >= 1 && !scaleGradByFreq, "scaleGradByFreq is not simulated");
    const int64_t width = g.dim(-1);
    p.require(g.view.numel() == i.view.numel() * width, "'grad' has a row for each index");
    p.shape(o, {static_cast<int64_t>(numWeights), width});
    p.run([=](Run& run) {
      const std::vector<int64_t> ids = ids_below(bytes(run, i), o.dim(0), "indices");
      const std::vector<float> up = read<float>(bytes(run, g));
      Live to = bytes(run, o);
      write(to, std::vector<float>(at(o.view.numel())));
      // Each sum passes through the output's type, as on the card.
      for (const int64_t row : run.order(static_cast<int64_t>(ids.size()))) {
        const int64_t id = ids[at(row)];
        if (static_cast<uint64_t>(id) == paddingIdx) continue;
        for (int64_t j = 0; j < width; ++j) {
          const int64_t place = o.view.offset + id * o.view.strides[0] + j * o.view.strides[1];
          store(to, place, load<float>(to, place) + up[at(row * width + j)]);
        }
      }
    });
  });
}

NPU_SIM_DEFINE(aclnnIndexSelect, const aclTensor* self, int64_t dim, const aclTensor* index,
               aclTensor* out) {
  NPU_SIM_PLAN(aclnnIndexSelect) {
    const Tensor a = p.in(self, "self"), i = p.in(index, "index");
    p.require(i.rank() <= 1, "'index' has one dimension");
    take_rows(p, a, p.axis(a, dim), i, p.out(out, "out"));
  });
}

NPU_SIM_DEFINE(aclnnGatherV2, const aclTensor* self, int64_t dim, const aclTensor* index,
               aclTensor* out) {
  NPU_SIM_PLAN(aclnnGatherV2) {
    const Tensor a = p.in(self, "self"), i = p.in(index, "index");
    take_rows(p, a, p.axis(a, dim), i, p.out(out, "out"));
  });
}

NPU_SIM_DEFINE(aclnnGather, const aclTensor* self, const int64_t dim, const aclTensor* index,
               aclTensor* out) {
  NPU_SIM_PLAN(aclnnGather) {
    const Tensor a = p.in(self, "self"), i = p.in(index, "index"), o = p.out(out, "out");
    const int64_t axis = p.axis(a, dim);
    check_index_shape(p, a, i, axis);
    p.same_dtype(a, o);
    p.shape(o, i.dims());
    p.run([=](Run& run) {
      const std::vector<size_t> places = places_along(bytes(run, i), a.dims(), axis);
      const std::vector<double> in = read<double>(bytes(run, a));
      std::vector<double> values(places.size());
      for (size_t k = 0; k < places.size(); ++k) values[k] = in[places[k]];
      write(bytes(run, o), values);
    });
  });
}

NPU_SIM_DEFINE(aclnnScatterAdd, const aclTensor* self, int64_t dim, const aclTensor* index,
               const aclTensor* src, aclTensor* out) {
  NPU_SIM_PLAN(aclnnScatterAdd) {
    const Tensor a = p.in(self, "self"), i = p.in(index, "index"), s = p.in(src, "src"),
                 o = p.out(out, "out");
    const int64_t axis = p.axis(a, dim);
    check_index_shape(p, a, i, axis);
    p.shape(s, i.dims());
    p.same_dtype(a, s);
    p.same_dtype(a, o);
    p.shape(o, a.dims());
    p.run([=](Run& run) {
      const std::vector<size_t> places = places_along(bytes(run, i), a.dims(), axis);
      std::vector<double> values = read<double>(bytes(run, a));
      const std::vector<double> terms = read<double>(bytes(run, s));
      for (size_t k = 0; k < places.size(); ++k) values[places[k]] += terms[k];
      write(bytes(run, o), values);
    });
  });
}

NPU_SIM_DEFINE(aclnnIndexAdd, const aclTensor* self, const int64_t dim, const aclTensor* index,
               const aclTensor* source, const aclScalar* alpha, aclTensor* out) {
  NPU_SIM_PLAN(aclnnIndexAdd) {
    const Tensor a = p.in(self, "self"), i = p.in(index, "index"), s = p.in(source, "source"),
                 o = p.out(out, "out");
    const int64_t axis = p.axis(a, dim);
    const double factor = p.scalar(alpha, "alpha").value;
    p.dtype(i, kIds);
    std::vector<int64_t> dims = a.dims();
    dims[at(axis)] = i.view.numel();
    p.shape(s, dims);
    p.same_dtype(a, s);
    p.same_dtype(a, o);
    p.shape(o, a.dims());
    const Around r = around(a.dims(), axis);
    p.run([=](Run& run) {
      const std::vector<int64_t> ids = ids_below(bytes(run, i), r.middle, "index");
      std::vector<float> values = read<float>(bytes(run, a));
      const std::vector<float> terms = read<float>(bytes(run, s));
      const auto rows = static_cast<int64_t>(ids.size());
      for (const int64_t row : run.order(rows)) {
        for (int64_t b = 0; b < r.outer; ++b) {
          for (int64_t j = 0; j < r.inner; ++j) {
            values[at((b * r.middle + ids[at(row)]) * r.inner + j)] +=
                static_cast<float>(factor) * terms[at((b * rows + row) * r.inner + j)];
          }
        }
      }
      write(bytes(run, o), values);
    });
  });
}

NPU_SIM_DEFINE(aclnnInplaceIndexCopy, aclTensor* selfRef, int64_t dim, const aclTensor* index,
               const aclTensor* source) {
  NPU_SIM_PLAN(aclnnInplaceIndexCopy) {
    const Tensor a = p.inout(selfRef, "selfRef"), i = p.in(index, "index"),
                 s = p.in(source, "source");
    const int64_t axis = p.axis(a, dim);
    p.dtype(i, kIds);
    std::vector<int64_t> dims = a.dims();
    dims[at(axis)] = i.view.numel();
    p.shape(s, dims);
    p.same_dtype(a, s);
    p.run([=](Run& run) {
      const std::vector<int64_t> ids = ids_below(bytes(run, i), a.dim(axis), "index");
      const Live from = bytes(run, s), to = bytes(run, a);
      for (size_t k = 0; k < ids.size(); ++k) {
        Live row = from, place = to;
        row.view.dims[at(axis)] = place.view.dims[at(axis)] = 1;
        row.view.offset += static_cast<int64_t>(k) * row.view.strides[at(axis)];
        place.view.offset += ids[k] * place.view.strides[at(axis)];
        write(place, read<double>(row));
      }
    });
  });
}
