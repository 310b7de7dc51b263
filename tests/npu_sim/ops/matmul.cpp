// Matrix products: 16-bit inputs are summed in f32 and rounded once, f32 inputs are summed in
// double.
#include <algorithm>

#include "core/config.h"
#include "ops/kinds.h"

using namespace npu_sim;

namespace {

constexpr uint64_t kScratch = 1 << 20;  // what a product's workspace has beside the usual

/// One [M,K] · [K,N] in row-major order.
template <typename Sum>
void multiply(const float* a, const float* b, Sum* c, int64_t m, int64_t k, int64_t n) {
  std::fill(c, c + m * n, Sum{0});
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < k; ++j) {
      const Sum x = static_cast<Sum>(a[i * k + j]);
      const float* row = b + j * n;
      Sum* to = c + i * n;
      for (int64_t l = 0; l < n; ++l) to[l] += x * static_cast<Sum>(row[l]);
    }
  }
}

/// The product of two batches as doubles, summed as the unit for `dtype` sums.
std::vector<double> product(const std::vector<float>& a, const std::vector<float>& b,
                            aclDataType dtype, int64_t batch, int64_t m, int64_t k, int64_t n) {
  std::vector<double> out(at(batch * m * n));
  std::vector<float> sums(dtype == ACL_FLOAT ? 0 : at(m * n));
  for (int64_t i = 0; i < batch; ++i) {
    double* to = out.data() + i * m * n;
    if (dtype == ACL_FLOAT) {
      multiply(a.data() + i * m * k, b.data() + i * k * n, to, m, k, n);
    } else {
      multiply(a.data() + i * m * k, b.data() + i * k * n, sums.data(), m, k, n);
      std::copy(sums.begin(), sums.end(), to);
    }
  }
  return out;
}

void check_types(Plan& p, const Tensor& a, const Tensor& b, const Tensor& out, int8_t cube) {
  p.dtype(a, kFloats);
  p.dtype(b, kFloats);
  p.same_dtype(a, b);
  const bool widened = a.dtype() != ACL_FLOAT && out.dtype() == ACL_FLOAT;
  p.require(widened || out.dtype() == a.dtype(), std::string("'out' has ") + name_of(out.dtype()) +
                                                     " for inputs of " + name_of(a.dtype()));
  p.require(!widened || config().chip.family == Family::k910B,
            "this chip does not widen the result");
  p.require(cube >= 0 && cube <= 4, "cubeMathType is 0 … 4");
  p.require(cube != 2 || a.dtype() != ACL_BF16, "cubeMathType 2 (USE_FP16) with DT_BFLOAT16");
  p.require(cube != 3 || a.dtype() == ACL_FLOAT, "cubeMathType 3 (USE_HF32) is for DT_FLOAT");
  if (config().chip.family != Family::k910B) {
    p.require(a.dtype() != ACL_FLOAT || (cube != 0 && cube != 3),
              "this chip multiplies f32 only with precision reduced");
  }
}

/// The older library passes a widened result through the inputs' type.
void narrow_as_old(std::vector<double>& values, aclDataType inputs, aclDataType out) {
  if (!kOldVariant || inputs == out) return;
  for (double& v : values) {
    const auto f = static_cast<float>(v);
    v = static_cast<double>(inputs == ACL_BF16 ? bf16_to_float(float_to_bf16(f))
                                               : f16_to_float(float_to_f16(f)));
  }
}

/// Vectors become matrices, and both get the common batch; `shape` is that of the result.
struct Operands {
  View a, b;
  std::vector<int64_t> shape;
  int64_t batch = 1, m = 1, k = 1, n = 1;
};

Operands operands(Plan& p, const Tensor& left, const Tensor& right) {
  Operands o{left.view, right.view, {}, 1, 1, 1, 1};
  p.require(left.rank() >= 1 && right.rank() >= 1 && left.rank() <= 6 && right.rank() <= 6,
            "1 to 6 dimensions");
  const bool row = left.rank() == 1, column = right.rank() == 1;
  if (row) {
    o.a.dims.insert(o.a.dims.begin(), 1);
    o.a.strides.insert(o.a.strides.begin(), 0);
  }
  if (column) {
    o.b.dims.push_back(1);
    o.b.strides.push_back(0);
  }
  o.m = o.a.dims[o.a.dims.size() - 2];
  o.k = o.a.dims.back();
  o.n = o.b.dims.back();
  p.require(o.b.dims[o.b.dims.size() - 2] == o.k,
            "inner sizes of " + shown(left.dims()) + " and " + shown(right.dims()));
  const std::vector<int64_t> batch_a(o.a.dims.begin(), o.a.dims.end() - 2),
      batch_b(o.b.dims.begin(), o.b.dims.end() - 2);
  p.require(common_shape(batch_a, batch_b, &o.shape), "batches do not go together");
  for (const int64_t d : o.shape) o.batch *= d;
  std::vector<int64_t> full_a = o.shape, full_b = o.shape;
  full_a.insert(full_a.end(), {o.m, o.k});
  full_b.insert(full_b.end(), {o.k, o.n});
  broadcast_to(o.a, full_a, &o.a);
  broadcast_to(o.b, full_b, &o.b);
  if (!row) o.shape.push_back(o.m);
  if (!column) o.shape.push_back(o.n);
  return o;
}

std::vector<double> product_of(const Run& run, const Tensor& left, const Tensor& right,
                               const Operands& o) {
  Live a = bytes(run, left), b = bytes(run, right);
  a.view = o.a;
  b.view = o.b;
  return product(read<float>(a), read<float>(b), left.dtype(), o.batch, o.m, o.k, o.n);
}

void plain(Plan& p, const aclTensor* self, const aclTensor* mat2, aclTensor* out, int8_t cube,
           int64_t rank) {
  const Tensor a = p.in(self, "self"), b = p.in(mat2, "mat2"), c = p.out(out, "out");
  check_types(p, a, b, c, cube);
  p.require(rank == 0 || (a.rank() == rank && b.rank() == rank),
            "both have " + std::to_string(rank) + " dimensions");
  const Operands o = operands(p, a, b);
  p.require(rank != 3 || a.dim(0) == b.dim(0) || a.dim(0) == 1 || b.dim(0) == 1, "batches differ");
  p.shape(c, o.shape);
  p.scratch(kScratch);
  p.run([=](Run& run) {
    std::vector<double> values = product_of(run, a, b, o);
    narrow_as_old(values, a.dtype(), c.dtype());
    write(bytes(run, c), values);
  });
}

/// out = beta · self + alpha · a @ b
void accumulate(Plan& p, const Tensor& self, const Tensor& a, const Tensor& b, double beta,
                double alpha, const Tensor& c, int8_t cube, int64_t rank) {
  check_types(p, a, b, c, cube);
  p.require(a.rank() == rank && b.rank() == rank,
            "the factors have " + std::to_string(rank) + " dimensions");
  const Operands o = operands(p, a, b);
  View seen;
  p.shape(c, o.shape);
  p.dtype(self, kFloats);
  p.require(broadcast_to(self.view, o.shape, &seen), "'self' does not go with the product");
  p.scratch(kScratch);
  p.run([=](Run& run) {
    std::vector<double> values = product_of(run, a, b, o);
    narrow_as_old(values, a.dtype(), c.dtype());
    const std::vector<double> old =
        beta == 0 ? std::vector<double>{} : read<double>(seen_as(run, self, o.shape));
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = alpha * values[i] + (beta == 0 ? 0 : beta * old[i]);
    write(bytes(run, c), values);
  });
}

}  // namespace

NPU_SIM_DEFINE(aclnnMm, const aclTensor* self, const aclTensor* mat2, aclTensor* out,
               int8_t cubeMathType) {
  NPU_SIM_PLAN(aclnnMm) { plain(p, self, mat2, out, cubeMathType, 2); });
}

NPU_SIM_DEFINE(aclnnMatmul, const aclTensor* self, const aclTensor* mat2, aclTensor* out,
               int8_t cubeMathType) {
  NPU_SIM_PLAN(aclnnMatmul) { plain(p, self, mat2, out, cubeMathType, 0); });
}

NPU_SIM_DEFINE(aclnnBatchMatMul, const aclTensor* self, const aclTensor* mat2, aclTensor* out,
               int8_t cubeMathType) {
  NPU_SIM_PLAN(aclnnBatchMatMul) { plain(p, self, mat2, out, cubeMathType, 3); });
}

#define ADDMM(name, rank)                                                                          \
  NPU_SIM_DEFINE(aclnn##name, const aclTensor* self, const aclTensor* mat1, const aclTensor* mat2, \
                 const aclScalar* beta, const aclScalar* alpha, aclTensor* out,                    \
                 int8_t cubeMathType) {                                                            \
    NPU_SIM_PLAN(aclnn##name) {                                                                    \
      const Tensor s = p.in(self, "self"), a = p.in(mat1, "mat1"), b = p.in(mat2, "mat2");         \
      const double times_self = p.scalar(beta, "beta").value,                                      \
                   times_product = p.scalar(alpha, "alpha").value;                                 \
      accumulate(p, s, a, b, times_self, times_product, p.out(out, "out"), cubeMathType, rank);    \
    });                                                                                            \
  }                                                                                                \
  NPU_SIM_DEFINE(aclnnInplace##name, const aclTensor* selfRef, const aclTensor* mat1,              \
                 const aclTensor* mat2, const aclScalar* beta, const aclScalar* alpha,             \
                 int8_t cubeMathType) {                                                            \
    NPU_SIM_PLAN(aclnnInplace##name) {                                                             \
      const Tensor s = p.inout(selfRef, "selfRef"), a = p.in(mat1, "mat1"),                        \
                   b = p.in(mat2, "mat2");                                                         \
      const double times_self = p.scalar(beta, "beta").value,                                      \
                   times_product = p.scalar(alpha, "alpha").value;                                 \
      accumulate(p, s, a, b, times_self, times_product, s, cubeMathType, rank);                    \
    });                                                                                            \
  }
ADDMM(Addmm, 2)
ADDMM(Baddbmm, 3)
