// Texts as libtorch 2.6 throws them on machines with cards, from its sources.
#include "device/cuda_failures.h"

#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/failure_reader.h"

namespace danlu::device {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

Error read(const std::string& text) {
  const auto found = cuda_failure(text);
  EXPECT_TRUE(found) << text;
  return found.value_or(InternalError(""));
}

TEST(CudaFailures, AFullCardIsAMatterOfMemory) {
  const Error full = read(
      "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 79.10 GiB of "
      "which 10.00 GiB is free. Of the allocated memory 60.25 GiB is allocated by PyTorch, and "
      "1.21 "
      "GiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try "
      "setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.");
  EXPECT_EQ(full.code(), ExitCode::kMemory);
  EXPECT_THAT(full.what(), HasSubstr("Tried to allocate 20.00 GiB"));
  EXPECT_THAT(full.what(), EndsWith("reserved by PyTorch but unallocated."));
  EXPECT_EQ(read("CUDA error: out of memory").code(), ExitCode::kMemory);
  EXPECT_EQ(
      read("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`").code(),
      ExitCode::kMemory);
}

TEST(CudaFailures, ACardThatFailsIsAMatterOfTheDevice) {
  for (const char* text :
       {"CUDA error: an illegal memory access was encountered",
        "CUDA error: uncorrectable ECC error encountered",
        "CUDA error: device-side assert triggered",
        "CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx(handle)`",
        "cuDNN error: CUDNN_STATUS_NOT_SUPPORTED",
        "CUDA driver version is insufficient for CUDA runtime version"}) {
    const Error error = read(text);
    EXPECT_EQ(error.code(), ExitCode::kDevice) << text;
    EXPECT_THAT(error.what(), HasSubstr(text));
    EXPECT_THAT(error.hint(), HasSubstr("CUDA_LAUNCH_BLOCKING"));
  }
}

TEST(CudaFailures, NcclsAreMattersOfCommunication) {
  const Error error = read(
      "NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.hpp:275, unhandled cuda error (run "
      "with NCCL_DEBUG=INFO for details), NCCL version 2.21.5");
  EXPECT_EQ(error.code(), ExitCode::kComm);
}

TEST(CudaFailures, OtherTextsAreNone) {
  EXPECT_FALSE(cuda_failure("expected scalar type Float but found Half"));
  EXPECT_FALSE(cuda_failure(""));
}

TEST(CudaFailures, AreReadOfExceptionsOnceTheReaderIsThere) {
  const auto kind_of_full_card = [] {
    try {
      TORCH_CHECK(false, "CUDA out of memory. Tried to allocate 2.00 GiB.");
    } catch (...) {
      return current_error();
    }
    return Error(ExitCode::kSuccess, "");
  };
  EXPECT_EQ(kind_of_full_card().code(), ExitCode::kInternal);
  set_failure_reader(&cuda_failure);
  const Error error = kind_of_full_card();
  set_failure_reader(nullptr);
  EXPECT_EQ(error.code(), ExitCode::kMemory);
  EXPECT_STREQ(error.what(), "out of memory: CUDA out of memory. Tried to allocate 2.00 GiB.");
}

}  // namespace
}  // namespace danlu::device
