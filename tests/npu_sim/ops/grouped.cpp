// Grouped products: the rows of each expert with its own weight.
#include "ops/kinds.h"

using namespace npu_sim;

namespace {

constexpr int64_t kWidest = 65536;

/// Rows before which each group ends, from a device tensor of sums or counts.
std::vector<int64_t> ends_of(const Live& list, bool counts, int64_t rows) {
  std::vector<int64_t> ends = read<int64_t>(list);
  int64_t last = 0;
  for (int64_t& end : ends) {
    if (counts) end += last;
    if (end < last || end > rows) {
      throw TaskError{507035, "groupList: group ends at " + std::to_string(end) + " after " +
                                  std::to_string(last) + " of " + std::to_string(rows) + " rows"};
    }
    last = end;
  }
  return ends;
}

void check_widths(Plan& p, const Tensor& x, const Tensor& w) {
  p.dtype(x, kFloats);
  p.same_dtype(x, w);
  p.require(x.dim(-1) < kWidest && w.dim(-1) < kWidest, "last dimensions are below 65536");
}

/// x [m, k] from row `begin` times w [k, n], summed in double, added into `out`.
void multiply_add(const float* x, const float* w, double* out, int64_t m, int64_t k, int64_t n) {
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < k; ++j) {
      const auto factor = static_cast<double>(x[i * k + j]);
      for (int64_t l = 0; l < n; ++l) out[i * n + l] += factor * static_cast<double>(w[j * n + l]);
    }
  }
}

/// Rows grouped: y[rows of g] = x[rows of g] @ w[g]. Rows behind the last group stay as they are.
void by_rows(Plan& p, const Tensor& x, const Tensor& w, const Tensor& bias, const Tensor& list,
             bool counts, const Tensor& y) {
  p.require(x.rank() == 2 && w.rank() == 3 && x.dim(1) == w.dim(1), "x [T,K], weight [g,K,N]");
  p.require(x.view.contiguous(), "x is not transposed here");
  p.require(list.view.numel() == w.dim(0), "groupList has an entry for each weight");
  p.shape(y, {x.dim(0), w.dim(2)});
  if (bias) p.shape(bias, {w.dim(0), w.dim(2)});
  const int64_t k = x.dim(1), n = w.dim(2);
  p.run([=](Run& run) {
    const std::vector<int64_t> ends = ends_of(bytes(run, list), counts, x.dim(0));
    const std::vector<float> in = read<float>(bytes(run, x)), weights = read<float>(bytes(run, w));
    const std::vector<double> add = bias ? read<double>(bytes(run, bias)) : std::vector<double>{};
    int64_t begin = 0;
    for (size_t g = 0; g < ends.size(); ++g) {
      const int64_t rows = ends[g] - begin;
      std::vector<double> out(at(rows * n));
      for (size_t i = 0; i < out.size() && bias; ++i) out[i] = add[g * at(n) + i % at(n)];
      multiply_add(in.data() + begin * k, weights.data() + static_cast<int64_t>(g) * k * n,
                   out.data(), rows, k, n);
      Live part = bytes(run, y);
      part.view.offset += begin * part.view.strides[0];
      part.view.dims[0] = rows;
      write(part, out);
      begin = ends[g];
    }
  });
}

/// Inner dimension grouped: y[g] = x[:, columns of g] @ w[rows of g]; with `add`, y[g] grows by it.
void by_inner(Plan& p, const Tensor& x, const Tensor& w, const Tensor& list, bool counts,
              const Tensor& y, bool add) {
  p.require(x.rank() == 2 && w.rank() == 2 && x.dim(1) == w.dim(0), "x [K,T], weight [T,N]");
  const int64_t groups = list.view.numel(), m = x.dim(0), t = x.dim(1), n = w.dim(1);
  p.require(y.view.numel() == groups * m * n && y.dim(-1) == n, "y is [g,K,N]");
  p.run([=](Run& run) {
    const std::vector<int64_t> ends = ends_of(bytes(run, list), counts, t);
    const std::vector<float> in = read<float>(bytes(run, x)), right = read<float>(bytes(run, w));
    std::vector<double> out =
        add ? read<double>(bytes(run, y)) : std::vector<double>(at(groups * m * n));
    int64_t begin = 0;
    for (size_t g = 0; g < ends.size(); ++g) {
      for (int64_t i = 0; i < m; ++i) {
        multiply_add(in.data() + i * t + begin, right.data() + begin * n,
                     out.data() + (static_cast<int64_t>(g) * m + i) * n, 1, ends[g] - begin, n);
      }
      begin = ends[g];
    }
    write(bytes(run, y), out);
  });
}

void refuse_lists(std::initializer_list<const aclTensorList*> lists) {
  for (const aclTensorList* list : lists) {
    if (list && !list->tensors.empty())
      throw Refused{561002, "quantised grouped products are not simulated"};
  }
}

void grouped(Plan& p, const aclTensorList* x, const aclTensorList* weight,
             const aclTensorList* bias, const aclTensor* list, int64_t split, int64_t type,
             int64_t list_type, const aclTensorList* out) {
  p.only_910b();
  const std::vector<Tensor> xs = p.in_list(x, "x"), ws = p.in_list(weight, "weight"),
                            bs = p.in_list(bias, "bias");
  const std::vector<Tensor> ys = p.out_list(out, "out");
  p.require(xs.size() == 1 && ws.size() == 1 && ys.size() == 1 && (split == 2 || split == 3),
            "only one tensor each with splitItem 2 or 3 is simulated");
  p.require(type == 0 || type == 2, "groupType is 0 (rows) or 2 (inner dimension)");
  p.require(list_type == 0 || list_type == 1, "groupListType is 0 (sums) or 1 (counts)");
  p.require(bs.size() <= 1 && (bs.empty() || type == 0),
            "at most one bias, and none with groupType 2");
  const Tensor ends = p.in(list, "groupList");
  p.dtype(ends, {ACL_INT64});
  p.require(ends.rank() == 1 && ends.dim(0) >= 1 && ends.dim(0) <= 1024, "1 … 1024 groups");
  check_widths(p, xs[0], ws[0]);
  p.same_dtype(xs[0], ys[0]);
  if (!bs.empty()) p.dtype(bs[0], {xs[0].dtype() == ACL_FLOAT16 ? ACL_FLOAT16 : ACL_FLOAT});
  p.scratch(16 << 20);
  if (type == 0) {
    by_rows(p, xs[0], ws[0], bs.empty() ? Tensor{} : bs[0], ends, list_type == 1, ys[0]);
  } else {
    by_inner(p, xs[0], ws[0], ends, list_type == 1, ys[0], false);
  }
}

}  // namespace

NPU_SIM_DEFINE(aclnnGroupedMatmulV4, const aclTensorList* x, const aclTensorList* weight,
               const aclTensorList* biasOptional, const aclTensorList* scaleOptional,
               const aclTensorList* offsetOptional, const aclTensorList* antiquantScaleOptional,
               const aclTensorList* antiquantOffsetOptional,
               const aclTensorList* perTokenScaleOptional, const aclTensor* groupListOptional,
               const aclTensorList* activationInputOptional,
               const aclTensorList* activationQuantScaleOptional,
               const aclTensorList* activationQuantOffsetOptional, int64_t splitItem,
               int64_t groupType, int64_t groupListType, int64_t actType, aclTensorList* out,
               aclTensorList* activationFeatureOutOptional,
               aclTensorList* dynQuantScaleOutOptional) {
  NPU_SIM_PLAN(aclnnGroupedMatmulV4) {
    refuse_lists({scaleOptional, offsetOptional, antiquantScaleOptional, antiquantOffsetOptional,
                  perTokenScaleOptional, activationInputOptional, activationQuantScaleOptional,
                  activationQuantOffsetOptional, activationFeatureOutOptional,
                  dynQuantScaleOutOptional});
    p.require(actType == 0, "actType is 0");
    grouped(p, x, weight, biasOptional, groupListOptional, splitItem, groupType, groupListType,
            out);
  });
}

NPU_SIM_DEFINE(aclnnGroupedMatmulV3, const aclTensorList* x, const aclTensorList* weight,
               const aclTensorList* bias, const aclTensorList* scale, const aclTensorList* offset,
               const aclTensorList* antiquantScale, const aclTensorList* antiquantOffset,
               const aclTensor* groupListOptional, int64_t splitItem, int64_t groupType,
               const aclTensorList* y) {
  NPU_SIM_PLAN(aclnnGroupedMatmulV3) {
    refuse_lists({scale, offset, antiquantScale, antiquantOffset});
    grouped(p, x, weight, bias, groupListOptional, splitItem, groupType, 0, y);
  });
}

NPU_SIM_DEFINE(aclnnGroupedMatmulAdd, const aclTensor* x, const aclTensor* weight,
               const aclTensor* groupList, aclTensor* yRef, bool transposeX, bool transposeWeight,
               int64_t groupType) {
  NPU_SIM_PLAN(aclnnGroupedMatmulAdd) {
    const Tensor a = p.in(x, "x"), w = p.in(weight, "weight"), ends = p.in(groupList, "groupList");
    const Tensor y = p.inout(yRef, "yRef");
    p.only_910b();
    p.require(transposeX && !transposeWeight && groupType == 2,
              "transposeX true, transposeWeight false, groupType 2");
    p.dtype(a, {ACL_FLOAT16, ACL_BF16});
    check_widths(p, a, w);
    p.dtype(y, {ACL_FLOAT});
    p.dtype(ends, {ACL_INT64});
    p.require(ends.rank() == 1 && ends.dim(0) <= 1024, "at most 1024 groups");
    p.scratch(16 << 20);
    // x is [T,K] as it lies, and is turned here.
    p.require(a.rank() == 2, "'x' has 2 dimensions");
    Tensor turned = a;
    std::swap(turned.view.dims[0], turned.view.dims[1]);
    std::swap(turned.view.strides[0], turned.view.strides[1]);
    p.executor().slots[at(a.slot)].view = turned.view;
    by_inner(p, turned, w, ends, false, y, true);
  });
}
