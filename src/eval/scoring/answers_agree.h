// eval/scoring/answers_agree.h: whether two final answers of mathematics say the same, whatever
// they look like.
#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace danlu::eval {

/// True if `answer` says what `reference` says:
/// - formulas by their values (math_expression.h): 1/2, 0.5 and \frac{2}{4}; 2\sqrt3 and \sqrt{12};
///   (x+1)(x-1) and x^2-1. A decimal is what it says: 0.333 is not 1/3, 1.41421 not \sqrt2.
/// - whole numbers digit by digit, however long; 1,234 is 1234.
/// - a percentage as its number and as its hundredth: 50\% is 50 and 0.5.
/// - what stands in (…), [0,1) and such element by element, with the same brackets; sets and lists
///   without brackets in any order; unions of intervals; matrices by their entries.
/// - inequalities with the same sign; equations by the difference of their sides; "x = 5" is 5.
/// - choices: (B) and B. Anything else as text, without case, spaces, \text and units after
///   numbers.
/// The texts may be anything; neither is executed.
bool answers_agree(const std::string& reference, const std::string& answer);

/// The final answer in a text that explains it: of what follows the last </think>, where there is
/// one, the last \boxed{…} or \fbox{…}, else what follows the last "####", else what the last
/// <answer>…</answer> says, else the text between the last pair of $, else what follows "answer
/// is", "Answer:" or 答案是 on its line, else the text itself if it is a number and nothing more.
std::optional<std::string> stated_answer(std::string_view text);

/// The right answer in a reference that is a whole solution, by the same marks; of formulas between
/// $ the only one. Nothing: the reference is the answer.
std::optional<std::string> answer_in_reference(std::string_view reference);

/// What the last \boxed{…} (or \fbox, or \boxed x) of a text holds. Nothing if its braces do not
/// close.
std::optional<std::string> last_boxed(std::string_view text);

}  // namespace danlu::eval
