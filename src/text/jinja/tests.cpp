#include "text/jinja/tests.h"

#include <fmt/format.h>

#include "text/jinja/filters.h"
#include "text/jinja/operators.h"
#include "text/jinja/python_text.h"

namespace danlu::text::jinja {

namespace {

using Input = const Value&;

const Value& other(std::string_view name, const Arguments& a) {
  if (a.positional.size() != 1 || !a.named.empty())
    throw EvalError(fmt::format("test '{}' needs one argument", name));
  return a.positional[0];
}

int64_t integer_of(Input v, std::string_view test) {
  if (v.is_undefined()) throw EvalError(v.undefined_message());
  if (!v.is_integral())
    throw EvalError(fmt::format("test '{}' needs an integer, got {}", test, type_name(v)));
  return v.as_int();
}

bool divisible_by(Input v, const Arguments& a) {
  const int64_t divisor = integer_of(other("divisibleby", a), "divisibleby");
  if (divisor == 0) throw EvalError("integer modulo by zero");
  return divisor == -1 || integer_of(v, "divisibleby") % divisor == 0;
}

bool same_as(Input v, Input w) {
  if (v.kind() != w.kind()) return false;
  return v.object() ? v.object() == w.object() || (v.is_string() && equals(v, w)) : equals(v, w);
}

bool is_iterable(Input v) {
  return v.is_undefined() || v.is_string() || v.is_sequence() || v.is_dict();
}

#define DANLU_TEST(body)                                   \
  +[](Interpreter&, Input v, const Arguments& a) -> bool { \
    (void)v;                                               \
    (void)a;                                               \
    return body;                                           \
  }

constexpr std::pair<std::string_view, TestFunction> kTable[] = {
    {"defined", DANLU_TEST(!v.is_undefined())},
    {"undefined", DANLU_TEST(v.is_undefined())},
    {"none", DANLU_TEST(v.is_none())},
    {"boolean", DANLU_TEST(v.is_bool())},
    {"true", DANLU_TEST(v.is_bool() && v.as_bool())},
    {"false", DANLU_TEST(v.is_bool() && !v.as_bool())},
    {"integer", DANLU_TEST(v.kind() == Kind::kInt)},
    {"float", DANLU_TEST(v.kind() == Kind::kFloat)},
    {"number", DANLU_TEST(v.is_number())},
    {"string", DANLU_TEST(v.is_string())},
    {"mapping", DANLU_TEST(v.is_dict())},
    {"sequence", DANLU_TEST(v.is_undefined() || v.is_string() || v.is_sequence() || v.is_dict())},
    {"iterable", DANLU_TEST(is_iterable(v))},
    {"callable", DANLU_TEST(v.kind() == Kind::kCallable)},
    {"odd", DANLU_TEST(integer_of(v, "odd") % 2 != 0)},
    {"even", DANLU_TEST(integer_of(v, "even") % 2 == 0)},
    {"divisibleby", DANLU_TEST(divisible_by(v, a))},
    {"lower", DANLU_TEST(is_lower(to_text(v)))},
    {"upper", DANLU_TEST(is_upper(to_text(v)))},
    {"sameas", DANLU_TEST(same_as(v, other("sameas", a)))},
    {"in", DANLU_TEST(contains(other("in", a), v))},
    {"filter", DANLU_TEST(find_filter(to_text(v)) != nullptr)},
    {"test", DANLU_TEST(find_test(to_text(v)) != nullptr)},
    {"escaped", DANLU_TEST(false)},
    {"eq", DANLU_TEST(equals(v, other("eq", a)))},
    {"==", DANLU_TEST(equals(v, other("==", a)))},
    {"equalto", DANLU_TEST(equals(v, other("equalto", a)))},
    {"ne", DANLU_TEST(!equals(v, other("ne", a)))},
    {"!=", DANLU_TEST(!equals(v, other("!=", a)))},
    {"lt", DANLU_TEST(compare(CompareOp::kLess, v, other("lt", a)))},
    {"<", DANLU_TEST(compare(CompareOp::kLess, v, other("<", a)))},
    {"lessthan", DANLU_TEST(compare(CompareOp::kLess, v, other("lessthan", a)))},
    {"le", DANLU_TEST(compare(CompareOp::kLessEqual, v, other("le", a)))},
    {"<=", DANLU_TEST(compare(CompareOp::kLessEqual, v, other("<=", a)))},
    {"gt", DANLU_TEST(compare(CompareOp::kGreater, v, other("gt", a)))},
    {">", DANLU_TEST(compare(CompareOp::kGreater, v, other(">", a)))},
    {"greaterthan", DANLU_TEST(compare(CompareOp::kGreater, v, other("greaterthan", a)))},
    {"ge", DANLU_TEST(compare(CompareOp::kGreaterEqual, v, other("ge", a)))},
    {">=", DANLU_TEST(compare(CompareOp::kGreaterEqual, v, other(">=", a)))},
};

#undef DANLU_TEST

}  // namespace

TestFunction find_test(std::string_view name) {
  for (const auto& [known, function] : kTable) {
    if (known == name) return function;
  }
  return nullptr;
}

}  // namespace danlu::text::jinja
