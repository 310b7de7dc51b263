#include "eval/benchmarks/built_in_tasks.h"

namespace danlu::eval {

extern const char* const kMmluTask;
extern const char* const kMmluPplTask;
extern const char* const kCmmluTask;
extern const char* const kCevalTask;
extern const char* const kAgievalTask;
extern const char* const kBbhTask;
extern const char* const kBbhFewshotTask;
extern const char* const kBoolqTask;
extern const char* const kHumanevalTask;
extern const char* const kHumanevalInstructTask;
extern const char* const kGsm8kTask;
extern const char* const kGsm8kCotTask;
extern const char* const kHellaswagTask;
extern const char* const kNeedlebenchTask;

const std::vector<BuiltInTask>& built_in_tasks() {
  static const std::vector<BuiltInTask> tasks = {
      {"mmlu.yaml", kMmluTask},
      {"mmlu_ppl.yaml", kMmluPplTask},
      {"cmmlu.yaml", kCmmluTask},
      {"ceval.yaml", kCevalTask},
      {"agieval.yaml", kAgievalTask},
      {"bbh.yaml", kBbhTask},
      {"bbh_fewshot.yaml", kBbhFewshotTask},
      {"boolq.yaml", kBoolqTask},
      {"humaneval.yaml", kHumanevalTask},
      {"humaneval_instruct.yaml", kHumanevalInstructTask},
      {"gsm8k.yaml", kGsm8kTask},
      {"gsm8k_cot.yaml", kGsm8kCotTask},
      {"hellaswag.yaml", kHellaswagTask},
      {"needlebench.yaml", kNeedlebenchTask}};
  return tasks;
}

}  // namespace danlu::eval
