#include "models/gptq.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/argsort.h>
#include <ATen/ops/cholesky_inverse.h>
#include <ATen/ops/linalg_cholesky_ex.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>

#include "base/dtype.h"
#include "base/error.h"
#include "device/parallel.h"

namespace danlu::models {
namespace {

/// Columns whose errors reach those behind them in one product.
constexpr int64_t kColumnsAtOnce = 128;

float as_f16(float value) { return f16_to_float(float_to_f16(value)); }

at::Tensor cholesky_of(const at::Tensor& matrix_II, bool upper, const std::string& name) {
  const auto [factor_II, info] = at::linalg_cholesky_ex(matrix_II, upper, /*check_errors=*/false);
  if (info.item<int>() == 0) return factor_II;
  throw ModelError(
      tr("[gptq] {}: the inputs of the calibration do not determine its columns", name),
      tr("more rows (--quant_n_samples), or a larger --damp_percent"));
}

/// The upper Cholesky factor of the inverse of the damped Hessian; f32 on the CPU.
at::Tensor factor_of(at::Tensor& hessian_II, double damp, const std::string& name) {
  at::Tensor diagonal_I = hessian_II.diagonal();
  diagonal_I.masked_fill_(diagonal_I.eq(0), 1.0);
  const double mean = diagonal_I.mean().item<double>();
  if (!std::isfinite(mean))
    throw ModelError(tr("[gptq] {}: its inputs in the calibration are not all finite", name));
  diagonal_I.add_(damp * mean);
  const at::Tensor inverse_II =
      at::cholesky_inverse(cholesky_of(hessian_II, /*upper=*/false, name));
  return cholesky_of(inverse_II, /*upper=*/true, name).cpu().to(at::kFloat).contiguous();
}

/// The scale and the zero of a group of one row.
struct RowScale {
  float scale = 1;
  int zero = 0;
};

RowScale scale_of(const float* weights, int64_t count, const GptqForm& form) {
  float low = 0, high = 0;
  for (int64_t i = 0; i < count; ++i) {
    low = std::min(low, weights[i]);
    high = std::max(high, weights[i]);
  }
  const int most = (1 << form.bits) - 1;
  if (form.symmetric) {
    high = std::max(-low, high);
    if (low < 0) low = -high;
  }
  if (low == 0 && high == 0) low = -1, high = 1;
  // What the files hold, which must be no zero.
  constexpr float kLeast = 0x1p-24f;
  RowScale found;
  found.scale = std::max(as_f16((high - low) / static_cast<float>(most)), kLeast);
  found.zero = form.symmetric
                   ? (most + 1) / 2
                   : std::clamp(static_cast<int>(std::nearbyint(-low / found.scale)), 0, most);
  return found;
}

/// The rows of a matrix in the order in which their columns are rounded.
class Rounding {
 public:
  Rounding(at::Tensor weight_OI, const at::Tensor& factor_II, const GptqForm& form)
      : weight_OI_(std::move(weight_OI)), factor_II_(factor_II), form_(form) {
    made_.rows = weight_OI_.size(0);
    made_.cols = weight_OI_.size(1);
    group_ = form.group > 0 ? std::min(form.group, made_.cols) : made_.cols;
    made_.groups = (made_.cols + group_ - 1) / group_;
    made_.codes_OI.resize(static_cast<size_t>(made_.rows * made_.cols));
    made_.scales_GO.resize(static_cast<size_t>(made_.groups * made_.rows));
    made_.zeros_GO.resize(made_.scales_GO.size());
    made_.dense_OI = at::zeros({made_.rows, made_.cols}, at::kFloat);
  }

  GptqMatrix run() {
    for (int64_t begin = 0; begin < made_.cols; begin += kColumnsAtOnce) {
      const int64_t end = std::min(begin + kColumnsAtOnce, made_.cols);
      at::Tensor errors_OB = at::zeros({made_.rows, end - begin}, at::kFloat);
      float* const errors = errors_OB.data_ptr<float>();
      device::parallel_for(0, made_.rows, 16, [&](int64_t first, int64_t last) {
        for (int64_t row = first; row < last; ++row)
          round_row(row, begin, end, errors + row * (end - begin));
      });
      if (end == made_.cols) break;
      weight_OI_.narrow(1, end, made_.cols - end)
          .sub_(at::mm(errors_OB,
                       factor_II_.narrow(0, begin, end - begin).narrow(1, end, made_.cols - end)));
    }
    return std::move(made_);
  }
  int64_t group() const { return group_; }

 private:
  void round_row(int64_t row, int64_t begin, int64_t end, float* errors) {
    const int64_t cols = made_.cols;
    float* const weights = weight_OI_.data_ptr<float>() + row * cols;
    float* const dense = made_.dense_OI.data_ptr<float>() + row * cols;
    const float* const factor = factor_II_.data_ptr<float>();
    const int most = (1 << form_.bits) - 1;
    for (int64_t c = begin; c < end; ++c) {
      const auto place = static_cast<size_t>(c / group_ * made_.rows + row);
      if (c % group_ == 0) {
        const RowScale found = scale_of(weights + c, std::min(group_, cols - c), form_);
        made_.scales_GO[place] = found.scale;
        made_.zeros_GO[place] = static_cast<uint8_t>(found.zero);
      }
      const float scale = made_.scales_GO[place];
      const int zero = made_.zeros_GO[place];
      const float nearest = std::nearbyint(weights[c] / scale) + static_cast<float>(zero);
      const int code = static_cast<int>(std::clamp(nearest, 0.0f, static_cast<float>(most)));
      made_.codes_OI[static_cast<size_t>(row * cols + c)] = static_cast<uint8_t>(code);
      dense[c] = as_f16(static_cast<float>(code - zero) * scale);
      const float* const of_column = factor + c * cols;
      const float error = (weights[c] - dense[c]) / of_column[c];
      errors[c - begin] = error;
      for (int64_t other = c + 1; other < end; ++other) weights[other] -= error * of_column[other];
    }
  }

  at::Tensor weight_OI_;
  const at::Tensor& factor_II_;
  const GptqForm& form_;
  int64_t group_ = 0;
  GptqMatrix made_;
};

/// The matrix with its columns where they were before `order_I` put column order_I[i] at i.
void put_back(GptqMatrix& made, const at::Tensor& order_I) {
  const int64_t* const order = order_I.data_ptr<int64_t>();
  GptqMatrix ordered = made;
  ordered.dense_OI = at::zeros({made.rows, made.cols}, at::kFloat);
  const float* const from = made.dense_OI.data_ptr<float>();
  float* const to = ordered.dense_OI.data_ptr<float>();
  for (int64_t i = 0; i < made.cols; ++i) {
    ordered.groups_I[static_cast<size_t>(order[i])] = made.groups_I[static_cast<size_t>(i)];
    for (int64_t row = 0; row < made.rows; ++row) {
      const auto at = static_cast<size_t>(row * made.cols + order[i]);
      ordered.codes_OI[at] = made.codes_OI[static_cast<size_t>(row * made.cols + i)];
      to[at] = from[row * made.cols + i];
    }
  }
  made = std::move(ordered);
}

}  // namespace

GptqMatrix quantise_by_gptq(const at::Tensor& weight_OI, at::Tensor hessian_II,
                            const GptqForm& form, const std::string& name) {
  at::Tensor weights_OI = weight_OI.detach().cpu().to(at::kFloat).clone().contiguous();
  at::Tensor order_I;
  if (form.by_activation) {
    order_I = at::argsort(hessian_II.diagonal(), /*dim=*/0, /*descending=*/true);
    hessian_II = hessian_II.index_select(0, order_I).index_select(1, order_I);
    order_I = order_I.cpu().contiguous();
    weights_OI = weights_OI.index_select(1, order_I).contiguous();
  }
  const at::Tensor factor_II = factor_of(hessian_II, form.damp, name);
  Rounding rounding(std::move(weights_OI), factor_II, form);
  const int64_t group = rounding.group();
  GptqMatrix made = rounding.run();
  made.groups_I.resize(static_cast<size_t>(made.cols));
  for (int64_t c = 0; c < made.cols; ++c)
    made.groups_I[static_cast<size_t>(c)] = static_cast<int32_t>(c / group);
  if (form.by_activation) put_back(made, order_I);
  return made;
}

}  // namespace danlu::models
