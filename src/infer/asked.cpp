#include "infer/asked.h"

#include <iterator>

#include "base/error.h"
#include "ops/pages.h"

namespace danlu::infer {

void check_asked(const EngineRequest& asked, const arch::ModelConfig& model,
                 const EngineSettings& settings, bool has_followers, bool has_peers) {
  asked.request.sampling.validate();
  check_prompt(model, asked.request.prompt, asked.request.pictures);
  if (model.encoder && !asked.pooling) {
    throw DataError(
        tr("[engine] an encoder gives vectors and numbers of texts, and answers nothing"),
        tr("danlu serve has them at /v1/embeddings, /classify and /v1/rerank"));
  }
  check_rules(asked.request.rules, model.vocab_size);
  if (has_followers && !asked.request.pictures.empty()) {
    throw DataError(tr("[engine] a model that several processes hold sees no pictures"),
                    tr("ask one that runs without --tensor_parallel_size"));
  }
  if (has_peers && (asked.num_logprobs || asked.gives_logits || settings.lookup.num_tokens > 0))
    throw InternalError("[engine] ranks that each have an engine agree on tokens alone");
  if (asked.gives_logits && settings.predicted_tokens > 0)
    throw InternalError("[engine] what waits for its next token has none that guesses follow");
  const int64_t tokens = std::ssize(asked.request.prompt),
                room = settings.max_pages * ops::kPageTokens;
  if (settings.max_pages == 0 || tokens < room) return;
  throw DataError(
      tr("[engine] the prompt has {} tokens, the pages of the cache hold {}", tokens, room),
      tr("shorten the prompt, or give the cache more memory"));
}

EngineSettings fitting(EngineSettings settings, const arch::ModelConfig& model) {
  if (model.encoder) settings.prefix_caching = false;
  return settings;
}

EngineRequest fitting(EngineRequest asked, const arch::ModelConfig& model) {
  if (model.encoder && model.score) asked.pooling = Pooling::kFirst;
  return asked;
}

}  // namespace danlu::infer
