// eval/scoring/math_equal.h: whether two answers in LaTeX are the same, as the MATH data set's own
// check sees it.
#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace danlu::eval {

/// The form in which two equal answers are the same text: without line breaks, spaces, \!, \left,
/// \right, degrees, \$, \% and a unit at the right (\text{ …}); tfrac and dfrac as frac; .5 as 0.5;
/// without "x =" in front; \sqrt2 as \sqrt{2}, \frac12 as \frac{1}{2}, 0.5 and 1/2 too.
/// Source: the rules of Hendrycks' MATH, which AGIEval shares. Nothing where these have no result
/// (two units, \sqrt at the end).
std::optional<std::string> normal_math_text(std::string text);

/// True if both have the same normal form, or, where one has none, are the same text.
bool math_equal(const std::string& a, const std::string& b);

/// The answer in a text that explains it: what the last \boxed{} holds, else what stands between
/// the first and last $ of the last line that has two, else after the last "=" of the text
/// (without a full stop), else the last number; of the first two what follows their last "=".
/// Source: AGIEval's rules.
std::optional<std::string> final_math_answer(const std::string& text);

/// The last number of a text, thousands separators read as such if asked: "1,234.5" is 1234.5
/// then, and 234.5 otherwise.
std::optional<double> last_number(const std::string& text, bool thousands_separators);

}  // namespace danlu::eval
