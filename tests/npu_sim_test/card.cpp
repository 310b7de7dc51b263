#include "card.h"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

extern char** environ;

namespace npu_sim_test {
namespace {

std::map<std::string, Program>& programs() {
  static std::map<std::string, Program> the;
  return the;
}

size_t bytes_of(aclDataType type) { return aclDataTypeSize(type); }

/// The nearest multiple of a power of two, ties to even: 8 bits of a bf16, 11 of an f16, 24 of an
/// f32.
double with_bits(double value, int bits) {
  if (value == 0 || !std::isfinite(value)) return value;
  int exponent = 0;
  std::frexp(value, &exponent);
  const double unit = std::ldexp(1.0, exponent - bits);
  return std::nearbyint(value / unit) * unit;
}

void encode(double value, aclDataType type, char* to) {
  switch (type) {
    case ACL_FLOAT: {
      const auto v = static_cast<float>(value);
      std::memcpy(to, &v, 4);
      return;
    }
    case ACL_BF16: {
      const uint16_t v = to_bf16(value);
      std::memcpy(to, &v, 2);
      return;
    }
    case ACL_FLOAT16: {
      const aclFloat16 v = aclFloatToFloat16(static_cast<float>(value));
      std::memcpy(to, &v, 2);
      return;
    }
    case ACL_INT64: {
      const auto v = static_cast<int64_t>(value);
      std::memcpy(to, &v, 8);
      return;
    }
    case ACL_INT32: {
      const auto v = static_cast<int32_t>(value);
      std::memcpy(to, &v, 4);
      return;
    }
    default:
      *to = static_cast<char>(static_cast<int>(value));
  }
}

double decode(const char* from, aclDataType type) {
  if (type == ACL_FLOAT) {
    float v;
    std::memcpy(&v, from, 4);
    return static_cast<double>(v);
  }
  if (type == ACL_BF16) {
    uint32_t bits = 0;
    std::memcpy(reinterpret_cast<char*>(&bits) + 2, from, 2);
    float v;
    std::memcpy(&v, &bits, 4);
    return static_cast<double>(v);
  }
  if (type == ACL_FLOAT16) {
    aclFloat16 v;
    std::memcpy(&v, from, 2);
    return static_cast<double>(aclFloat16ToFloat(v));
  }
  if (type == ACL_INT64) {
    int64_t v;
    std::memcpy(&v, from, 8);
    return static_cast<double>(v);
  }
  if (type == ACL_INT32) {
    int32_t v;
    std::memcpy(&v, from, 4);
    return v;
  }
  return static_cast<double>(static_cast<unsigned char>(*from));
}

}  // namespace

int64_t Array::numel() const {
  int64_t n = 1;
  for (const int64_t d : dims) n *= d;
  return n;
}

double rounded(double value, aclDataType type) {
  if (type == ACL_BF16) return with_bits(value, 8);
  if (type == ACL_FLOAT16) return with_bits(value, 11);
  return static_cast<double>(static_cast<float>(value));
}

uint16_t to_bf16(double value) {
  const auto v = static_cast<float>(rounded(value, ACL_BF16));
  uint32_t bits;
  std::memcpy(&bits, &v, 4);
  return static_cast<uint16_t>(bits >> 16);
}

void Card::SetUp() {
  NpuSimReset();
  NpuSimClearFaults();
  NpuSimResetCounters();
  NpuSimAbortOnViolation(0);
  NpuSimSchedule("random");
  NpuSimCollectiveTimeout(0);
  ASSERT_EQ(aclInit(nullptr), 0);
  ASSERT_EQ(aclrtSetDevice(0), 0);
  ASSERT_EQ(aclrtCreateStream(&stream_), 0);
}

void Card::TearDown() {
  for (const aclTensorList* one : lists_) aclDestroyTensorList(one);
  for (const aclTensor* one : tensors_) aclDestroyTensor(one);
  for (const aclScalar* one : scalars_) aclDestroyScalar(one);
  for (const aclIntArray* one : arrays_) aclDestroyIntArray(one);
  NpuSimSchedule("eager");
  NpuSimReset();
}

Array Card::empty(const Dims& dims, aclDataType type) {
  Array array{nullptr, dims, type};
  const size_t bytes = static_cast<size_t>(std::max<int64_t>(array.numel(), 1)) * bytes_of(type);
  EXPECT_EQ(aclrtMalloc(&array.data, bytes, ACL_MEM_MALLOC_HUGE_FIRST), 0);
  return array;
}

Array Card::put(const Dims& dims, const Numbers& values, aclDataType type) {
  Array array = empty(dims, type);
  std::string bytes(values.size() * bytes_of(type), 0);
  for (size_t i = 0; i < values.size(); ++i)
    encode(values[i], type, bytes.data() + i * bytes_of(type));
  EXPECT_EQ(
      aclrtMemcpy(array.data, bytes.size(), bytes.data(), bytes.size(), ACL_MEMCPY_HOST_TO_DEVICE),
      0);
  return array;
}

Numbers Card::read_now(const Array& array) {
  const size_t one = bytes_of(array.type);
  std::string bytes(static_cast<size_t>(array.numel()) * one, 0);
  EXPECT_EQ(
      aclrtMemcpy(bytes.data(), bytes.size(), array.data, bytes.size(), ACL_MEMCPY_DEVICE_TO_HOST),
      0);
  Numbers values;
  for (size_t i = 0; i < bytes.size(); i += one)
    values.push_back(decode(bytes.data() + i, array.type));
  return values;
}

Numbers Card::get(const Array& array) {
  EXPECT_EQ(aclrtSynchronizeStream(stream_), 0) << aclGetRecentErrMsg();
  return read_now(array);
}

Numbers Card::noise(int64_t count, aclDataType type) {
  std::uniform_real_distribution<double> draw(-1, 1);
  Numbers values(static_cast<size_t>(count));
  for (double& v : values) v = rounded(draw(random_), type);
  return values;
}

aclTensor* Card::view(const Array& array, const Dims& dims, const Dims& strides, int64_t offset) {
  const int64_t storage = array.numel();
  aclTensor* made = aclCreateTensor(dims.data(), dims.size(), array.type, strides.data(), offset,
                                    ACL_FORMAT_ND, &storage, 1, array.data);
  if (made) tensors_.push_back(made);
  return made;
}

aclTensor* Card::of(const Array& array) {
  Dims strides(array.dims.size(), 1);
  for (size_t i = strides.size(); i-- > 1;) strides[i - 1] = strides[i] * array.dims[i];
  return view(array, array.dims, strides);
}

aclScalar* Card::scalar(double value) {
  scalars_.push_back(aclCreateScalar(&value, ACL_DOUBLE));
  return scalars_.back();
}

aclIntArray* Card::ints(const Dims& values) {
  arrays_.push_back(aclCreateIntArray(values.data(), values.size()));
  return arrays_.back();
}

aclTensorList* Card::list(const std::vector<Array>& arrays) {
  std::vector<const aclTensor*> members;
  for (const Array& array : arrays) {
    members.push_back(of(array));
    tensors_.pop_back();  // the list destroys it
  }
  lists_.push_back(aclCreateTensorList(members.data(), members.size()));
  return lists_.back();
}

void expect_near(const Numbers& got, const Numbers& wanted, double tolerance) {
  ASSERT_EQ(got.size(), wanted.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(got[i], wanted[i], tolerance * (1 + std::fabs(wanted[i]))) << "at " << i;
  }
}

bool add_program(const std::string& name, Program program) {
  programs()[name] = std::move(program);
  return true;
}

int run_program_named(const std::string& name) {
  const auto found = programs().find(name);
  return found == programs().end() ? 99 : found->second();
}

Child start_program(const std::string& name, const std::vector<std::string>& environment) {
  std::vector<std::string> variables(environment);
  for (char** one = environ; *one; ++one) {
    const std::string inherited = *one;
    const std::string key = inherited.substr(0, inherited.find('=') + 1);
    const bool replaced = std::any_of(environment.begin(), environment.end(),
                                      [&](const std::string& own) { return own.starts_with(key); });
    if (!replaced) variables.push_back(inherited);
  }
  std::vector<char*> pointers;
  for (std::string& one : variables) pointers.push_back(one.data());
  pointers.push_back(nullptr);
  std::string self = "/proc/self/exe", flag = "--program", word = name;
  char* arguments[] = {self.data(), flag.data(), word.data(), nullptr};
  Child child;
  EXPECT_EQ(
      posix_spawn(&child.process, "/proc/self/exe", nullptr, nullptr, arguments, pointers.data()),
      0);
  return child;
}

int Child::wait() const {
  int status = 0;
  waitpid(process, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

}  // namespace npu_sim_test
