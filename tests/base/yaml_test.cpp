#include "base/yaml.h"

#include <gtest/gtest.h>

#include "support/throws.h"

namespace danlu {
namespace {

TEST(Yaml, PlainScalarsAreTypedAndQuotedOnesAreText) {
  const Json value = parse_yaml(R"(
a: 12
b: "12"
c: 1.5e3
d: yes
e: true
f: ~
g: 0x1F
h: 0o17
i: -3
j: '#### (\-?[0-9]+)'
k: !!str 7
l: |
  two
  lines
m: [A, "B", null]
n: .inf
o: +5
)",
                                "t.yaml");
  EXPECT_EQ(value, Json({{"a", 12},
                         {"b", "12"},
                         {"c", 1500.0},
                         {"d", "yes"},
                         {"e", true},
                         {"f", nullptr},
                         {"g", 31},
                         {"h", 15},
                         {"i", -3},
                         {"j", "#### (\\-?[0-9]+)"},
                         {"k", "7"},
                         {"l", "two\nlines\n"},
                         {"m", Json::array({"A", "B", nullptr})},
                         {"n", ".inf"},
                         {"o", 5}}));
  EXPECT_EQ(value.begin().key(), "a");
}

TEST(Yaml, ErrorsNameFileAndLine) {
  const auto error = [](const std::string& text) {
    return test::error_of<UsageError>([&] { parse_yaml(text, "t.yaml", "write a filter"); });
  };
  EXPECT_EQ(error("a: 1\nb: 2\na: 3\n"), "t.yaml:3: 'a' is written twice | keep one of them");
  EXPECT_EQ(error("a: 1\nf: !function utils.f\n"),
            "t.yaml:2: the tag !function is not known | write a filter");
  EXPECT_EQ(error("a: 1\n---\nb: 2\n"), "t.yaml:3: a second document begins here; one is read");
  EXPECT_EQ(error("a: \xff\n"), "t.yaml: not UTF-8 text");
  EXPECT_TRUE(error("a: [1, 2\n").starts_with("t.yaml:2:1: not valid YAML: "));
  std::string deep = "a: ";
  for (int i = 0; i < 100; ++i) deep += "[";
  for (int i = 0; i < 100; ++i) deep += "]";
  EXPECT_EQ(error(deep), "t.yaml:1: nested too deeply");
}

TEST(Yaml, AliasesAreBounded) {
  std::string bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 9; ++i) {
    const std::string before = "*a" + std::to_string(i - 1);
    bomb += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [";
    for (int j = 0; j < 10; ++j) bomb += (j ? ", " : "") + before;
    bomb += "]\n";
  }
  EXPECT_EQ(test::error_of<UsageError>([&] { parse_yaml(bomb, "t.yaml"); }),
            "t.yaml: with aliases (*name) written out, the values are larger than 32 MiB");
  EXPECT_EQ(parse_yaml("a: &x [1]\nb: *x\n", "t.yaml")["b"], Json::array({1}));
}

TEST(Yaml, AnEmptyDocumentIsNull) {
  EXPECT_TRUE(parse_yaml("", "t.yaml").is_null());
  EXPECT_TRUE(parse_yaml("# only a comment\n", "t.yaml").is_null());
}

}  // namespace
}  // namespace danlu
