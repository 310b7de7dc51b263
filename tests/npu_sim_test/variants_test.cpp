// Other chips and the variant without newer functions.
#include <dlfcn.h>

#include <cmath>
#include <cstdio>
#include <cstring>

#include "card.h"

namespace npu_sim_test {
namespace {

struct Loaded {
  explicit Loaded(const std::string& path) : handle(dlopen(path.c_str(), RTLD_LAZY | RTLD_LOCAL)) {}
  void* symbol(const char* name) const { return handle ? dlsym(handle, name) : nullptr; }
  void* handle;
};

std::string library(const std::string& file) {
  return std::string(DANLU_BUILD_DIR) + "/npu_sim/" + file;
}

TEST(Variants, EveryNameOfTheVendorIsAFile) {
  for (const char* folder : {"current", "old"}) {
    for (const char* name :
         {"libascendcl.so", "libacl_rt.so", "libnnopbase.so", "libopapi.so", "libhccl.so"}) {
      EXPECT_NE(Loaded(library(std::string(folder) + "/" + name)).handle, nullptr)
          << folder << "/" << name << ": " << dlerror();
    }
  }
  for (const char* name : {"math", "nn", "transformer"}) {
    const Loaded part(library(std::string("split/libopapi_") + name + ".so"));
    EXPECT_NE(part.symbol("aclnnMatmul"), nullptr);
    EXPECT_NE(part.symbol("aclCreateTensor"),
              nullptr);  // through its dependency, as in the vendor's
  }
}

TEST(Variants, TheOldOneLacksNewerFunctions) {
  const Loaded now(library("current/libopapi.so")), old(library("old/libopapi.so"));
  const Loaded runtime(library("old/libascendcl.so"));
  for (const char* name : {"aclnnRotaryPositionEmbedding", "aclnnForeachNonFiniteCheckAndUnscale",
                           "aclnnGeluBackwardV2"}) {
    EXPECT_NE(now.symbol(name), nullptr) << name;
    EXPECT_EQ(old.symbol(name), nullptr) << name;
  }
  EXPECT_NE(old.symbol("aclnnMatmul"), nullptr);
  EXPECT_EQ(runtime.symbol("aclFinalizeReference"), nullptr);
  EXPECT_NE(runtime.symbol("danlu_npu_simulator_version"), nullptr);
}

/// A card of a process of its own.
aclrtStream begin() {
  aclInit(nullptr);
  aclrtSetDevice(0);
  aclrtStream stream = nullptr;
  aclrtCreateStream(&stream);
  return stream;
}

aclTensor* tensor(void* data, aclDataType type, const Dims& dims) {
  return aclCreateTensor(dims.data(), dims.size(), type, nullptr, 0, ACL_FORMAT_ND, dims.data(),
                         dims.size(), data);
}

void* device(size_t bytes) {
  void* p = nullptr;
  aclrtMalloc(&p, bytes, ACL_MEM_MALLOC_HUGE_FIRST);
  return p;
}

/// 1 + 2^-10 from 16-bit factors, in f32.
const bool kRounds = add_program("widened_product", [] {
  aclrtStream stream = begin();
  const uint16_t a[2] = {to_bf16(1), to_bf16(1.0 / 1024)}, b[2] = {to_bf16(1), to_bf16(1)};
  void *da = device(4), *db = device(4), *dc = device(4);
  aclrtMemcpy(da, 4, a, 4, ACL_MEMCPY_HOST_TO_DEVICE);
  aclrtMemcpy(db, 4, b, 4, ACL_MEMCPY_HOST_TO_DEVICE);
  uint64_t bytes = 0;
  aclOpExecutor* executor = nullptr;
  if (aclnnMmGetWorkspaceSize(tensor(da, ACL_BF16, {1, 2}), tensor(db, ACL_BF16, {2, 1}),
                              tensor(dc, ACL_FLOAT, {1, 1}), 0, &bytes, &executor) != 0)
    return 3;
  aclnnMm(device(bytes), bytes, executor, stream);
  if (aclrtSynchronizeStream(stream) != 0) return 4;
  float c = 0;
  aclrtMemcpy(&c, 4, dc, 4, ACL_MEMCPY_DEVICE_TO_HOST);
  return c == 1.0f ? 1 : c == 1.0f + 1.0f / 1024 ? 2 : 5;
});

TEST(Variants, TheOldOneRoundsWidenedProducts) {
  EXPECT_EQ(start_program("widened_product", {}).wait(), 2);
  EXPECT_EQ(start_program("widened_product", {"LD_LIBRARY_PATH=" + library("old")}).wait(), 1);
}

/// What the chip says of bf16 and of infinity: bits 1 and 2; bit 4: it takes bf16, bit 8: f16
/// overflows to Inf.
const bool kChip = add_program("asks_the_chip", [] {
  aclrtStream stream = begin();
  int32_t infinity = 0, brain = 0;
  aclGetCannAttribute(ACL_CANN_ATTR_BF16, &brain);
  aclGetCannAttribute(ACL_CANN_ATTR_INF_NAN, &infinity);
  void* p = device(4);
  uint64_t bytes = 0;
  aclOpExecutor* executor = nullptr;
  const bool takes =
      aclnnInplaceZeroGetWorkspaceSize(tensor(p, ACL_BF16, {1}), &bytes, &executor) == 0;
  double large = 1e6;
  aclnnInplaceFillScalarGetWorkspaceSize(tensor(p, ACL_FLOAT16, {1}),
                                         aclCreateScalar(&large, ACL_DOUBLE), &bytes, &executor);
  aclnnInplaceFillScalar(device(bytes), bytes, executor, stream);
  void* status = device(64);
  aclrtGetOverflowStatus(status, 64, stream);
  aclrtSynchronizeStream(stream);
  aclFloat16 half = 0;
  char flag[64];
  aclrtMemcpy(&half, 2, p, 2, ACL_MEMCPY_DEVICE_TO_HOST);
  aclrtMemcpy(flag, 64, status, 64, ACL_MEMCPY_DEVICE_TO_HOST);
  const bool overflows = std::isinf(aclFloat16ToFloat(half));
  if (!overflows && (aclFloat16ToFloat(half) != 65504 || flag[0] == 0)) return 99;
  return (brain ? 1 : 0) + (infinity ? 2 : 0) + (takes ? 4 : 0) + (overflows ? 8 : 0);
});

TEST(Variants, ChipsDifferInTypesAndInOverflow) {
  EXPECT_EQ(start_program("asks_the_chip", {"NPU_SIM_CHIP=910B"}).wait(), 15);
  EXPECT_EQ(start_program("asks_the_chip", {"NPU_SIM_CHIP=910A"}).wait(), 0);
  EXPECT_EQ(start_program("asks_the_chip", {"NPU_SIM_CHIP=310P"}).wait(), 0);
  EXPECT_EQ(start_program("asks_the_chip", {"NPU_SIM_CHIP=H100"}).wait(), 2);
}

/// How many cards there are, and which chip.
const bool kCards = add_program("counts_cards", [] {
  aclInit(nullptr);
  uint32_t count = 0;
  aclrtGetDeviceCount(&count);
  return static_cast<int>(count) + (std::strcmp(aclrtGetSocName(), "Ascend910B4") == 0 ? 100 : 0);
});

TEST(Variants, CardsAreCountedAsTheEnvironmentShowsThem) {
  EXPECT_EQ(start_program("counts_cards", {"NPU_SIM_DEVICES=4"}).wait(), 4);
  EXPECT_EQ(start_program("counts_cards", {"ASCEND_RT_VISIBLE_DEVICES=1,3,9,5"}).wait(), 2);
  EXPECT_EQ(start_program("counts_cards", {"NPU_SIM_DEVICES=1", "NPU_SIM_CHIP=Ascend910B4"}).wait(),
            101);
}

}  // namespace
}  // namespace npu_sim_test
