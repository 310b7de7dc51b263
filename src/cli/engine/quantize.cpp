#include <ATen/core/Tensor.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/new_output.h"
#include "base/progress.h"
#include "base/rng.h"
#include "base/shell_quote.h"
#include "cli/engine/engine.h"
#include "cli/engine/load_for_inference.h"
#include "device/dtype.h"
#include "device/select.h"
#include "models/calibrate.h"
#include "models/weight_files.h"
#include "weights/convert/replaceable.h"
#include "weights/hf/gptq_files.h"
#include "weights/hf/shard_plan.h"

namespace danlu::cli {
namespace {

models::GptqForm form_from(const Options& options) {
  models::GptqForm form;
  form.bits = options.get_int("bits");
  form.group = options.get_int("group_size");
  form.symmetric = options.get_bool("sym");
  form.by_activation = options.get_bool("desc_act");
  form.damp = options.get_float("damp_percent");
  const int64_t bits = form.bits;
  if (bits != 2 && bits != 3 && bits != 4 && bits != 8)
    throw UsageError(
        tr("[{}] codes have 2, 3, 4 or 8 bits, got {}", options.given_as("bits"), bits));
  if (form.group == 0) {
    throw UsageError(tr("[{}] a group has 1 column or more, or -1 for all, got 0",
                        options.given_as("group_size")));
  }
  return form;
}

/// The ids of one row. Errors: DataError naming the line.
std::vector<int64_t> ids_of(const std::string& line, const std::string& where, int64_t vocabulary) {
  const Json row = parse_json(line, where);
  const auto found = row.is_object() ? row.find("input_ids") : row.end();
  if (!row.is_object() || found == row.end() || !found->is_array())
    throw DataError(tr("{}: a row of token ids has the list \"input_ids\"", where));
  std::vector<int64_t> ids;
  for (const Json& id : *found) {
    if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() >= vocabulary) {
      throw DataError(tr("{}: {} is no token id of this model, whose vocabulary has {}", where,
                         id.dump(), vocabulary),
                      tr("tokenise the rows for this model: danlu sft --write_samples"));
    }
    ids.push_back(id.get<int64_t>());
  }
  return ids;
}

/// The tokens of rows that are drawn, one after the other, cut into sequences.
models::Calibration calibration_from(const Options& options, const arch::ModelConfig& config) {
  const fs::path named = options.get_string("samples"),
                 file = fs::is_directory(named) ? named / "rows.jsonl" : named;
  std::ifstream in(file);
  if (!in) throw IoError(tr("[{}] {}: cannot open", options.given_as("samples"), file.string()));
  std::vector<std::vector<int64_t>> rows;
  int64_t number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    if (line.empty()) continue;
    rows.push_back(ids_of(line, file.string() + ":" + std::to_string(number), config.vocab_size));
  }
  std::vector<size_t> order(rows.size());
  std::iota(order.begin(), order.end(), size_t{0});
  NumpyRandomState(static_cast<uint32_t>(options.get_int("seed"))).shuffle(std::span(order));
  const auto wanted = static_cast<size_t>(options.get_int("n_samples"));
  order.resize(std::min(order.size(), wanted));
  std::vector<int64_t> tokens;
  for (const size_t row : order) tokens.insert(tokens.end(), rows[row].begin(), rows[row].end());
  if (tokens.empty()) throw DataError(tr("{}: there are no tokens in it", file.string()));
  const auto length =
      static_cast<size_t>(std::min(options.get_int("max_length"), config.max_positions));
  models::Calibration calibration;
  calibration.batch_size = options.get_int("batch_size");
  for (size_t begin = 0; begin < tokens.size(); begin += length) {
    const size_t end = std::min(tokens.size(), begin + length);
    calibration.texts.emplace_back(tokens.begin() + static_cast<std::ptrdiff_t>(begin),
                                   tokens.begin() + static_cast<std::ptrdiff_t>(end));
  }
  if (rows.size() < wanted) {
    log::notice("[{}] {} rows are there, and all of them are taken", options.given_as("n_samples"),
                rows.size());
  }
  log::info("calibration: {} rows, {} tokens in {} sequences of up to {}", order.size(),
            tokens.size(), calibration.texts.size(), length);
  return calibration;
}

/// What config.json says of the weights, in optimum's keys.
Json described_quantisation(const Options& options, const models::GptqForm& form) {
  return {{"bits", form.bits},
          {"checkpoint_format", options.get_string("checkpoint_format")},
          {"damp_percent", form.damp},
          {"desc_act", form.by_activation},
          {"group_size", form.group},
          {"lm_head", false},
          {"meta", {{"quantizer", Json::array({"danlu"})}}},
          {"quant_method", "gptq"},
          {"sym", form.symmetric},
          {"true_sequential", true}};
}

DType stored_in(const weights::CheckpointSource& source) {
  return is_floating(source.config.dtype) ? source.config.dtype : DType::kF32;
}

at::Device device_for(const Options& options) {
  const at::Device device = device::select(options.get_string("device"));
  if (device.is_cpu() || device::name_of(device).starts_with("cuda")) return device;
  throw UsageError(
      tr("[--device] {}: calibration computes on CPUs and GPUs", device::name_of(device)),
      tr("add --device cpu"));
}

std::map<std::string, weights::GptqTensors> quantised_layers(models::CausalLM& model,
                                                             const Options& options,
                                                             const models::GptqForm& form,
                                                             const models::Calibration& texts) {
  std::map<std::string, weights::GptqTensors> layers;
  const bool less_one = options.get_string("checkpoint_format") == "gptq";
  ProgressBar bar("quantising", static_cast<uint64_t>(model.config().num_layers), "layers");
  models::calibrate_gptq(
      model, texts, form,
      [&](const std::string& module, models::GptqMatrix made) {
        layers[module] =
            weights::pack_gptq(made.rows, made.cols, form.bits, made.codes_OI, made.scales_GO,
                               made.zeros_GO, std::move(made.groups_I), less_one);
      },
      [&](int64_t done) { bar.update(static_cast<uint64_t>(done)); });
  bar.finish();
  return layers;
}

}  // namespace

int run_quantize(const Options& options) {
  const models::GptqForm form = form_from(options);
  const at::Device device = device_for(options);
  const fs::path path = model_path(options.get_string("model"), "--model"),
                 output = options.get_string("output");
  const NewDirectory made(
      output, options.get_bool("overwrite"), {path, options.get_string("samples")},
      [](const fs::path& old) { weights::require_replaceable(old, /*is_file=*/false); });
  const weights::CheckpointSource source = open_model(options, path, {});
  if (!source.model) throw ModelError(tr("{}: adapters alone, no model", path.string()));
  models::require_calibrated(source.config, form);
  const models::Calibration texts = calibration_from(options, source.config);
  std::optional<at::ScalarType> type;
  if (options.has_value("compute_dtype"))
    type = device::scalar_type_of(dtype_from_name(options.get_string("compute_dtype")));
  const auto model = models::load_model(source, parallel::Mesh::single(), type, device);
  const auto layers = quantised_layers(*model, options, form, texts);
  const uint64_t max_shard_bytes = weights::shard_bytes_of(options.get_string("max_shard_size"));
  made.publish([&](const fs::path& directory) {
    weights::save_gptq(*source.model, source.config, stored_in(source), layers,
                       described_quantisation(options, form), directory, max_shard_bytes);
    if (!source.companions.empty()) weights::carry_over_files(source.companions, directory);
  });
  log::info("wrote {}: {} linear layers in GPTQ's codes of {} bits", output.string(), layers.size(),
            form.bits);
  log::info("next: danlu infer --model {} --prompt …", shell_quoted(output.string()));
  return 0;
}

}  // namespace danlu::cli
