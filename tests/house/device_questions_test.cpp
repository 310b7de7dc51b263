// Above ops no line asks whether a tensor is the CPU's, nor reaches into its memory: a kernel would
// hide there that only one device has, past the table (src/ops/backend.h). What does so all the
// same is about memory that is the host's on every machine; it stands here, with why.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <regex>

#include "house/source_tree.h"

namespace danlu::house {
namespace device_questions {

struct Place {
  int64_t lines;
  const char* why;
};

const std::map<std::string, Place>& host_memory() {
  static const std::map<std::string, Place> places = {
      {"src/layers/balance.cpp", {5, "picks of routers, which they leave on the host"}},
      {"src/layers/experts.cpp", {12, "picks of routers, and numbers of rows that ranks exchange"}},
      {"src/models/causal_lm.cpp", {3, "weights and places of segments, which ranks exchange"}},
      {"src/train/expert_load.cpp", {2, "counts of picks that ranks add up"}},
      {"src/models/training_memory.cpp",
       {1, "what is kept for backward cannot leave host memory for it"}},
      {"src/models/nf4_weights.cpp", {3, "packed bytes of files, which are cut on the host"}},
      {"src/models/tensor_io.cpp", {3, "bytes of files, read into and written from the host"}},
      {"src/train/choose_device.cpp", {2, "what files and host memory keep of a CPU's training"}},
      {"src/train/run.cpp", {1, "what a run tells of the host's threads"}},
      {"src/train/report/used_memory.cpp", {1, "whose memory a log shows"}},
      {"src/train/objectives/precomputed.cpp", {1, "log-probabilities that have come to the host"}},
      {"src/train/objectives/drawn_tokens.cpp", {1, "rows of targets, which stay on the host"}},
      {"src/layers/score_head.cpp", {1, "rows that are asked for, which stay on the host"}},
      {"src/train/objectives/step_scores.cpp", {1, "scores that have come to the host"}},
      {"src/models/gptq.cpp", {7, "a matrix that is rounded on the host"}},
      {"src/models/read_head.cpp", {1, "numbers that have come to the host"}},
      {"src/train/objectives/ranking.cpp", {3, "numbers that have come to the host"}},
      {"src/train/objectives/text_labels.cpp", {1, "numbers that have come to the host"}},
      {"src/train/objectives/text_vectors.cpp", {1, "numbers that have come to the host"}},
      {"src/train/objectives/gathered_vectors.cpp", {2, "numbers that have come to the host"}},
      {"src/train/evaluate.cpp", {1, "numbers that have come to the host"}},
      {"src/train/rollouts/model_reward.cpp", {1, "scores that have come to the host"}},
      {"src/train/rollouts/answer_passes.cpp",
       {1, "log-probabilities that have come to the host, where answers are packed"}},
      {"src/train/metrics.cpp",
       {3, "a handful of numbers that ranks exchange, or that have come to the host"}},
      {"src/train/run_dir/hand_over.cpp", {2, "bytes of files that ranks hand over"}},
      {"src/infer/step.cpp", {2, "logits that have come to the host, where ids are drawn"}},
      {"src/infer/predicted_drafts.cpp", {1, "logits that have come to the host"}},
      {"src/infer/live_request.cpp", {1, "hidden states that have come to the host"}},
      {"src/layers/positions.cpp", {2, "numbers of tokens, whose types are looked up on the host"}},
      {"src/layers/adapter_runs.cpp", {1, "numbers of rows that have come to the host"}},
      {"src/infer/likelihood.cpp", {2, "logits that have come to the host"}},
  };
  return places;
}

TEST(AboveOps, NobodyReachesPastTheTableOfKernels) {
  const std::regex question(R"(\b(is_cpu|is_cuda|is_privateuseone|(mutable_|const_)?data_ptr)\b)");
  std::map<std::string, int64_t> found;
  for (const char* room : {"layers", "models", "optim", "train", "infer"}) {
    for (const SourceFile& file : source_files(DANLU_SOURCE_DIR, std::string("src/") + room)) {
      for (const std::string& line : code_only(file.lines)) {
        if (std::regex_search(line, question)) ++found[file.path];
      }
    }
  }
  for (const auto& [path, lines] : found) {
    const auto known = host_memory().find(path);
    if (known == host_memory().end()) {
      ADD_FAILURE() << path << ": " << lines << " lines; let an op do it (docs/architecture.md)";
    } else {
      EXPECT_EQ(lines, known->second.lines) << path << ": " << known->second.why;
    }
  }
  for (const auto& [path, place] : host_memory())
    EXPECT_TRUE(found.contains(path)) << path << " is clean: take it out of the list";
}

}  // namespace device_questions
}  // namespace danlu::house
