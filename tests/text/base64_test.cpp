#include "text/base64.h"

#include <gtest/gtest.h>

namespace danlu::text {
namespace {

// RFC 4648, section 10.
TEST(Base64, IsWrittenAsTheStandardHasIt) {
  for (const auto& [bytes, encoded] :
       {std::pair{"", ""}, std::pair{"f", "Zg=="}, std::pair{"fo", "Zm8="},
        std::pair{"foo", "Zm9v"}, std::pair{"foob", "Zm9vYg=="}, std::pair{"fooba", "Zm9vYmE="},
        std::pair{"foobar", "Zm9vYmFy"}}) {
    EXPECT_EQ(encode_base64(bytes), encoded);
  }
}

TEST(Base64, EveryByteComesBack) {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  std::string back;
  ASSERT_TRUE(decode_base64(encode_base64(all), &back));
  EXPECT_EQ(back, all);
}

// Python's base64.b64decode passes over what MIME puts between lines.
TEST(Base64, LinesMayBeBroken) {
  std::string bytes;
  ASSERT_TRUE(decode_base64("Zm9v\r\nYmFy\n", &bytes));
  EXPECT_EQ(bytes, "foobar");
  ASSERT_TRUE(decode_base64(" Zg==\n", &bytes));
  EXPECT_EQ(bytes, "f");
  EXPECT_FALSE(decode_base64("Zm9v\nYg", &bytes)) << "without padding";
  EXPECT_FALSE(decode_base64("Zm9v*mFy", &bytes));
  EXPECT_FALSE(decode_base64("\n", &bytes));
}

}  // namespace
}  // namespace danlu::text
