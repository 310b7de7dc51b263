#include <ATen/Context.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "device/dtype.h"
#include "device/select.h"
#include "support/throws.h"

namespace danlu::device {
namespace {

TEST(Select, OpensTheCpuAndRefusesWhatIsNotThere) {
  EXPECT_TRUE(select("cpu").is_cpu());
  EXPECT_THAT(test::error_of<UsageError>([] { select("npu:x"); }),
              testing::HasSubstr("write npu:<number>"));
  EXPECT_THAT(test::error_of<UsageError>([] { select("tpu"); }),
              testing::HasSubstr("known: auto, cpu, cuda[:n], npu[:n]"));
}

TEST(Select, SaysWhyThereIsNoSuchGpu) {
  const char* const why = at::globalContext().hasCUDA() ? "there is no cuda:99"
                          : at::Context::hasCUDART()    ? "sees no NVIDIA GPU"
                                                        : "was built without CUDA";
  EXPECT_THAT(test::error_of<DeviceError>([] { select("cuda:99"); }), testing::HasSubstr(why));
  if (at::globalContext().hasCUDA()) return;
  EXPECT_THAT(test::error_of<DeviceError>([] { select("cuda"); }), testing::HasSubstr(why));
  EXPECT_TRUE(select("auto").is_cpu());
}

TEST(Dtype, TensorAndFileTypesMapBothWays) {
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kF16, DType::kBF16, DType::kI64,
                            DType::kI32, DType::kU8, DType::kBool}) {
    EXPECT_EQ(dtype_of(scalar_type_of(dtype)), dtype);
  }
  EXPECT_EQ(wide_type(at::kBFloat16), at::kFloat);
  EXPECT_EQ(wide_type(at::kDouble), at::kDouble);
  test::error_of<ModelError>([] { scalar_type_of(DType::kU16); });
}

}  // namespace
}  // namespace danlu::device
