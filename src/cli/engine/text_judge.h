// cli/engine/text_judge.h: a model whose head gives numbers for whole texts, and how these are
// read.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "base/options.h"
#include "cli/engine/load_for_inference.h"
#include "data/formats/row_format.h"
#include "data/sample_kind.h"
#include "settings/model_source.h"
#include "text/conversation.h"
#include "text/tokenizer.h"
#include "train/objectives/reference.h"

namespace danlu::cli {

/// The data sets whose rows are judged: --dataset, and with --load_dataset_config what the run at
/// `where` held out. Errors: as held_out_file.
std::vector<std::string> datasets_to_judge(const Options& options, const ModelLocation& where);

/// How their rows are read, by --columns and --handler_name.
data::FormatOptions format_to_judge(const Options& options, data::SampleKind kind);

struct TextJudge {
  std::shared_ptr<const train::FrozenModel> model;
  std::shared_ptr<const text::Tokenizer> tokenizer;
  std::shared_ptr<const text::ChatEncoder> encoder;  ///< null: what messages say, as it stands
};

/// How texts that are judged are written: as their training wrote them, where the line does not say
/// otherwise. null: as they stand. Errors: those of text::choose_template.
std::shared_ptr<const text::ChatEncoder> judging_encoder(
    const Options& options, const ModelLocation& where, const std::string& family_default,
    const std::shared_ptr<const text::Tokenizer>& tokenizer);

/// Whether texts that become vectors are written by the template, as a user's message: as the line
/// names one, else as `record` of the training says, else not where sentence-transformers' files
/// lie beside the model; of others, which the line calls one that embeds, they are.
bool embeds_by_template(const Options& options, const Json& record,
                        const std::filesystem::path& model);

/// source: the model at `where`, with its head. The template is that of its training; plainly:
/// none. Errors: as settings::open_model, train::lone_judge and text::choose_template.
TextJudge load_text_judge(const Options& options, const ModelLocation& where,
                          const settings::ModelSource& source, bool plainly = false);

}  // namespace danlu::cli
