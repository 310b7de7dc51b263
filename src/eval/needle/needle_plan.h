// eval/needle/needle_plan.h: what NeedleBench asks, as its benchmark file says it, and the tasks of
// it.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "eval/task.h"

namespace danlu::eval {

enum class NeedleKind {
  kSingleRetrieval,  ///< s_rt: one needle, asked for
  kMultiReasoning,   ///< m_rs: several, from which the answer follows
  kMultiRetrieval,   ///< m_rt: one at every depth, all asked for
};
/// "s_rt", …
std::string_view needle_kind_name(NeedleKind kind);

/// What is asked in one language.
struct NeedleLanguage {
  std::string name;                 ///< "English": of rows' "language"
  std::string code;                 ///< "en"
  std::string haystack, reasoning;  ///< names of files
  /// Tokens of the length that prompt and answer are left, by kind and window.
  std::map<NeedleKind, std::map<std::string, int64_t>> buffers;
  std::string prompt;         ///< holds {document} and {question} once each
  std::string joined_prompt;  ///< the same of m_rt
  std::string format;         ///< where a question begins to say in which form the answer is to be
  std::string guide;          ///< put before that, of m_rs after the question; empty: nothing
  std::string join;           ///< between the questions of m_rt, and between their forms
  std::string question_mark;  ///< m_rt: where the question itself ends
  std::string full_stop;      ///< m_rt: where the form of an answer ends
  std::string joined_format;  ///< after the questions; holds {format}
};

struct NeedlePlan {
  std::string name = "needlebench";
  std::string where_from;  ///< for hints; may be empty
  std::string needles;     ///< name of the file
  std::vector<std::string> counted_with;
  struct Window {
    std::string name;  ///< "4k"
    std::vector<int64_t> lengths;
    std::vector<double> depths;  ///< percent, ascending
  };
  std::vector<Window> windows;
  struct Kind {
    double weight = 0;
    int64_t repeats = 1;
    int64_t max_tokens = 0;
    std::vector<int64_t> needles;  ///< m_rs: how many an item has
    double gap = 0;                ///< m_rs: percent from one to the next
  };
  std::map<NeedleKind, Kind> kinds;
  std::vector<NeedleLanguage> languages;
};

/// From the node "needle" of a benchmark file. "depths" is a number (so many from 0 to 100, evenly,
/// what is after the point of a percent cut off) or a list; a language's "buffer" a number, or one
/// for each kind, or of a kind one for each window. `origin`: for errors. Errors: DataError naming
/// origin, key, rule and what stands there; an unknown key.
NeedlePlan parse_needle_plan(const Json& node, const std::string& origin);

/// "needlebench_4k_s_rt" for each window and kind. Their items come from a NeedleSource.
std::vector<Task> needle_tasks(const NeedlePlan& plan);
/// "needlebench_4k" for each window, kinds weighted; then "needlebench", the plain mean of those.
std::vector<Group> needle_groups(const NeedlePlan& plan);

/// Where this differs from OpenCompass, a sentence each. counted_with: name of what lengths are
/// counted with; empty: the model's own tokenizer.
std::vector<std::string> needle_differences(const std::string& counted_with);

}  // namespace danlu::eval
