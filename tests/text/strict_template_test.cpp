// Templates of prompts: white space as it is written, undefined values refused, regex_replace.
#include <gtest/gtest.h>

#include "support/throws.h"
#include "text/jinja/template.h"

namespace danlu::text::jinja {
namespace {

std::string rendered(const std::string& source, const Json& values = Json::object()) {
  Bindings bindings;
  for (const auto& [name, value] : values.items()) bindings.set(name, Value::from_json(value));
  return Template(source, "t", Dialect::kStrict).render(bindings).text;
}

// Expected texts: Jinja2 3.1.6 with StrictUndefined and keep_trailing_newline.
TEST(StrictTemplate, KeepsWhiteSpaceAroundBlocksAndAtTheEnd) {
  EXPECT_EQ(rendered("a\n  {% if true %}\nb\n{% endif %}\nc\n"), "a\n  \nb\n\nc\n");
  EXPECT_EQ(rendered("{# note #}\nx\n\n"), "\nx\n\n");
  EXPECT_EQ(rendered("a\n  {%- if true -%}\nb\n{%- endif %}\n"), "ab\n");
}

TEST(StrictTemplate, WhatIsUndefinedIsAnError) {
  const auto error = [](const char* source) {
    return test::error_of<TemplateError>([&] { rendered(source, {{"q", "x"}}); });
  };
  EXPECT_EQ(error("{{ question }}"), "t:1: 'question' is undefined");
  EXPECT_EQ(error("{{ q }}\n{{ question | trim }}"), "t:2: 'question' is undefined");
  EXPECT_EQ(error("{{ question.strip() }}"), "t:1: 'question' is undefined");
  EXPECT_EQ(rendered("{{ question | default('y') }}{{ 1 if z is defined else 2 }}"), "y2");
}

TEST(StrictTemplate, ReplacesByRegularExpression) {
  EXPECT_EQ(rendered("{{ t | regex_replace('\\\\[.*?\\\\]', '') }}", {{"t", "a [b] c [d"}}),
            "a  c [d");
  EXPECT_EQ(rendered("{{ t | regex_replace('(o+)', '<\\\\1>', 1) }}", {{"t", "foo boo"}}),
            "f<oo> boo");
}

}  // namespace
}  // namespace danlu::text::jinja
