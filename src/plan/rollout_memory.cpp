#include "plan/rollout_memory.h"

#include <algorithm>

#include "arch/attention_size.h"
#include "arch/gated_delta.h"
#include "base/cache_pages.h"
#include "plan/layer_memory.h"
#include "settings/answers_at_a_time.h"

namespace danlu::plan {
namespace {

/// The same model where answers are drawn: in one piece, or in parts on the tensor axis.
Request drawing_of(const Request& request) {
  Request drawing = request;
  drawing.model = request.rollout->model;
  drawing.mesh = {};
  drawing.mesh.tensor = request.mesh.tensor;
  drawing.mesh.expert_dealers = request.mesh.expert_dealers;
  drawing.pipeline = {};
  drawing.sharding = settings::Sharding::kNone;
  drawing.longest = drawing.packed = 0;
  drawing.micro_batch_size = 1;
  return drawing;
}

int64_t weight_bytes(const Request& request, const Elements& elements) {
  return elements.all * request.element_bytes() - request.saved_by_nf4(elements.in_nf4);
}

/// Keys and values of the sequences drawn at a time, of so many tokens each.
int64_t cache_bytes(const Request& request, int64_t tokens) {
  const arch::KeptOfToken kept = arch::kept_of_token(request.model);
  const int64_t heads = std::max<int64_t>(1, kept.heads / request.mesh.tensor);
  const int64_t page = arch::count_key_layers(request.model) * heads * kTokensOfPage *
                       (kept.key_dim + kept.value_dim) * request.element_bytes();
  const int64_t slab = pages_of_slab(page);
  return up(request.rollout->at_a_time * up(tokens, kTokensOfPage), slab) * slab * page +
         request.rollout->at_a_time * arch::state_bytes(request.model, request.element_bytes());
}

/// What a pass takes that keeps nothing for a backward.
int64_t forward_bytes(Request drawing, int64_t tokens) {
  drawing.tokens = tokens;
  int64_t most = 0;
  for (int64_t layer = 0; layer < drawing.model.num_layers; ++layer)
    most = std::max(most, passing_layer_bytes(drawing, layer).passing);
  return most + pass_bytes(drawing);
}

/// Logits of the next token of each answer, as the model gives them and in f32.
int64_t logit_bytes(const Request& request) {
  const int64_t own = up(request.model.vocab_size, request.mesh.tensor) * request.element_bytes(),
                of_parts = request.mesh.tensor > 1 ? own : 0,
                narrow = request.element_bytes() < 4 ? 2 * request.model.vocab_size : 0;
  return request.rollout->at_a_time * (4 * request.model.vocab_size + narrow + of_parts);
}

/// Where answers go on: what is there of them is read again.
int64_t goes_on_bytes(const Request& drawing, const Rollout& rollout) {
  if (rollout.begun_tokens == 0) return 0;
  const int64_t tokens = rollout.prompt_tokens + rollout.begun_tokens;
  return cache_bytes(drawing, tokens) +
         forward_bytes(drawing,
                       std::min(rollout.at_a_time * tokens, settings::kTokensWhereAnswersGoOn));
}

}  // namespace

int64_t drawing_bytes(const Request& request, const arch::Stage& stage) {
  const Rollout& rollout = *request.rollout;
  const Request drawing = drawing_of(request);
  // Shares stay where they are while all is gathered.
  const bool is_shared =
      request.sharding == settings::Sharding::kParameters && request.mesh.model_copies() > 1;
  const int64_t all = weight_bytes(drawing, elements_of(drawing, arch::whole_of(drawing.model)));
  const int64_t own = is_shared ? 0 : weight_bytes(request, elements_of(request, stage));
  const int64_t prompts = cache_bytes(drawing, rollout.prompt_tokens) +
                          forward_bytes(drawing, rollout.at_a_time * rollout.prompt_tokens);
  const int64_t answers = cache_bytes(drawing, rollout.prompt_tokens + rollout.new_tokens) +
                          forward_bytes(drawing, rollout.at_a_time) + logit_bytes(drawing);
  return std::max<int64_t>(0, all - own) +
         std::max({prompts, answers, goes_on_bytes(drawing, rollout)});
}

}  // namespace danlu::plan
