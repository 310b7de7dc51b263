// tests/cli/guide_lines.h: the guides' command lines as words, and their training lines of several
// processes as data.
#pragma once
#include <cstdint>
#include <map>
#include <ostream>
#include <string>
#include <vector>

#include "cli/random_model_dir.h"

namespace danlu::test {

using Words = std::vector<std::string>;
using Values = std::map<std::string, std::string>;

/// As a shell cuts them.
Words words_of(const std::string& text);

/// The commands of a file of shared/guides that hold `mark`, each as one line without its
/// continuations.
std::vector<std::string> commands_of(const std::string& guide, const std::string& mark);

/// NAME=VALUE words before a command, taken off it.
Values environment_of(Words& words);

inline const char* const kAlpacaGuide = "a_alpaca_on_910b.txt";
inline const char* const kSwiftGuide = "b_ms_swift_npu.txt";

/// What the model's directory is: Hugging Face's, or a converted one.
enum class Source { kHuggingFace, kConverted };

/// Rows of instructions, tokenised text, rows tokenised before.
enum class Data { kRows, kText, kSamples };

struct GuideLine {
  std::string name;
  std::string guide;    ///< where it, or the script that it names, stands
  std::string command;  ///< or, of a line that the guide prints, a word that only such lines hold
  ModelShape shape;
  size_t which;  ///< of the guide's lines that hold the word; of its conversions for a script
  Data data;
  Source first;              ///< the one that `make test` takes
  const char* said;          ///< in the banner
  bool rounds_alike = true;  ///< in 16 bits: no axis cuts a product or a sum of attention
  Values changes = {};       ///< where the guide says "the same with"

  bool is_printed() const { return guide == kAlpacaGuide || guide == kSwiftGuide; }
};
void PrintTo(const GuideLine& line, std::ostream* out);

/// The lines of guides (a) and (b), which print them.
std::vector<GuideLine> printed_lines();

/// The lines of guides (c) and (e), which print conversions and name scripts of MindSpeed-LLM
/// (examples/mcore/{llama2,qwen25}): the scripts' flags with the sizes of the conversions.
std::vector<GuideLine> script_lines();

}  // namespace danlu::test
