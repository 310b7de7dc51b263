// cli/engine/eval_model.h: a loaded model as benchmarks see it.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/engine/load_for_inference.h"
#include "eval/model.h"
#include "eval/run/encode.h"
#include "infer/likelihood.h"

namespace danlu::cli {

struct EvalModelSettings {
  infer::LikelihoodSettings likelihood;
  int64_t generation_batch = 0;  ///< answers at a time; 0: as many as memory is thought to allow
  uint64_t seed = 0;             ///< of sampled answers
  eval::EncoderSettings encoder;
  std::filesystem::path media_folder = {};  ///< where pictures of questions may lie
  bool applies_template = false;            ///< answers end where a turn of the template does, too
  /// Behind the last of these, a text or a token, the answer begins; stop strings are looked for
  /// there.
  std::string think_end = {};
  std::optional<int64_t> think_end_id = {};
};

/// What was computed, for a line at the end.
struct EvalCounts {
  infer::LikelihoodStats likelihood;
  infer::GenerationStats generation;
};

class EvalModel : public eval::Model {
 public:
  /// `loaded` and what `where` names outlive it. Errors: as eval::Encoder.
  EvalModel(const InferenceModel& loaded, const EvalModelSettings& settings);

  void answer(const std::vector<eval::Call>& calls, const OnAnswer& on_answer) override;
  std::string chat_text(const std::vector<text::Message>& messages) const override;
  bool chat_text_has_bos() const override;
  int64_t count_tokens(const std::string& text) const override;
  Json identity() const override;

  /// A hash of what a picture of a call holds; 0 if it cannot be read.
  uint64_t picture_content(const std::string& image) const;
  const EvalCounts& counts() const { return counts_; }

 private:
  void answer_likelihoods(const std::vector<eval::Call>& calls, const OnAnswer& on_answer);
  void answer_generations(const std::vector<eval::Call>& calls, const OnAnswer& on_answer);
  /// A call's text with its pictures.
  struct Asked {
    eval::Encoded text;
    std::vector<infer::PromptPicture> pictures;
  };
  /// The ids that `encode` makes of a call, and its pictures. Errors: DataError naming what cannot
  /// be used; UsageError if there are pictures and the model reads text alone.
  Asked with_pictures(const eval::Call& call,
                      const std::function<eval::Encoded(const eval::Call&)>& encode) const;
  infer::Request request_of(const eval::Call& call, const Asked& prompt) const;
  int64_t batch_of(const infer::Request& longest) const;
  void generate_texts(const std::vector<infer::Request>& requests, int64_t batch,
                      const std::function<const eval::Call&(size_t)>& call_of,
                      const std::function<void(size_t, const std::string&)>& on_text);
  void answer_by_beams(const infer::Request& request, const eval::Call& call, size_t index,
                       int64_t num_cut, const OnAnswer& on_answer);

  const InferenceModel& loaded_;
  EvalModelSettings settings_;
  eval::Encoder encoder_;
  EvalCounts counts_;
  mutable std::optional<bool> template_has_bos_;
};

}  // namespace danlu::cli
