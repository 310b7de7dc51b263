#include "cli/engine/infer_vectors.h"

#include <fmt/format.h>

#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "arch/encoder.h"
#include "base/error.h"
#include "base/file.h"
#include "base/in_english.h"
#include "base/log.h"
#include "base/lower_case.h"
#include "cli/engine/dataset_rows.h"
#include "cli/engine/infer_flags.h"
#include "cli/engine/infer_output.h"
#include "cli/engine/judged_rows.h"
#include "cli/engine/text_judge.h"
#include "cli/engine/trained_prompt.h"
#include "data/groups.h"
#include "data/preprocess_run.h"
#include "settings/embedding_files.h"
#include "settings/model_source.h"
#include "train/objectives/text_vectors.h"

namespace danlu::cli {
namespace {

/// A row's text, and where it stands.
struct TextToEmbed {
  data::LabelledRow text;
  std::string place;
};

struct EmbeddedText {
  std::string text, error;
  std::vector<float> vector;
};

/// Errors: UsageError.
void require_last_token(const ModelLocation& where) {
  const auto pooling = settings::recorded_pooling(where.model);
  if (!where.adapter.empty() || !pooling || arch::is_encoder_in(where.model) ||
      *pooling == settings::RecordedPooling::kLastToken)
    return;
  throw UsageError(tr("[infer] {}: the vector of a text is not that of its last token there",
                      (where.model / settings::kPoolingFile).string()),
                   tr("danlu serve --pooling mean gives means of tokens"));
}

std::vector<TextToEmbed> read_texts_to_embed(const Options& options, const ModelLocation& where,
                                             std::vector<fs::path>& files) {
  std::vector<TextToEmbed> rows;
  if (options.has_value("prompt")) {
    text::Conversation asked;
    asked.messages.push_back({"user", options.get_string("prompt")});
    rows.push_back({{std::move(asked), nullptr}, "--prompt"});
  }
  const std::vector<std::string> names = datasets_to_judge(options, where);
  if (rows.empty() && names.empty()) {
    throw UsageError(tr("[infer] a model that gives vectors of texts does not chat"),
                     tr("give --prompt TEXT, or --dataset; --task_type causal_lm answers prompts"));
  }
  data::FormatOptions format = format_to_judge(options, data::SampleKind::kGroups);
  format.answers_optional = true;
  each_row_of(names, format, options, rows.size(), files, [&](data::Row row, RowPlace place) {
    auto& group = std::get<data::GroupRow>(row);
    group.anchor.label = std::move(group.label);
    rows.push_back({std::move(group.anchor), std::move(place.text)});
  });
  if (rows.empty()) throw DataError(tr("[--dataset] {}: no usable row", names.front()));
  return rows;
}

/// A model that embeds texts, and how it was trained to read them.
struct Embedder : TextJudge {
  std::string system = {};  ///< of conversations that have none
};

Embedder load_embedder(const Options& options, const ModelLocation& where) {
  settings::ModelSource source;
  source.path = where.model;
  source.adapter = where.adapter;
  source.as_trained = true;
  const bool plainly = !embeds_by_template(options, where.run_args, where.model);
  Embedder embedder{load_text_judge(options, where, source, plainly)};
  // Without a template a text is all that there is.
  if (settings::is_embedding_record(where.run_args) && embedder.encoder)
    embedder.system = trained_prompt(options, where.record).system;
  return embedder;
}

std::vector<int32_t> ids_to_embed(const Embedder& embedder, const data::LabelledRow& row) {
  data::LabelledRow asked = row;
  auto* conversation = std::get_if<text::Conversation>(&asked.text);
  const bool adds =
      conversation && !embedder.system.empty() &&
      (conversation->messages.empty() || conversation->messages.front().role != "system");
  if (adds)
    conversation->messages.insert(conversation->messages.begin(), {"system", embedder.system});
  return data::ids_of_embedded_text(asked, embedder.tokenizer.get(), embedder.encoder.get());
}

std::string shown_of_row(const data::LabelledRow& row, const text::Tokenizer& tokenizer) {
  if (const auto* plain = std::get_if<data::TextRow>(&row.text)) return plain->texts[0];
  if (const auto* tokens = std::get_if<data::TokenRow>(&row.text))
    return tokenizer.decode(tokens->ids);
  std::string last;
  for (const text::Message& message : std::get<text::Conversation>(row.text).messages)
    if (message.role != "system") last = message.content;
  return last;
}

/// The vectors of some rows, by one pass.
std::vector<EmbeddedText> embedded(const Embedder& judge, std::span<const TextToEmbed> rows) {
  const InEnglish english;  // rows are stored, and read the same everywhere
  const int64_t window = judge.model->stage().config().max_positions;
  std::vector<EmbeddedText> all;
  std::vector<std::vector<int32_t>> together;
  for (const TextToEmbed& given : rows) {
    EmbeddedText& one = all.emplace_back();
    one.text = shown_of_row(given.text, *judge.tokenizer);
    try {
      std::vector<int32_t> ids = ids_to_embed(judge, given.text);
      if (ids.empty()) {
        one.error = tr("a text without a token");
      } else if (window > 0 && std::ssize(ids) > window) {
        one.error = tr("{} tokens, the model has {} positions", ids.size(), window);
      } else {
        together.push_back(std::move(ids));
      }
    } catch (const DataError& error) {
      one.error = error.what();
    }
  }
  std::vector<std::vector<float>> vectors = train::vectors_of_texts(*judge.model, together);
  size_t next = 0;
  for (EmbeddedText& one : all)
    if (one.error.empty()) one.vector = std::move(vectors[next++]);
  return all;
}

Json row_of_vector(const TextToEmbed& given, const EmbeddedText& found) {
  Json json{{"query", found.text}};
  if (found.error.empty()) {
    json["response"] = found.vector;
  } else {
    json["error"] = found.error;
  }
  if (!given.text.label.is_null()) json["labels"] = given.text.label;
  return json;
}

std::string shown_vector(const EmbeddedText& found) {
  if (!found.error.empty()) return fmt::format("[QUERY] {}\n[ERROR] {}\n", found.text, found.error);
  constexpr size_t kShown = 3;
  const std::vector<float>& vector = found.vector;
  std::string numbers;
  for (size_t i = 0; i < vector.size(); ++i) {
    const bool is_shown = i < kShown || i + kShown >= vector.size();
    if (is_shown) numbers += fmt::format("{}{:.5g}", numbers.empty() ? "" : ", ", vector[i]);
    if (i == kShown && i + kShown < vector.size()) numbers += ", …";
  }
  return fmt::format("[QUERY] {}\n[VECTOR] {} numbers: {}\n", found.text, vector.size(), numbers);
}

}  // namespace

bool embeds_texts(const Options& options, const ModelLocation& where) {
  if (options.has_value("task_type"))
    return lower_case(options.get_string("task_type")) == "embedding";
  if (!where.run_args.empty()) return settings::is_embedding_record(where.run_args);
  return where.adapter.empty() && settings::has_sentence_files(where.model);
}

int embed_texts(const Options& options, const ModelLocation& where) {
  require_last_token(where);
  std::vector<fs::path> files;
  const std::vector<TextToEmbed> rows = read_texts_to_embed(options, where, files);
  std::optional<FileLock> lock;
  if (options.has_value("output")) lock.emplace(require_usable_output(options, files));
  report_idle_vector_flags(options);
  const Embedder judge = load_embedder(options, where);
  const size_t errors = judge_rows<TextToEmbed, EmbeddedText>(
      options, rows,
      {.judge = [&](std::span<const TextToEmbed> some) { return embedded(judge, some); },
       .count = [](const TextToEmbed&, const EmbeddedText&) {},
       .json = row_of_vector,
       .text = [](const TextToEmbed&, const EmbeddedText& found) { return shown_vector(found); }});
  if (errors == rows.size()) throw DataError(tr("[infer] no row has a text that becomes a vector"));
  return 0;
}

}  // namespace danlu::cli
