// eval/scoring/math_expression.h: formulas in LaTeX or as people type them, and their values.
#pragma once
#include <complex>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace danlu::eval {

/// A formula of numbers and variables. Immutable.
class MathExpression {
 public:
  /// Numbers ("1,234.5", ".5"), variables (one letter, a Greek name, x_1), + - * / ^ ! \cdot \times
  /// \div \pm, products without a sign, \frac \sqrt \binom, mixed numbers (3\frac12), parentheses
  /// of every kind, |x|, sin … ln log exp, \pi, e, i, \infty. What only changes the looks (\left,
  /// \,,
  /// \dfrac, $) is passed by. Nothing: `text` is no such formula, or has more than 2000 bytes or
  /// brackets nested more than 50 deep.
  static std::optional<MathExpression> parse(std::string_view text);

  /// Its value where each variable has the value that follows from its name and `sample`. It may be
  /// infinite or no number.
  std::complex<double> value(uint64_t sample) const;
  bool has_variables() const;

  struct Node;

 private:
  explicit MathExpression(std::shared_ptr<const Node> root) : root_(std::move(root)) {}
  std::shared_ptr<const Node> root_;
};

/// True if both have equal values, to 1e-9 of their size, wherever variables are: at samples that
/// are the same in every run. So what is equal by the rules of algebra is equal here.
bool same_values(const MathExpression& a, const MathExpression& b);

}  // namespace danlu::eval
