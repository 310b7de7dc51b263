// Entries of the NPU's table for experts, NF4, DoRA and heads of rows of length one, against the
// composite of the same numbers.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "npu/support.h"
#include "ops/backend.h"
#include "ops/grouped_linear.h"
#include "ops/nf4.h"

namespace danlu::npu::test {
namespace {

using ops::Backend;

const Backend& own_table() { return ops::backend_of(npu().type()); }
double limit_for(at::ScalarType type) {
  return type == at::kFloat ? 2e-6 : type == at::kHalf ? 1e-3 : 8e-3;
}

TEST(NpuWeights, MultipliesTheRowsOfEachExpert) {
  const std::vector<int64_t> counts = {3, 0, 5, 1};
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const bool lie_together : {true, false}) {
      SCOPED_TRACE(testing::Message() << c10::toString(type) << lie_together);
      const at::Tensor x = normal({9, 24}, 1, type), d_y = normal({9, 10}, 3, type),
                       all = normal({4, 10, 24}, 2, type), ALL = all.to(npu());
      std::vector<at::Tensor> host, there;
      for (int64_t e = 0; e < 4; ++e) {
        host.push_back(all[e].to(at::kDouble));
        there.push_back(lie_together ? ALL[e] : ALL[e].clone());
      }
      const int64_t launched = counter("launches.aclnnGroupedMatmulV4");
      const at::Tensor y = own_table().grouped_product(x.to(npu()), there, counts),
                       d_x = own_table().grouped_input_grad(d_y.to(npu()), there, counts);
      EXPECT_LE(distance(y, ops::oracle::grouped_linear(x.to(at::kDouble), host, counts)),
                limit_for(type));
      for (at::Tensor& weight : host) weight = weight.t();
      EXPECT_LE(distance(d_x, ops::oracle::grouped_linear(d_y.to(at::kDouble), host, counts)),
                limit_for(type));
      if (!is_on_card()) {
        EXPECT_EQ(counter("launches.aclnnGroupedMatmulV4") - launched, lie_together ? 2 : 0);
      }
    }
  }
}

TEST(NpuWeights, UnpacksAndMultipliesNf4HoweverItIsCut) {
  const at::Tensor dense = normal({12, 96}, 1) * 0.1;
  for (const bool doubly : {false, true}) {
    for (const int64_t block : {32, 64}) {
      const ops::Nf4Form form{block, doubly, at::kFloat};
      const auto whole = ops::quantized_nf4(dense, form);
      for (const std::vector<ops::Nf4Rect>& rects : {std::vector<ops::Nf4Rect>{{0, 12, 0, 96}},
                                                     {{2, 5, 0, 96}, {9, 3, 0, 96}},
                                                     {{0, 12, 40, 48}},
                                                     {{1, 7, 7, 33}}}) {
        const auto layout = std::make_shared<ops::Nf4Layout>(form, 12, 96, rects);
        const at::Tensor bytes = at::empty({layout->size_bytes()}, at::kByte);
        ops::cut_nf4(whole, *layout, bytes.data_ptr<uint8_t>());
        const ops::Nf4Matrix host{layout, bytes}, there{layout, bytes.to(npu())};
        const int64_t rows = layout->rows(), columns = layout->columns();
        SCOPED_TRACE(testing::Message() << doubly << ' ' << block << ' ' << rows << ' ' << columns);
        const at::Tensor expected = ops::oracle::nf4_rows(host, 0, rows, at::kFloat);
        EXPECT_LE(distance(own_table().nf4_rows(there, 0, rows, at::kFloat), expected), 1e-7);
        EXPECT_LE(distance(own_table().nf4_rows(there, 1, rows - 2, at::kFloat),
                           expected.narrow(0, 1, rows - 2)),
                  1e-7);
        const at::Tensor x = normal({5, columns}, 2), d_y = normal({5, rows}, 3),
                         bias = normal({rows}, 4);
        EXPECT_LE(distance(own_table().nf4_product(x.to(npu()), there, bias.to(npu())),
                           x.to(at::kDouble).mm(expected.t().to(at::kDouble)) + bias),
                  2e-6);
        EXPECT_LE(distance(own_table().nf4_input_grad(d_y.to(npu()), there),
                           d_y.to(at::kDouble).mm(expected.to(at::kDouble))),
                  2e-6);
      }
    }
  }
}

TEST(NpuWeights, StretchesColumnsAndRowsAsTheComposite) {
  const Backend& composite = ops::composite_backend();
  const at::Tensor weight = normal({7, 9}, 1), b = normal({7, 3}, 2), a = normal({3, 9}, 3),
                   magnitude = normal({7}, 4), x = normal({5, 7}, 5), d = normal({5, 7}, 6);
  at::Tensor squares = composite.adapted_row_squares(weight, b, a, 0.5);
  EXPECT_LE(
      distance(own_table().adapted_row_squares(weight.to(npu()), b.to(npu()), a.to(npu()), 0.5),
               squares),
      2e-6);
  squares[2] = 0;
  for (const bool change : {false, true}) {
    const at::Tensor factor = composite.stretch_factor(magnitude, squares, change, at::kFloat);
    EXPECT_LE(distance(own_table().stretch_factor(magnitude.to(npu()), squares.to(npu()), change,
                                                  at::kFloat),
                       factor),
              1e-6);
    EXPECT_LE(distance(own_table().scale_columns(x.to(npu()), factor.to(npu())), x * factor), 1e-6);
  }
  EXPECT_LE(distance(own_table().stretch_grad(d.to(npu()), x.to(npu()), squares.to(npu())),
                     composite.stretch_grad(d, x, squares)),
            2e-6);
  at::Tensor head = normal({6, 8}, 7);
  head[3].zero_();
  const auto expected = composite.norm_head(head);
  const auto own = own_table().norm_head(head.to(npu()));
  EXPECT_LE(distance(own.y_VH, expected.y_VH), 1e-6);
  EXPECT_LE(distance(own.length_V1, expected.length_V1), 1e-6);
  const at::Tensor d_y = normal({6, 8}, 8) * at::tensor({1, 1, 1, 0, 1, 1}).unsqueeze(1);
  EXPECT_LE(distance(own_table().norm_head_backward(head.to(npu()), own.length_V1, d_y.to(npu())),
                     composite.norm_head_backward(head, expected.length_V1, d_y)),
            2e-6);
  const at::Tensor y = own_table().sigmoid(x.to(npu()));
  EXPECT_LE(distance(y, at::sigmoid(x)), 1e-6);
  EXPECT_LE(distance(own_table().sigmoid_backward(d.to(npu()), y),
                     composite.sigmoid_backward(d, at::sigmoid(x))),
            1e-6);
}

}  // namespace
}  // namespace danlu::npu::test
