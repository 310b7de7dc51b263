// numpy's array headers: every spelling numpy writes, and headers that no numpy wrote.
#include "data/megatron/npy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/indexed_test_support.h"
#include "support/throws.h"

namespace danlu::data {
namespace {

using ::testing::HasSubstr;

/// A file with this header dictionary and `values` 8-byte numbers 0, 1, 2, … behind it.
fs::path file_with(const ScratchFolder& directory, const std::string& header, int64_t values) {
  std::string bytes("\x93NUMPY\x01\x00", 8);
  const auto size = static_cast<uint16_t>(header.size());
  bytes.append(reinterpret_cast<const char*>(&size), sizeof size);
  bytes += header;
  for (int64_t i = 0; i < values; ++i) bytes.append(reinterpret_cast<const char*>(&i), sizeof i);
  write_file_atomic(directory / "a.npy", bytes);
  return directory / "a.npy";
}

std::string refusal(const std::string& header, int64_t values = 6) {
  const ScratchFolder directory;
  return test::error_of<DataError>([&] { NpyFile(file_with(directory, header, values)); });
}

TEST(Npy, ReadsWhatNumpyWritesWhateverTheOrderOfTheKeys) {
  const ScratchFolder directory;
  for (const char* header : {
           "{'descr': '<i8', 'fortran_order': False, 'shape': (2, 3), }          \n",
           "{'shape': (2, 3), 'descr': '<i8', 'fortran_order': False}",
           "{\"fortran_order\":False,\"shape\":(2,3,),\"descr\":\"<i8\"}\n",
       }) {
    const NpyFile array(file_with(directory, header, 6));
    EXPECT_EQ(array.shape().rows, 2) << header;
    EXPECT_EQ(array.shape().columns, 3) << header;
    EXPECT_EQ(array.descr(), "<i8") << header;
    EXPECT_EQ(array.at(5), 5) << header;
  }
  const NpyFile line(
      file_with(directory, "{'descr': '<u4', 'fortran_order': False, 'shape': (3,), }\n", 2));
  EXPECT_EQ(line.shape().rows, 3);
  EXPECT_EQ(line.shape().columns, 0);
  EXPECT_EQ(line.at(2), 1);
}

TEST(Npy, AHeaderOfTensOfThousandsOfSpacesIsReadOrRefused) {
  const std::string spaces(30'000, ' ');
  const ScratchFolder directory;
  const NpyFile array(file_with(
      directory, "{'descr': '<i8', 'fortran_order': False, 'shape': (6,), }" + spaces + "\n", 6));
  EXPECT_EQ(array.at(5), 5);
  EXPECT_THAT(refusal("{" + spaces + "'descr'" + spaces), HasSubstr("':' must follow 'descr'"));
}

TEST(Npy, SaysWhatIsWrongWithAHeader) {
  const std::string rest = "'fortran_order': False, 'shape': (6,)}";
  EXPECT_THAT(refusal(""), HasSubstr("a.npy: bad header at byte 0: must begin with '{'"));
  EXPECT_THAT(refusal("{'descr': '<f8', " + rest),
              HasSubstr("descr must be little-endian integers (<i8, <u4, …), got '<f8'"));
  EXPECT_THAT(refusal("{'descr': '>i8', " + rest), HasSubstr("got '>i8'"));
  EXPECT_THAT(refusal("{'descr': '<i16', " + rest), HasSubstr("got '<i16'"));
  EXPECT_THAT(refusal("{'descr': [('a', '<i8')], " + rest), HasSubstr("descr must be a string"));
  EXPECT_THAT(refusal("{'descr': '<i8', 'fortran_order': True, 'shape': (6,)}"),
              HasSubstr("fortran_order must be False"));
  EXPECT_THAT(refusal("{'descr': '<i8', 'shape': (6,)}"), HasSubstr("has no fortran_order"));
  EXPECT_THAT(refusal("{'descr': '<i8', 'descr': '<i8', " + rest), HasSubstr("has descr twice"));
  EXPECT_THAT(refusal("{'order': 'C', " + rest), HasSubstr("unknown key 'order'"));
  EXPECT_THAT(refusal("{'descr': '<i8', " + rest + " x"), HasSubstr("text after the final '}'"));
  EXPECT_THAT(refusal("{'descr': '<i8', 'fortran_order': False, 'shape': (6)}"),
              HasSubstr("shape must be (rows,) or (rows, columns)"));
  EXPECT_THAT(refusal("{'descr': '<i8', 'fortran_order': False, 'shape': ()}"),
              HasSubstr("shape must be (rows,) or (rows, columns)"));
  EXPECT_THAT(refusal("{'descr': '<i8', 'fortran_order': False, 'shape': (1, 2, 3)}"),
              HasSubstr("shape must be (rows,) or (rows, columns)"));
  EXPECT_THAT(refusal("{'descr': '<i8', 'fortran_order': False, 'shape': (-6,)}"),
              HasSubstr("shape must be (rows,) or (rows, columns)"));
  EXPECT_THAT(refusal("{'descr': '<i8', 'fortran_order': False, 'shape': (99999999999999999999,)}"),
              HasSubstr("shape must be (rows,) or (rows, columns)"));
  EXPECT_THAT(refusal("{'descr': '<i8', " + rest, 5),
              HasSubstr("has 5 values, its header promises more"));
}

TEST(Npy, RefusesEveryTruncationOfAHeader) {
  const std::string whole = "{'descr': '<i8', 'fortran_order': False, 'shape': (2, 3), }";
  for (size_t size = 0; size < whole.size(); ++size)
    EXPECT_THAT(refusal(whole.substr(0, size)), HasSubstr("bad header")) << size;
}

}  // namespace
}  // namespace danlu::data
