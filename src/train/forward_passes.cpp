#include "train/forward_passes.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include "models/training_memory.h"
#include "parallel/agree.h"
#include "train/batch_input.h"
#include "train/visual_input.h"

namespace danlu::train {

void ForwardPasses::run(const std::vector<const data::Batch*>& own, const How& how,
                        const OnHidden& on_hidden) const {
  const at::NoGradGuard no_grad;
  const parallel::Mesh& mesh = stage_.mesh();
  const int64_t passes = parallel::largest_of(mesh.batch_ranks(), static_cast<int64_t>(own.size()));
  const arch::Schedule schedule =
      arch::forward_only(mesh.stage(), mesh.shape().pipeline, stage_.stage().num_chunks(), passes);
  const data::Batch filler = filling(mesh);
  std::vector<const data::Batch*> batches = own;
  if (mesh.shape().expert > 1) fill_up(batches, schedule, filler);
  const auto batch_of = [&](const arch::Action& action) -> const data::Batch* {
    const auto i = static_cast<size_t>(action.micro_batch);
    return i < batches.size() ? batches[i] : nullptr;
  };
  for (const arch::Action& action : schedule) {
    const data::Batch* batch = batch_of(action);
    if (batch && action.work == arch::Work::kReceiveHidden)
      links_.expect_hidden(action.chunk, size_of(*batch));
  }
  at::Tensor hidden_nH;  // of the action before
  for (const arch::Action& action : schedule) {
    const data::Batch* batch = batch_of(action);
    if (action.work == arch::Work::kForward && !batch) {
      stage_.memory().forward_idly(/*keeps=*/false, action.chunk);
      if (how.on_nothing && stage_.stage().ends_at(action.chunk)) how.on_nothing();
    }
    if (!batch) continue;
    if (action.work == arch::Work::kReceiveHidden) {
      hidden_nH = links_.receive_hidden();
    } else if (action.work == arch::Work::kSendHidden) {
      links_.send_hidden(hidden_nH);
    } else {
      models::ForwardInput input = evaluation_input(stage_, *batch, action.chunk, how.again);
      input.adapters = how.adapters;
      input.results = how.results;
      const bool begins = stage_.stage().begins_at(action.chunk);
      hidden_nH = stage_.forward(input, begins ? at::Tensor() : hidden_nH, action.chunk);
      if (!stage_.stage().ends_at(action.chunk)) continue;
      if (batch->is_filling) {
        loss_of_filling(stage_, hidden_nH, input);
        if (how.on_nothing) how.on_nothing();
      } else {
        on_hidden(static_cast<size_t>(action.micro_batch), hidden_nH, input);
      }
    }
  }
  links_.finish();
}

}  // namespace danlu::train
