// Kernels of src/ops/cuda for few rows of quantised weights, on the host: by their entries, which
// take f16 too, and by themselves. Against f64 products with the numbers that the weights stand
// for.
#ifdef DANLU_EMULATES_CUDA
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <array>
#include <stdexcept>
#include <string>
#include <vector>

#include "finite_differences.h"
#include "made_nf4.h"
#include "ops/aten/table.h"
#include "ops/cuda/entries.h"
#include "random_blocks.h"

namespace danlu::ops {
namespace few_rows_kernels_test {

using test::made_nf4;
using test::Matrix;
using test::random_f64;

constexpr std::array kTypes = {at::kFloat, at::kBFloat16, at::kHalf};

const Backend& kernels() {
  static const Backend table = [] {
    Backend with = aten::backend();
    cuda::add_kernels(with);
    return with;
  }();
  return table;
}

at::Tensor product(const at::Tensor& x_NI, const BlockWeight& weight,
                   const at::Tensor& bias_O = {}) {
  const std::vector<BlockFactor> factors = {{weight, bias_O}};
  return kernels().block_products(x_NI, factors).front();
}
at::Tensor product(const at::Tensor& x_NI, const Nf4Matrix& weight, const at::Tensor& bias_O = {}) {
  return kernels().nf4_product(x_NI, weight, bias_O);
}

at::Tensor random_x(int64_t rows, int64_t columns, at::ScalarType type) {
  return random_f64({rows, columns}, static_cast<uint64_t>(rows + columns)).to(type);
}

/// The same numbers, from an address on that is aligned for one of them alone.
at::Tensor odd_view(const at::Tensor& x) {
  const at::Tensor view = at::empty({x.numel() + 1}, x.options()).narrow(0, 1, x.numel());
  return view.view(x.sizes()).copy_(x);
}

/// Within a rounding of the result and of the bias, and some forty of a sum in f32.
void expect_product(const at::Tensor& y_NO, const at::Tensor& x_NI, const at::Tensor& dense_OI,
                    const at::Tensor& bias_O, const std::string& what) {
  const at::Tensor x = x_NI.to(at::kDouble), dense = dense_OI.to(at::kDouble);
  const at::Tensor sums = x.abs().matmul(dense.abs().t());
  at::Tensor exact = x.matmul(dense.t()), largest = exact.abs();
  if (bias_O.defined()) {
    exact = exact + bias_O.to(at::kDouble);
    largest = exact.abs() + bias_O.to(at::kDouble).abs();
  }
  const at::ScalarType type = x_NI.scalar_type();
  const double step = type == at::kFloat ? 0x1p-23 : type == at::kHalf ? 0x1p-10 : 0x1p-8;
  ASSERT_EQ(y_NO.scalar_type(), type) << what;
  const at::Tensor off = (y_NO.to(at::kDouble) - exact).abs();
  EXPECT_LE((off / (largest * step + sums * 40 * 0x1p-24)).max().item<double>(), 1)
      << what << " of " << x_NI.sizes() << " " << type;
}

/// None, one of the input's type, one that is wider.
at::Tensor bias_of(int64_t kind, int64_t outputs, at::ScalarType type) {
  if (kind % 3 == 0) return {};
  return random_f64({outputs}, 4).to(kind % 3 == 1 ? type : at::kFloat);
}

struct Shape {
  int64_t outputs, inputs;
};
/// The last is a single group.
std::vector<Shape> shapes_of(BlockType type) {
  std::vector<Shape> shapes = {{5, 256}, {37, 768}};
  const bool has_supers = type == BlockType::kQ4_K || type == BlockType::kQ6_K;
  if (!has_supers) shapes.push_back({21, 32});
  return shapes;
}

TEST(FewRowsKernels, MultiplyBlocksWithEveryTypeOfInput) {
  int64_t kind = 0;
  for (const BlockType blocks : test::kBlockTypes) {
    for (const auto& [outputs, inputs] : shapes_of(blocks)) {
      const Matrix matrix = test::random_matrix(blocks, outputs, inputs);
      for (const at::ScalarType type : kTypes) {
        ++kind;  // another one beside each number of rows
        for (const int64_t n : {1, 5, 9}) {
          const at::Tensor x = random_x(n, inputs, type), bias = bias_of(kind++, outputs, type);
          expect_product(product(x, matrix.weight, bias), x, matrix.dense_OI, bias,
                         std::string(block_traits(blocks).name));
        }
      }
    }
  }
}

/// A rank's part, in pieces of the whole of which some are empty; blocks of 64 are of four groups.
Nf4Matrix cut_matrix(const Nf4Form& form) {
  const at::Tensor whole = (random_f64({75, 768}, 5) * 0.05).to(form.type);
  return made_nf4(whole, form,
                  {{3, 20, 0, 768}, {40, 0, 0, 768}, {40, 21, 0, 768}, {75, 0, 0, 768}});
}

TEST(FewRowsKernels, MultiplyNf4OfEveryFormWithEveryTypeOfInput) {
  int64_t kind = 0;
  for (const bool doubly : {false, true}) {
    for (const at::ScalarType of_form : kTypes) {
      const Nf4Matrix weight = cut_matrix({doubly ? 64 : 256, doubly, of_form});
      for (const at::ScalarType type : kTypes) {
        const at::Tensor dense = oracle::nf4_rows(weight, 0, 41, type);
        ++kind;
        for (const int64_t n : {1, 8, 9}) {
          const at::Tensor x = random_x(n, 768, type), bias = bias_of(kind++, 41, type);
          expect_product(product(x, weight, bias), x, dense, bias, doubly ? "doubly" : "NF4");
        }
      }
    }
  }
}

/// Nor does it matter which of the kernels multiplies it, nor where it lies.
template <typename Weight>
void expect_rows_of_their_own(const Weight& weight, int64_t inputs) {
  for (const at::ScalarType type : kTypes) {
    const at::Tensor x = random_x(16, inputs, type), y = product(x, weight);
    for (const int64_t row : {0, 7, 8, 15}) {
      EXPECT_TRUE(at::equal(product(x.narrow(0, row, 1), weight), y.narrow(0, row, 1)))
          << type << " " << row;
    }
    EXPECT_TRUE(at::equal(product(x.narrow(0, 3, 9), weight), y.narrow(0, 3, 9))) << type;
    EXPECT_TRUE(at::equal(product(odd_view(x), weight), y)) << type;
    const at::Tensor turned = x.t().contiguous().t();
    EXPECT_TRUE(at::equal(product(turned, weight), y)) << type;
  }
}
TEST(FewRowsKernels, ARowDoesNotDependOnTheOthersNorOnItsPlace) {
  for (const BlockType type : test::kBlockTypes)
    expect_rows_of_their_own(test::random_matrix(type, 21, 768).weight, 768);
  expect_rows_of_their_own(cut_matrix({64, true, at::kBFloat16}), 768);
}

cuda::BlockBands bands_of(const BlockWeight& weight, int64_t band, int64_t rows) {
  constexpr cuda::BlockKind kKinds[] = {cuda::BlockKind::kQ8_0, cuda::BlockKind::kQ4_0,
                                        cuda::BlockKind::kQ4_K, cuda::BlockKind::kQ6_K};
  const auto from = [&](const at::Tensor& all) -> const uint8_t* {
    if (all.numel() == 0) return nullptr;
    return all.data_ptr<uint8_t>() + band * (all.numel() / weight.num_bands());
  };
  size_t kind = 0;
  while (test::kBlockTypes[kind] != weight.type()) ++kind;
  const uint8_t *const codes = from(weight.codes()), *const scales = from(weight.scales());
  return {kKinds[kind], codes, scales, from(weight.supers()), rows, weight.columns()};
}
constexpr cuda::Type kTypesOfKernels[] = {cuda::Type::kF32, cuda::Type::kBF16, cuda::Type::kF16};

TEST(FewRowsKernels, WriteTheRowsThatAreAskedForAndNoMore) {
  for (const BlockType blocks : test::kBlockTypes) {
    const Matrix matrix = test::random_matrix(blocks, 70, 512);
    for (size_t i = 0; i < kTypes.size(); ++i) {
      // They end inside of a band, which is not the weight's last.
      const at::Tensor out = at::full({32, 512}, 7, at::TensorOptions(kTypes[i]));
      cuda::block_numbers(kTypesOfKernels[i], bands_of(matrix.weight, 1, 21), out.data_ptr(),
                          nullptr);
      const at::Tensor dense = matrix.dense_OI.narrow(0, 16, 21).to(at::kFloat).to(kTypes[i]);
      EXPECT_TRUE(at::equal(out.narrow(0, 0, 21), dense)) << kTypes[i];
      EXPECT_TRUE(out.narrow(0, 21, 11).eq(7).all().item<bool>()) << kTypes[i];
    }
  }
}

/// A card faults at it, which is why entries look where an input begins.
TEST(FewRowsKernels, AnAddressThatIsNotAlignedIsAnErrorOnTheHost) {
  const Matrix matrix = test::random_matrix(BlockType::kQ4_0, 16, 64);
  for (size_t i = 0; i < kTypes.size(); ++i) {
    const at::Tensor x = random_x(1, 64, kTypes[i]), y = at::empty({16}, x.options());
    const auto multiply = [&](const at::Tensor& given) {
      cuda::block_product(kTypesOfKernels[i], bands_of(matrix.weight, 0, 16), given.data_ptr(), 1,
                          nullptr, y.data_ptr(), nullptr);
    };
    EXPECT_THROW(multiply(odd_view(x)), std::logic_error);
    EXPECT_NO_THROW(multiply(x));
  }
}

}  // namespace few_rows_kernels_test
}  // namespace danlu::ops
#endif
