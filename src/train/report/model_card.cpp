#include "train/report/model_card.h"

#include <fmt/format.h>

#include "base/file.h"
#include "base/json.h"

namespace danlu::train {
namespace {

/// JSON strings are YAML strings: quoting always is simpler than knowing when YAML needs it.
std::string quoted_yaml(const std::string& text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string table_cell(const std::string& text) {
  std::string cell;
  for (const char c : text) {
    if (c == '|') cell += '\\';
    cell += c == '\n' ? ' ' : c;
  }
  return cell;
}

std::string table(const char* left, const char* right,
                  const std::vector<std::pair<std::string, std::string>>& rows) {
  std::string text = fmt::format("| {} | {} |\n|---|---|\n", left, right);
  for (const auto& [name, value] : rows)
    text += fmt::format("| {} | {} |\n", table_cell(name), table_cell(value));
  return text;
}

std::string front_matter(const ModelCard& card) {
  std::string text = "---\n";
  if (!card.base_model.empty()) text += "base_model: " + quoted_yaml(card.base_model) + "\n";
  text += fmt::format("library_name: {}\n", card.adapter ? "peft" : "transformers");
  text += "pipeline_tag: text-generation\n";
  text +=
      "license: " + (card.license.empty() ? std::string("unknown") : quoted_yaml(card.license)) +
      "\n";
  text += "tags:\n- danlu\n";
  if (!card.task.empty()) text += "- " + quoted_yaml(card.task) + "\n";
  if (card.adapter) text += "- lora\n";
  for (const std::string& tag : card.tags) text += "- " + quoted_yaml(tag) + "\n";
  if (!card.datasets.empty()) {
    text += "datasets:\n";
    for (const CardDataset& dataset : card.datasets)
      text += "- " + quoted_yaml(dataset.name) + "\n";
  }
  return text + "---\n\n";
}

}  // namespace

std::string model_card_text(const ModelCard& card) {
  std::string text = front_matter(card);
  text += fmt::format("# {}\n\n", card.title);
  text += fmt::format("{} {}, with Danlu {}.\n\n",
                      card.adapter              ? "LoRA adapter of"
                      : card.base_model.empty() ? "Trained"
                                                : "Trained from",
                      card.base_model.empty() ? "from scratch" : "`" + card.base_model + "`",
                      card.version);
  if (card.license.empty() && !card.base_model.empty()) {
    text +=
        "The licence of the base model applies and was not found in its files: check it before "
        "publishing.\n\n";
  }
  if (!card.datasets.empty()) {
    text += "## Data\n\n| data set | samples | content hash |\n|---|---|---|\n";
    for (const CardDataset& dataset : card.datasets) {
      text += fmt::format("| {} | {} | {} |\n", table_cell(dataset.name), dataset.num_samples,
                          dataset.hash.empty() ? "" : "`" + dataset.hash + "`");
    }
    text += "\n";
  }
  if (!card.results.empty())
    text += "## Results\n\n" + table("figure", "value", card.results) + "\n";
  if (!card.loss_picture.empty())
    text += fmt::format("![training loss]({})\n\n", card.loss_picture);
  if (!card.hyperparameters.empty()) {
    text += "## Hyperparameters\n\n" + table("name", "value", card.hyperparameters) + "\n";
  }
  if (!card.next_command.empty())
    text += fmt::format("## Use\n\n```\n{}\n```\n", card.next_command);
  return text;
}

void write_model_card(const fs::path& path, const ModelCard& card) {
  write_file_atomic(path, model_card_text(card));
}

}  // namespace danlu::train
