#include "settings/options/prediction_options.h"

#include "base/error.h"

namespace danlu::settings {

PredictionTraining prediction_training_from(const Options& options, bool has_adapters,
                                            arch::ModelConfig& model) {
  PredictionTraining prediction;
  prediction.layers = options.get_int_or("mtp_num_layers", 0);
  prediction.loss_factor = options.get_float_or("mtp_loss_scaling_factor", prediction.loss_factor);
  prediction.normed = options.get_bool_or("mtp_after_norm", prediction.normed);
  if (prediction.layers == 0) return prediction;
  const std::string flag = options.given_as("mtp_num_layers");
  if (prediction.layers != model.experts.prediction_layers) {
    throw UsageError(
        tr("[train] {} {}: the model has {} layers that predict further ahead", flag,
           prediction.layers, model.experts.prediction_layers),
        tr("config.json says how many there are (num_nextn_predict_layers); 0 leaves them as "
           "they are"));
  }
  if (model.score) {
    throw UsageError(
        tr("[train] {}: a reward model has no vocabulary to predict further ahead in", flag),
        tr("leave it out"));
  }
  if (has_adapters) {
    throw UsageError(tr("[train] {}: beside adapters these layers stay as they are", flag),
                     tr("leave it out, or give --tuner full"));
  }
  model.predicts_ahead = true;
  return prediction;
}

}  // namespace danlu::settings
