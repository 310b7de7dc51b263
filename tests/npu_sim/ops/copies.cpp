// Copies, casts, fills, and what only moves elements.
#include <cmath>

#include "ops/kinds.h"

using namespace npu_sim;

namespace {

/// From one view to another of as many elements, with a cast where the types differ. Whole numbers
/// keep every bit.
void copy(const Live& to, const Live& from) {
  if (is_integer(from.view.dtype)) {
    write(to, read<int64_t>(from));
  } else {
    write(to, read<double>(from));
  }
}

/// `part` of `whole` along an axis.
Live slice(Live whole, int64_t axis, int64_t begin, int64_t count) {
  whole.view.offset += begin * whole.view.strides[at(axis)];
  whole.view.dims[at(axis)] = count;
  return whole;
}

}  // namespace

NPU_SIM_DEFINE(aclnnCast, const aclTensor* self, const aclDataType dtype, aclTensor* out) {
  NPU_SIM_PLAN(aclnnCast) {
    const Tensor a = p.in(self, "self"), o = p.out(out, "out");
    p.require(o.dtype() == dtype,
              std::string("'out' has ") + name_of(o.dtype()) + ", dtype is " + name_of(dtype));
    p.shape(o, a.dims());
    p.run([=](Run& run) { copy(bytes(run, o), bytes(run, a)); });
  });
}

NPU_SIM_DEFINE(aclnnInplaceCopy, aclTensor* selfRef, const aclTensor* src) {
  NPU_SIM_PLAN(aclnnInplaceCopy) {
    const Tensor o = p.out(selfRef, "selfRef"), a = p.in(src, "src");
    View seen;
    p.require(broadcast_to(a.view, o.dims(), &seen),
              "src " + shown(a.dims()) + " does not go with " + shown(o.dims()));
    p.run([=](Run& run) { copy(bytes(run, o), seen_as(run, a, o.dims())); });
  });
}

NPU_SIM_DEFINE(aclnnInplaceFillScalar, aclTensor* selfRef, const aclScalar* value) {
  NPU_SIM_PLAN(aclnnInplaceFillScalar) {
    const Tensor o = p.out(selfRef, "selfRef");
    const aclScalar& s = p.scalar(value, "value");
    const double real = s.value;
    const int64_t whole = s.integer;
    const bool as_whole = is_integer(s.dtype);
    p.run([=](Run& run) {
      if (as_whole) {
        write(bytes(run, o), std::vector<int64_t>(at(o.view.numel()), whole));
      } else {
        write(bytes(run, o), std::vector<double>(at(o.view.numel()), real));
      }
    });
  });
}

NPU_SIM_DEFINE(aclnnInplaceZero, aclTensor* selfRef) {
  NPU_SIM_PLAN(aclnnInplaceZero) {
    const Tensor o = p.out(selfRef, "selfRef");
    p.run([=](Run& run) { write(bytes(run, o), std::vector<int64_t>(at(o.view.numel()), 0)); });
  });
}

NPU_SIM_DEFINE(aclnnArange, const aclScalar* start, const aclScalar* end, const aclScalar* step,
               aclTensor* out) {
  NPU_SIM_PLAN(aclnnArange) {
    const double from = p.scalar(start, "start").value, to = p.scalar(end, "end").value;
    const double by = p.scalar(step, "step").value;
    const Tensor o = p.out(out, "out");
    p.dtype(o, {ACL_FLOAT, ACL_FLOAT16, ACL_BF16, ACL_INT32, ACL_INT64});
    p.require(by != 0, "step is 0");
    p.shape(o, {static_cast<int64_t>(std::ceil((to - from) / by))});
    p.run([=](Run& run) {
      std::vector<double> values(at(o.view.numel()));
      for (size_t i = 0; i < values.size(); ++i) values[i] = from + static_cast<double>(i) * by;
      write(bytes(run, o), values);
    });
  });
}

NPU_SIM_DEFINE(aclnnCat, const aclTensorList* tensors, int64_t dim, aclTensor* out) {
  NPU_SIM_PLAN(aclnnCat) {
    const std::vector<Tensor> parts = p.in_list(tensors, "tensors");
    const Tensor o = p.out(out, "out");
    p.require(!parts.empty(), "'tensors' is empty");
    const int64_t axis = p.axis(o, dim);
    int64_t sum = 0;
    for (const Tensor& part : parts) {
      std::vector<int64_t> dims = o.dims();
      p.require(part.rank() == o.rank(), "ranks differ");
      dims[at(axis)] = part.dim(axis);
      p.shape(part, dims);
      sum += part.dim(axis);
    }
    p.require(sum == o.dim(axis), "the parts have " + std::to_string(sum) + " rows, 'out' has " +
                                      std::to_string(o.dim(axis)));
    p.run([=](Run& run) {
      int64_t begin = 0;
      for (const Tensor& part : parts) {
        copy(slice(bytes(run, o), axis, begin, part.dim(axis)), bytes(run, part));
        begin += part.dim(axis);
      }
    });
  });
}

NPU_SIM_DEFINE(aclnnPermute, const aclTensor* self, const aclIntArray* dims, aclTensor* out) {
  NPU_SIM_PLAN(aclnnPermute) {
    const Tensor a = p.in(self, "self"), o = p.out(out, "out");
    const std::vector<int64_t> order = p.ints(dims, "dims");
    p.require(static_cast<int64_t>(order.size()) == a.rank(), "dims are as many as those of self");
    p.same_dtype(a, o);
    View turned = a.view;
    std::vector<bool> seen(order.size());
    for (size_t i = 0; i < order.size(); ++i) {
      const auto from = at(p.axis(a, order[i]));
      p.require(!seen[from], "a dimension is named twice");
      seen[from] = true;
      turned.dims[i] = a.view.dims[from];
      turned.strides[i] = a.view.strides[from];
    }
    p.shape(o, turned.dims);
    p.run([=](Run& run) {
      Live from = bytes(run, a);
      from.view = turned;
      copy(bytes(run, o), from);
    });
  });
}
