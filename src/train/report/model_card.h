// train/report/model_card.h: README.md of a trained model, as model hubs read it.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace danlu::train {

struct CardDataset {
  std::string name;  ///< as the user gave it
  int64_t num_samples = 0;
  std::string hash;  ///< of the content; may be empty
};

struct ModelCard {
  std::string title;       ///< name of the model or run
  std::string base_model;  ///< directory or hub name; empty: trained from scratch
  std::string license;     ///< of the base model; empty: "unknown", and the text says to check it
  bool adapter = false;    ///< a PEFT adapter, not a whole model
  std::string task;        ///< "sft", "pretrain", …
  std::vector<std::string> tags;
  std::vector<CardDataset> datasets;
  std::vector<std::pair<std::string, std::string>> hyperparameters;
  std::vector<std::pair<std::string, std::string>> results;
  std::string version;       ///< of this program
  std::string loss_picture;  ///< relative path; empty: none
  std::string next_command;  ///< how to talk to the result; may be empty
};

/// YAML front matter (quoted where YAML needs it) and the text.
std::string model_card_text(const ModelCard& card);
/// Atomic. Errors: IoError.
void write_model_card(const std::filesystem::path& path, const ModelCard& card);

}  // namespace danlu::train
