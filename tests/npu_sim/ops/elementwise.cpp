// Operators that look at one element of each argument.
#include <cmath>

#include "ops/kinds.h"

using namespace npu_sim;

namespace {

template <typename T>
using Two = T (*)(T, T, T);  // the third is alpha

/// Whole numbers are computed as such where all are.
void binary(Plan& p, const Tensor& a, const Tensor& b, const Tensor& out, double alpha,
            Two<double> real, Two<int64_t> whole) {
  p.dtype(a, kNumbers);
  p.dtype(b, kNumbers);
  std::vector<int64_t> dims;
  p.require(common_shape(a.dims(), b.dims(), &dims),
            "shapes " + shown(a.dims()) + " and " + shown(b.dims()));
  p.shape(out, dims);
  const bool as_whole =
      whole && is_integer(a.dtype()) && is_integer(b.dtype()) && is_integer(out.dtype());
  p.run([=](Run& run) {
    const Live x = seen_as(run, a, dims), y = seen_as(run, b, dims);
    if (as_whole) {
      std::vector<int64_t> u = read<int64_t>(x);
      const std::vector<int64_t> v = read<int64_t>(y);
      for (size_t i = 0; i < u.size(); ++i) u[i] = whole(u[i], v[i], static_cast<int64_t>(alpha));
      write(bytes(run, out), u);
      return;
    }
    std::vector<double> u = read<double>(x);
    const std::vector<double> v = read<double>(y);
    for (size_t i = 0; i < u.size(); ++i) u[i] = real(u[i], v[i], alpha);
    write(bytes(run, out), u);
  });
}

template <typename T>
T plus(T a, T b, T alpha) {
  return static_cast<T>(a + alpha * b);
}
template <typename T>
T minus(T a, T b, T alpha) {
  return static_cast<T>(a - alpha * b);
}
template <typename T>
T times(T a, T b, T) {
  return static_cast<T>(a * b);
}
double over(double a, double b, double) { return a / b; }
template <typename T>
T larger(T a, T b, T) {
  return a != a || a > b ? a : b;  // NaN stays
}
template <typename T>
T smaller(T a, T b, T) {
  return a != a || a < b ? a : b;
}

void with_scalar(Plan& p, const Tensor& a, const Tensor& out, double b, double alpha,
                 Two<double> f) {
  p.dtype(a, kNumbers);
  p.shape(out, a.dims());
  p.run([=](Run& run) {
    std::vector<double> u = read<double>(bytes(run, a));
    for (double& x : u) x = f(x, b, alpha);
    write(bytes(run, out), u);
  });
}

void unary(Plan& p, const Tensor& a, const Tensor& out, double (*f)(double)) {
  p.dtype(a, {ACL_FLOAT, ACL_FLOAT16, ACL_BF16, ACL_DOUBLE, ACL_INT32, ACL_INT64});
  p.shape(out, a.dims());
  p.run([=](Run& run) {
    std::vector<double> u = read<double>(bytes(run, a));
    for (double& x : u) x = f(x);
    write(bytes(run, out), u);
  });
}

using Compare = bool (*)(double, double);

void compare(Plan& p, const Tensor& a, const Tensor& b, double scalar, const Tensor& out,
             Compare f) {
  p.dtype(a, kNumbers);
  std::vector<int64_t> dims = a.dims();
  if (b) p.require(common_shape(a.dims(), b.dims(), &dims), "shapes do not go together");
  p.shape(out, dims);
  p.run([=](Run& run) {
    std::vector<double> u = read<double>(seen_as(run, a, dims));
    const std::vector<double> v = b ? read<double>(seen_as(run, b, dims)) : std::vector<double>{};
    for (size_t i = 0; i < u.size(); ++i) u[i] = f(u[i], b ? v[i] : scalar);
    write(bytes(run, out), u);
  });
}

double exp_of(double x) { return std::exp(x); }
double log_of(double x) { return std::log(x); }
double rsqrt_of(double x) { return 1 / std::sqrt(x); }
double sqrt_of(double x) { return std::sqrt(x); }
double negative(double x) { return -x; }
double sin_of(double x) { return std::sin(x); }
double cos_of(double x) { return std::cos(x); }
double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double tanh_of(double x) { return std::tanh(x); }
double silu(double x) { return x / (1 + std::exp(-x)); }

bool equal(double a, double b) { return a == b; }
bool unequal(double a, double b) { return a != b; }
bool at_least(double a, double b) { return a >= b; }
bool above(double a, double b) { return a > b; }
bool at_most(double a, double b) { return a <= b; }
bool below(double a, double b) { return a < b; }

}  // namespace

#define BINARY_ALPHA(name, real, whole)                                                \
  NPU_SIM_DEFINE(aclnn##name, const aclTensor* self, const aclTensor* other,           \
                 const aclScalar* alpha, aclTensor* out) {                             \
    NPU_SIM_PLAN(aclnn##name) {                                                        \
      const Tensor a = p.in(self, "self"), b = p.in(other, "other");                   \
      binary(p, a, b, p.out(out, "out"), p.scalar(alpha, "alpha").value, real, whole); \
    });                                                                                \
  }                                                                                    \
  NPU_SIM_DEFINE(aclnnInplace##name, aclTensor* selfRef, const aclTensor* other,       \
                 const aclScalar* alpha) {                                             \
    NPU_SIM_PLAN(aclnnInplace##name) {                                                 \
      const Tensor a = p.inout(selfRef, "selfRef"), b = p.in(other, "other");          \
      binary(p, a, b, a, p.scalar(alpha, "alpha").value, real, whole);                 \
    });                                                                                \
  }
BINARY_ALPHA(Add, plus<double>, plus<int64_t>)
BINARY_ALPHA(Sub, minus<double>, minus<int64_t>)

#define BINARY(name, real, whole)                                                              \
  NPU_SIM_DEFINE(aclnn##name, const aclTensor* self, const aclTensor* other, aclTensor* out) { \
    NPU_SIM_PLAN(aclnn##name) {                                                                \
      const Tensor a = p.in(self, "self"), b = p.in(other, "other");                           \
      binary(p, a, b, p.out(out, "out"), 1, real, whole);                                      \
    });                                                                                        \
  }
#define BINARY_INPLACE(name, real, whole)                                          \
  NPU_SIM_DEFINE(aclnnInplace##name, aclTensor* selfRef, const aclTensor* other) { \
    NPU_SIM_PLAN(aclnnInplace##name) {                                             \
      const Tensor a = p.inout(selfRef, "selfRef"), b = p.in(other, "other");      \
      binary(p, a, b, a, 1, real, whole);                                          \
    });                                                                            \
  }
BINARY(Mul, times<double>, times<int64_t>)
BINARY_INPLACE(Mul, times<double>, times<int64_t>)
BINARY(Div, over, nullptr)
BINARY_INPLACE(Div, over, nullptr)
BINARY(Maximum, larger<double>, larger<int64_t>)
BINARY(Minimum, smaller<double>, smaller<int64_t>)

NPU_SIM_DEFINE(aclnnAdds, const aclTensor* self, const aclScalar* other, const aclScalar* alpha,
               aclTensor* out) {
  NPU_SIM_PLAN(aclnnAdds) {
    const Tensor a = p.in(self, "self");
    with_scalar(p, a, p.out(out, "out"), p.scalar(other, "other").value,
                p.scalar(alpha, "alpha").value, plus<double>);
  });
}

NPU_SIM_DEFINE(aclnnInplaceAdds, aclTensor* selfRef, const aclScalar* other,
               const aclScalar* alpha) {
  NPU_SIM_PLAN(aclnnInplaceAdds) {
    const Tensor a = p.inout(selfRef, "selfRef");
    with_scalar(p, a, a, p.scalar(other, "other").value, p.scalar(alpha, "alpha").value,
                plus<double>);
  });
}

NPU_SIM_DEFINE(aclnnMuls, const aclTensor* self, const aclScalar* other, aclTensor* out) {
  NPU_SIM_PLAN(aclnnMuls) {
    const Tensor a = p.in(self, "self");
    with_scalar(p, a, p.out(out, "out"), p.scalar(other, "other").value, 1, times<double>);
  });
}

NPU_SIM_DEFINE(aclnnInplaceMuls, aclTensor* selfRef, const aclScalar* other) {
  NPU_SIM_PLAN(aclnnInplaceMuls) {
    const Tensor a = p.inout(selfRef, "selfRef");
    with_scalar(p, a, a, p.scalar(other, "other").value, 1, times<double>);
  });
}

#define UNARY(name, f)                                                 \
  NPU_SIM_DEFINE(aclnn##name, const aclTensor* self, aclTensor* out) { \
    NPU_SIM_PLAN(aclnn##name) {                                        \
      const Tensor a = p.in(self, "self");                             \
      unary(p, a, p.out(out, "out"), f);                               \
    });                                                                \
  }
#define UNARY_INPLACE(name, f)                             \
  NPU_SIM_DEFINE(aclnnInplace##name, aclTensor* selfRef) { \
    NPU_SIM_PLAN(aclnnInplace##name) {                     \
      const Tensor a = p.inout(selfRef, "selfRef");        \
      unary(p, a, a, f);                                   \
    });                                                    \
  }
#define UNARY_BOTH(name, f) UNARY(name, f) UNARY_INPLACE(name, f)
UNARY_BOTH(Exp, exp_of)
UNARY_BOTH(Log, log_of)
UNARY_BOTH(Rsqrt, rsqrt_of)
UNARY_BOTH(Sqrt, sqrt_of)
UNARY_BOTH(Neg, negative)
UNARY_BOTH(Sin, sin_of)
UNARY_BOTH(Cos, cos_of)
UNARY_BOTH(Sigmoid, sigmoid)
UNARY_BOTH(Tanh, tanh_of)
UNARY(Silu, silu)

#define COMPARE(name, f)                                                             \
  NPU_SIM_DEFINE(aclnn##name##Scalar, const aclTensor* self, const aclScalar* other, \
                 aclTensor* out) {                                                   \
    NPU_SIM_PLAN(aclnn##name##Scalar) {                                              \
      const Tensor a = p.in(self, "self");                                           \
      compare(p, a, {}, p.scalar(other, "other").value, p.out(out, "out"), f);       \
    });                                                                              \
  }                                                                                  \
  NPU_SIM_DEFINE(aclnn##name##Tensor, const aclTensor* self, const aclTensor* other, \
                 aclTensor* out) {                                                   \
    NPU_SIM_PLAN(aclnn##name##Tensor) {                                              \
      const Tensor a = p.in(self, "self"), b = p.in(other, "other");                 \
      compare(p, a, b, 0, p.out(out, "out"), f);                                     \
    });                                                                              \
  }
COMPARE(Eq, equal)
COMPARE(Ne, unequal)
COMPARE(Ge, at_least)
COMPARE(Gt, above)
COMPARE(Le, at_most)
COMPARE(Lt, below)

NPU_SIM_DEFINE(aclnnSWhere, const aclTensor* condition, const aclTensor* self,
               const aclTensor* other, aclTensor* out) {
  NPU_SIM_PLAN(aclnnSWhere) {
    const Tensor c = p.in(condition, "condition"), a = p.in(self, "self"), b = p.in(other, "other");
    const Tensor o = p.out(out, "out");
    p.dtype(c, {ACL_BOOL, ACL_UINT8});
    std::vector<int64_t> two, dims;
    p.require(common_shape(a.dims(), b.dims(), &two) && common_shape(two, c.dims(), &dims),
              "shapes do not go together");
    p.shape(o, dims);
    p.run([=](Run& run) {
      const std::vector<int64_t> choice = read<int64_t>(seen_as(run, c, dims));
      std::vector<double> u = read<double>(seen_as(run, a, dims));
      const std::vector<double> v = read<double>(seen_as(run, b, dims));
      for (size_t i = 0; i < u.size(); ++i) u[i] = choice[i] ? u[i] : v[i];
      write(bytes(run, o), u);
    });
  });
}

NPU_SIM_DEFINE(aclnnInplaceMaskedFillScalar, aclTensor* selfRef, const aclTensor* mask,
               const aclScalar* value) {
  NPU_SIM_PLAN(aclnnInplaceMaskedFillScalar) {
    const Tensor a = p.inout(selfRef, "selfRef"), m = p.in(mask, "mask");
    const double fill = p.scalar(value, "value").value;
    View seen;
    p.dtype(m, {ACL_BOOL});
    p.require(broadcast_to(m.view, a.dims(), &seen), "the mask does not go with selfRef");
    p.run([=](Run& run) {
      std::vector<double> u = read<double>(bytes(run, a));
      const std::vector<int64_t> hidden = read<int64_t>(seen_as(run, m, a.dims()));
      for (size_t i = 0; i < u.size(); ++i) u[i] = hidden[i] ? fill : u[i];
      write(bytes(run, a), u);
    });
  });
}

NPU_SIM_DEFINE(aclnnIsFinite, const aclTensor* self, aclTensor* out) {
  NPU_SIM_PLAN(aclnnIsFinite) {
    const Tensor a = p.in(self, "self"), o = p.out(out, "out");
    p.dtype(o, {ACL_BOOL});
    p.shape(o, a.dims());
    p.run([=](Run& run) {
      std::vector<double> u = read<double>(bytes(run, a));
      for (double& x : u) x = std::isfinite(x);
      write(bytes(run, o), u);
    });
  });
}

NPU_SIM_DEFINE(aclnnSiluBackward, const aclTensor* gradOutput, const aclTensor* self,
               aclTensor* gradInput) {
  NPU_SIM_PLAN(aclnnSiluBackward) {
    const Tensor g = p.in(gradOutput, "gradOutput"), a = p.in(self, "self"),
                 o = p.out(gradInput, "gradInput");
    p.dtype(a, kFloats);
    p.shape(g, a.dims());
    p.shape(o, a.dims());
    p.run([=](Run& run) {
      std::vector<double> u = read<double>(bytes(run, a));
      const std::vector<double> d = read<double>(bytes(run, g));
      for (size_t i = 0; i < u.size(); ++i) {
        const double s = sigmoid(u[i]);
        u[i] = d[i] * s * (1 + u[i] * (1 - s));
      }
      write(bytes(run, o), u);
    });
  });
}

NPU_SIM_DEFINE(aclnnGeluV2, const aclTensor* x, int64_t approximate, aclTensor* y) {
  NPU_SIM_PLAN(aclnnGeluV2) {
    const Tensor a = p.in(x, "x"), o = p.out(y, "y");
    p.dtype(a, kFloats);
    p.require(approximate == 0 || approximate == 1, "approximate is 0 (none) or 1 (tanh)");
    unary(
        p, a, o,
        approximate == 0
            ? [](double v) { return 0.5 * v * (1 + std::erf(v / std::sqrt(2.0))); }
            : [](double v) {
                return 0.5 * v * (1 + std::tanh(0.7978845608028654 * (v + 0.044715 * v * v * v)));
              });
  });
}
