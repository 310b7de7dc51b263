// models/gptq.h: GPTQ of one matrix: codes of few bits whose products with the inputs of a
// calibration stay near those of the matrix.
#pragma once
#include <ATen/core/TensorBody.h>

#include <cstdint>
#include <string>
#include <vector>

namespace danlu::models {

struct GptqForm {
  int64_t bits = 4;            ///< 2, 3, 4 or 8
  int64_t group = 128;         ///< columns that share a scale; -1: all
  bool symmetric = true;       ///< zeros are half the range
  bool by_activation = false;  ///< columns of larger inputs first (desc_act)
  double damp = 0.1;           ///< of the mean of the Hessian's diagonal, added to it
};

/// A number is (code - zero) * scale of its row and its column's group, rounded to f16.
struct GptqMatrix {
  int64_t rows = 0, cols = 0, groups = 0;
  std::vector<uint8_t> codes_OI;
  std::vector<float> scales_GO;  ///< numbers of f16
  std::vector<uint8_t> zeros_GO;
  std::vector<int32_t> groups_I;
  at::Tensor dense_OI;  ///< f32 on the CPU
};

/// The columns of a row are rounded one after the other; the error of each is made up for by those
/// that are not rounded yet, as the inverse of the damped Hessian says.
/// weight_OI: f32. hessian_II: f64, the sum of x x^T of inputs x; it is overwritten. A column whose
/// inputs were all zero is rounded by itself. name: for messages.
/// Errors: ModelError where the Hessian is not finite, or not positive even damped.
/// Source: Frantar et al., "GPTQ", 2022, Algorithm 1; scales as AutoGPTQ's Quantizer has them.
GptqMatrix quantise_by_gptq(const at::Tensor& weight_OI, at::Tensor hessian_II,
                            const GptqForm& form, const std::string& name);

}  // namespace danlu::models
