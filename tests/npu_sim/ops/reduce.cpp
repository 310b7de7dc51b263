// Reductions over dimensions, sums along one, sorting.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "ops/kinds.h"

using namespace npu_sim;

namespace {

/// The dimensions that stay, and those that go, as two views' worth of places.
struct Split {
  std::vector<bool> gone;
  std::vector<int64_t> shape;  // of the result
};

Split split(Plan& p, const Tensor& a, const std::vector<int64_t>& dims, bool keep) {
  Split s{std::vector<bool>(at(a.rank()), dims.empty()), {}};
  for (const int64_t d : dims) s.gone[at(p.axis(a, d))] = a.rank() > 0;
  for (int64_t i = 0; i < a.rank(); ++i) {
    if (!s.gone[at(i)]) s.shape.push_back(a.dim(i));
    if (s.gone[at(i)] && keep) s.shape.push_back(1);
  }
  return s;
}

/// Calls for each element of the result with its terms.
template <typename F>
std::vector<double> reduced(const Live& in, const Split& s, F&& combine) {
  View kept = in.view, gone = in.view;
  for (size_t i = 0; i < s.gone.size(); ++i) (s.gone[i] ? kept : gone).dims[i] = 1;
  gone.offset = 0;
  std::vector<double> out;
  std::vector<double> terms;
  each_place(kept, [&](int64_t base) {
    terms.clear();
    each_place(gone, [&](int64_t place) { terms.push_back(load<double>(in, base + place)); });
    out.push_back(combine(terms));
  });
  return out;
}

using Combine = double (*)(const std::vector<double>&);

void reduce(Plan& p, const aclTensor* self, const aclIntArray* dims, bool keep,
            const aclTensor* out, aclDataType dtype, Combine combine) {
  const Tensor a = p.in(self, "self"), o = p.out(out, "out");
  p.dtype(a, kNumbers);
  const Split s = split(p, a, p.optional_ints(dims, "dims"), keep);
  p.require(dtype == ACL_DT_UNDEFINED || o.dtype() == dtype, "'out' has another type than dtype");
  p.shape(o, s.shape);
  p.run([=](Run& run) { write(bytes(run, o), reduced(bytes(run, a), s, combine)); });
}

double sum_of(const std::vector<double>& t) { return std::accumulate(t.begin(), t.end(), 0.0); }
double mean_of(const std::vector<double>& t) { return sum_of(t) / static_cast<double>(t.size()); }

double largest_of(const std::vector<double>& t) {
  double most = -std::numeric_limits<double>::infinity();
  for (const double v : t) most = v > most || std::isnan(v) ? v : most;
  return most;
}

double log_sum_exp(const std::vector<double>& t) {
  const double most = largest_of(t);
  if (std::isinf(most)) return most;
  double sum = 0;
  for (const double v : t) sum += std::exp(v - most);
  return most + std::log(sum);
}

double all_of(const std::vector<double>& t) {
  return std::all_of(t.begin(), t.end(), [](double v) { return v != 0; });
}

void norm(Plan& p, const aclTensor* self, const aclScalar* power, const aclIntArray* dim, bool keep,
          aclDataType dtype, const aclTensor* out) {
  const Tensor a = p.in(self, "self"), o = p.out(out, "out");
  const double order = p.scalar(power, "p").value;
  p.dtype(a, kFloats);
  const Split s = split(p, a, p.optional_ints(dim, "dim"), keep);
  p.require(dtype == ACL_DT_UNDEFINED || o.dtype() == dtype, "'out' has another type than dtype");
  p.shape(o, s.shape);
  p.run([=](Run& run) {
    write(bytes(run, o), reduced(bytes(run, a), s, [&](const std::vector<double>& t) {
            if (std::isinf(order)) {
              double most = 0;
              for (const double v : t) most = std::max(most, std::fabs(v));
              return most;
            }
            double sum = 0;
            for (const double v : t) sum += order == 2 ? v * v : std::pow(std::fabs(v), order);
            return order == 2 ? std::sqrt(sum) : std::pow(sum, 1 / order);
          }));
  });
}

/// Places along an axis, in the order of their values; equal ones stay as they are.
std::vector<int64_t> sorted_order(const double* values, int64_t step, int64_t count,
                                  bool descending) {
  std::vector<int64_t> order(at(count));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t i, int64_t j) {
    const double x = values[i * step], y = values[j * step];
    return descending ? x > y : x < y;
  });
  return order;
}

/// The first `k` along an axis of the sorted values and their places.
void sort_into(Run& run, const Tensor& a, int64_t axis, int64_t k, bool descending,
               const Tensor& values, const Tensor& indices) {
  const Around r = around(a.dims(), axis);
  const std::vector<double> in = read<double>(bytes(run, a));
  std::vector<double> v(at(r.outer * k * r.inner));
  std::vector<int64_t> places(v.size());
  for (int64_t i = 0; i < r.outer; ++i) {
    for (int64_t j = 0; j < r.inner; ++j) {
      const double* row = in.data() + i * r.middle * r.inner + j;
      const std::vector<int64_t> order = sorted_order(row, r.inner, r.middle, descending);
      for (int64_t l = 0; l < k; ++l) {
        v[at((i * k + l) * r.inner + j)] = row[order[at(l)] * r.inner];
        places[at((i * k + l) * r.inner + j)] = order[at(l)];
      }
    }
  }
  if (values) write(bytes(run, values), v);
  if (indices) write(bytes(run, indices), places);
}

}  // namespace

NPU_SIM_DEFINE(aclnnReduceSum, const aclTensor* self, const aclIntArray* dims, bool keepDims,
               aclDataType dtype, aclTensor* out) {
  NPU_SIM_PLAN(aclnnReduceSum) { reduce(p, self, dims, keepDims, out, dtype, sum_of); });
}

NPU_SIM_DEFINE(aclnnMean, const aclTensor* self, const aclIntArray* dims, bool keepDims,
               aclDataType dtype, aclTensor* out) {
  NPU_SIM_PLAN(aclnnMean) { reduce(p, self, dims, keepDims, out, dtype, mean_of); });
}

NPU_SIM_DEFINE(aclnnAmax, const aclTensor* self, const aclIntArray* dim, bool keepDim,
               aclTensor* out) {
  NPU_SIM_PLAN(aclnnAmax) { reduce(p, self, dim, keepDim, out, ACL_DT_UNDEFINED, largest_of); });
}

NPU_SIM_DEFINE(aclnnLogSumExp, const aclTensor* self, const aclIntArray* dim, bool keepDim,
               aclTensor* out) {
  NPU_SIM_PLAN(aclnnLogSumExp) {
    reduce(p, self, dim, keepDim, out, ACL_DT_UNDEFINED, log_sum_exp);
  });
}

NPU_SIM_DEFINE(aclnnAll, const aclTensor* self, const aclIntArray* dim, bool keepdim,
               aclTensor* out) {
  NPU_SIM_PLAN(aclnnAll) { reduce(p, self, dim, keepdim, out, ACL_BOOL, all_of); });
}

NPU_SIM_DEFINE(aclnnNorm, const aclTensor* self, const aclScalar* power, const aclIntArray* dim,
               bool keepdim, aclTensor* out) {
  NPU_SIM_PLAN(aclnnNorm) { norm(p, self, power, dim, keepdim, ACL_DT_UNDEFINED, out); });
}

NPU_SIM_DEFINE(aclnnLinalgVectorNorm, const aclTensor* self, const aclScalar* power,
               const aclIntArray* dim, bool keepdim, const aclDataType dtype, aclTensor* out) {
  NPU_SIM_PLAN(aclnnLinalgVectorNorm) { norm(p, self, power, dim, keepdim, dtype, out); });
}

NPU_SIM_DEFINE(aclnnMaxDim, const aclTensor* self, int64_t dim, bool keepdim, aclTensor* out,
               aclTensor* indices) {
  NPU_SIM_PLAN(aclnnMaxDim) {
    const Tensor a = p.in(self, "self"), o = p.out(out, "out"), places = p.out(indices, "indices");
    const int64_t axis = p.axis(a, dim);
    const Split s = split(p, a, {axis}, keepdim);
    p.same_dtype(a, o);
    p.dtype(places, kIds);
    p.shape(o, s.shape);
    p.shape(places, s.shape);
    p.require(a.dim(axis) > 0, "the dimension is empty");
    p.run([=](Run& run) { sort_into(run, a, axis, 1, true, o, places); });
  });
}

NPU_SIM_DEFINE(aclnnCumsum, const aclTensor* self, int64_t dim, aclDataType dtype, aclTensor* out) {
  NPU_SIM_PLAN(aclnnCumsum) {
    const Tensor a = p.in(self, "self"), o = p.out(out, "out");
    p.dtype(a, kNumbers);
    p.require(o.dtype() == dtype, "'out' has another type than dtype");
    p.shape(o, a.dims());
    const Around r = around(a.dims(), p.axis(a, dim));
    p.run([=](Run& run) {
      std::vector<double> v = read<double>(bytes(run, a));
      for (int64_t i = 0; i < r.outer; ++i) {
        for (int64_t m = 1; m < r.middle; ++m) {
          for (int64_t j = 0; j < r.inner; ++j) {
            v[at((i * r.middle + m) * r.inner + j)] += v[at((i * r.middle + m - 1) * r.inner + j)];
          }
        }
      }
      write(bytes(run, o), v);
    });
  });
}

NPU_SIM_DEFINE(aclnnTopk, const aclTensor* self, int64_t k, int64_t dim, bool largest, bool sorted,
               aclTensor* valuesOut, aclTensor* indicesOut) {
  NPU_SIM_PLAN(aclnnTopk) {
    const Tensor a = p.in(self, "self"), v = p.out(valuesOut, "valuesOut"),
                 i = p.out(indicesOut, "indicesOut");
    const int64_t axis = p.axis(a, dim);
    p.require(sorted, "sorted must be true");
    p.require(k >= 0 && k <= a.dim(axis), "k is more than the dimension has");
    p.same_dtype(a, v);
    p.dtype(i, {ACL_INT64});
    std::vector<int64_t> dims = a.dims();
    dims[at(axis)] = k;
    p.shape(v, dims);
    p.shape(i, dims);
    p.run([=](Run& run) { sort_into(run, a, axis, k, largest, v, i); });
  });
}

NPU_SIM_DEFINE(aclnnSort, const aclTensor* self, bool, int64_t dim, bool descending,
               aclTensor* values, aclTensor* indices) {
  NPU_SIM_PLAN(aclnnSort) {
    const Tensor a = p.in(self, "self"), v = p.out(values, "values"), i = p.out(indices, "indices");
    const int64_t axis = p.axis(a, dim);
    p.same_dtype(a, v);
    p.dtype(i, {ACL_INT64});
    p.shape(v, a.dims());
    p.shape(i, a.dims());
    p.run([=](Run& run) { sort_into(run, a, axis, a.dim(axis), descending, v, i); });
  });
}

NPU_SIM_DEFINE(aclnnArgsort, const aclTensor* self, int64_t dim, bool descending, aclTensor* out) {
  NPU_SIM_PLAN(aclnnArgsort) {
    const Tensor a = p.in(self, "self"), i = p.out(out, "out");
    const int64_t axis = p.axis(a, dim);
    p.dtype(i, {ACL_INT64});
    p.shape(i, a.dims());
    p.run([=](Run& run) { sort_into(run, a, axis, a.dim(axis), descending, {}, i); });
  });
}
