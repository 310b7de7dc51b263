#include "train/rollouts/critic.h"

#include <fmt/format.h>

#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "device/dtype.h"
#include "models/training_memory.h"
#include "parallel/agree.h"
#include "train/objectives/value.h"
#include "train/rollouts/answer_passes.h"
#include "train/run_dir/progress.h"
#include "train/run_dir/run_dir.h"

namespace danlu::train {
namespace {

namespace fs = std::filesystem;

/// work() of one model between two of another that exchanges over the same groups.
template <typename Work>
void in_turn(const models::CausalLM& policy, const models::CausalLM& critic, const Work& work) {
  policy.memory().settle();
  work();
  critic.memory().settle();
}

/// Removes checkpoints of steps of which the policy has none.
void remove_left_behind(const fs::path& run_dir, int64_t newest) {
  for (const checkpoint::Found& found : checkpoint::list(run_dir / kCriticFolder)) {
    std::error_code unknown;
    const bool has_policy = fs::exists(run_dir / found.directory.filename() / "DONE", unknown);
    if (found.step != newest && !has_policy) remove_directory_atomic(found.directory);
  }
}

}  // namespace

Critic::Critic(TrainState state, TrainConfig config, const settings::ScheduleConfig& schedule)
    : state_(std::move(state)),
      config_(std::move(config)),
      schedule_(schedule),
      saver_(state_.model->mesh(), *state_.optimizer) {}

void Critic::find_values(const models::CausalLM& policy, std::vector<DrawnAnswer>& answers) const {
  in_turn(policy, *state_.model, [&] {
    find_for_tokens(
        ForwardPasses(*state_.model, *state_.links), /*adapters=*/true,
        [](const models::CausalLM& critic, const at::Tensor& hidden_nH,
           const models::ForwardInput& input, const at::Tensor& rows_M,
           const at::Tensor&) { return token_values(critic, hidden_nH, input, rows_M); },
        &DrawnAnswer::values, answers);
  });
}

std::map<std::string, double> Critic::learn(const models::CausalLM& policy,
                                            const data::StepBatches& batches) {
  StepResult result;
  in_turn(policy, *state_.model, [&] {
    do {
      result = run_step(state_, batches, config_, schedule_);
    } while (result.repeats);
  });
  if (state_.bad_steps_in_row >= config_.max_bad_steps) {
    throw_diverged(state_.step, tr("the critic's loss or gradients were not finite in {} steps",
                                   state_.bad_steps_in_row));
  }
  std::map<std::string, double> figures = std::move(result.metrics);
  figures["critic/grad_norm"] = result.grad_norm;
  figures["critic/lr"] = result.lr;
  return figures;
}

void Critic::save(const models::CausalLM& policy, const checkpoint::SaveRequest& beside) {
  const models::CausalLM& critic = *state_.model;
  // A rank sees its share alone: where one fails, all do.
  parallel::together(critic.mesh().all(), [&] { require_finite(state_); });
  checkpoint::SaveRequest request = beside;
  request.run_dir = beside.run_dir / kCriticFolder;
  request.write_model = [&](const fs::path& directory) {
    write_model_files(critic, config_, device::dtype_of(critic.dtype()), directory);
  };
  request.model_bytes = model_file_bytes(critic, config_.tuner == Tuner::kLora);
  request.trainer_state =
      trainer_state(RunProgress(), state_, RunPlan(), beside.trainer_state.at("identity"), 0);
  const bool keeps = critic.mesh().rank() == beside.keeper;
  parallel::together(critic.mesh().all(), [&] {
    if (keeps) fs::create_directories(request.run_dir);
  });
  in_turn(policy, critic, [&] {
    saver_.begin(request);
    saver_.finish();
  });
  if (keeps) remove_left_behind(beside.run_dir, beside.step);
}

void Critic::publish(const models::CausalLM& policy, const fs::path& run_dir, int64_t step) {
  const models::CausalLM& critic = *state_.model;
  const fs::path folder = run_dir / kCriticFolder;
  const fs::path saved = folder / fmt::format("checkpoint-{}", step);
  const bool is_first = critic.mesh().rank() == 0;
  if (is_first) fs::create_directories(folder);
  std::error_code unknown;
  const bool is_wanted = step != state_.step;
  const bool is_there =
      is_wanted && !parallel::text_from(critic.mesh().all(), 0,
                                        fs::exists(saved / "DONE", unknown) ? "saved" : "")
                        .empty();
  if (is_there) {
    if (is_first) publish_model(saved, folder);
  } else {
    if (is_wanted) log::warning("{} is gone: the last step's critic is taken", saved.string());
    in_turn(policy, critic,
            [&] { write_model_files(critic, config_, device::dtype_of(critic.dtype()), folder); });
  }
  if (is_first) remove_left_behind(run_dir, state_.step);
}

}  // namespace danlu::train
