// Layer norms: each row less its mean, over the root of its variance.
#include <cmath>

#include "core/config.h"
#include "ops/kinds.h"

using namespace npu_sim;

namespace {

/// input = [A…, R…], of which R is normalised.
struct Shape {
  int64_t rows = 1, width = 1;
  std::vector<int64_t> inner, ones;  // R…; [A…, 1, …]
};

Shape check_shape(Plan& p, const Tensor& input, const std::vector<int64_t>& normalised) {
  p.dtype(input, kFloats);
  p.require(input.rank() >= 1 && input.rank() <= 8, "input has 1 to 8 dimensions");
  p.require(!normalised.empty(), "normalizedShape has less than one dimension");
  const int64_t outer = input.rank() - static_cast<int64_t>(normalised.size());
  p.require(outer >= 0, "input has fewer dimensions than normalizedShape");
  Shape shape{1, 1, normalised, input.dims()};
  for (int64_t i = 0; i < input.rank(); ++i) {
    if (i < outer) {
      shape.rows *= input.dim(i);
    } else {
      p.require(input.dim(i) == normalised[at(i - outer)], "input does not end in normalizedShape");
      shape.width *= input.dim(i);
      shape.ones[at(i)] = 1;
    }
  }
  return shape;
}

/// Weight and bias: as wide as what is normalised, of the input's type or f32, and of one type.
void check_factors(Plan& p, const Tensor& input, const Shape& shape, const Tensor& weight,
                   const Tensor& bias) {
  for (const Tensor& factor : {weight, bias}) {
    if (!factor) continue;
    p.dtype(factor, kFloats);
    p.shape(factor, shape.inner);
    p.require(factor.dtype() == input.dtype() || factor.dtype() == ACL_FLOAT,
              "weight and bias have the input's type or DT_FLOAT");
  }
  p.same_dtype(weight, bias);
}

}  // namespace

NPU_SIM_DEFINE(aclnnLayerNorm, const aclTensor* input, const aclIntArray* normalizedShape,
               const aclTensor* weightOptional, const aclTensor* biasOptional, double eps,
               aclTensor* out, aclTensor* meanOutOptional, aclTensor* rstdOutOptional) {
  NPU_SIM_PLAN(aclnnLayerNorm) {
    const Tensor x = p.in(input, "input");
    const Shape shape = check_shape(p, x, p.ints(normalizedShape, "normalizedShape"));
    const Tensor w = p.optional(weightOptional, "weightOptional"),
                 b = p.optional(biasOptional, "biasOptional");
    check_factors(p, x, shape, w, b);
    const Tensor y = p.out(out, "out"), m = p.optional_out(meanOutOptional, "meanOutOptional"),
                 s = p.optional_out(rstdOutOptional, "rstdOutOptional");
    p.same_dtype(x, y);
    p.shape(y, x.dims());
    for (const Tensor& statistic : {m, s}) {
      p.dtype(statistic, kFloats);
      p.shape(statistic, shape.ones);
    }
    p.run([=](Run& run) {
      std::vector<double> values = read<double>(bytes(run, x)), means, factors;
      const auto weights = w ? read<double>(bytes(run, w)) : std::vector<double>(),
                 terms = b ? read<double>(bytes(run, b)) : std::vector<double>();
      for (int64_t row = 0; row < shape.rows; ++row) {
        double* const begin = values.data() + row * shape.width;
        double mean = 0, variance = 0;
        for (int64_t j = 0; j < shape.width; ++j) mean += begin[j] / double(shape.width);
        for (int64_t j = 0; j < shape.width; ++j)
          variance += (begin[j] - mean) * (begin[j] - mean) / double(shape.width);
        means.push_back(mean);
        factors.push_back(std::pow(variance + eps, -0.5));
        for (int64_t j = 0; j < shape.width; ++j) {
          begin[j] = (begin[j] - mean) * factors.back();
          if (w) begin[j] *= weights[at(j)];
          if (b) begin[j] += terms[at(j)];
        }
      }
      write(bytes(run, y), values);
      if (m) write(bytes(run, m), means);
      if (s) write(bytes(run, s), factors);
    });
  });
}

NPU_SIM_DEFINE(aclnnLayerNormBackward, const aclTensor* gradOut, const aclTensor* input,
               const aclIntArray* normalizedShape, const aclTensor* mean, const aclTensor* rstd,
               const aclTensor* weightOptional, const aclTensor* biasOptional,
               const aclBoolArray* outputMask, aclTensor* gradInputOut, aclTensor* gradWeightOut,
               aclTensor* gradBiasOut) {
  NPU_SIM_PLAN(aclnnLayerNormBackward) {
    const Tensor g = p.in(gradOut, "gradOut"), x = p.in(input, "input");
    const Shape shape = check_shape(p, x, p.ints(normalizedShape, "normalizedShape"));
    const Tensor m = p.in(mean, "mean"), s = p.in(rstd, "rstd");
    const Tensor w = p.optional(weightOptional, "weightOptional"),
                 b = p.optional(biasOptional, "biasOptional");
    check_factors(p, x, shape, w, b);
    p.require(x.view.numel() > 0, "'input' is empty");
    p.same_dtype(g, x);
    p.shape(g, x.dims());
    for (const Tensor& statistic : {m, s}) {
      p.dtype(statistic, kFloats);
      p.require(size_of(statistic.dtype()) >= size_of(x.dtype()),
                "mean and rstd are as wide as the input at least");
      p.require(statistic.view.numel() == shape.rows, "mean and rstd have one number of each row");
    }
    p.same_dtype(m, s);
    const std::vector<bool> wanted = p.bools(outputMask, "outputMask");
    p.require(wanted.size() == 3, "outputMask has three values");
    // What the mask does not ask for is not touched.
    const Tensor dx = wanted[0] ? p.out(gradInputOut, "gradInputOut") : Tensor(),
                 dw = wanted[1] ? p.out(gradWeightOut, "gradWeightOut") : Tensor(),
                 db = wanted[2] ? p.out(gradBiasOut, "gradBiasOut") : Tensor();
    p.same_dtype(dx, x);
    p.shape(dx, x.dims());
    for (const Tensor& of_width : {dw, db}) {
      p.shape(of_width, shape.inner);
      p.same_dtype(of_width, w ? w : x);
    }
    p.run([=](Run& run) {
      const std::vector<double> up = read<double>(bytes(run, g)), in = read<double>(bytes(run, x)),
                                means = read<double>(bytes(run, m)),
                                factors = read<double>(bytes(run, s));
      const auto weights =
          w ? read<double>(bytes(run, w)) : std::vector<double>(at(shape.width), 1);
      std::vector<double> down(in.size());
      std::vector<float> of_weight(at(shape.width)), of_bias(at(shape.width));
      for (const int64_t row : run.order(shape.rows)) {
        const size_t begin = at(row * shape.width);
        const double mean_of_row = means[at(row)], factor = factors[at(row)];
        // The page's temp_1 and temp_2, the latter without what depends on the element.
        double mean_grad = 0, mean_along = 0;
        for (size_t j = 0; j < at(shape.width); ++j) {
          const double whitened = (in[begin + j] - mean_of_row) * factor,
                       inner = up[begin + j] * weights[j];
          mean_grad += inner / double(shape.width);
          mean_along += inner * whitened / double(shape.width);
          of_weight[j] += static_cast<float>(up[begin + j] * whitened);
          of_bias[j] += static_cast<float>(up[begin + j]);
        }
        for (size_t j = 0; j < at(shape.width); ++j) {
          const double whitened = (in[begin + j] - mean_of_row) * factor;
          down[begin + j] =
              (up[begin + j] * weights[j] - (mean_grad + whitened * mean_along)) * factor;
        }
      }
      if (dx) write(bytes(run, dx), down);
      if (dw) write(bytes(run, dw), of_weight);
      if (db) write(bytes(run, db), of_bias);
    });
  });
}
