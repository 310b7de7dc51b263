#include "eval/scoring/math_expression.h"

#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <numbers>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/rng.h"
#include "text/jinja/python_text.h"

namespace danlu::eval {

using Complex = std::complex<double>;

struct MathExpression::Node {
  std::string variable;  ///< not empty: a variable
  Complex constant = 0;  ///< without `compute` and `variable`
  std::function<Complex(const std::vector<Complex>&)> compute;
  std::vector<std::shared_ptr<const Node>> of;
};

namespace {

using NodePtr = std::shared_ptr<const MathExpression::Node>;
using Compute = std::function<Complex(const std::vector<Complex>&)>;

constexpr size_t kMaxBytes = 2000;
constexpr int kMaxDepth = 50;

NodePtr constant(Complex value) {
  auto node = std::make_shared<MathExpression::Node>();
  node->constant = value;
  return node;
}

NodePtr variable(std::string name) {
  auto node = std::make_shared<MathExpression::Node>();
  node->variable = std::move(name);
  return node;
}

NodePtr computed(Compute compute, std::vector<NodePtr> of) {
  auto node = std::make_shared<MathExpression::Node>();
  node->compute = std::move(compute);
  node->of = std::move(of);
  return node;
}

NodePtr sum(NodePtr a, NodePtr b) {
  return computed([](const auto& x) { return x[0] + x[1]; }, {std::move(a), std::move(b)});
}
NodePtr product(NodePtr a, NodePtr b) {
  return computed([](const auto& x) { return x[0] * x[1]; }, {std::move(a), std::move(b)});
}
NodePtr quotient(NodePtr a, NodePtr b) {
  return computed([](const auto& x) { return x[0] / x[1]; }, {std::move(a), std::move(b)});
}
NodePtr negative(NodePtr a) {
  return computed([](const auto& x) { return -x[0]; }, {std::move(a)});
}

/// Whole exponents are multiplied out, so that 10^6 is exact.
Complex power_of(Complex base, Complex exponent) {
  const double n = exponent.real();
  if (exponent.imag() == 0 && n == std::floor(n) && std::fabs(n) <= 1024) {
    Complex result = 1;
    for (int i = 0; i < static_cast<int>(std::fabs(n)); ++i) result *= base;
    return n < 0 ? 1.0 / result : result;
  }
  if (base == Complex(0)) return 0;
  return std::pow(base, exponent);
}

Complex factorial_of(Complex n) {
  if (n.imag() != 0 || n.real() < 0) return std::numeric_limits<double>::quiet_NaN();
  return std::tgamma(n.real() + 1);
}

/// Functions of one argument, with and without the backslash.
const std::map<std::string, Complex (*)(Complex), std::less<>>& functions() {
  static const std::map<std::string, Complex (*)(Complex), std::less<>> kFunctions{
      {"sin", [](Complex x) { return std::sin(x); }},
      {"cos", [](Complex x) { return std::cos(x); }},
      {"tan", [](Complex x) { return std::tan(x); }},
      {"cot", [](Complex x) { return 1.0 / std::tan(x); }},
      {"sec", [](Complex x) { return 1.0 / std::cos(x); }},
      {"csc", [](Complex x) { return 1.0 / std::sin(x); }},
      {"arcsin", [](Complex x) { return std::asin(x); }},
      {"arccos", [](Complex x) { return std::acos(x); }},
      {"arctan", [](Complex x) { return std::atan(x); }},
      {"sinh", [](Complex x) { return std::sinh(x); }},
      {"cosh", [](Complex x) { return std::cosh(x); }},
      {"tanh", [](Complex x) { return std::tanh(x); }},
      {"ln", [](Complex x) { return std::log(x); }},
      {"exp", [](Complex x) { return std::exp(x); }},
      {"sqrt", [](Complex x) { return std::sqrt(x); }},
  };
  return kFunctions;
}

bool is_letter(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// A text that is no formula: thrown inside this file alone.
struct NotAFormula {};

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  NodePtr whole() {
    NodePtr node = sums();
    skip();
    if (at_ != text_.size()) throw NotAFormula();
    return node;
  }

 private:
  std::string_view rest() const { return text_.substr(at_); }
  bool takes(std::string_view word) {
    skip();
    if (!rest().starts_with(word)) return false;
    // \le is not the beginning of \left.
    if (word.size() > 1 && is_letter(word.back()) && at_ + word.size() < text_.size() &&
        word.front() == '\\' && is_letter(text_[at_ + word.size()]))
      return false;
    at_ += word.size();
    return true;
  }
  bool next_is(std::string_view word) {
    const size_t before = at_;
    const bool is = takes(word);
    at_ = before;
    return is;
  }
  void require(std::string_view word) {
    if (!takes(word)) throw NotAFormula();
  }

  /// Passes by what has no meaning.
  void skip() {
    static constexpr std::array<std::string_view, 13> kLooks = {
        "\\left", "\\right", "\\displaystyle", "\\,", "\\;", "\\!", "\\:",
        "\\ ",    "\\quad",  "\\qquad",        "~",   "$",   " "};
    for (bool again = true; again;) {
      again = false;
      for (const std::string_view looks : kLooks) {
        if (!rest().starts_with(looks)) continue;
        // \leftarrow is a word of its own.
        if (is_letter(looks.back()) && at_ + looks.size() < text_.size() &&
            is_letter(text_[at_ + looks.size()]))
          continue;
        at_ += looks.size();
        again = true;
      }
    }
  }

  NodePtr sums() {
    if (++depth_ > kMaxDepth) throw NotAFormula();
    NodePtr node;
    if (takes("-")) {
      node = negative(products());
    } else {
      takes("+");
      node = products();
    }
    for (;;) {
      if (takes("+")) {
        node = sum(std::move(node), products());
      } else if (takes("-")) {
        node = sum(std::move(node), negative(products()));
      } else {
        break;
      }
    }
    --depth_;
    return node;
  }

  NodePtr products() {
    NodePtr node = signed_power();
    for (;;) {
      if (takes("*") || takes("\\cdot") || takes("\\times")) {
        node = product(std::move(node), signed_power());
      } else if (takes("/") || takes("\\div")) {
        node = quotient(std::move(node), signed_power());
      } else if (begins_factor()) {
        node = product(std::move(node), powers());
      } else {
        return node;
      }
    }
  }

  NodePtr signed_power() {
    if (takes("-")) return negative(powers());
    takes("+");
    return powers();
  }

  NodePtr powers() {
    NodePtr base = factor();
    while (takes("!"))
      base = computed([](const auto& x) { return factorial_of(x[0]); }, {std::move(base)});
    if (!takes("^") && !takes("**")) return base;
    NodePtr exponent = argument(true);
    return computed([](const auto& x) { return power_of(x[0], x[1]); },
                    {std::move(base), std::move(exponent)});
  }

  bool begins_factor() {
    skip();
    if (at_ == text_.size()) return false;
    const char c = text_[at_];
    if (is_digit(c) || is_letter(c) || c == '(' || c == '{' || c == '[') return true;
    if (c != '\\') return false;
    for (const char* ends : {"\\cdot", "\\times", "\\div", "\\}", "\\right", "\\pm"}) {
      if (next_is(ends)) return false;
    }
    return true;
  }

  /// What stands in braces, or the one symbol that TeX takes where there are none. Of powers that
  /// people type the whole number or sign too: x^10, x^-1.
  NodePtr argument(bool typed) {
    skip();
    if (takes("{")) return closed_by("}");
    if (typed && takes("-")) return negative(argument(true));
    if (at_ < text_.size() && is_digit(text_[at_])) {
      if (typed) return number();
      return constant(text_[at_++] - '0');
    }
    return factor();
  }

  NodePtr closed_by(std::string_view closing) {
    NodePtr node = sums();
    require(closing);
    return node;
  }

  NodePtr factor() {
    if (++depth_ > kMaxDepth) throw NotAFormula();
    NodePtr node = unbounded_factor();
    --depth_;
    return node;
  }

  NodePtr unbounded_factor() {
    skip();
    if (at_ == text_.size()) throw NotAFormula();
    const char c = text_[at_];
    if (is_digit(c) || c == '.') return mixed_number();
    if (takes("(")) return closed_by(")");
    if (takes("[")) return closed_by("]");
    if (takes("{")) return closed_by("}");
    if (takes("|")) return absolute();
    if (c == '\\') return command();
    if (is_letter(c)) return word();
    throw NotAFormula();
  }

  NodePtr absolute() {
    NodePtr inner = closed_by("|");
    return computed([](const auto& x) { return Complex(std::abs(x[0])); }, {std::move(inner)});
  }

  NodePtr number() {
    skip();
    std::string digits;
    const auto take_digits = [&] {
      while (at_ < text_.size() && is_digit(text_[at_])) digits += text_[at_++];
    };
    take_digits();
    // Groups of thousands: 1,234 and 1{,}234.
    for (const std::string_view comma : {std::string_view(","), std::string_view("{,}")}) {
      while (!digits.empty() && is_group(comma)) {
        at_ += comma.size();
        digits += text_.substr(at_, 3);
        at_ += 3;
      }
    }
    if (at_ < text_.size() && text_[at_] == '.') {
      digits += text_[at_++];
      take_digits();
    }
    if (digits.empty() || digits == ".") throw NotAFormula();
    double value = 0;
    if (digits.front() == '.') digits = "0" + digits;
    std::from_chars(digits.data(), digits.data() + digits.size(), value);
    return constant(value);
  }

  bool is_group(std::string_view comma) const {
    if (!rest().starts_with(comma)) return false;
    const std::string_view group = rest().substr(comma.size());
    if (group.size() < 3 || (group.size() > 3 && is_digit(group[3]))) return false;
    return is_digit(group[0]) && is_digit(group[1]) && is_digit(group[2]);
  }

  /// 3\frac{1}{2} is 3.5.
  NodePtr mixed_number() {
    const size_t begin = at_;
    NodePtr node = number();
    const bool is_whole = text_.substr(begin, at_ - begin).find('.') == std::string_view::npos;
    const size_t before = at_;
    for (const char* fraction : {"\\frac", "\\dfrac", "\\tfrac"}) {
      if (!is_whole || !takes(fraction)) continue;
      const size_t parts = at_;
      if (is_plain_fraction()) {
        at_ = parts;
        return sum(std::move(node), quotient_of_arguments());
      }
      at_ = before;
    }
    return node;
  }

  /// Whether the next two arguments are digits alone.
  bool is_plain_fraction() {
    for (int i = 0; i < 2; ++i) {
      const bool has_brace = takes("{");
      const size_t begin = at_;
      while (at_ < text_.size() && is_digit(text_[at_]) && (has_brace || at_ == begin)) ++at_;
      if (at_ == begin || (has_brace && !takes("}"))) return false;
    }
    return true;
  }

  NodePtr quotient_of_arguments() {
    NodePtr above = argument(false);
    return quotient(std::move(above), argument(false));
  }

  NodePtr command() {
    for (const char* fraction : {"\\frac", "\\dfrac", "\\tfrac", "\\cfrac"}) {
      if (takes(fraction)) return quotient_of_arguments();
    }
    if (takes("\\sqrt")) return root();
    if (takes("\\binom") || takes("\\dbinom")) return binomial();
    if (takes("\\log")) return logarithm();
    if (takes("\\pi")) return constant(std::numbers::pi);
    if (takes("\\infty")) return constant(std::numeric_limits<double>::infinity());
    if (takes("\\lvert") || takes("\\vert")) return absolute_of_words();
    for (const char* group : {"\\mathrm", "\\mathbf", "\\operatorname"}) {
      if (!takes(group)) continue;
      require("{");
      return closed_by("}");
    }
    size_t end = at_ + 1;
    while (end < text_.size() && is_letter(text_[end])) ++end;
    const std::string_view name = text_.substr(at_ + 1, end - at_ - 1);
    if (const auto found = functions().find(name); found != functions().end()) {
      at_ = end;
      return function_of(found->second);
    }
    static constexpr std::array<std::string_view, 13> kGreek = {
        "alpha", "beta", "gamma", "delta", "epsilon", "theta", "lambda",
        "mu",    "phi",  "omega", "sigma", "rho",     "varphi"};
    for (const std::string_view greek : kGreek) {
      if (name != greek) continue;
      at_ = end;
      return variable(with_index("\\" + std::string(name)));
    }
    throw NotAFormula();
  }

  NodePtr absolute_of_words() {
    NodePtr inner = sums();
    if (!takes("\\rvert") && !takes("\\vert")) throw NotAFormula();
    return computed([](const auto& x) { return Complex(std::abs(x[0])); }, {std::move(inner)});
  }

  NodePtr root() {
    if (!takes("[")) {
      return computed([](const auto& x) { return std::sqrt(x[0]); }, {argument(false)});
    }
    NodePtr degree = closed_by("]");
    NodePtr inner = argument(false);
    return computed(
        [](const auto& x) {
          // The real root, where there is one.
          const bool is_odd = std::fmod(std::fabs(x[1].real()), 2) == 1;
          if (x[0].imag() == 0 && x[0].real() < 0 && is_odd) return -std::pow(-x[0], 1.0 / x[1]);
          return std::pow(x[0], 1.0 / x[1]);
        },
        {std::move(inner), std::move(degree)});
  }

  NodePtr binomial() {
    NodePtr n = argument(false), k = argument(false);
    return computed(
        [](const auto& x) {
          return factorial_of(x[0]) / (factorial_of(x[1]) * factorial_of(x[0] - x[1]));
        },
        {std::move(n), std::move(k)});
  }

  NodePtr logarithm() {
    NodePtr base = takes("_") ? argument(false) : constant(std::numbers::e);
    NodePtr of = next_argument();
    return computed([](const auto& x) { return std::log(x[0]) / std::log(x[1]); },
                    {std::move(of), std::move(base)});
  }

  /// sin x, sin(x), sin^2 x.
  NodePtr function_of(Complex (*function)(Complex)) {
    NodePtr exponent = takes("^") ? argument(true) : nullptr;
    NodePtr value =
        computed([function](const auto& x) { return function(x[0]); }, {next_argument()});
    if (!exponent) return value;
    return computed([](const auto& x) { return power_of(x[0], x[1]); },
                    {std::move(value), std::move(exponent)});
  }

  /// In parentheses, or the product that follows: sin 2x.
  NodePtr next_argument() {
    if (next_is("(") || next_is("{")) return powers();
    NodePtr node = powers();
    while (begins_factor() && !next_is("(")) node = product(std::move(node), powers());
    return node;
  }

  NodePtr word() {
    size_t end = at_;
    while (end < text_.size() && is_letter(text_[end])) ++end;
    const std::string_view letters = text_.substr(at_, end - at_);
    if (const auto found = functions().find(letters); found != functions().end()) {
      at_ = end;
      return function_of(found->second);
    }
    if (letters == "log") {
      at_ = end;
      return logarithm();
    }
    if (letters == "pi") {
      at_ = end;
      return constant(std::numbers::pi);
    }
    // Three letters in a row are a word of a language, and no product.
    if (letters.size() > 2) throw NotAFormula();
    const char c = text_[at_++];
    if (c == 'i') return constant(Complex(0, 1));
    if (c == 'e') return constant(std::numbers::e);
    return variable(with_index(std::string(1, c)));
  }

  std::string with_index(std::string name) {
    if (!rest().starts_with("_")) return name;
    ++at_;
    const bool has_brace = takes("{");
    std::string index;
    while (at_ < text_.size() && (is_letter(text_[at_]) || is_digit(text_[at_])) &&
           (has_brace || index.empty()))
      index += text_[at_++];
    if (index.empty() || (has_brace && !takes("}"))) throw NotAFormula();
    return name + "_" + index;
  }

  std::string_view text_;
  size_t at_ = 0;
  int depth_ = 0;
};

std::string with_plain_signs(std::string_view text) {
  static const std::vector<std::pair<std::string, std::string>> kSigns = {
      {"−", "-"},        {"–", "-"},        {"×", "*"},  {"·", "*"},  {"÷", "/"},
      {"π", "\\pi "},    {"∞", "\\infty "}, {"²", "^2"}, {"³", "^3"}, {"\\degree", ""},
      {"^{\\circ}", ""}, {"^\\circ", ""},   {"°", ""}};
  std::string result(text);
  for (const auto& [from, to] : kSigns) result = text::jinja::replace_all(result, from, to);
  return result;
}

Complex value_of(const MathExpression::Node& node, uint64_t sample) {
  if (!node.variable.empty()) {
    // Between 1 and 2: there powers and logarithms of sums are neither tiny nor huge.
    const uint64_t bits = mix64(hash_bytes(node.variable), sample);
    return 1 + static_cast<double>(bits >> 11) * 0x1p-53;
  }
  if (!node.compute) return node.constant;
  std::vector<Complex> values;
  values.reserve(node.of.size());
  for (const NodePtr& of : node.of) values.push_back(value_of(*of, sample));
  return node.compute(values);
}

bool has_variable(const MathExpression::Node& node) {
  if (!node.variable.empty()) return true;
  for (const NodePtr& of : node.of) {
    if (has_variable(*of)) return true;
  }
  return false;
}

bool same_number(Complex a, Complex b) {
  if (!std::isfinite(a.real()) || !std::isfinite(b.real())) return a.real() == b.real();
  const double distance = std::abs(a - b);
  // What is 0 but for rounding, such as sin(\pi), has no size to compare with.
  return distance <= 1e-9 * std::max(std::abs(a), std::abs(b)) || distance <= 1e-13;
}

}  // namespace

std::optional<MathExpression> MathExpression::parse(std::string_view text) {
  if (text.size() > kMaxBytes) return std::nullopt;
  const std::string plain = with_plain_signs(text);
  try {
    return MathExpression(Parser(plain).whole());
  } catch (const NotAFormula&) {
    return std::nullopt;
  }
}

Complex MathExpression::value(uint64_t sample) const { return value_of(*root_, sample); }
bool MathExpression::has_variables() const { return has_variable(*root_); }

bool same_values(const MathExpression& a, const MathExpression& b) {
  const uint64_t samples = a.has_variables() || b.has_variables() ? 4 : 1;
  for (uint64_t sample = 0; sample < samples; ++sample) {
    if (!same_number(a.value(sample), b.value(sample))) return false;
  }
  return true;
}

}  // namespace danlu::eval
