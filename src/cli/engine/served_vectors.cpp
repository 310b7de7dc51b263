#include "cli/engine/served_vectors.h"

#include <string>

#include "arch/encoder.h"
#include "base/log.h"
#include "cli/engine/text_judge.h"
#include "settings/embedding_files.h"
#include "text/template_record.h"

namespace danlu::cli {
namespace {

namespace fs = std::filesystem;

/// What --pooling names, else what sentence-transformers' 1_Pooling/config.json beside the model
/// says, else the last token.
infer::Pooling pooling_of(const Options& options, const fs::path& model, const Json& record) {
  const std::string named = options.get_string("pooling");
  if (named != "auto") return named == "mean" ? infer::Pooling::kMean : infer::Pooling::kLast;
  if (arch::is_encoder_in(model)) {
    const arch::Pooling pooling = arch::pooling_in(model);
    return pooling == arch::Pooling::kFirst  ? infer::Pooling::kFirst
           : pooling == arch::Pooling::kMean ? infer::Pooling::kMean
                                             : infer::Pooling::kLast;
  }
  // A run's vectors are the last token's, whatever its base's were.
  if (settings::is_embedding_record(record)) return infer::Pooling::kLast;
  const auto recorded = settings::recorded_pooling(model);
  if (recorded == settings::RecordedPooling::kMean) return infer::Pooling::kMean;
  if (recorded == settings::RecordedPooling::kOther) {
    log::warning(
        "{}: neither the mean nor the last token; the last token counts, unless "
        "--pooling says otherwise",
        (model / settings::kPoolingFile).string());
  }
  return infer::Pooling::kLast;
}

}  // namespace

serve::TextVectors text_vectors(const Options& options, const fs::path& model,
                                const fs::path& trained) {
  const Json record = text::read_record(trained);
  serve::TextVectors vectors;
  vectors.pooling = pooling_of(options, model, record);
  vectors.by_template = !arch::is_encoder_in(model) && embeds_by_template(options, record, model);
  if (settings::is_embedding_record(record)) vectors.sizes = settings::recorded_sizes(record);
  return vectors;
}

}  // namespace danlu::cli
