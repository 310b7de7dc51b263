// eval/benchmarks/rows.h: raw rows of files become uniform ones, which prompts are made of.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/json.h"
#include "eval/benchmarks/benchmark.h"
#include "eval/data/data_tree.h"
#include "eval/task.h"

namespace danlu::eval {

struct Rows {
  std::vector<Json> rows;
  std::string origin;  ///< for messages: "mmlu_anatomy, split test"
  std::string head;    ///< what stands above a text file's questions; prompts know it as shots_head
};

/// The test rows of a task, and those its shots come from (none where it needs none).
struct TaskRows {
  Rows test, shots;
};

/// Which splits a task needs for so many shots.
std::vector<std::string> needed_splits(const Task& task, int64_t num_shots);

/// Reads both. Where the shots' file is a text (*.txt), it is one of questions and answers.
/// Errors: DataError naming file, line and the field as the file has it (missing, of another type
/// than Benchmark::row says, a template that fails); those of DataTree.
TaskRows read_rows(const Benchmark& benchmark, const Task& task, const Layout& layout,
                   const DataTree& tree, int64_t num_shots);

/// A text of blocks "Q: …\nA: …", apart by empty lines, below what a line "-----" closes (nothing
/// where there is no such line): rows of `input` and `target`, the words "Let's think step by
/// step." at the answer's begin left out. Errors: DataError if there is no question.
Rows question_answer_rows(const std::string& text, const std::string& origin);

/// A user's own shots: JSON lines, a JSON list, or a text as above (*.txt).
/// Errors: DataError, IoError.
std::vector<Json> read_shots_file(const std::filesystem::path& path);

}  // namespace danlu::eval
