// tests/options/example_lines.h: of every verb a line that it takes, to which tests add one option.
#pragma once
#include <string>

#include "options/typed_line.h"

namespace danlu::test {

struct ExampleLine {
  Words words = {};
  Reach reach = Reach::kOptions;  ///< how far a test goes with it
};

/// With a small model, rows and the like that the verbs themselves have made, once; what the line
/// writes is not there yet. Verbs that examine the machine, start processes or reach a network go
/// to their options only, training verbs but sft to their settings.
ExampleLine example_line(const std::string& verb);

/// What "option=value" needs beside it to be more than half a sentence.
Words companions_of(const std::string& choice);

}  // namespace danlu::test
