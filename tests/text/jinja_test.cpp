// What goldens cannot show: error texts, limits, generation blocks, the clock, thread safety of
// constants.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iostream>
#include <new>
#include <optional>
#include <thread>

#include "text/jinja/python_text.h"
#include "text/jinja/template.h"

namespace danlu::text::jinja {
namespace {

using ::testing::HasSubstr;

std::string render(const std::string& source, const Json& variables = Json::object(),
                   const Limits& limits = {}) {
  Bindings bindings;
  for (const auto& [name, value] : variables.items()) bindings.set(name, Value::from_json(value));
  return Template(source, "chat.jinja").render(bindings, limits).text;
}

std::string error_of(const std::string& source, const Json& variables = Json::object(),
                     const Limits& limits = {}) {
  try {
    return "printed: " + render(source, variables, limits);
  } catch (const TemplateError& error) {
    EXPECT_EQ(error.code(), ExitCode::kModel);
    return error.what();
  }
}

TEST(JinjaErrors, SayTemplateLineAndWhat) {
  EXPECT_EQ(error_of("a\nb\n{{ 1 + }}"), "chat.jinja:3: expected an expression, got '}}'");
  EXPECT_EQ(error_of("{% if x %}\n\n"),
            "chat.jinja:1: the block is never closed: expected {% endif %}");
  EXPECT_EQ(error_of("\n{% nosuch %}"), "chat.jinja:2: unknown tag 'nosuch'");
  EXPECT_EQ(error_of("{% include 'x' %}"),
            "chat.jinja:1: 'include' is not available in chat templates");
  const std::string too_large = "chat.jinja:1: integer result does not fit 64 bits";
  EXPECT_EQ(error_of("{{ '%d' % 1e300 }}"), too_large);
  EXPECT_EQ(error_of("{{ 9223372036854775807|round(-1) }}"), too_large);
  EXPECT_EQ(error_of("x\n{{ 1|nosuch }}"), "chat.jinja:2: there is no filter 'nosuch'");
  EXPECT_EQ(error_of("x\n\n{{ foo.bar }}"), "chat.jinja:3: 'foo' is undefined");
  EXPECT_EQ(error_of("{{ d.a.b }}", {{"d", Json::object()}}),
            "chat.jinja:1: 'dict object' has no attribute 'a'");
  EXPECT_EQ(error_of("{{ 'a' + 1 }}"),
            "chat.jinja:1: can only concatenate str (not \"int\") to str");
  EXPECT_EQ(error_of("{{ 'a\n' }}{{ [1].append(2) }}"),
            "chat.jinja:2: a list cannot be changed (Hugging Face's sandbox refuses this too); "
            "make a new one with + or "
            "use namespace()");
}

TEST(JinjaErrors, RaiseExceptionIsARefusal) {
  EXPECT_THROW(render("{{ raise_exception('no system role') }}"), TemplateRefusal);
  EXPECT_EQ(error_of("\n{{ raise_exception('no system role') }}"), "chat.jinja:2: no system role");
}

TEST(JinjaErrors, AnUnknownFilterInABranchNotTakenIsNoError) {
  EXPECT_EQ(render("{% if false %}{{ x|nosuch }}{% endif %}ok"), "ok");
}

TEST(JinjaLimits, EndAHostileTemplateWithAnError) {
  EXPECT_THAT(error_of("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"),
              HasSubstr("nested too deeply"));
  EXPECT_THAT(error_of("{{ 'x' * 100000000000 }}"), HasSubstr("limit"));
  EXPECT_THAT(error_of("{% for a in range(100000) %}{% for b in range(100000) %}{{ a }}{% endfor "
                       "%}{% endfor %}"),
              HasSubstr("limit"));
  EXPECT_THAT(error_of("{{ range(100000000) }}"), HasSubstr("too long"));
  EXPECT_THAT(error_of("{% set ns = namespace(x='aaaaaaaa') %}{% for i in range(64) %}{% set ns.x "
                       "= ns.x + ns.x %}{% endfor %}"),
              HasSubstr("limit"));
  EXPECT_THAT(error_of("{% set ns = namespace(x=[]) %}{% for i in range(50000) %}{% set ns.x = "
                       "[ns.x] %}{% endfor %}"),
              HasSubstr("nested deeper"));
  EXPECT_THAT(error_of("{% set ns = namespace(x=[1]) %}{% for i in range(90) %}{% set ns.x = "
                       "[ns.x, ns.x] %}{% endfor %}{{ ns.x }}"),
              HasSubstr("too large"));
  EXPECT_THAT(error_of("{% set ns = namespace(x=1) %}{% for i in range(5000) %}{% set ns.x = "
                       "cycler(ns.x) %}{% endfor %}"),
              HasSubstr("nested deeper"));
  EXPECT_THAT(error_of("{{ 2 ** 64 }}"), HasSubstr("64 bits"));
  EXPECT_THAT(error_of("{{ '%999999s' % 'x' }}"), HasSubstr("too large"));
}

/// In a process of its own that may take 48 MiB more: what a template makes of 16 MiB at the most,
/// with room for a copy and a growing buffer.
[[noreturn]] void print_error_in_little_memory(const std::string& source) {
  long pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const auto bytes = static_cast<rlim_t>(pages * ::sysconf(_SC_PAGESIZE) + (48 << 20));
  const rlimit limit{bytes, bytes};
  ::setrlimit(RLIMIT_AS, &limit);
  try {
    std::cerr << error_of(source, Json::object(), {.bytes = 16 << 20});
  } catch (const std::bad_alloc&) {
    std::cerr << "out of memory";
  }
  std::_Exit(0);
}

TEST(JinjaLimits, AreCheckedBeforeMemoryIsTaken) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizer's own memory does not fit the limit";
#endif
  const std::string s = "{% set s = 'x' * 8000000 %}";
  for (const std::string& hostile :
       {s + "{{ s|replace('x', s) }}", s + "{{ s.replace('x', s) }}", s + "{{ s.replace('', s) }}",
        s + "{{ s|list|length }}", s + "{{ s|first }}", s + "{{ s|last }}", s + "{{ s[1:] }}",
        s + "{% for c in s %}{{ c }}{% break %}{% endfor %}", s + "{{ ''.join(s) }}",
        std::string("{{ ('%100000s' * 1000) % (('x',) * 1000) }}"),
        std::string("{{ ('{0}' * 100).format('x' * 1000000) }}"),
        std::string("{{ (',' * 8000000).split(',')|length }}"),
        std::string("{{ ('\"' * 8000000)|escape }}"),
        std::string("{{ ('\"' * 8000000)|urlencode }}"),
        std::string("{{ ('\x01' * 8000000)|tojson }}"),
        std::string("{{ [[[[[[[[[[1] * 200000]]]]]]]]]|tojson(64) }}")}) {
    EXPECT_EXIT(print_error_in_little_memory(hostile), testing::ExitedWithCode(0), "limit")
        << hostile;
  }
  EXPECT_EXIT(print_error_in_little_memory(s + "{{ s[0] }}{{ s[-1] }}{{ s|truncate(4) }}"),
              testing::ExitedWithCode(0), "printed: xxx[.]{3}");
}

TEST(JinjaLimits, DeepNestingOfSourceIsRefused) {
  EXPECT_THAT(error_of("{{ " + std::string(5000, '(') + "1" + std::string(5000, ')') + " }}"),
              HasSubstr("nested too deeply"));
  EXPECT_THAT(error_of("{{ " + std::string(5000, '-') + "1 }}"), HasSubstr("nested too deeply"));
  std::string blocks;
  for (int i = 0; i < 5000; ++i) blocks += "{% if 1 %}";
  EXPECT_THAT(error_of(blocks), HasSubstr("nested too deeply"));
  std::string chain = "{{ 1";
  for (int i = 0; i < 5000; ++i) chain += "+1";
  EXPECT_THAT(error_of(chain + " }}"), HasSubstr("too long"));
}

TEST(JinjaLimits, CyclesThroughNamespacesAreFreed) {  // leaks show under the address sanitizer
  EXPECT_EQ(render("{% set a = namespace() %}{% set a.self = a %}{% set a.list = [a] %}{{ "
                   "a.self.self.list|length }}"),
            "1");
  EXPECT_EQ(render("{% set ns = namespace(x=none) %}{% for i in range(20000) %}{% set ns.x = "
                   "namespace(p=ns.x) %}{% endfor %}ok"),
            "ok");
}

TEST(JinjaGeneration, MarksTheBytesOfItsBlocks) {
  const Template t(
      "{% for m in messages %}[{% generation %}{{ m }}{% endgeneration %}]{% endfor %}", "t");
  Bindings bindings;
  bindings.set("messages", Value::from_json({"ab", "北"}));
  const Rendered rendered = t.render(bindings);
  EXPECT_EQ(rendered.text, "[ab][北]");
  EXPECT_EQ(rendered.generations, (std::vector<std::pair<size_t, size_t>>{{1, 3}, {5, 8}}));
}

TEST(JinjaClock, StrftimeNowWritesTheGivenTimeAsLocalTime) {
  const auto rendered_in = [](const char* zone) {
    ::setenv("TZ", zone, 1);
    ::tzset();
    // 22:13:20 UTC, eight hours earlier than in Shanghai.
    const std::time_t now = 1'700'000'000;
    return Template("{{ strftime_now('%d %b %Y, %H:%M') }}", "t").render({}, {}, now).text;
  };
  const char* set = std::getenv("TZ");
  const std::optional<std::string> before = set ? std::optional<std::string>(set) : std::nullopt;
  EXPECT_EQ(rendered_in("UTC0"), "14 Nov 2023, 22:13");
  EXPECT_EQ(rendered_in("CST-8"), "15 Nov 2023, 06:13");
  before ? ::setenv("TZ", before->c_str(), 1) : ::unsetenv("TZ");
  ::tzset();
}

TEST(JinjaThreads, OneTemplateRendersInManyThreads) {
  const Template t(
      "{% set s = 'shared ' %}{% for i in range(50) %}{{ s + 'x' }}{{ {'a': s}['a']|upper }}{% "
      "endfor %}",
      "t");
  const std::string wanted = t.render({}).text;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 50; ++round) EXPECT_EQ(t.render({}).text, wanted);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(PythonText, FloatsPrintAsReprDoes) {
  const std::pair<double, const char*> cases[] = {{1.0, "1.0"},
                                                  {0.1, "0.1"},
                                                  {1e16, "1e+16"},
                                                  {1e15, "1000000000000000.0"},
                                                  {1e-4, "0.0001"},
                                                  {1e-5, "1e-05"},
                                                  {-2.5, "-2.5"},
                                                  {1.0 / 3, "0.3333333333333333"},
                                                  {1e300, "1e+300"},
                                                  {5e-324, "5e-324"},
                                                  {123456.789, "123456.789"}};
  for (const auto& [value, text] : cases) EXPECT_EQ(float_repr(value), text);
}

TEST(PythonText, StripRemovesWhatPythonCallsSpace) {
  EXPECT_EQ(strip("\u3000\u00a0 a \u2028\x1f"), "a");
  EXPECT_EQ(strip("\ufeff a"), "\ufeff a");  // not space in Python, though it is in JavaScript
  EXPECT_EQ(strip("\xff a"), "\xff a");      // invalid UTF-8 stays
}

}  // namespace
}  // namespace danlu::text::jinja
