// eval/sandbox/code_check.h: HumanEval's verdicts: completions become programs, and programs are
// executed.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/json.h"
#include "eval/sandbox/sandbox.h"

namespace danlu::eval {

/// One solution of one problem: the whole program, the problem's prompt in it.
struct CodeSample {
  size_t problem = 0;  ///< index of the problem
  std::string solution;
};

/// How many completions of a problem there are, and how many of them passed: what pass@k is of.
struct PassCount {
  int64_t num_samples = 0, num_passed = 0;
};

struct CodeCheck {
  std::vector<CodeVerdict> verdicts;  ///< of each sample
  std::vector<PassCount> counts;      ///< of each problem
  size_t num_timed_out = 0;           ///< of the samples, though executed alone at the end
};

/// solution + test + "check(entry_point)", as OpenAI's harness joins them; `doc` is a row of
/// HumanEval. Errors: DataError naming the field that is missing or no text, or an
/// entry_point that is no name.
std::string humaneval_program(const Json& doc, const std::string& solution);

/// Executes every program, up to `workers` at a time, but no more than have the memory they may
/// take. A verdict is not to depend on what runs beside it: who timed out is executed once more at
/// the end, alone, and that verdict counts. `on_verdict` is called by one thread at a time, once
/// for each, in any order. Errors: as CodeSandbox::run_all.
void judge_programs(const CodeSandbox& sandbox, std::vector<std::string> programs, size_t workers,
                    const CodeSandbox::OnVerdict& on_verdict);

/// The same where many may be late and somebody waits: executing them once more takes patience_ms
/// and one program's time at most. Who took nearly all of a processor until it was late would be
/// late alone too, and is not executed again (a program of several threads might not be). Returns
/// those for whom there was no time left: what ran beside them may be why they were late, and
/// on_verdict is not called for them. Ascending.
std::vector<size_t> judge_programs_within(const CodeSandbox& sandbox,
                                          std::vector<std::string> programs, size_t workers,
                                          int64_t patience_ms,
                                          const CodeSandbox::OnVerdict& on_verdict);

/// judge_programs of all samples. `on_done` is told how many are done. Errors: as
/// humaneval_program, before anything is executed; as judge_programs.
CodeCheck check_code(const CodeSandbox& sandbox, const std::vector<Json>& problems,
                     const std::vector<CodeSample>& samples, size_t workers,
                     const std::function<void(size_t num_done)>& on_done = {});

}  // namespace danlu::eval
