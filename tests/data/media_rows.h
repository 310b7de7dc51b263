// tests/data/media_rows.h: the golden rows with pictures and videos, and what they were read
// with.
#pragma once
#include <filesystem>
#include <string>

#include "data/media_settings.h"
#include "data/tokenized_dataset.h"
#include "support/shared_data.h"

namespace danlu::data {

inline std::filesystem::path golden_rows() { return test::shared_dir() / "golden/vl/rows"; }

/// settings of expected.json: "hf", "lf", "mm20".
inline MediaSettings golden_media_settings(const std::string& name) {
  MediaSettings settings;
  settings.processor.min_pixels = 784;
  settings.processor.max_pixels = 9408;
  settings.upright = false;
  if (name == "lf") {
    settings.image_resize = media::PreResize::llama_factory(1024, 6400);
    settings.video = media::VideoRule::llama_factory();
    settings.frame_resize = media::PreResize::llama_factory(256, 4096);
  } else if (name == "mm20") {
    settings.image_resize = media::PreResize::mindspeed20(6400);
    settings.video = media::VideoRule::mindspeed20();
    settings.frame_resize = media::PreResize::mindspeed20(4096);
  }
  return settings;
}

inline std::shared_ptr<const text::Tokenizer> qwen_tokenizer() {
  static const auto tokenizer = text::Tokenizer::load(test::unpacked("tokenizers") / "qwen2_5");
  return tokenizer;
}

/// Rows read by `settings` with the template that trains the line break behind answers.
inline SampleSpec media_spec(const std::filesystem::path& rows, const std::string& settings,
                             const std::filesystem::path& cache) {
  SampleSpec spec;
  spec.datasets = {rows.string()};
  spec.tokenizer = qwen_tokenizer();
  spec.chat_encoder = text::ChatEncoder::create(spec.tokenizer, "qwen2_vl");
  spec.media = golden_media_settings(settings);
  spec.cache_dir = cache;
  spec.num_workers = 1;
  return spec;
}

}  // namespace danlu::data
