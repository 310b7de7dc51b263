// What the .pt writer makes, byte by byte and as our own reader sees it; torch_python_test.cpp has
// PyTorch's opinion.
#include "weights/torch/torch_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "support/throws.h"
#include "weights/bytes.h"
#include "weights/pickle_bytes.h"
#include "weights/planned_bytes.h"
#include "weights/torch/pickle_writer.h"
#include "weights/torch/torch_document.h"
#include "weights/torch/zip_reader.h"

namespace danlu::weights::torch_file {
namespace {

using test::as_bytes;
using test::error_of;
using test::little_endian;
using ::testing::HasSubstr;

std::string pickle_of(const PyValue& value) { return write_pickle(value, {}).program; }

TorchDocument written_and_read(const PyValue& root) {
  return read_torch_document(as_bytes(test::planned_bytes(plan_torch_file(root, {}, "a"), {})),
                             "f");
}

TEST(TorchWriter, NumbersTakeTheShortestOpcodeThatPythonTakes) {
  // pickle.dumps(x, 2) of the same numbers.
  for (const auto& [number, body] : std::initializer_list<std::pair<int64_t, std::string>>{
           {0, std::string("K\x00", 2)},
           {255, "K\xff"},
           {256, std::string("M\x00\x01", 3)},
           {65535, "M\xff\xff"},
           {65536, std::string("J\x00\x00\x01\x00", 5)},
           {-1, "J\xff\xff\xff\xff"},
           {2147483647, "J\xff\xff\xff\x7f"},
           {2147483648, std::string("\x8a\x05\x00\x00\x00\x80\x00", 7)},
           {-2147483649, "\x8a\x05\xff\xff\xff\x7f\xff"},
           {INT64_MIN, "\x8a\x08" + std::string(7, '\0') + "\x80"}}) {
    EXPECT_EQ(pickle_of(PyValue::integer(number)), program(body)) << number;
  }
  // 2**64 has nine bytes.
  EXPECT_EQ(pickle_of(PyValue::big_integer(std::string(8, '\0') + "\x01")),
            program("\x8a\x09" + std::string(8, '\0') + "\x01"));
  EXPECT_EQ(pickle_of(PyValue::real(3.0)),
            program(std::string("G\x40\x08", 3) + std::string(6, 0)));
  EXPECT_EQ(pickle_of(PyValue::boolean(true)), program("\x88"));
  EXPECT_EQ(pickle_of(PyValue::boolean(false)), program("\x89"));
}

TEST(TorchWriter, ContainersGoOutInBatchesOfAThousand) {
  PyValue list = PyValue::list();
  for (int i = 0; i < 2001; ++i) list.append({});
  const std::string thousand = "(" + std::string(1000, 'N') + "e";
  EXPECT_EQ(pickle_of(list), program("]" + thousand + thousand + "Na"));
  EXPECT_EQ(pickle_of(PyValue::dict({{PyValue::integer(1), {}}})),
            program(std::string("}K\x01") + "Ns"));
  EXPECT_EQ(pickle_of(PyValue::tuple({{}, {}, {}})), program("NNN\x87"));
  EXPECT_EQ(pickle_of(PyValue::tuple({{}, {}, {}, {}})), program("(NNNNt"));
}

TEST(TorchWriter, ANameIsSpelledOnceAndThenRecalled) {
  const PyValue dtype = PyValue::dtype(DType::kBF16);
  EXPECT_EQ(pickle_of(PyValue::tuple({dtype, dtype})),
            program(std::string("ctorch\nbfloat16\nq\0h\0\x86", 21)));
}

TEST(TorchWriter, TheFileIsLaidOutAsTorchLaysItOut) {
  const PyValue root = PyValue::dict(
      {{PyValue::string("w"), PyValue::tensor(0)}, {PyValue::string("v"), PyValue::tensor(1)}});
  const PlannedFile plan =
      plan_torch_file(root, {{"w", DType::kBF16, {2, 3}}, {"v", DType::kF32, {}}}, "top");
  const std::string file = test::planned_bytes(plan, {std::string(12, 'w'), "vvvv"});
  const ZipReader zip(as_bytes(file), "f");
  std::vector<std::string> names;
  for (const ZipEntry& entry : zip.entries()) {
    names.push_back(entry.name);
    EXPECT_EQ(entry.offset % 64, 0u) << entry.name;
    zip.checked_bytes(entry);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"top/data.pkl", "top/byteorder", "top/data/0",
                                             "top/data/1", "top/version"}));
  EXPECT_EQ(plan.tensor_offsets[0], zip.find("top/data/0")->offset);
  EXPECT_EQ(plan.tensor_offsets[1], zip.find("top/data/1")->offset);
  const auto version = zip.bytes(*zip.find("top/version"));
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(version.data()), version.size()), "3\n");
}

TEST(TorchWriter, ChecksumsStandInTheLocalHeadersToo) {
  const PlannedFile plan = plan_torch_file(PyValue::tensor(0), {{"t", DType::kU8, {9}}}, "a");
  const std::string file = test::planned_bytes(plan, {"123456789"});
  // 0xcbf43926: the check value of CRC-32. a/data/0 is the third local header.
  size_t header = 0;
  for (int i = 0; i < 2; ++i) header = file.find("PK\x03\x04", header + 1);
  EXPECT_EQ(file.substr(header + 14, 4), little_endian(0xcbf43926, 4));
  EXPECT_EQ(file.substr(header + 18, 8), little_endian(9, 4) + little_endian(9, 4));
}

TEST(TorchWriter, WhatCannotBeWrittenIsNamed) {
  const auto error = [](const PyValue& value) {
    const PyValue root =
        PyValue::dict({{PyValue::string("a"), PyValue::list({PyValue::none(), value})}});
    return error_of<ModelError>([&] { plan_torch_file(root, {}, "top"); });
  };
  EXPECT_THAT(error(PyValue::omitted("a tensor inside an object")),
              HasSubstr("a.1 cannot be written to a .pt file: a tensor inside an object"));
  EXPECT_THAT(error(PyValue::string("\xff")), HasSubstr("a.1 cannot be written to a .pt file: the "
                                                        "string is not UTF-8"));
  EXPECT_THAT(error(PyValue::global("os", "system")), HasSubstr("os.system is no part"));
  EXPECT_THAT(error(PyValue::global("a\nb", "c")), HasSubstr("is not a Python name"));
  EXPECT_THAT(error(PyValue::dict({{PyValue::list(), {}}})), HasSubstr("as a key"));
  EXPECT_THAT(error(PyValue::set({PyValue::dict()})), HasSubstr("into a set"));
  EXPECT_THAT(error(PyValue::name_space({{PyValue::integer(1), {}}})),
              HasSubstr("a.1.1 cannot be written to a .pt file: an attribute without a name"));
  PyValue deep;
  for (int i = 0; i < 70; ++i) deep = PyValue::list({deep});
  EXPECT_THAT(error(deep), HasSubstr("nested deeper than 64 levels"));
}

TEST(TorchWriter, AWrongPlanIsABug) {
  const auto error = [](const PyValue& root, const std::vector<TensorInfo>& tensors,
                        const std::string& folder) {
    return error_of<InternalError>([&] { plan_torch_file(root, tensors, folder); });
  };
  EXPECT_THAT(error({}, {{"lost", DType::kF32, {1}}}, "a"), HasSubstr("tensor 0 (lost) is not in"));
  EXPECT_THAT(error(PyValue::tensor(1), {}, "a"), HasSubstr("top level is tensor 1 of 0"));
  for (const char* folder : {"", "..", "a/b", "a\\b", "a\n"})
    EXPECT_THAT(error({}, {}, folder), HasSubstr("is not the name of a folder"));
  const PlannedFile plan = plan_torch_file(PyValue::tensor(0), {{"t", DType::kF32, {1}}}, "a");
  EXPECT_THROW(plan.seal({}), InternalError);
}

TEST(TorchWriter, ImpossibleShapesAreNamed) {
  for (const std::vector<int64_t>& shape : std::vector<std::vector<int64_t>>{
           {-1}, {1ll << 40, 1ll << 40}, {1ll << 62, 0}, {0, 1ll << 40, 1ll << 40}}) {
    EXPECT_THAT(error_of<ModelError>(
                    [&] { plan_torch_file(PyValue::tensor(0), {{"t", DType::kF32, shape}}, "a"); }),
                HasSubstr("t cannot be written to a .pt file: the impossible shape ["));
  }
}

TEST(TorchWriter, DtypesWithoutAStorageClassKeepTheirDtype) {
  const PyValue root = PyValue::list({PyValue::tensor(0), PyValue::tensor(1)});
  const std::vector<TensorInfo> tensors = {{"0", DType::kU16, {3}}, {"1", DType::kU64, {0, 2}}};
  const std::string file = test::planned_bytes(plan_torch_file(root, tensors, "a"), {"uvwxyz", ""});
  const TorchDocument document = read_torch_document(as_bytes(file), "f");
  ASSERT_EQ(document.tensors.size(), 2u);
  EXPECT_EQ(document.tensors[0].dtype, DType::kU16);
  EXPECT_EQ(document.tensors[0].shape, (std::vector<int64_t>{3}));
  EXPECT_EQ(document.tensors[1].dtype, DType::kU64);
}

TEST(TorchWriter, NestingAtTheLimitIsReadBack) {
  PyValue deep;
  for (int i = 0; i < 64; ++i) deep = PyValue::tuple({deep});
  EXPECT_EQ(written_and_read(deep).root, deep);
}

}  // namespace
}  // namespace danlu::weights::torch_file
