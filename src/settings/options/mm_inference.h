// settings/options/mm_inference.h: MindSpeed-MM's inference json (--mm-model of inference_vlm.py)
// as options of `danlu infer`.
#pragma once
#include <filesystem>
#include <optional>

#include "base/json.h"
#include "base/options.h"

namespace danlu::settings {

/// `options` with the prompt, the picture or video, the tokenizer, the processor and the type that
/// the file of --mm-model names, but where the user gave others. What describes the network says
/// nothing: the checkpoint does. What MindSpeed-MM itself passes by is named in a notice. Errors:
/// DataError (no JSON, a value of another type); UsageError (a pipeline for other models, an
/// unknown key, with the nearest).
Options with_mm_inference(const Options& options);

/// Its generation_config, as Hugging Face's generation_config.json has it; nothing without the flag
/// or without the key.
std::optional<Json> mm_generation_config(const Options& options);

}  // namespace danlu::settings
