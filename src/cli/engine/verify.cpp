#include <ATen/core/Tensor.h>
#include <fmt/format.h>

#include <cstdio>
#include <functional>

#include "base/error.h"
#include "base/file.h"
#include "cli/engine/engine.h"
#include "cli/engine/load_for_inference.h"
#include "device/dtype.h"
#include "device/select.h"
#include "models/adapters.h"
#include "models/golden.h"
#include "models/merge.h"
#include "models/weight_files.h"
#include "weights/lora/peft.h"

namespace danlu::cli {
namespace {

fs::path model_of(const Options& options) {
  if (options.has_value("model")) return model_path(options.get_string("model"), "--model");
  throw UsageError(tr("[--model] no model was given"), tr("danlu verify MODEL --golden FILE"));
}

void print(const models::GoldenReport& report, double tolerance, int64_t rows) {
  size_t width = 6;
  for (const auto& d : report.differences) width = std::max(width, d.name.size());
  fmt::print("{:<{}}  {:>10}  {:>10}\n", "tensor", width, "max abs", "relative");
  const size_t shown = rows > 0
                           ? std::min<size_t>(report.differences.size(), static_cast<size_t>(rows))
                           : report.differences.size();
  for (size_t i = 0; i < shown; ++i) {
    const auto& d = report.differences[i];
    fmt::print("{:<{}}  {:>10.3g}  {:>10.3g}{}\n", d.name, width, d.max_abs, d.max_rel,
               d.within ? "" : "  above tolerance");
  }
  if (shown < report.differences.size())
    fmt::print("… and {} more, none worse (--rows 0 prints all)\n",
               report.differences.size() - shown);
  if (!report.not_compared.empty()) {
    fmt::print("not compared: {} tensors that mean nothing here ({}{})\n",
               report.not_compared.size(), report.not_compared.front(),
               report.not_compared.size() > 1 ? ", …" : "");
  }
  const auto bad = std::count_if(report.differences.begin(), report.differences.end(),
                                 [](const auto& d) { return !d.within; });
  if (report.passed) {
    fmt::print("verified: {} tensors within {:g}\n", report.differences.size(), tolerance);
  } else {
    fmt::print("differs: {} of {} tensors above {:g}\n", bad, report.differences.size(), tolerance);
    if (!report.first_deviation.empty())
      fmt::print("first deviation: {}\n", report.first_deviation);
  }
}

}  // namespace

int run_verify(const Options& options) {
  const DType dtype = dtype_from_name(options.get_string("dtype"));
  const double tolerance =
      options.get_float_or("tolerance", dtype == DType::kBF16 || dtype == DType::kF16 ? 0.1 : 1e-4);
  const fs::path directory = model_of(options);
  const auto golden = weights::open_safetensors(options.get_string("golden"));
  const weights::CheckpointSource source = open_model(options, directory, /*adapter=*/{});
  const at::ScalarType type = device::scalar_type_of(dtype);
  const at::Device device = device::select(options.get_string("device"));
  auto model = models::load_model(source, parallel::Mesh::single(), type, device);
  weights::AdapterSource adapters;
  if (options.has_value("adapters")) {
    const fs::path path = options.get_string("adapters");
    weights::report_other_base(path, directory);
    adapters =
        weights::open_adapter_source(path, source.config, {.lora_alpha = lora_alpha_from(options)});
    models::load_adapter(*model, adapters.peft, *adapters.tensors, path.string());
  } else if (source.adapters) {
    adapters = {source.format, source.adapters, *source.peft};
  }
  std::function<models::CausalLM&()> merged;
  if (adapters.tensors) {
    merged = [&]() -> models::CausalLM& {
      model.reset();
      model =
          models::load_merged(weights::merge_adapters(source.model, adapters.tensors, adapters.peft,
                                                      source.config, DType::kF32),
                              parallel::Mesh::single(), type, device);
      return *model;
    };
  }
  const models::GoldenReport report =
      models::compare_with_golden(*model, *golden, tolerance, merged);
  print(report, tolerance, options.get_int("rows"));
  return report.passed ? 0 : static_cast<int>(ExitCode::kModel);
}

}  // namespace danlu::cli
